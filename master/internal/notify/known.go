package notify

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"saltern/internal/durable"
)

const (
	maxKnownFile = 1 << 20
	// maxKnown bounds the destinations that a peer may name in one message.
	maxKnown = 1000
)

// knownSince returns since when this master has known each of the destinations with ids. Those that
// were unknown so far are known from now on, and those that are gone are forgotten. The file at path
// keeps the times over a restart.
//
// If the file cannot be read, each destination counts as known for ever: what has no mark is sent
// once too often rather than never.
func knownSince(path string, ids []string, now time.Time) (map[string]time.Time, error) {
	now = now.UTC().Truncate(time.Millisecond) // as the times of alerts
	var before map[string]time.Time
	content, err := durable.Read(path, maxKnownFile)
	if err == nil {
		err = json.Unmarshal(content, &before)
	}

	fresh := now
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	case err != nil:
		err = fmt.Errorf("read since when destinations of notifications are known: %w", err)
		before = nil
		fresh = time.Time{}
	}

	since := make(map[string]time.Time, len(ids))
	for _, id := range ids {
		at, known := before[id]
		if !known {
			at = fresh
		}
		since[id] = notAfter(at, now) // the clock may have been ahead
	}

	if maps.EqualFunc(since, before, time.Time.Equal) {
		return since, err
	}
	return since, errors.Join(err, writeKnown(path, since))
}

// writeKnown writes the file that knownSince reads.
func writeKnown(path string, since map[string]time.Time) error {
	content, err := json.Marshal(since)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = durable.Replace(path, content, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write since when destinations of notifications are known: %w", err)
	}
	return nil
}

// learnKnown takes over since when a peer has known destinations, if that is longer than this master
// has. So a master that is new, or that gets a new rule last, sends what waits at the others.
func (s *Service) learnKnown(since map[string]time.Time) {
	if !s.outbox.knowSince(since) {
		return
	}
	s.noteDisk(writeKnown(s.knownPath(), s.outbox.known()))
	s.wakeSenders()
}

func (s *Service) knownPath() string { return filepath.Join(s.cfg.Dir, "destinations.json") }

// known returns since when each destination is known.
func (o *Outbox) known() map[string]time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	since := make(map[string]time.Time, len(o.lines))
	for to, l := range o.lines {
		since[to] = l.since
	}
	return since
}

// knowSince adds that destinations have been known since earlier, and queues the alerts since then. It
// reports whether there was a destination that was known for less.
func (o *Outbox) knowSince(since map[string]time.Time) (changed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for to, at := range since {
		l := o.lines[to]
		if l == nil || at.IsZero() || !at.Before(l.since) {
			continue
		}

		l.since = at
		o.refill(l)
		changed = true
	}
	return changed
}

// refill puts all alerts into the queue of a line that wait for its destination. The caller holds mu.
func (o *Outbox) refill(l *line) {
	l.queue = nil
	for _, e := range o.order {
		if e.alert != nil && l.wants(e) && slices.Contains(o.route(e.alert), l.to) {
			l.push(e)
		}
	}
}
