package presence

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"time"

	"saltern/internal/durable"
)

// maxRecord bounds the file of a record, in bytes: some 500,000 minions.
const maxRecord = 64 << 20

// record holds the times of each minion's last requests and sign-ins, including those before this
// start of the master. It is written every few minutes; a master that is killed loses the times of
// the last minutes.
type record struct {
	// Since is the Unix time from which the record is complete; 0: the last record could not be
	// read.
	Since  int64            `json:"since"`
	Heard  map[string]int64 `json:"heard"`  // authenticated requests, by id
	Asked  map[string]int64 `json:"asked"`  // sign-ins with the key on file
	Denied map[string]int64 `json:"denied"` // sign-ins with another key
	// From are the addresses of the last authenticated requests. Older records have none.
	From map[string]netip.Addr `json:"from,omitempty"`
}

func newRecord(since time.Time) record {
	return record{
		Since:  since.Unix(),
		Heard:  map[string]int64{},
		Asked:  map[string]int64{},
		Denied: map[string]int64{},
		From:   map[string]netip.Addr{},
	}
}

// Load reads the record of earlier starts. If there is no record, or it cannot be read, Load begins
// a new record at now. If the record cannot be read, Load also returns an error that says why. Times
// after now, from a clock that was ahead, become now.
func (t *Tracker) Load(path string, now time.Time) error {
	fresh := newRecord(now)
	got := fresh
	b, err := durable.Read(path, maxRecord)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	case err == nil:
		got = newRecord(time.Time{})
		if err = json.Unmarshal(b, &got); err == nil &&
			(got.Since <= 0 || got.Heard == nil || got.Asked == nil || got.Denied == nil) {
			err = errors.New("it is no record")
		}
	}

	if err != nil {
		got = fresh
		err = fmt.Errorf("read when minions were heard, from now on it is recorded anew: %s: %w", path, err)
	}

	got.limit(now.Unix())
	t.mu.Lock()
	defer t.mu.Unlock()
	t.earlier = got
	for id, from := range got.From {
		if at := got.Heard[id]; at > 0 && from.IsValid() {
			t.reported[id] = sighting{from.Unmap(), time.Unix(at, 0)}
		}
	}
	return err
}

// limit replaces the times after now by now.
func (r *record) limit(now int64) {
	r.Since = min(r.Since, now)
	for _, times := range []map[string]int64{r.Heard, r.Asked, r.Denied} {
		for id, at := range times {
			times[id] = min(at, now)
		}
	}
}

// Save writes the record. It leaves out the ids for which hasKey returns false, because these have
// no key any more.
func (t *Tracker) Save(path string, hasKey func(id string) bool) error {
	b, err := json.Marshal(t.recorded(hasKey))
	if err == nil {
		err = durable.Replace(path, b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write when minions were heard: %w", err)
	}
	return nil
}

// recorded returns the record of earlier starts, merged with the record of this start.
func (t *Tracker) recorded(has func(id string) bool) record {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := newRecord(time.Unix(t.earlier.Since, 0))
	put := func(into map[string]int64, id string, at int64) {
		if has(id) {
			into[id] = max(into[id], at)
		}
	}

	for _, k := range []struct{ from, to map[string]int64 }{
		{t.earlier.Heard, out.Heard},
		{t.earlier.Asked, out.Asked},
		{t.earlier.Denied, out.Denied},
	} {
		for id, at := range k.from {
			put(k.to, id, at)
		}
	}

	for id, s := range t.requests {
		put(out.Heard, id, s.at.Unix())
	}
	for id := range out.Heard {
		t.recordPlace(&out, id)
	}
	for id := range t.reported {
		if has(id) {
			t.recordPlace(&out, id)
		}
	}

	for k, s := range t.signIns {
		into := out.Asked
		if k.denied {
			into = out.Denied
		}
		put(into, k.id, s.at.Unix())
	}

	return out
}

// recordPlace adds the last request of a minion. The caller holds t.mu.
func (t *Tracker) recordPlace(out *record, id string) {
	if last, known := t.place(id); known && last.from.IsValid() {
		out.Heard[id] = max(out.Heard[id], last.at.Unix())
		out.From[id] = last.from
	}
}

// Since returns the time from which the record is complete, or the zero time if the record is
// incomplete.
func (t *Tracker) Since() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.earlier.Since == 0 {
		return time.Time{}
	}
	return time.Unix(t.earlier.Since, 0)
}

// Before returns the time of a minion's last sign-in with the key on file, before this start of the
// master. If withRequests is set, an authenticated request counts like a sign-in. If denied is set,
// Before returns the time of the last sign-in with another key under that id. The zero time means
// never.
func (t *Tracker) Before(id string, withRequests, denied bool) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.earlier.Asked[id]
	if denied {
		at = t.earlier.Denied[id]
	} else if withRequests {
		at = max(at, t.earlier.Heard[id])
	}
	if at <= 0 {
		return time.Time{}
	}
	return time.Unix(at, 0)
}
