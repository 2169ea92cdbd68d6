package storage

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"time"

	"saltern/glusterctl/layout"
	"saltern/internal/durable"
)

// Each node writes the time into its own file on the volume every clocksEvery. The other nodes
// compare that time with their clocks when they see the file change.
const (
	// Nodes also compare clocks over the node API. The files are for nodes that do not answer
	// there.
	clocksEvery = 20 * time.Second
	clockFile   = "clock"
	// skewLimit is the smallest difference that is used. The time in a file is a little old when it
	// is read: up to clocksEvery, plus the time for which the volume caches it.
	skewLimit = 5 * time.Second
)

// clocksReply says how far the clock of each other node is ahead (+) or behind (-). It lists only
// nodes that have written a new time since the last request.
type clocksReply struct {
	Ahead map[string]time.Duration `json:"ahead,omitempty"`
}

// clocksChild is the child that compares the clocks at each request of its parent. args are the
// mount point and this node's name.
func clocksChild(args []string, in io.Reader, out io.Writer) int {
	if len(args) != 2 {
		return 2
	}

	root, self := args[0], args[1]
	volume := mountRoot{path: root}
	seen := map[string]time.Time{}
	return serveLines(in, out, func([]byte) (any, error) {
		if err := volume.requireVolume(); err != nil {
			return nil, err
		}

		info, err := layout.Read(root)
		if err != nil {
			return nil, err
		}

		r := clocksReply{Ahead: map[string]time.Duration{}}
		for _, n := range info.Nodes {
			if !filepath.IsLocal(n) {
				continue
			}

			path := filepath.Join(root, "nodes", n, "probe", clockFile)
			if n == self {
				if err := writeClock(path, time.Now()); err != nil {
					return nil, err
				}
				continue
			}

			t, err := readClock(path)
			if err != nil {
				continue // the node is away or has not written a stamp yet
			}

			first := seen[n].IsZero()
			if t.Equal(seen[n]) {
				continue
			}

			seen[n] = t
			if !first { // only a stamp that changed between two reads is fresh
				r.Ahead[n] = time.Until(t)
			}
		}

		return r, nil
	})
}

func writeClock(path string, now time.Time) error {
	b, err := json.Marshal(now.UTC())
	if err != nil {
		return err
	}
	if err := durable.Swap(path, b, 0o644); err != nil {
		return fmt.Errorf("write the time: %w", err)
	}
	return nil
}

func readClock(path string) (time.Time, error) {
	b, _, err := durable.ReadFile(path, 256, durable.Follow)
	if err != nil {
		return time.Time{}, err
	}
	var t time.Time
	return t, json.Unmarshal(b, &t)
}

// clockKept is how long a measured difference between clocks has an effect on copying. During that
// time, a file that a node with a wrong clock wrote may have times that hide a later change.
const clockKept = 10 * time.Minute

// NoteClocks records how far the clocks of other nodes are ahead (+) or behind (-), as measured
// over the node API. The files on the volume cannot show that a clock is behind by less than
// clocksEvery. The largest difference of a node has an effect for clockKept, even if its clock has
// been corrected.
func (m *Manager) NoteClocks(ahead map[string]time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.cfg.Now()
	for node, d := range ahead {
		old, known := m.measured[node]
		if !known || now.Sub(old.at) > clockKept || d.Abs() >= old.ahead.Abs() {
			m.measured[node] = clockDiff{d, now}
		}
	}
	maps.DeleteFunc(m.measured, func(_ string, c clockDiff) bool { return now.Sub(c.at) > clockKept })
}

// clockSpread returns the largest known difference between the clocks of all nodes, including this
// one. It returns 0 if the difference is at most skewLimit.
func (m *Manager) clockSpread() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	var first, last time.Duration
	widen := func(c clockDiff, ahead time.Duration) {
		if m.cfg.Now().Sub(c.at) <= clockKept {
			first = max(first, ahead)
			last = min(last, ahead)
		}
	}
	for _, c := range m.ahead {
		widen(c, clockSkew(c.ahead))
	}
	for _, c := range m.measured {
		widen(c, c.ahead)
	}

	if first-last <= skewLimit {
		return 0 // settleFor includes a difference of up to skewLimit
	}
	return first - last
}

// clockSkew returns the newest difference to a node's clock, or 0 if the difference is normal. The
// time in a file is up to clocksEvery old when it is read, so being behind by that much is normal.
func clockSkew(ahead time.Duration) time.Duration {
	if ahead > skewLimit || ahead < -(skewLimit+clocksEvery) {
		return ahead
	}
	return 0
}
