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

// mirrorSpec says which files are copied from the volume to this node.
type mirrorSpec struct {
	Source string   `json:"source"` // mount point
	Dest   string   `json:"dest"`   // directory on this node's disk
	Trees  []string `json:"trees"`  // paths relative to Source and Dest
	// Index is the file that records what was copied. Empty: a file in Dest.
	Index string `json:"index,omitempty"`
	// OnlyOwn reports whether a pass may remove from Dest only what an earlier pass copied there.
	OnlyOwn bool `json:"onlyOwn,omitempty"`
	// Keys is the owner of the keyring in Dest. It may be nil: the owner is the same as in Source.
	Keys *account `json:"keys,omitempty"`
	// Any allows a source that is no volume.
	Any bool `json:"any,omitempty"`
	// Stage is a directory of Dest, outside of the trees. A pass collects new files there before it
	// moves all of them into place. It may be empty: the pass then moves each file into place as
	// soon as it is copied.
	Stage string `json:"stage,omitempty"`
}

// account is an owner of files.
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

// keyPart returns rel relative to the keyring; inside reports whether rel is inside the keyring. gpg
// works on the copy of the keyring: files that gpg creates there are neither copied nor removed.
func keyPart(rel string) (part string, inside bool) {
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

// These limits bound one pass.
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
	Bytes   int64 `json:"bytes"` // bytes of the files that were copied
	// Changing counts files that changed while they were read. The next pass reads them again.
	Changing int `json:"changing,omitempty"`
	// Example is the path of one of the changing files.
	Example string `json:"example,omitempty"`
	// Skipped counts entries that are neither file, directory nor link, and those beyond
	// the limits.
	Skipped int `json:"skipped,omitempty"`
}

// The pace of passes. The holder of the lease starts a pass every mirrorEvery, spends no more than
// a sixth of the time in passes, and writes a mark for every change beside its beat. The other
// nodes start a pass when they see a new mark, and at least every mirrorAnyway: a pass asks all
// bricks, so not every node should make one every time.
const (
	mirrorEvery  = 2 * time.Second
	mirrorAnyway = 30 * time.Second
	mirrorLook   = 500 * time.Millisecond // interval at which a node reads the mark
	mirrorRest   = 5
	mirrorMost   = time.Minute
	// mirrorStale is the age at which an old copy is reported as a problem.
	mirrorStale = 30 * time.Second
	// A caller of newest waits for newestPasses times the length of the last pass, at
	// least newestLeast and at most newestMost.
	newestLeast  = 5 * time.Second
	newestPasses = 3
	newestMost   = 30 * time.Second
)

// mirrorQuestion is the request to the child for a pass.
type mirrorQuestion struct {
	// ListAll also lists directories that seem to be still empty.
	ListAll bool `json:"whole,omitempty"`
	// AskEach asks the volume for the attributes of each file, because lists may lack them.
	AskEach bool `json:"each,omitempty"`
	// ClockSpread is the largest known difference between the clocks of the nodes.
	ClockSpread time.Duration `json:"apart,omitempty"`
}

// Unsteady is the error of a pass that skipped files because they were being written. Their copies
// stay at the earlier versions.
type Unsteady struct {
	Files   int
	Example string // path of one of the files
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

// errAway is the outcome of a pass that did not start, because the mount does not work.
var errAway = errors.New("the shared volume is not mounted, or does not answer")

// mirrorPace holds the intervals mirrorEvery, mirrorAnyway and mirrorLook; tests use shorter ones.
type mirrorPace struct{ every, anyway, look time.Duration }

// mirror is the supervisor's side of the copy. It keeps a copy of the volume's files for minions on
// this node, so that a volume that hangs does not stop state runs. Its child, mirrorChild, does the
// copying.
type mirror struct {
	child      worker
	pace       mirrorPace    // zero: mirrorEvery, mirrorAnyway, mirrorLook
	passWanted chan struct{} // signals that a caller wants a pass now; nil: no caller ever does
	// attributesMayLack reports whether listings of directories may lack attributes of files. It
	// may be nil: they never do.
	attributesMayLack func() bool
	clockSpread       func() time.Duration // returns by how much the clocks of the nodes differ; nil: by nothing

	mu          sync.Mutex
	completedAt time.Time // end of the newest complete pass
	asOf        time.Time // begin of the newest complete pass: the copy contains everything that was written before it
	lastTook    time.Duration
	report      mirrorReport
	fault       string
	wantedPass  int           // number of the newest pass for which a caller waits, counted as in passesBegun
	passesBegun int           // number of passes begun, including passes that ended with errAway
	beganAt     time.Time     // when the pass under way began; zero: there is none
	passesEnded int           // number of the newest pass that is over, counted as in passesBegun
	lastOutcome error         // error of the newest pass that is over, or nil
	passOver    chan struct{} // closed when the pass under way is over; nil: no caller waits
}

// waitForPass waits for d, or until a caller wants a pass. wanted reports whether a caller wants
// one.
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

// waitForNew waits for the end of a pass that begins after the call. All calls during one pass wait
// for the same next pass.
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

// newest calls waitForNew, with a time limit that depends on how long the last pass took. It
// returns the time of the volume's state that the copy shows. The error says why the copy is older
// than the call, or names an older file ([Unsteady]).
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
	case errors.Is(err, errAway): // another finding reports the fault of the mount
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

// keepCopying starts passes until ctx ends, as long as wanted reports that the mount works. watched
// returns the mark of the newest change, and whether another node watches for changes (see
// lease.newestMark). keepCopying calls changed after the first pass, and after each pass that
// changed something.
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
		case <-m.passWanted: // this caller also waits for the pass that begins now
		default:
		}

		begun := time.Now()
		whole := m.beginPass(begun)
		if wanted() {
			mark, _ = watched()
			var r mirrorReport
			// passHangs limits the time without progress, not the time of a whole pass. With a
			// stage the copies of a pass are useless until it ends, so a pass that was stopped
			// after some time would never get further.
			err := m.child.ask(ctx, passHangs, m.question(whole), &r)
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

// question returns what the child is asked for one pass. whole reports whether a caller waits for
// the pass.
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

// state returns when the newest complete pass ended, its report, and why there is no newer one ("":
// no pass has failed since).
func (m *mirror) state() (at time.Time, did mirrorReport, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	why = m.fault
	if why == "" && !m.beganAt.IsZero() {
		why = "files are being copied since " + m.beganAt.UTC().Format("15:04:05 UTC")
	}
	return m.completedAt, m.report, why
}

// mirrorChild runs one pass for each request.
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

// argument returns the specification encoded as an argument of the child.
func (s mirrorSpec) argument() string {
	b, err := json.Marshal(s)
	if err != nil { // cannot happen: the fields are strings and booleans only
		return ""
	}
	return string(b)
}

// validate refuses a specification whose trees lead out of Source or Dest.
func (s mirrorSpec) validate() error {
	for _, t := range s.Trees {
		if !filepath.IsLocal(t) || filepath.Clean(t) != t || t == "." {
			return fmt.Errorf("copy: %q is no directory of the tree", t)
		}
	}
	return nil
}
