package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/server"
)

// serve runs the daemon until a signal, or a failure, ends it.
func serve(args, environ []string, stdout, stderr io.Writer) int {
	c, faults, err := load(args, environ, stdout)
	if errors.Is(err, errHelp) {
		return exitOK
	}
	if len(faults) > 0 {
		for _, f := range faults {
			fmt.Fprintf(stderr, "snakream: %s\n", f)
		}
		fmt.Fprintln(stderr, "snakream: not started; «snakream serve --help» lists the settings")
		return exitUsage
	}
	d := &daemon{config: c, log: newLogger(c, stderr), failed: make(chan error, 4)}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	if err := d.start(); err != nil {
		d.log.Error("cannot start", "error", err)
		d.stopAdmin()
		return exitCode(err)
	}
	return d.wait(signals)
}

// newLogger returns the logger that the settings ask for.
func newLogger(c *config, w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// daemon is the running process: a server, its admin listener and its engine.
type daemon struct {
	*config
	log    *slog.Logger
	server *server.Server
	admin  *server.Admin
	engine *engine.Engine
	failed chan error // what ends the process; its goroutines end with the process
}

// start brings everything up: first the admin listener, which tells that the data
// directory is being recovered, last the API.
func (d *daemon) start() error {
	d.Server.Logger, d.Engine.Logger = d.log, d.log
	var err error
	if d.server, err = server.New(d.Server); err != nil {
		return err
	}
	d.admin = server.NewAdmin(d.server)
	ln, err := net.Listen("tcp", d.AdminListen)
	if err != nil {
		return err
	}
	go func() { d.report(d.admin.Serve(ln)) }()

	began := time.Now()
	d.server.Host(&d.Engine)
	d.Engine.Registerer = d.admin.Registry()
	collectSooner()
	d.Engine.Idle = debug.FreeOSMemory
	d.Engine.Fatal = func(err error) {
		d.server.Fail(err)
		d.report(fmt.Errorf("storage failed, nothing more is acknowledged: %w", err))
	}
	if d.Engine.Tier, err = d.openTier(context.Background()); err != nil {
		return err
	}
	if d.engine, err = engine.Open(d.DataDir, d.Engine); err != nil {
		return fmt.Errorf("data directory %s: %w", d.DataDir, err)
	}
	api, err := net.Listen("tcp", d.Listen) // before /readyz says so
	if err != nil {
		return err
	}
	if err := d.server.Start(d.engine); err != nil {
		return err
	}
	d.log.Info("serving", "version", versionName(), "listen", api.Addr().String(), "admin_listen", ln.Addr().String(),
		"data_dir", d.DataDir, "shards", d.engine.Shards(), "recovery_seconds", time.Since(began).Round(time.Millisecond).Seconds())
	go func() { d.report(d.server.Serve(api)) }()
	return nil
}

// collectSooner trades CPU that a small heap hardly takes for memory: most of the
// heap is the state of idle streams, and appends make little garbage. GOGC overrides.
func collectSooner() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
}

// report makes an error end the process.
func (d *daemon) report(err error) {
	if err == nil {
		return
	}
	select {
	case d.failed <- err:
	default: // it is ending already
	}
}

// wait returns the exit code when the daemon has come to its end.
func (d *daemon) wait(signals <-chan os.Signal) int {
	select {
	case err := <-d.failed:
		d.log.Error("stopping at once", "error", err)
		return exitFailure
	case s := <-signals:
		d.log.Info("draining", "signal", s.String(), "timeout", d.Drain.String())
	}
	done := make(chan error, 1)
	go func() { done <- d.stop() }()
	select {
	case err := <-done:
		if err != nil {
			d.log.Error("stopped", "error", err)
			return exitFailure
		}
		d.log.Info("stopped")
		return exitOK
	case err := <-d.failed:
		d.log.Error("stopping at once", "error", err)
	case s := <-signals:
		d.log.Error("stopping at once", "signal", s.String())
	}
	return exitFailure
}

// stop drains the server and closes the engine. What did not finish in time has
// been cut, which is no failure.
func (d *daemon) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), d.Drain)
	defer cancel()
	if err := d.server.Drain(ctx); err != nil {
		d.log.Warn("connections were cut", "error", err)
	}
	err := d.engine.Close()
	d.stopAdmin()
	return err
}

func (d *daemon) stopAdmin() {
	if d.admin == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := d.admin.Close(ctx); err != nil {
		d.log.Warn("admin listener", "error", err)
	}
}

// exitCode tells what kind of failure a start ended with.
func exitCode(err error) int {
	var damage *base.CorruptionError
	var newer *base.VersionError
	switch {
	case errors.Is(err, engine.ErrShards):
		return exitUsage
	case errors.Is(err, engine.ErrTier), errors.Is(err, engine.ErrNeedsTier):
		return tierExitCode(err)
	case errors.As(err, &damage), errors.As(err, &newer), errors.Is(err, engine.ErrForeign),
		errors.Is(err, engine.ErrIncomplete), errors.Is(err, engine.ErrLocked):
		return exitData
	}
	return exitFailure
}
