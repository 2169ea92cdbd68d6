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
	// OnlyOwn restricts removals from Dest to what was copied there before.
	OnlyOwn bool `json:"onlyOwn,omitempty"`
	// Keys owns the keyring in Dest. It may be nil: the owner is the same as in Source.
	Keys *account `json:"keys,omitempty"`
	// Any allows a source that is no volume.
	Any bool `json:"any,omitempty"`
	// Stage is a directory of Dest, outside of the trees, where new files wait until all
	// changes are there. It may be empty: each file comes into place by itself.
	Stage string `json:"stage,omitempty"`
}

// account owns files.
type account struct {
	UID int `json:"uid"`
	GID int `json:"gid"`
}

// mirroredTrees returns the trees that a node copies: files and pillars for minions, the
// administrator's options of the master, the keys of secrets in pillars, and packages for Python.
func mirroredTrees() []string {
	return []string{"srv/salt", "srv/pillar", "etc/master.d", secrets.Dir, python.Dir}
}

// isOptional reports whether a tree may be missing: older volumes do not have it.
func isOptional(tree string) bool { return tree == secrets.Dir || tree == python.Dir }

// keyPart returns the part of a path below the keyring. gpg works in the copy of the
// keyring: the files that it creates there are neither copied nor removed.
func keyPart(rel string) (part string, in bool) {
	if rel == secrets.Dir {
		return "", true
	}
	return strings.CutPrefix(rel, secrets.Dir+"/")
}

// ownedByGPG reports whether gpg created a path for itself.
func ownedByGPG(rel string) bool {
	part, in := keyPart(rel)
	return in && part != "" && !secrets.Part(part)
}

// Limits of one pass.
const (
	mirrorMaxEntries = 500_000
	mirrorMaxBytes   = 64 << 30
	mirrorMaxDepth   = 64
)

// mirrorReport counts the work of one pass.
type mirrorReport struct {
	Files   int   `json:"files"`
	Copied  int   `json:"copied"`
	Removed int   `json:"removed"`
	Bytes   int64 `json:"bytes"` // copied
	// Changing counts files that changed while they were read. The next pass tries
	// them again.
	Changing int `json:"changing,omitempty"`
	// Example is one of the files of Changing.
	Example string `json:"example,omitempty"`
	// Skipped counts entries that are neither file, directory nor link, and those beyond
	// the limits.
	Skipped int `json:"skipped,omitempty"`
}

// The pace of passes. The holder of the lease starts a pass every mirrorEvery, spends
// no more than a sixth of the time in passes, and marks every change beside its beat.
// The other nodes start a pass when they see a new mark, and every mirrorAnyway: a pass
// costs all bricks, so not every node should make one every time.
const (
	mirrorEvery  = 2 * time.Second
	mirrorAnyway = 30 * time.Second
	mirrorLook   = 500 * time.Millisecond // at the mark
	mirrorRest   = 5
	mirrorMost   = time.Minute
	// mirrorStale is the age at which a copy becomes a problem.
	mirrorStale = 30 * time.Second
	// A caller of newest waits for newestPasses times the length of the last pass, at
	// least newestLeast and at most newestMost.
	newestLeast  = 5 * time.Second
	newestPasses = 3
	newestMost   = 30 * time.Second
)

// mirrorQuestion asks the child for a pass.
type mirrorQuestion struct {
	// ListAll also lists directories that seem to be still empty.
	ListAll bool `json:"whole,omitempty"`
	// AskEach asks the volume for the attributes of each file, because lists may lack them.
	AskEach bool `json:"each,omitempty"`
	// ClockSpread is how far the clocks of the nodes are known to differ.
	ClockSpread time.Duration `json:"apart,omitempty"`
}

// Unsteady is the error of a pass that left out files because they are being written. The
// copy has them as they were before.
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

// errAway is the outcome of a pass that did not start.
var errAway = errors.New("the shared volume is not mounted, or does not answer")

// mirrorPace is how often passes start, and how often the mark is read between them.
type mirrorPace struct{ every, anyway, look time.Duration }

// mirror is the parent's side: it keeps this node's copy of what the volume
// holds for minions, so that a volume that hangs does not stop state runs.
type mirror struct {
	child             worker
	pace              mirrorPace           // zero: as above
	passWanted        chan struct{}        // a pass is wanted at once; nil: never
	attributesMayLack func() bool          // whether lists may lack attributes of files; nil: never
	clockSpread       func() time.Duration // how far clocks of nodes differ; nil: not at all

	mu          sync.Mutex
	completedAt time.Time // end of the newest complete pass
	asOf        time.Time // its begin: what was written before is in the copy
	lastTook    time.Duration
	report      mirrorReport
	fault       string
	wantedPass  int           // the newest pass that somebody waits for, as of begun
	passesBegun int           // passes, also those that were not made
	beganAt     time.Time     // when the pass under way began; zero: there is none
	passesEnded int           // the newest pass that is over, as of begun
	lastOutcome error         // of the newest pass that is over
	passOver    chan struct{} // closed when the pass under way is over; nil: nobody waits
}

// waitForPass waits for d, or until a pass is wanted. wanted reports the latter.
func (m *mirror) waitForPass(ctx context.Context, d time.Duration) (wanted bool, err error) {
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-m.passWanted:
		return true, nil
	case <-time.After(d):
		return false, nil
	}
}

// waitForNew waits for the end of a pass that begins after the call. All calls during
// one pass share the next one.
func (m *mirror) waitForNew(ctx context.Context) error {
	m.mu.Lock()
	next := m.passesBegun + 1
	m.wantedPass = next
	m.mu.Unlock()

	for {
		select {
		case m.passWanted <- struct{}{}:
		default:
		}

		m.mu.Lock()
		if m.passesEnded >= next {
			defer m.mu.Unlock()
			if m.lastOutcome != nil {
				return fmt.Errorf("copy the files from the shared volume: %w", m.lastOutcome)
			}
			return nil
		}

		if m.passOver == nil {
			m.passOver = make(chan struct{})
		}

		over := m.passOver
		m.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
			return fmt.Errorf("copy the files from the shared volume: %w", context.Cause(ctx))
		}
	}
}

// newest calls waitForNew with a limit that suits the length of passes. It returns the
// time of which the copy is. The error says why that is older than the call, or names
// files that are older ([Unsteady]).
func (m *mirror) newest(ctx context.Context) (asOf time.Time, err error) {
	m.mu.Lock()
	limit := min(max(newestLeast, newestPasses*m.lastTook), newestMost)
	began := m.beganAt
	m.mu.Unlock()

	overdue := !began.IsZero() && time.Since(began) > limit
	if overdue {
		since := began.UTC().Format("15:04:05 UTC")
		err = fmt.Errorf("copy the files from the shared volume: under way since %s: it does not answer, or has much that is new", since)
	} else {
		slow := fmt.Errorf("it does not answer, or has more that is new than can be copied within %v", limit.Round(time.Second))
		within, cancel := context.WithTimeoutCause(ctx, limit, slow)
		defer cancel()
		err = m.waitForNew(within)
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asOf, err
}

// beginPass counts a pass. whole reports whether a caller waits for it.
func (m *mirror) beginPass(now time.Time) (whole bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.passesBegun++
	m.beganAt = now
	return m.wantedPass >= m.passesBegun
}

// endPass wakes the callers that wait for a pass, and records its outcome. first reports
// whether no pass was completed before.
func (m *mirror) endPass(begun, now time.Time, r mirrorReport, err error) (first bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	first = m.completedAt.IsZero()
	m.passesEnded = m.passesBegun
	m.lastOutcome = err
	if err == nil && r.Changing > 0 {
		m.lastOutcome = &Unsteady{r.Changing, r.Example}
	}

	m.beganAt = time.Time{}
	if m.passOver != nil {
		close(m.passOver)
		m.passOver = nil
	}

	switch {
	case errors.Is(err, errAway): // the mount's own problem reports it
	case err != nil:
		m.fault = err.Error()
	default:
		m.fault = ""
		m.completedAt = now
		m.report = r
		m.lastTook = time.Since(begun)
		m.asOf = now.Add(-m.lastTook)
	}

	return first
}

// keepCopying starts passes until ctx ends, while wanted reports that the volume is there.
// watched returns the mark of the newest change, and whether another node watches for
// changes (see lease.newestMark). keepCopying calls changed after the first pass, and
// after each pass that changed something.
func (m *mirror) keepCopying(
	ctx context.Context,
	now func() time.Time,
	wanted func() bool,
	watched func() (uint64, bool),
	changed func(mirrorReport),
) {
	defer m.child.stopChild()
	p := m.pace
	if p == (mirrorPace{}) {
		p = mirrorPace{mirrorEvery, mirrorAnyway, mirrorLook}
	}

	for {
		wait, mark := p.every, uint64(0)
		select {
		case <-m.passWanted: // satisfied by the pass that begins now
		default:
		}

		begun := time.Now()
		whole := m.beginPass(begun)
		if wanted() {
			mark, _ = watched()
			var r mirrorReport
			// A pass may take any time as a whole: what it copied is of no use until it ends, and a
			// pass that was ended because it is long would begin again for ever. It may only not
			// stand still.
			err := m.child.ask(ctx, 2*time.Minute, m.question(whole), &r)
			wait = min(max(wait, mirrorRest*time.Since(begun)), mirrorMost)
			if err != nil {
				wait, mark = p.every, 0
			}

			first := m.endPass(begun, now(), r, err)
			if err == nil && (first || r.Copied+r.Removed > 0) {
				changed(r)
			}
		} else {
			m.endPass(begun, now(), mirrorReport{}, errAway)
		}

		again, err := m.waitForPass(ctx, wait)
		for end := time.Now().Add(p.anyway - wait); err == nil && !again && time.Now().Before(end); {
			if next, ok := watched(); !ok || next != mark {
				break
			}
			again, err = m.waitForPass(ctx, p.look)
		}

		if err != nil {
			return
		}
	}
}

// question returns the child's order for a pass. whole reports whether a caller waits
// for it.
func (m *mirror) question(whole bool) mirrorQuestion {
	q := mirrorQuestion{
		ListAll: whole,
		AskEach: whole && m.attributesMayLack != nil && m.attributesMayLack(),
	}
	if m.clockSpread != nil {
		q.ClockSpread = m.clockSpread()
	}
	return q
}

// state returns the end of the newest complete pass, its report, and why there is no
// newer one.
func (m *mirror) state() (at time.Time, did mirrorReport, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	why = m.fault
	if why == "" && !m.beganAt.IsZero() {
		why = "files are being copied since " + m.beganAt.UTC().Format("15:04:05 UTC")
	}
	return m.completedAt, m.report, why
}

// mirrorChild runs one pass for each question.
func mirrorChild(args []string, in io.Reader, out, errOut io.Writer) int {
	var spec mirrorSpec
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &spec) != nil {
		fmt.Fprintln(errOut, "mirror: a specification is needed")
		return 2
	}

	c := newCopier(spec)
	c.step = tellSteps(out)
	return serveLines(in, out, func(line []byte) (any, error) {
		var q mirrorQuestion
		if err := json.Unmarshal(line, &q); err != nil {
			return nil, err
		}

		c.listAll = q.ListAll
		c.askEach = q.AskEach
		c.clockSpread = q.ClockSpread
		return c.runPass()
	})
}

// argument returns the specification as an argument of the child.
func (s mirrorSpec) argument() string {
	b, err := json.Marshal(s)
	if err != nil { // strings and booleans only
		return ""
	}
	return string(b)
}

// validate refuses a specification that leads out of its roots.
func (s mirrorSpec) validate() error {
	for _, t := range s.Trees {
		if !filepath.IsLocal(t) || filepath.Clean(t) != t || t == "." {
			return fmt.Errorf("copy: %q is no directory of the tree", t)
		}
	}
	return nil
}
