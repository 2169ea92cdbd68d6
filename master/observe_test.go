package master

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"saltern/master/crypt"
	"saltern/master/event"
	"saltern/master/value"
	"saltern/master/zmtp"
)

// busReader listens on the event socket, as Python's tools do.
type busReader struct {
	l    *event.Listener
	mu   sync.Mutex
	all  []event.Event
	done chan struct{}
}

// listen begins to collect events. seen returns those since the last call.
func (r *running) listen() {
	r.t.Helper()
	l, err := event.DialPub(within(r.t), r.path("run"))
	must(r.t, err)
	b := &busReader{l: l, done: make(chan struct{})}
	r.bus = b
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

	r.seen()
}

func (b *busReader) close() {
	b.l.Close()
	<-b.done
}

// seen returns the events fired since the last call. A marker through the bus
// makes sure that all of them have arrived.
func (r *running) seen() []event.Event {
	r.t.Helper()
	r.mark++
	mark := fmt.Sprintf("test/mark/%d", r.mark)
	var out []event.Event
	until(r.t, "marker event", func() bool {
		// Repeated, since the reader may not be connected at the first.
		r.m.fire(mark, value.NewMap())
		r.bus.mu.Lock()
		defer r.bus.mu.Unlock()

		for i, e := range r.bus.all {
			if e.Tag == mark {
				out = r.bus.all[:i:i]
				r.bus.all = r.bus.all[i+1:]
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

func tagsOf(events []event.Event) []string {
	var out []string
	for _, e := range events {
		out = append(out, e.Tag)
	}
	return out
}

// quiet demands that nothing was fired since the last look, but for tags
// with one of the prefixes.
func (r *running) quiet(what string, but ...string) {
	r.t.Helper()
next:
	for _, e := range r.seen() {
		for _, p := range but {
			if strings.HasPrefix(e.Tag, p) {
				continue next
			}
		}
		r.t.Errorf("%s: event %q %.200v", what, e.Tag, e.Data)
	}
}

// subscriber is the 4505 side of a minion.
type subscriber struct {
	r *running
	s *zmtp.Sub
}

func (r *running) subscribe() *subscriber {
	r.t.Helper()
	before := len(r.m.pub.Subscribers())
	s, err := zmtp.DialSub(within(r.t), r.pub, zmtp.DialConfig{}, "")
	must(r.t, err)
	r.t.Cleanup(s.Close)
	until(r.t, "subscription", func() bool {
		subs := r.m.pub.Subscribers()
		n := 0
		for _, s := range subs {
			if len(s.Topics) > 0 {
				n++
			}
		}

		return n > before
	})

	return &subscriber{r, s}
}

// published returns the payloads that have come since the last call.
func (s *subscriber) published() [][]byte {
	s.r.t.Helper()
	mark := "mark " + newNonce()
	must(s.r.t, s.r.m.pub.Publish(within(s.r.t), []byte(mark)))
	var out [][]byte
	for {
		f, err := s.s.Next(within(s.r.t))
		must(s.r.t, err)
		if string(f[0]) == mark {
			return out
		}
		out = append(out, f[0])
	}
}

// openPublish checks and opens a publish with the key of a minion.
func (n *scriptedMinion) openPublish(payload []byte) *value.Map {
	t := n.r.t
	t.Helper()
	p := unpack(t, payload).(*value.Map)
	blob, _ := p.Bytes("load")
	sig, _ := p.Bytes("sig")
	must(t, crypt.Verify(&pair(t, "masterA").PublicKey, p.Str("sig_algo"), blob, sig))
	b, err := n.aes.Open(blob)
	must(t, err)
	return unpack(t, b).(*value.Map)
}

// volatile files change while nobody attacks, or tell of attacks.
var volatile = map[string]bool{
	// what is refused is written down
	"cache/audit": true, "cache/audit/acts.jsonl": true, "cache/audit/strangers.jsonl": true, "cache/audit/jobs.jsonl": true, "cache/audit/users.jsonl": true, "cache/audit/refused.jsonl": true,
	"cache/status.json": true, "cache/status.json.new": true, "cache/health/alive": true, "cache/health/ready": true, "cache/health": true,
}

// snapshot describes everything in the master's folder: names, types, modes
// and contents.
func (r *running) snapshot() map[string]string {
	r.t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(r.dir, func(p string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(r.dir, p)
		if volatile[rel] || strings.HasPrefix(rel, "cache/nonces.journal") ||
			strings.HasPrefix(rel, "cache/jobs.journal") {
			return nil
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}

		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}

		content := ""
		if d.Type().IsRegular() {
			f, err := os.Open(p)
			if err != nil {
				return err
			}
			defer f.Close()

			b, err := io.ReadAll(io.LimitReader(f, 1<<20))
			if err != nil {
				return err
			}

			content = string(b)
		}

		out[rel] = info.Mode().String() + " " + content
		return nil
	})

	must(r.t, err)
	return out
}

// unchanged compares two snapshots.
func (r *running) unchanged(what string, before map[string]string) {
	r.t.Helper()
	after := r.snapshot()
	for k, v := range after {
		if b, ok := before[k]; !ok {
			r.t.Errorf("%s: %s appeared", what, k)
		} else if b != v {
			r.t.Errorf("%s: %s changed", what, k)
		}
	}

	for k := range before {
		if _, ok := after[k]; !ok {
			r.t.Errorf("%s: %s is gone", what, k)
		}
	}
}
