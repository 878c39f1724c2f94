package faults

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Answer refuses a request as S3 does, with a status and a code, without asking the
// back end. The body of the request is read first.
func Answer(status int, code string) Fault {
	return AnswerText(status, "application/xml", errorXML(code, "injected"))
}

// AnswerText answers with any body.
func AnswerText(status int, contentType, body string) Fault {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		discard(r.Body)
		answer(w, status, contentType, body)
	}
}

func errorXML(code, message string) string {
	return fmt.Sprintf(`<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>%s</Message></Error>`, code, message)
}

func answer(w http.ResponseWriter, status int, contentType, body string) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body) // a client that has gone misses nothing
}

// Delay passes a request on after a time.
func Delay(by time.Duration) Fault {
	return func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		select {
		case <-time.After(by):
			forward.ServeHTTP(w, r)
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
}

// wait waits until the client or the proxy has gone, and lets nobody take the end of
// that for an answer.
func wait(gone <-chan struct{}) {
	<-gone
	panic(http.ErrAbortHandler)
}

// Hang is a black hole: it reads nothing of the body and never answers.
func Hang() Fault {
	return func(_ http.ResponseWriter, r *http.Request, _ http.Handler) { wait(r.Context().Done()) }
}

// HangAfterBody reads the body and never answers.
func HangAfterBody() Fault {
	return func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
		discard(r.Body)
		wait(r.Context().Done())
	}
}

// CutUpload reads n bytes of a request's body and resets the connection.
func CutUpload(n int64) Fault {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		discard(io.LimitReader(r.Body, n))
		reset(w)
	}
}

// Lose lets the back end do what is asked and resets the connection instead of handing
// on its answer.
func Lose() Fault {
	return func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		forward.ServeHTTP(&nowhere{header: http.Header{}}, r)
		reset(w)
	}
}

// LoseAnd lets the back end do what is asked and answers something else.
func LoseAnd(status int, code string) Fault {
	return func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		forward.ServeHTTP(&nowhere{header: http.Header{}}, r)
		answer(w, status, "application/xml", errorXML(code, "injected"))
	}
}

// CutDownload sends n bytes of an answer's body and resets the connection.
func CutDownload(n int64) Fault {
	return download(func(d *downloader) { d.cut, d.limit = true, n })
}

// StallDownload sends n bytes of an answer's body and then nothing.
func StallDownload(n int64) Fault {
	return download(func(d *downloader) { d.stall, d.limit = true, n })
}

// ShortDownload makes an answer's body n bytes long and says so in its Content-Length,
// so that it looks whole.
func ShortDownload(n int64) Fault {
	return download(func(d *downloader) { d.short, d.limit = true, n })
}

// FlipBit changes one bit of the byte at offset at of an answer's body.
func FlipBit(at int64) Fault {
	return download(func(d *downloader) { d.flip = true; d.flipAt = at })
}

func download(set func(*downloader)) Fault {
	return func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		d := &downloader{ResponseWriter: w, gone: r.Context().Done()}
		set(d)
		forward.ServeHTTP(d, r)
	}
}

// downloader changes the body of an answer on its way to the client.
type downloader struct {
	http.ResponseWriter
	gone <-chan struct{}

	cut, stall, short bool
	limit             int64 // bytes that go through before one of them happens
	flip              bool
	flipAt            int64

	sent int64

	mu   sync.Mutex
	dead bool // the connection is reset; guarded by mu, since the proxy flushes by a timer too
}

// WriteHeader implements http.ResponseWriter.
func (d *downloader) WriteHeader(status int) {
	if d.short {
		d.Header().Set("Content-Length", strconv.FormatInt(d.limit, 10))
	}
	d.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (d *downloader) Write(p []byte) (int, error) {
	all := len(p)
	if at := d.flipAt - d.sent; d.flip && at >= 0 && at < int64(len(p)) {
		p = bytes.Clone(p)
		p[at] ^= 1
	}
	over := (d.cut || d.stall || d.short) && d.sent+int64(len(p)) >= d.limit
	if over {
		p = p[:max(0, d.limit-d.sent)]
	}
	n, err := d.ResponseWriter.Write(p)
	d.sent += int64(n)
	if err != nil || !over {
		return n, err
	}
	if d.stall {
		d.Flush()
		wait(d.gone)
	}
	if d.cut {
		d.Flush()
		d.mu.Lock()
		d.dead = true
		d.mu.Unlock()
		reset(d.ResponseWriter)
		panic(http.ErrAbortHandler)
	}
	return all, nil // of a short answer the rest is dropped
}

// Flush implements http.Flusher.
func (d *downloader) Flush() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.dead {
		_ = http.NewResponseController(d.ResponseWriter).Flush()
	}
}

// nowhere takes an answer that nobody gets.
type nowhere struct{ header http.Header }

// Header implements http.ResponseWriter.
func (n *nowhere) Header() http.Header { return n.header }

// WriteHeader implements http.ResponseWriter.
func (n *nowhere) WriteHeader(int) {}

// Write implements http.ResponseWriter.
func (n *nowhere) Write(p []byte) (int, error) { return len(p), nil }

// Flush implements http.Flusher.
func (n *nowhere) Flush() {}

// reset ends the connection with RST, as a crash or a firewall does.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

func discard(r io.Reader) { _, _ = io.Copy(io.Discard, r) }

// withClosed returns a context that ends with ctx or when closed is. The context of a
// request alone doesn't end while its body is unread, whatever the client does.
func withClosed(ctx context.Context, closed <-chan struct{}) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		select {
		case <-closed:
		case <-ctx.Done():
		}
	}()
	return ctx
}
