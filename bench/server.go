package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The protocols that a server under test may speak.
const (
	durableStreams = "http"  // the Durable Streams protocol under /v1/stream/
	redisStreams   = "redis" // XADD
	staticFiles    = "file"  // plain files, for reading only
)

// The names of our own servers begin with us. They have an admin listener.
const (
	us     = "snakream"
	tiered = "snakream-tier" // with an object store on loopback
)

// spec says how to reach a server: a running one by address, or one that a script
// in the peers directory starts on an empty data directory for each run.
type spec struct {
	name     string
	protocol string
	addr     string // of a running server
	pid      int    // of a running server; 0: unknown, no CPU and memory figures
	script   string // that starts it
	flags    []string
	store    bool // its script has an object store, which runs as a process of its own
}

// server is a running server under test.
type server struct {
	spec
	process
	admin     string // address of the listener that answers /readyz; empty: none
	storePort string // of the object store; empty: none
	dir       string
	log       *os.File
	objects   process // the object store, which outlives restarts of the server
}

// process is one that this program has started.
type process struct {
	cmd   *exec.Cmd     // nil: none
	ended chan struct{} // closed when it has ended
}

// The patience with a server that starts or stops.
const (
	startTimeout = 2 * time.Minute
	stopTimeout  = time.Minute
)

// parseTarget reads name=URL[,pid=N].
func parseTarget(s string) (spec, error) {
	name, rest, ok := strings.Cut(s, "=")
	if !ok || name == "" {
		return spec{}, fmt.Errorf("target %q: want name=URL[,pid=N]", s)
	}
	raw, opts, _ := strings.Cut(rest, ",")
	u, err := url.Parse(raw)
	if err != nil {
		return spec{}, fmt.Errorf("target %q: %w", s, err)
	}
	sp := spec{name: name, addr: u.Host}
	switch u.Scheme {
	case "http":
		sp.protocol = durableStreams
	case "redis":
		sp.protocol = redisStreams
	default:
		return spec{}, fmt.Errorf("target %q: the scheme must be http or redis", s)
	}
	if v, ok := strings.CutPrefix(opts, "pid="); ok {
		if sp.pid, err = strconv.Atoi(v); err != nil {
			return spec{}, fmt.Errorf("target %q: %w", s, err)
		}
	}
	return sp, nil
}

// scripted is a server that a script of the peers directory starts.
func scripted(peers, name string, flags []string) (spec, error) {
	sp := spec{name: name, protocol: durableStreams, script: filepath.Join(peers, name+".sh"), flags: flags}
	switch name {
	case "redis":
		sp.protocol = redisStreams
	case "nginx":
		sp.protocol = staticFiles
	case tiered:
		sp.store = true
	}
	if _, err := os.Stat(sp.script); err != nil {
		return spec{}, fmt.Errorf("no server %q: %w", name, err)
	}
	return sp, nil
}

// open makes the server ready for a run: starts it on an empty data directory under
// work, or takes the one that runs.
func (sp spec) open(work string) (*server, error) {
	s := &server{spec: sp}
	if sp.script == "" {
		return s, s.awaitReady()
	}
	dir, err := os.MkdirTemp(work, sp.name+"-")
	if err != nil {
		return nil, err
	}
	s.dir = dir
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	s.addr = "127.0.0.1:" + ports[0]
	if strings.HasPrefix(sp.name, us) {
		s.admin = "127.0.0.1:" + ports[1]
	}
	if sp.store {
		s.storePort = ports[2]
	}
	if s.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		return nil, err
	}
	if err := os.Mkdir(s.dataDir(), 0o755); err != nil {
		return nil, err
	}
	if sp.store {
		if s.objects, err = launch(s.command("store")); err == nil {
			err = s.awaitStore()
		}
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	if err := s.begin(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *server) dataDir() string { return filepath.Join(s.dir, "data") }

// command runs what the script has under a name: run, restore, store or get.
func (s *server) command(what string, flags ...string) *exec.Cmd {
	_, port, _ := net.SplitHostPort(s.addr)
	_, adminPort, err := net.SplitHostPort(s.admin)
	if err != nil {
		adminPort = "0"
	}
	cmd := exec.Command(s.script, append([]string{what, s.dataDir(), port, adminPort}, flags...)...)
	cmd.Stdout, cmd.Stderr = s.log, s.log
	cmd.Env = append(os.Environ(), "BENCH_S3_PORT="+s.storePort)
	return cmd
}

// launch starts a process that ends when this one does.
func launch(cmd *exec.Cmd) (process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return process{}, err
	}
	p := process{cmd, make(chan struct{})}
	go func() { // ends with the process
		cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// stop ends a process, by force if it takes longer than stopTimeout.
func (p process) stop() {
	if p.cmd == nil {
		return
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(stopTimeout):
		p.cmd.Process.Kill()
		<-p.ended
	}
}

// start runs the script, which becomes the server.
func (s *server) start() (err error) {
	if s.process, err = launch(s.command("run", s.flags...)); err != nil {
		return err
	}
	s.pid = s.cmd.Process.Pid
	return nil
}

// begin starts the server and waits until it is ready.
func (s *server) begin() error {
	if err := s.start(); err != nil {
		return err
	}
	return s.awaitReady()
}

// restart stops the server and starts it on the same data.
func (s *server) restart() error {
	if s.cmd == nil {
		return fmt.Errorf("%s was not started by this run and can't be restarted", s.name)
	}
	s.stop()
	return s.begin()
}

// awaitReady asks until the server answers.
func (s *server) awaitReady() error {
	deadline := time.Now().Add(startTimeout)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		err := s.probe()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is not ready: %w", s.name, err)
		}
		select {
		case <-s.ended: // nil, so never, for a server that we didn't start
			return fmt.Errorf("%s ended: %s", s.name, s.logTail())
		case <-tick.C:
		}
	}
}

// awaitStore tries until the object store takes connections.
func (s *server) awaitStore() error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(startTimeout); ; {
		c, err := net.DialTimeout("tcp", "127.0.0.1:"+s.storePort, time.Second)
		if err == nil {
			return c.Close()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the object store of %s is not ready: %w", s.name, err)
		}
		select {
		case <-s.objects.ended:
			return fmt.Errorf("the object store of %s ended: %s", s.name, s.logTail())
		case <-tick.C:
		}
	}
}

// probe asks once whether the server is ready.
func (s *server) probe() error {
	addr, request, want := s.addr, "HEAD / HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n", "HTTP/1.1 "
	switch {
	case s.protocol == redisStreams:
		request, want = "PING\r\n", "+PONG"
	case s.admin != "":
		addr, request, want = s.admin, "GET /readyz HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n", "HTTP/1.1 200"
	}
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write([]byte(request)); err != nil {
		return err
	}
	b := make([]byte, 64)
	n, err := c.Read(b)
	if got := string(b[:n]); !strings.HasPrefix(got, want) {
		return fmt.Errorf("answered %q (%v)", got, err)
	}
	return nil
}

// kill ends the server as a crash would and waits until it is gone.
func (s *server) kill() error {
	if s.cmd == nil {
		return fmt.Errorf("%s was not started by this run and can't be killed", s.name)
	}
	if err := s.cmd.Process.Kill(); err != nil {
		return err
	}
	<-s.ended
	return nil
}

// close stops a server that open started and removes its directory.
func (s *server) close() error {
	if s.script == "" {
		return nil
	}
	s.stop()
	s.objects.stop()
	return errors.Join(s.log.Close(), os.RemoveAll(s.dir))
}

// cpu and rss are zero when the server's process is unknown.
func (s *server) cpu() (time.Duration, error) {
	if s.pid == 0 {
		return 0, nil
	}
	return cpuTime(s.pid)
}

func (s *server) rss() (int64, error) {
	if s.pid == 0 {
		return 0, nil
	}
	return rssBytes(s.pid)
}

// diskBytes is the allocated size of the data directory.
func (s *server) diskBytes() int64 {
	var sum int64
	filepath.WalkDir(s.dataDir(), func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // a file that went away meanwhile
		}
		if info, err := d.Info(); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				sum += st.Blocks * 512
			}
		}
		return nil
	})
	return sum
}

func (s *server) logTail() string {
	b, _ := os.ReadFile(s.log.Name())
	return strings.TrimSpace(string(b[max(0, len(b)-600):]))
}

// freePorts finds ports of the loopback that nobody listens on.
func freePorts(n int) ([]string, error) {
	var ports []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all at the end, so that they differ
		_, port, _ := net.SplitHostPort(l.Addr().String())
		ports = append(ports, port)
	}
	return ports, nil
}
