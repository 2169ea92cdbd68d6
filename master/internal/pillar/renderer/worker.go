package renderer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"saltern/master/internal/pyframe"
	"saltern/master/value"
)

// worker is one forked process. Only one session at a time uses it.
type worker struct {
	nursery    *nursery
	number     int64
	conn       *net.UnixConn
	sessions   int
	idle       time.Time
	maxMessage int
	gone       bool // discard has been called
}

// callOnce sends a request and reads its reply. After any error except a *Failure the worker is
// unusable.
func (w *worker) callOnce(ctx context.Context, timeout time.Duration, req *value.Map) (*value.Map, error) {
	frame, err := pyframe.Append(make([]byte, 0, 4096), req)
	if err != nil {
		return nil, &Failure{Message: "the request cannot be packed: " + err.Error()}
	}
	if len(frame)-4 > w.maxMessage {
		return nil, &Failure{Message: fmt.Sprintf("the request has %d bytes, %d are allowed", len(frame)-4, w.maxMessage)}
	}

	w.conn.SetDeadline(time.Now().Add(timeout))
	stop := context.AfterFunc(ctx, func() { w.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	reply, err := w.exchange(frame)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case isTimeout(err):
		return nil, fmt.Errorf("%w (%v)", errTimeout, timeout)
	default:
		return nil, fmt.Errorf("%w: %w", errDied, err)
	}

	return readReply(reply, w.maxMessage/bytesPerValue)
}

// bytesPerValue is how many bytes of the longest reply allow one value: a value takes more memory than
// the one byte that it may have in a reply.
const bytesPerValue = 8

// readReply unpacks a reply of at most so many values. If the reply reports an error, the returned error
// is a *Failure.
func readReply(b []byte, values int) (*value.Map, error) {
	m, err := pyframe.MapWithin(b, values)
	if err != nil {
		return nil, &Failure{Message: "the result cannot be read: " + err.Error()}
	}
	if !m.Bool("ok") {
		return nil, &Failure{
			Message: m.Str("error"),
			Kind:    m.Str("kind"),
			Trace:   m.Str("trace"),
			altered: m.Bool("altered"),
		}
	}
	return m, nil
}

func (w *worker) exchange(frame []byte) ([]byte, error) {
	if _, err := w.conn.Write(frame); err != nil {
		return nil, err
	}
	return pyframe.Read(w.conn, w.maxMessage)
}

// discard ends the process. A second call does nothing.
func (w *worker) discard() {
	if w.gone {
		return
	}
	w.gone = true
	w.nursery.workers.Add(-1)
	w.conn.Close()
	// If the order fails, the worker ends because its socket is closed.
	w.nursery.sendOrder("kill", w.number, nil)
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// Failure is an error that Python has reported: a template is faulty, or a module raised an
// exception. Message is the exception's text as Salt shows it.
type Failure struct {
	Message, Kind, Trace string
	altered              bool
}

// Error returns the exception's text.
func (f *Failure) Error() string { return f.Message }
