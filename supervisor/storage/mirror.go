package storage

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"
)

// mirrorSpec says what is copied from the volume to this node.
type mirrorSpec struct {
	Source string   `json:"source"` // mount point
	Dest   string   `json:"dest"`   // on this node's disk
	Trees  []string `json:"trees"`  // relative to both
	// Index is where what was copied is remembered; empty: in Dest.
	Index string `json:"index,omitempty"`
	// OnlyOwn removes from Dest nothing but what was copied there before.
	OnlyOwn bool `json:"onlyOwn,omitempty"`
	// Any allows a source that is no volume.
	Any bool `json:"any,omitempty"`
}

// mirrored are the trees that a node copies: files and pillars for minions and
// the administrator's options of the master.
func mirrored() []string { return []string{"srv/salt", "srv/pillar", "etc/master.d"} }

// Limits of one pass.
const (
	mirrorMaxEntries = 500_000
	mirrorMaxBytes   = 64 << 30
	mirrorMaxDepth   = 64
)

// mirrorReport is what one pass did.
type mirrorReport struct {
	Files   int   `json:"files"`
	Copied  int   `json:"copied"`
	Removed int   `json:"removed"`
	Bytes   int64 `json:"bytes"` // copied
	// Changing are files that changed while they were read; they are taken in
	// the next pass.
	Changing int `json:"changing,omitempty"`
	// Skipped are files that are neither regular, directory nor link, and those
	// beyond the limits.
	Skipped int `json:"skipped,omitempty"`
}

// The pace of passes: mirrorEvery when a pass is quick, and never more than a
// sixth of the time spent in passes.
const (
	mirrorEvery = 2 * time.Second
	mirrorRest  = 5
	mirrorMost  = time.Minute
	// mirrorFirst is for the first pass, which copies everything, mirrorPass for
	// those after it.
	mirrorFirst = 30 * time.Minute
	mirrorPass  = 2 * time.Minute
	// mirrorStale is when an old copy becomes a problem.
	mirrorStale = 30 * time.Second
)

// mirror is the parent's side: it keeps this node's copy of what the volume
// holds for minions, so that a volume that hangs does not stop state runs.
type mirror struct {
	child worker

	mu     sync.Mutex
	last   time.Time // end of the newest complete pass
	report mirrorReport
	fault  string
}

// keep makes passes until ctx ends, while wanted says that the volume is there.
// changed is called after a pass that changed something and after the first.
func (m *mirror) keep(ctx context.Context, now func() time.Time, wanted func() bool, changed func(mirrorReport)) {
	defer m.child.close()
	for {
		pause := mirrorEvery
		if wanted() {
			begun := time.Now()
			limit := mirrorPass
			if at, _, _ := m.get(); at.IsZero() {
				limit = mirrorFirst
			}
			var r mirrorReport
			err := m.child.ask(ctx, limit, struct{}{}, &r)
			pause = min(max(pause, mirrorRest*time.Since(begun)), mirrorMost)
			m.mu.Lock()
			first := m.last.IsZero()
			if err != nil {
				m.fault, pause = err.Error(), mirrorEvery
			} else {
				m.fault, m.last, m.report = "", now(), r
			}
			m.mu.Unlock()
			if err == nil && (first || r.Copied+r.Removed > 0) {
				changed(r)
			}
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// get gives the end of the newest pass, what it did, and why there is no newer.
func (m *mirror) get() (time.Time, mirrorReport, string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last, m.report, m.fault
}

// mirrorChild makes one pass for each question.
func mirrorChild(args []string, in io.Reader, out, errOut io.Writer) int {
	var spec mirrorSpec
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &spec) != nil {
		fmt.Fprintln(errOut, "mirror: a specification is needed")
		return 2
	}
	c := newCopier(spec)
	return serve(in, out, func([]byte) (any, error) { return c.pass() })
}

// text is the specification as an argument of the child.
func (s mirrorSpec) text() string {
	b, err := json.Marshal(s)
	if err != nil { // strings and booleans only
		return ""
	}
	return string(b)
}

func (s mirrorSpec) check() error {
	for _, t := range s.Trees {
		if !filepath.IsLocal(t) || filepath.Clean(t) != t || t == "." {
			return fmt.Errorf("copy: %q is no directory of the tree", t)
		}
	}
	if s.Any {
		return nil
	}
	return onVolume(s.Source)
}
