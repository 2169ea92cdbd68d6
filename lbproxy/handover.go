package lbproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"saltern/internal/localsock"

	"golang.org/x/sys/unix"
)

// handoverLimit bounds the whole exchange of a hand-over.
const handoverLimit = 10 * time.Second

// maxListeners bounds the descriptors in one hand-over (SCM_MAX_FD is 253).
const maxListeners = 64

// Handover is a hand-over in progress, in the new process.
type Handover struct {
	// Files are the listening sockets; the caller passes them to [Proxy.Inherit].
	Files []*os.File
	conn  *net.UnixConn
}

// takeOver asks the proxy at the hand-over socket for its listening sockets. Both processes listen
// until [Handover.Done]. Until then no connection is refused, because both use the same sockets and
// queues.
func takeOver(ctx context.Context, path string) (*Handover, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("take over listeners: %w", err)
	}
	uc := c.(*net.UnixConn)
	h := &Handover{conn: uc}
	if err := h.receive(); err != nil {
		h.Abort()
		return nil, fmt.Errorf("take over listeners: %w", err)
	}
	return h, nil
}

func (h *Handover) receive() error {
	if err := h.conn.SetDeadline(time.Now().Add(handoverLimit)); err != nil {
		return err
	}

	oob := make([]byte, unix.CmsgSpace(4*maxListeners))
	b := make([]byte, 16)
	n, on, flags, _, err := h.conn.ReadMsgUnix(b, oob)
	if err != nil {
		return err
	}

	msgs, err := unix.ParseSocketControlMessage(oob[:on])
	if err != nil {
		return err
	}

	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			return err
		}

		for _, fd := range fds {
			unix.CloseOnExec(fd)
			h.Files = append(h.Files, os.NewFile(uintptr(fd), "listener"))
		}
	}

	if string(b[:n]) != "listeners" || flags&unix.MSG_CTRUNC != 0 || len(h.Files) == 0 {
		return errors.New("the running load balancer sent no listeners")
	}

	return nil
}

// Done informs the old process that the new one serves. The old process then stops accepting
// connections, and exits when its sessions have ended.
func (h *Handover) Done() error {
	defer h.conn.Close()
	if err := h.conn.SetDeadline(time.Now().Add(handoverLimit)); err != nil {
		return fmt.Errorf("finish hand-over: %w", err)
	}

	if _, err := h.conn.Write([]byte("serving")); err != nil {
		return fmt.Errorf("finish hand-over: %w", err)
	}

	b := make([]byte, 16)
	n, err := h.conn.Read(b)
	if err == nil && string(b[:n]) != "retiring" {
		err = fmt.Errorf("it says %q", b[:n])
	}

	if err != nil {
		return fmt.Errorf("finish hand-over: no answer from the old load balancer: %w", err)
	}

	return nil
}

// Abort cancels the hand-over: the old process continues as before.
func (h *Handover) Abort() {
	for _, f := range h.Files {
		f.Close()
	}
	h.conn.Close()
}

// serveHandover hands the listeners over to a new process that asks for them, one process at a
// time.
func (p *Proxy) serveHandover(ctx context.Context, ln net.Listener) {
	var once sync.Once
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}

		stop := context.AfterFunc(ctx, func() { c.Close() })
		ok, err := p.handOver(localsock.Unix(c))
		stop()
		c.Close()

		if err != nil {
			p.log.Warn("hand-over not finished", "error", err)
		}

		if ok {
			p.log.Info("listeners handed over")
			once.Do(func() {
				for _, ln := range p.adminSockets {
					ln.Abandon() // the paths belong to the successor
				}
				close(p.retire)
			})
		}
	}
}

func (p *Proxy) handOver(c *net.UnixConn) (bool, error) {
	if err := c.SetDeadline(time.Now().Add(handoverLimit)); err != nil {
		return false, err
	}

	files, err := p.Listeners()
	if err != nil {
		return false, err
	}
	if len(files) == 0 || len(files) > maxListeners {
		return false, fmt.Errorf("%d listeners to hand over", len(files))
	}

	var fds []int
	for _, f := range files {
		defer f.Close()
		fds = append(fds, int(f.Fd()))
	}

	if _, _, err := c.WriteMsgUnix([]byte("listeners"), unix.UnixRights(fds...), nil); err != nil {
		return false, err
	}

	b := make([]byte, 16)
	n, err := c.Read(b)
	if err == nil && string(b[:n]) != "serving" {
		err = fmt.Errorf("it says %q", b[:n])
	}

	if err != nil {
		return false, fmt.Errorf("the new process did not begin to serve: %w", err)
	}

	_, err = c.Write([]byte("retiring"))
	return err == nil, err
}
