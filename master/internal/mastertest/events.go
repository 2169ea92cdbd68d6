package mastertest

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"saltern/master/event"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// BusReader reads the event socket as Python's tools do.
type BusReader struct {
	l    *event.Listener
	mu   sync.Mutex
	all  []event.Event
	done chan struct{}
}

// ListenToBus starts to collect the events that NewEvents returns.
func (r *Master) ListenToBus() {
	r.T.Helper()
	l, err := event.DialPub(await.Context(r.T), r.Path("run"))
	check.Must(r.T, err)
	b := &BusReader{l: l, done: make(chan struct{})}
	r.Bus = b
	go func() {
		defer close(b.done)
		for {
			e, err := l.Next(context.Background())
			if err != nil {
				return
			}
			b.mu.Lock()
			b.all = append(b.all, e)
			b.mu.Unlock()
		}
	}()

	r.NewEvents()
}

// Close stops the reader and waits for its end.
func (b *BusReader) Close() {
	b.l.Close()
	<-b.done
}

// NewEvents returns the events fired since the last call. It fires a marker event, and waits for
// the marker so that all earlier events have arrived.
func (r *Master) NewEvents() []event.Event {
	r.T.Helper()
	r.marks++
	mark := fmt.Sprintf("test/mark/%d", r.marks)
	var out []event.Event
	await.That(r.T, "marker event", func() bool {
		// Repeat the marker, because the master may not have accepted the reader yet.
		r.Parts.Fire(mark, value.NewMap())
		r.Bus.mu.Lock()
		defer r.Bus.mu.Unlock()

		for i, e := range r.Bus.all {
			if e.Tag == mark {
				out = r.Bus.all[:i:i]
				r.Bus.all = r.Bus.all[i+1:]
				return true
			}
		}

		return false
	})

	var kept []event.Event
	for _, e := range out {
		if !strings.HasPrefix(e.Tag, "test/mark/") {
			kept = append(kept, e)
		}
	}

	return kept
}

// TagsOf returns the tags of events, in their order.
func TagsOf(events []event.Event) []string {
	var out []string
	for _, e := range events {
		out = append(out, e.Tag)
	}
	return out
}

// WantQuiet fails the test if events were fired since the last call of NewEvents. It ignores events
// whose tag begins with one of the exceptions.
func (r *Master) WantQuiet(doing string, exceptions ...string) {
	r.T.Helper()
next:
	for _, e := range r.NewEvents() {
		for _, p := range exceptions {
			if strings.HasPrefix(e.Tag, p) {
				continue next
			}
		}
		r.T.Errorf("%s: event %q %.200v", doing, e.Tag, e.Data)
	}
}
