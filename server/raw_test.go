package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// rawConn is a connection on which a test writes what it likes.
type rawConn struct {
	t      testing.TB
	net    net.Conn
	in     *bufio.Reader
	closed bool // by the last answer
}

func (n *node) dial() *rawConn {
	n.t.Helper()
	c, err := net.Dial("tcp", n.addr)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		n.t.Fatal(err)
	}
	return &rawConn{t: n.t, net: c, in: bufio.NewReader(c)}
}

func (c *rawConn) printf(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.net, format, args...); err != nil {
		c.t.Fatal(err)
	}
}

// status reads one answer and returns its status. 100 is an answer.
func (c *rawConn) status() string {
	c.t.Helper()
	line, err := c.in.Peek(12)
	if err != nil {
		c.t.Fatalf("%v after %q", err, line)
	}
	if code := string(line[9:12]); code == "100" {
		for {
			l, err := c.in.ReadString('\n')
			if err != nil || strings.TrimSpace(l) == "" {
				return code
			}
		}
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		c.t.Fatal(err)
	}
	c.closed = resp.Close
	return fmt.Sprint(resp.StatusCode)
}
