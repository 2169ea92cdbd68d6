package request

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"saltern/master/value"
)

// Refusals, with the exact texts of the Python master.
const (
	badLoad       = "bad load"
	notAMap       = "payload and load must be a dict"
	nulInID       = "bad load: id contains a null byte"
	handlerFailed = "Some exception handling minion payload"
)

// refusal is an error that contains the unencrypted answer for the sender, and the reason for the
// log.
type refusal struct {
	answer any
	why    string
	level  slog.Level
}

func (r *refusal) Error() string { return r.why }

func refuse(answer any, format string, args ...any) error {
	return &refusal{answer, fmt.Sprintf(format, args...), slog.LevelInfo}
}

// notExposed returns the refusal of a command that the caller may not call. Its log line has the
// same text as that of the Python master, because log watchers search for that text.
func notExposed(cmd any) error {
	return &refusal{value.NewMap(), "Requested method not exposed: " + sanitize(fmt.Sprint(cmd)), slog.LevelError}
}

// ErrSilence, wrapped in an error, causes the server to close the connection without an answer. The
// sender then repeats the request after its time-out. The sender would take any answer for a
// success (salt/minion.py _return_pub).
var ErrSilence = errors.New("request is left unanswered")

// ErrLeft is an ErrSilence for a sender that has disconnected. It is not logged as a fault.
var ErrLeft = fmt.Errorf("the sender has hung up: %w", ErrSilence)

// maxRefusals bounds the sources whose refusals are remembered. Overflow policy: the source whose
// first refusal is the oldest is forgotten.
const maxRefusals = 1000

// Refusal is the last request of a source that was refused before its sender was proven.
type Refusal struct {
	Why   string
	At    time.Time
	Count int // refused requests of the source
}

// refusals remembers why requests were refused, by source. The zero value is empty. It is safe for
// concurrent use.
type refusals struct {
	mu    sync.Mutex
	last  map[netip.Addr]*Refusal
	order []netip.Addr // the sources in last, the oldest first
}

func (r *refusals) add(from netip.Addr, why string, at time.Time) {
	from = from.Unmap()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = map[netip.Addr]*Refusal{}
	}

	one := r.last[from]
	if one == nil {
		if len(r.order) >= maxRefusals {
			delete(r.last, r.order[0])
			r.order = r.order[1:]
		}
		one = &Refusal{}
		r.last[from] = one
		r.order = append(r.order, from)
	}
	one.Why = why
	one.At = at
	one.Count++
}

// RefusedFrom returns the last refused request of a source. ok is false if none is remembered.
func (s *Server) RefusedFrom(from netip.Addr) (last Refusal, ok bool) {
	r := &s.refusals
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.last[from.Unmap()]
	if one == nil {
		return Refusal{}, false
	}
	return *one, true
}
