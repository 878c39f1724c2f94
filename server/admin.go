package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Admin is the listener for operators: /metrics, /healthz, /readyz, /tier and
// /debug/pprof. It is a plain net/http server and may be up before there is an
// engine.
type Admin struct {
	http     http.Server
	registry *prometheus.Registry
}

// NewAdmin returns the admin listener of s. Its registry has the metrics of s and
// of the process.
func NewAdmin(s *Server) *Admin {
	a := &Admin{registry: prometheus.NewRegistry()}
	a.registry.MustRegister(s.metrics, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { say(w, s.Ready()) })
	mux.HandleFunc("GET /tier", s.tier)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	a.http = http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	return a
}

// Registry is where other parts of the daemon register their metrics.
func (a *Admin) Registry() prometheus.Registerer { return a.registry }

// Serve answers on ln, which it owns, until Close; then it returns nil.
func (a *Admin) Serve(ln net.Listener) error {
	if err := a.http.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admin listener: %w", err)
	}
	return nil
}

// Close stops the listener, waiting for answers under way until ctx ends.
func (a *Admin) Close(ctx context.Context) error {
	if err := a.http.Shutdown(ctx); err != nil {
		return a.http.Close()
	}
	return nil
}

// say answers a probe: 200 when err is nil, else 503 with the reason.
func say(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, err)
		return
	}
	fmt.Fprintln(w, "ok")
}
