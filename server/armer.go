package server

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/cloudwego/netpoll"
	"golang.org/x/sys/unix"
)

// netpoll v0.7.2 reads whatever arrives into memory: it has no way to pause a
// connection. An armer reaches for its epoll descriptor and the connection's
// registration in it and changes the events that it waits for. testArmer, at
// start-up, checks that this still does what it should.
type armer struct {
	epfd, fd int
	data     uint64 // what netpoll registered
	np       netpoll.Connection
}

const readEvents = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLERR // as netpoll registers them

// newArmer returns the armer of np. The caller sees to it that np is not closed meanwhile.
func newArmer(np netpoll.Connection) (a armer, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("netpoll's connection is not as expected: %v", p)
		}
	}()
	operator := reflect.ValueOf(np).Elem().FieldByName("operator")
	a.epfd = int(operator.Elem().FieldByName("poll").Elem().Elem().FieldByName("fd").Int())
	a.fd = np.(netpoll.Conn).Fd()
	a.data = epollData(operator.Pointer(), a.fd)
	a.np = np
	return a, nil
}

// pause makes the poller read no more; a reset is still reported. It is called on
// the poller, in OnRequest: anywhere else a read may be under way.
func (a armer) pause() error { return a.set(0) }

// resume undoes pause. Any goroutine may call it.
func (a armer) resume() error { return a.set(readEvents) }

func (a armer) set(events uint32) error {
	if err := unix.EpollCtl(a.epfd, unix.EPOLL_CTL_MOD, a.fd, event(events, a.data)); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

const (
	testArmerWait  = 20 * time.Millisecond
	testArmerStep  = time.Millisecond
	testArmerLimit = 10 * time.Second
)

var testArmer = sync.OnceValue(func() error {
	err := tryArmer()
	if err != nil {
		err = fmt.Errorf("reading cannot be paused with this version of netpoll: %w", err)
	}
	return err
})

// tryArmer pauses a connection, writes to it, sees that nothing is read, and resumes.
func tryArmer() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socketpair: %w", err)
	}
	defer unix.Close(pair[1])
	np, err := netpoll.NewFDConnection(pair[0])
	if err != nil {
		_ = unix.Close(pair[0])
		return err
	}
	defer np.Close() // there is no OnRequest that it could meet
	a, err := newArmer(np)
	if err != nil {
		return err
	}
	if err := a.pause(); err != nil {
		return err
	}
	if _, err := unix.Write(pair[1], []byte{1}); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	time.Sleep(testArmerWait) // long enough for a poller that is not paused
	if n := np.Reader().Len(); n > 0 {
		return errors.New("a paused connection was read")
	}
	if err := a.resume(); err != nil {
		return err
	}
	for waited := time.Duration(0); np.Reader().Len() == 0; waited += testArmerStep {
		if waited > testArmerLimit {
			return errors.New("a resumed connection was not read")
		}
		time.Sleep(testArmerStep)
	}
	return a.clamp()
}
