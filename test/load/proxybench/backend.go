package main

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// The first byte of a connection says what the backend is to do.
const (
	askEcho   = 'E' // send each frame back, the first byte of its payload replaced by the backend's number
	askHold   = 'I' // answer with the backend's number, then broadcasts
	askSource = 'S' // eight bytes follow: send so many and close
	askSink   = 'K' // read to the end of the stream, then answer with the count in eight bytes
)

// state is what a backend pretends.
type state int

const (
	up    state = iota
	stall       // takes connections and bytes, and answers nothing
	down        // its port is closed
)

// maxFrame bounds what an echo takes; a proxy's own fault must not take all memory.
const maxFrame = 1 << 24

// blockSize is how much sources and sinks move at a time.
const blockSize = 256 << 10

// backend is one of those behind the proxy. It is safe for concurrent use.
type backend struct {
	number int
	addr   string
	group  sync.WaitGroup

	mu    sync.Mutex
	state state
	ln    net.Listener
	conns map[*net.TCPConn]bool // whether it is held
}

func newBackend(number int, addr string) *backend {
	return &backend{number: number, addr: addr, state: down, conns: map[*net.TCPConn]bool{}}
}

// revive makes the backend answer. Connections that a stall met stay silent.
func (b *backend) revive() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == down {
		ln, err := net.Listen("tcp", b.addr)
		if err != nil {
			return err
		}
		b.ln = ln
		b.group.Go(func() { b.accept(ln) })
	}
	b.state = up
	return nil
}

// stall stops answering.
func (b *backend) stall() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state = stall
}

// kill closes the port and resets all connections, as the kernel does for a
// process that died with unread data, and waits for their goroutines.
func (b *backend) kill() {
	b.mu.Lock()
	b.state = down
	if b.ln != nil {
		b.ln.Close()
	}
	for c := range b.conns {
		_ = c.SetLinger(0)
		c.Close()
	}
	b.mu.Unlock()
	b.group.Wait()
}

func (b *backend) accept(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no descriptors, say: the requests fail, which is counted
			time.Sleep(10 * time.Millisecond)
			continue
		}

		c := conn.(*net.TCPConn)
		b.mu.Lock()
		if b.state == down {
			c.Close()
		} else {
			b.conns[c] = false
			b.group.Go(func() { b.serve(c) })
		}
		b.mu.Unlock()
	}
}

func (b *backend) stalled() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state == stall
}

func (b *backend) serve(c *net.TCPConn) {
	defer func() {
		c.Close()
		b.mu.Lock()
		delete(b.conns, c)
		b.mu.Unlock()
	}()

	var first [1]byte
	if _, err := io.ReadFull(c, first[:]); err != nil {
		return
	}
	if b.stalled() {
		_, _ = io.Copy(io.Discard, c)
		return
	}

	switch first[0] {
	case askEcho:
		b.echo(c)
	case askHold:
		b.hold(c)
	case askSource:
		source(c)
	case askSink:
		sink(c)
	}
}

func (b *backend) echo(c net.Conn) {
	buf := make([]byte, 2048)
	for {
		if _, err := io.ReadFull(c, buf[:frameHead]); err != nil {
			return
		}

		n := int(binary.BigEndian.Uint32(buf))
		if n < 1 || n > maxFrame {
			return
		}

		if len(buf) < frameHead+n {
			buf = append(make([]byte, 0, frameHead+n), buf[:frameHead]...)[:frameHead+n]
		}

		frame := buf[:frameHead+n]
		if _, err := io.ReadFull(c, frame[frameHead:]); err != nil {
			return
		}
		if b.stalled() {
			_, _ = io.Copy(io.Discard, c)
			return
		}

		frame[frameHead] = byte(b.number)
		if _, err := c.Write(frame); err != nil {
			return
		}
	}
}

func (b *backend) hold(c *net.TCPConn) {
	if _, err := c.Write([]byte{byte(b.number)}); err != nil {
		return
	}
	b.mu.Lock()
	b.conns[c] = true
	b.mu.Unlock()
	_, _ = io.Copy(io.Discard, c) // until the other side goes
}

// held lists the connections that wait for broadcasts.
func (b *backend) held() []*net.TCPConn {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []*net.TCPConn
	for c, held := range b.conns {
		if held {
			out = append(out, c)
		}
	}
	return out
}

func source(c net.Conn) {
	var count [8]byte
	if _, err := io.ReadFull(c, count[:]); err == nil {
		_ = sendBlocks(c, binary.BigEndian.Uint64(count[:]))
	}
}

// sendBlocks sends n bytes.
func sendBlocks(c net.Conn, n uint64) error {
	block := make([]byte, blockSize)
	for n > 0 {
		sent, err := c.Write(block[:min(n, blockSize)])
		if err != nil {
			return err
		}
		n -= uint64(sent)
	}
	return nil
}

func sink(c net.Conn) {
	n, err := drain(c)
	if err != nil {
		return
	}
	_, _ = c.Write(binary.BigEndian.AppendUint64(nil, n))
}

// drain counts the bytes to the end of the stream.
func drain(c net.Conn) (n uint64, err error) {
	buf := make([]byte, blockSize)
	for {
		k, err := c.Read(buf)
		n += uint64(k)
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}
