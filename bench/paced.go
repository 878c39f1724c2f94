package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// paced sends appends at fixed times, however long the earlier ones take, and measures
// each from the time at which it was due. In a closed loop a server that stands still
// for a second delays one request a connection; here it delays all that a second brings.
type paced struct {
	server  *server
	streams int // chosen at random
	payload int // bytes
	gap     time.Duration

	loop    *loop
	idle    []*pacedConn
	open    int
	overdue []int64 // due, but every connection is busy
	unacked int
	sent    int
	latency histogram
	err     error
}

// pacedConns is how many connections appends may be in flight on.
const pacedConns = 256

// pacedConn is one connection.
type pacedConn struct {
	*conn
	paced   *paced
	request request
	reply   response
	due     int64
}

// run sends for d and waits for all answers.
func (p *paced) run(d time.Duration) (err error) {
	// The kernel may end a wait late by the thread's slack.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const prSetTimerSlack = 29
	syscall.RawSyscall(syscall.SYS_PRCTL, prSetTimerSlack, 1, 0)
	if p.loop, err = newLoop(); err != nil {
		return err
	}
	defer p.loop.close()
	for range 8 {
		if err := p.dial(); err != nil {
			return err
		}
	}
	rng := rand.New(rand.NewPCG(7, 1))
	start := now()
	for due := start; due < start+int64(d); due += int64(p.gap) {
		for now() < due {
			if err := p.poll(time.Duration(due - now())); err != nil {
				return err
			}
		}
		p.unacked++
		p.sent++
		if len(p.idle) == 0 && p.open < pacedConns {
			if err := p.dial(); err != nil {
				return err
			}
		}
		if len(p.idle) == 0 {
			p.overdue = append(p.overdue, due)
			continue
		}
		c := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		c.request.aim(firstPaced + rng.IntN(p.streams))
		if err := c.fire(due); err != nil {
			return err
		}
	}
	for deadline := now() + int64(time.Minute); p.unacked > 0; {
		if err := p.poll(maxWait); err != nil {
			return err
		}
		if now() > deadline {
			return fmt.Errorf("%s: %d appends are still unanswered", p.server.name, p.unacked)
		}
	}
	return nil
}

func (p *paced) poll(d time.Duration) error {
	if err := p.loop.pollExactly(d); err != nil {
		return err
	}
	return p.err
}

func (p *paced) dial() (err error) {
	c := &pacedConn{paced: p, request: appendRequest(p.server, binaryType, payloadOf(p.payload, binaryType))}
	if c.conn, err = p.loop.dial(p.server.addr, c); err != nil {
		return err
	}
	c.request.aim(firstPaced)
	p.open++
	p.idle = append(p.idle, c)
	return nil
}

// fire sends the connection's request, which was due at a time.
func (c *pacedConn) fire(due int64) error {
	c.due = due
	return c.send(c.request.bytes)
}

func (c *pacedConn) received(b []byte) error {
	for len(b) > 0 {
		n, _, done, err := c.reply.feed(b)
		if err != nil {
			return err
		}
		b = b[n:]
		if !done {
			continue
		}
		if !c.reply.accepted() {
			return fmt.Errorf("append: status %s", strconv.Itoa(c.reply.status))
		}
		p := c.paced
		p.latency.add(now() - c.due)
		p.unacked--
		if len(p.overdue) == 0 {
			p.idle = append(p.idle, c)
			continue
		}
		due := p.overdue[0]
		p.overdue = p.overdue[1:]
		if err := c.fire(due); err != nil {
			return err
		}
	}
	return nil
}

func (c *pacedConn) lost(err error) {
	if c.paced.err == nil {
		c.paced.err = fmt.Errorf("%s: a connection ended: %w", c.paced.server.name, err)
	}
}
