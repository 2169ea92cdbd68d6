package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

const (
	frameHead   = 4 // its length
	requestSize = 1024
)

// newFrame is a request of so many bytes.
func newFrame(n int) []byte {
	b := make([]byte, frameHead+n)
	binary.BigEndian.PutUint32(b, uint32(n))
	for i := frameHead; i < len(b); i++ {
		b[i] = byte(i)
	}
	return b
}

// A requester makes requests, one at a time.
type requester struct {
	frame, answer []byte
}

func newRequester() *requester {
	f := newFrame(requestSize)
	return &requester{f, make([]byte, len(f))}
}

// ask makes a request on a connection for echoes and returns which backend
// answered. The whole answer is compared.
func (r *requester) ask(c net.Conn) (int, error) {
	if _, err := c.Write(r.frame); err != nil {
		return 0, err
	}
	return r.read(c)
}

func (r *requester) read(c net.Conn) (int, error) {
	if _, err := io.ReadFull(c, r.answer); err != nil {
		return 0, err
	}
	number := int(r.answer[frameHead])
	r.answer[frameHead] = r.frame[frameHead]
	if string(r.answer) != string(r.frame) {
		return 0, errWrong
	}
	return number, nil
}

// errWrong is an answer to another request, or a damaged one.
var errWrong = errors.New("the answer is not what was sent")

// short is a whole short connection: connect, one request, its answer, close.
func (r *requester) short(addr string, limit time.Duration) (int, error) {
	c, err := net.DialTimeout("tcp", addr, limit)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return 0, err
	}
	if _, err := c.Write(append([]byte{askEcho}, r.frame...)); err != nil {
		return 0, err
	}
	return r.read(c)
}

// holdOn opens a connection for broadcasts and returns which backend has it.
func holdOn(addr string, limit time.Duration) (net.Conn, int, error) {
	c, err := net.DialTimeout("tcp", addr, limit)
	if err != nil {
		return nil, 0, err
	}

	var number [1]byte
	err = c.SetDeadline(time.Now().Add(limit))
	if err == nil {
		_, err = c.Write([]byte{askHold})
	}
	if err == nil {
		_, err = io.ReadFull(c, number[:])
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}

	if err != nil {
		c.Close()
		return nil, 0, fmt.Errorf("hold a connection: %w", err)
	}

	return c, int(number[0]), nil
}

// kind names what became of a request.
func kind(err error) string {
	var ne net.Error
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "eof"
	case errors.Is(err, errWrong):
		return "wrong"
	case errors.As(err, &ne) && ne.Timeout():
		return "timeout"
	}

	return "other"
}
