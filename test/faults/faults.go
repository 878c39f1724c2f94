// Package faults is an HTTP proxy that does to chosen requests what networks and object
// stores do on bad days.
//
// It passes on the Host that the client sent, which is part of what is signed, so that
// signatures made for the proxy's address hold at the back end.
package faults

import (
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
)

// Fault serves one request in place of the proxy. forward passes a request on to the
// back end as if nothing had happened. Nil is no fault.
type Fault func(w http.ResponseWriter, r *http.Request, forward http.Handler)

// Rule chooses the fault of each request, in the order in which they arrive. It is
// called for one request at a time.
type Rule func(r *http.Request) Fault

// Request is what the proxy saw of a request.
type Request struct {
	Method, Path string
	Header       http.Header
}

// Proxy is a running proxy.
type Proxy struct {
	URL string // where it listens

	server *httptest.Server
	closed chan struct{} // ends what hangs

	mu   sync.Mutex
	rule Rule
	seen []Request
}

// New starts a proxy to the server at the URL backend, by plain HTTP on both sides.
func New(backend string) (*Proxy, error) { return start(backend, (*httptest.Server).Start) }

// NewTLS starts a proxy that clients reach by TLS.
func NewTLS(backend string) (*Proxy, error) { return start(backend, (*httptest.Server).StartTLS) }

func start(backend string, listen func(*httptest.Server)) (*Proxy, error) {
	target, err := url.Parse(backend)
	if err != nil {
		return nil, err
	}
	p := &Proxy{closed: make(chan struct{})}
	forward := &httputil.ReverseProxy{
		Transport:     &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true},
		FlushInterval: -1, // at once
		ErrorLog:      log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
		},
		// The client sees a connection that breaks, as if it were its own.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fault := p.choose(r); fault != nil {
			fault(w, r.WithContext(withClosed(r.Context(), p.closed)), forward)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	listen(p.server)
	p.URL = p.server.URL
	return p, nil
}

func (p *Proxy) choose(r *http.Request) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, Request{Method: r.Method, Path: r.URL.Path, Header: r.Header.Clone()})
	if p.rule == nil {
		return nil
	}
	return p.rule(r)
}

// Set changes the rule for the requests that arrive from now on, and forgets those that
// were seen. Nil passes everything.
func (p *Proxy) Set(rule Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rule, p.seen = rule, nil
}

// Seen returns the requests since the start or the last Set, faulty ones included.
func (p *Proxy) Seen() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.seen)
}

// Certificate returns the certificate of a proxy that was started with TLS.
func (p *Proxy) Certificate() *x509.Certificate { return p.server.Certificate() }

// Close ends the proxy and all that hangs in it.
func (p *Proxy) Close() {
	close(p.closed)
	p.server.CloseClientConnections()
	p.server.Close()
}

// Match says which requests a rule is about.
type Match func(r *http.Request) bool

// Any matches every request.
func Any(*http.Request) bool { return true }

// Method matches requests with one of the methods.
func Method(methods ...string) Match {
	return func(r *http.Request) bool { return slices.Contains(methods, r.Method) }
}

// Always does f to every request that matches.
func Always(m Match, f Fault) Rule {
	return func(r *http.Request) Fault {
		if m(r) {
			return f
		}
		return nil
	}
}

// First does f to the first n requests that match.
func First(n int, m Match, f Fault) Rule {
	return func(r *http.Request) Fault {
		if n == 0 || !m(r) {
			return nil
		}
		n--
		return f
	}
}

// Sequence does the faults in turn to the requests that match; the last one stays.
func Sequence(m Match, faults ...Fault) Rule {
	next := 0
	return func(r *http.Request) Fault {
		if !m(r) {
			return nil
		}
		f := faults[next]
		next = min(next+1, len(faults)-1)
		return f
	}
}
