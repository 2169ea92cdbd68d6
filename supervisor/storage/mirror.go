package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"saltern/internal/printable"
	"saltern/supervisor/python"
	"saltern/supervisor/secrets"
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
	// Keys is who owns the keyring in Dest, whatever its owner in Source; nil: the same.
	Keys *account `json:"keys,omitempty"`
	// Any allows a source that is no volume.
	Any bool `json:"any,omitempty"`
	// Stage is a directory of Dest, outside of the trees, where new files wait until all
	// that has changed is there; empty: each comes into place by itself.
	Stage string `json:"stage,omitempty"`
}

// account owns files.
type account struct {
	UID int `json:"uid"`
	GID int `json:"gid"`
}

// mirrored are the trees that a node copies: files and pillars for minions, the
// administrator's options of the master, the keys of secrets in pillars, and packages for Python.
func mirrored() []string {
	return []string{"srv/salt", "srv/pillar", "etc/master.d", secrets.Dir, python.Dir}
}

// younger reports whether a tree may be missing: volumes of before have none.
func younger(tree string) bool { return tree == secrets.Dir || tree == python.Dir }

// keyPart splits off what a path is below the keyring. gpg works in the copy of
// it: what gpg makes there is neither copied nor removed.
func keyPart(rel string) (part string, in bool) {
	if rel == secrets.Dir {
		return "", true
	}
	return strings.CutPrefix(rel, secrets.Dir+"/")
}

// foreign reports whether a path is gpg's own business.
func foreign(rel string) bool {
	part, in := keyPart(rel)
	return in && part != "" && !secrets.Part(part)
}

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
	// Example is one of them.
	Example string `json:"example,omitempty"`
	// Skipped are files that are neither regular, directory nor link, and those
	// beyond the limits.
	Skipped int `json:"skipped,omitempty"`
}

// The pace of passes: mirrorEvery when a pass is quick, and never more than a
// sixth of the time spent in passes. That is for the holder of the lease, which
// marks every change beside its beat. The others make a pass when they see a new
// mark, and every mirrorAnyway: a pass of N files is work for all bricks, and
// would be made by each node.
const (
	mirrorEvery  = 2 * time.Second
	mirrorAnyway = 30 * time.Second
	mirrorLook   = 500 * time.Millisecond // at the mark
	mirrorRest   = 5
	mirrorMost   = time.Minute
	// mirrorFirst is for the first pass, which copies everything, mirrorPass for
	// those after it.
	mirrorFirst = 30 * time.Minute
	mirrorPass  = 2 * time.Minute
	// mirrorStale is when an old copy becomes a problem.
	mirrorStale = 30 * time.Second
	// Who asks for the files of now waits for newestLeast, or for as long as newestPasses
	// passes of the length of the last one take, newestMost at most.
	newestLeast  = 5 * time.Second
	newestPasses = 3
	newestMost   = 30 * time.Second
)

// mirrorQuestion asks the child for a pass.
type mirrorQuestion struct {
	// Whole lists all directories, also those that seem to be empty still.
	Whole bool `json:"whole,omitempty"`
	// Each asks the volume for the attributes of each file: lists may lack them.
	Each bool `json:"each,omitempty"`
	// Apart is how far the clocks of nodes are known to differ.
	Apart time.Duration `json:"apart,omitempty"`
}

// Unsteady is in the chain when a pass copied all that is new but for files that are being
// written: they are in the copy as they were before.
type Unsteady struct {
	Files   int
	Example string // one of them
}

func (u *Unsteady) Error() string {
	example := printable.Brief(u.Example, maxExample)
	if u.Files == 1 {
		return example + " is being written, and is served as it was before"
	}
	return fmt.Sprintf("%d files are being written, such as %s, and are served as they were before", u.Files, example)
}

// maxExample bounds the name of a file in a message, in bytes.
const maxExample = 200

// errAway is the outcome of a pass that was not made.
var errAway = errors.New("the shared volume is not mounted, or does not answer")

// mirrorPace is how often passes are made.
type mirrorPace struct{ every, anyway, look time.Duration }

// mirror is the parent's side: it keeps this node's copy of what the volume
// holds for minions, so that a volume that hangs does not stop state runs.
type mirror struct {
	child  worker
	pace   mirrorPace           // zero: as above
	soon   chan struct{}        // a pass is wanted at once; nil: never
	unsure func() bool          // whether lists may lack attributes of files; nil: never
	apart  func() time.Duration // how far clocks of nodes differ; nil: not at all

	mu      sync.Mutex
	last    time.Time // end of the newest complete pass
	asOf    time.Time // its begin: what was written before is in the copy
	took    time.Duration
	report  mirrorReport
	fault   string
	asked   int           // the newest pass that somebody waits for, as of begun
	begun   int           // passes, also those that were not made
	since   time.Time     // when the pass under way began; zero: there is none
	ended   int           // the newest pass that is over, as of begun
	outcome error         // of the newest pass that is over
	over    chan struct{} // closed when the pass under way is over; nil: nobody waits
}

// rest waits for d, or until a pass is wanted, which it reports.
func (m *mirror) rest(ctx context.Context, d time.Duration) (wanted bool, err error) {
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-m.soon:
		return true, nil
	case <-time.After(d):
		return false, nil
	}
}

// fresh returns when a pass is over that began after it was called. All who call it
// during one pass share the next one.
func (m *mirror) fresh(ctx context.Context) error {
	m.mu.Lock()
	next := m.begun + 1
	m.asked = next
	m.mu.Unlock()

	for {
		select {
		case m.soon <- struct{}{}:
		default:
		}

		m.mu.Lock()
		if m.ended >= next {
			defer m.mu.Unlock()
			if m.outcome != nil {
				return fmt.Errorf("copy the files from the shared volume: %w", m.outcome)
			}
			return nil
		}

		if m.over == nil {
			m.over = make(chan struct{})
		}

		over := m.over
		m.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
			return fmt.Errorf("the shared volume does not answer: %w", context.Cause(ctx))
		}
	}
}

// newest is fresh within a time that suits the length of passes. It returns as of when
// the copy is, with an error when that is not the time of the call, or not for all files
// ([Unsteady]).
func (m *mirror) newest(ctx context.Context) (asOf time.Time, err error) {
	m.mu.Lock()
	limit := min(max(newestLeast, newestPasses*m.took), newestMost)
	overdue := !m.since.IsZero() && time.Since(m.since) > limit
	m.mu.Unlock()

	if overdue {
		err = fmt.Errorf("the shared volume does not answer: the files are being copied for more than %v", limit)
	} else {
		within, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("its files were not copied within %v", limit))
		defer cancel()
		err = m.fresh(within)
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asOf, err
}

// begin counts a pass. whole reports whether somebody waits for it.
func (m *mirror) begin(now time.Time) (limit time.Duration, whole bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begun++
	m.since = now
	limit = mirrorPass
	if m.last.IsZero() {
		limit = mirrorFirst
	}
	return limit, m.asked >= m.begun
}

// end tells those who wait how a pass was, and keeps what is to be reported of it.
func (m *mirror) end(begun, now time.Time, r mirrorReport, err error) (first bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	first = m.last.IsZero()
	m.ended = m.begun
	m.outcome = err
	if err == nil && r.Changing > 0 {
		m.outcome = &Unsteady{r.Changing, r.Example}
	}

	m.since = time.Time{}
	if m.over != nil {
		close(m.over)
		m.over = nil
	}

	switch {
	case errors.Is(err, errAway): // others say so
	case err != nil:
		m.fault = err.Error()
	default:
		m.fault = ""
		m.last = now
		m.report = r
		m.took = time.Since(begun)
		m.asOf = now.Add(-m.took)
	}

	return first
}

// keep makes passes until ctx ends, while wanted says that the volume is there.
// watched gives the mark of the newest change, and whether another node looks
// for changes (see lease.watched). changed is called after a pass that changed
// something and after the first.
func (m *mirror) keep(
	ctx context.Context,
	now func() time.Time,
	wanted func() bool,
	watched func() (uint64, bool),
	changed func(mirrorReport),
) {
	defer m.child.close()
	p := m.pace
	if p == (mirrorPace{}) {
		p = mirrorPace{mirrorEvery, mirrorAnyway, mirrorLook}
	}

	for {
		wait, mark := p.every, uint64(0)
		select {
		case <-m.soon: // whoever wants the pass that begins now
		default:
		}

		begun := time.Now()
		limit, whole := m.begin(begun)
		if wanted() {
			mark, _ = watched()
			var r mirrorReport
			err := m.child.ask(ctx, limit, m.question(whole), &r)
			wait = min(max(wait, mirrorRest*time.Since(begun)), mirrorMost)
			if err != nil {
				wait, mark = p.every, 0
			}

			first := m.end(begun, now(), r, err)
			if err == nil && (first || r.Copied+r.Removed > 0) {
				changed(r)
			}
		} else {
			m.end(begun, now(), mirrorReport{}, errAway)
		}

		again, err := m.rest(ctx, wait)
		for end := time.Now().Add(p.anyway - wait); err == nil && !again && time.Now().Before(end); {
			if next, ok := watched(); !ok || next != mark {
				break
			}
			again, err = m.rest(ctx, p.look)
		}

		if err != nil {
			return
		}
	}
}

// question asks the child for a pass; whole: somebody waits for it.
func (m *mirror) question(whole bool) mirrorQuestion {
	q := mirrorQuestion{
		Whole: whole,
		Each:  whole && m.unsure != nil && m.unsure(),
	}
	if m.apart != nil {
		q.Apart = m.apart()
	}
	return q
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
	return serve(in, out, func(line []byte) (any, error) {
		var q mirrorQuestion
		if err := json.Unmarshal(line, &q); err != nil {
			return nil, err
		}

		c.whole = q.Whole
		c.each = q.Each
		c.apart = q.Apart
		return c.pass()
	})
}

// text is the specification as an argument of the child.
func (s mirrorSpec) text() string {
	b, err := json.Marshal(s)
	if err != nil { // strings and booleans only
		return ""
	}
	return string(b)
}

// check refuses a specification that leads out of its roots.
func (s mirrorSpec) check() error {
	for _, t := range s.Trees {
		if !filepath.IsLocal(t) || filepath.Clean(t) != t || t == "." {
			return fmt.Errorf("copy: %q is no directory of the tree", t)
		}
	}
	return nil
}
