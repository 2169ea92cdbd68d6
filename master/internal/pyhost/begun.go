package pyhost

import (
	"errors"
	"io"
	"time"
)

// unbegun is the error of a task that has certainly not begun: nothing of it was carried out.
type unbegun struct{ cause error }

// Error implements error.
func (e *unbegun) Error() string { return e.cause.Error() }

// Unwrap returns the cause.
func (e *unbegun) Unwrap() error { return e.cause }

// NotBegun tells callers who do not import this package what the error means.
func (e *unbegun) NotBegun() bool { return true }

// Unbegun returns err as the error of a task that has certainly not begun. Its text stays the same.
func Unbegun(err error) error {
	if err == nil {
		return nil
	}
	return &unbegun{cause: err}
}

// hasNotBegun reports whether a worker that has ended, and from which no answer was read, has certainly
// not begun with its task. It says so before it begins (begun in host.py), so its connection would hold
// a part of that message.
func (w *worker) hasNotBegun() bool {
	if err := w.conn.SetReadDeadline(time.Now().Add(lostTakes)); err != nil {
		return false
	}
	var b [1]byte
	n, err := w.conn.Read(b[:])
	return n == 0 && errors.Is(err, io.EOF)
}
