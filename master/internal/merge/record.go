package merge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"saltern/internal/versioned"
	"saltern/master/internal/merge/forge"
	"saltern/master/internal/repos"
)

// Bounds of a record.
const (
	maxRecord     = 16 << 20 // bytes
	maxOpen       = 100      // commits that wait
	maxDone       = 50       // commits of which the result is kept
	maxComments   = 500      // merge requests of which the comment is known
	maxSameCommit = 20       // merge requests with one commit that get a comment
	maxBranch     = 255      // bytes of the name of a branch that is reported
	// maxTries is how often a comparison is begun: the master may have died of it.
	maxTries = 5
)

// record holds what the masters of a cluster know of the reports about one remote.
type record struct {
	Version uint64 `json:"version"`
	// Looked means that the commits of the first look are noted.
	Looked bool `json:"looked"`
	// Foreign is a digest of the refspecs that fetch from elsewhere than the branches of the remote.
	Foreign string `json:"foreign"`
	// Tips are the commits that were taken, by a digest of the branch.
	Tips map[string]string `json:"tips"`
	Open []*item           `json:"open"` // in the order in which they are compared
	Done []*item           `json:"done"` // the newest last
	// Comments are the ids of the comments by the number of their merge request.
	Comments map[int64]int64 `json:"comments"`
}

// item is one commit.
type item struct {
	Branch string    `json:"branch"`
	Commit string    `json:"commit"`
	Since  time.Time `json:"since"`
	Tries  int       `json:"tries"`
	// Told means that the server may have the status pending.
	Told        bool        `json:"told"`
	State       forge.State `json:"state"` // "": not compared yet
	Description string      `json:"description"`
	Comment     string      `json:"comment"` // for the merge request; "": none, or written
	// Commented are the merge requests that have the comment, or may have it, while others wait for it.
	Commented []int64 `json:"commented,omitempty"`
	Refused   bool    `json:"refused"` // the server does not take the status

	pending  bool      // this process has set the status pending
	refusals int       // of the server, in this process
	faults   int       // of the server that may pass, in this process
	accepted uint64    // how many statuses the server had taken at the last fault
	retryAt  time.Time // zero: at once
}

// branchKey returns the digest of a branch in Tips.
func branchKey(branch string) string {
	sum := sha256.Sum256([]byte(branch))
	return hex.EncodeToString(sum[:12])
}

// noteForeign notes what the remote has elsewhere than in its branches if the refspecs that fetch it are new: an
// administrator who adds them, and forks, does not want each old merge request reported. It reports whether
// the record has changed.
func (r *record) noteForeign(tips repos.Tips) (changed bool) {
	refspecs := branchKey(strings.Join(tips.Foreign, "\n"))
	if r.Foreign == refspecs {
		return false
	}

	r.Foreign = refspecs
	for _, tip := range tips.All {
		key := branchKey(tip.Branch)
		if _, had := r.Tips[key]; tip.Foreign && !had && r.Looked {
			r.Tips[key] = tip.Commit
		}
	}
	return true
}

// take takes the new commits among the tips of the remote. covers reports whether a tip is to be
// reported. It reports whether the record has changed, and whether there was no room for some.
func (r *record) take(tips []repos.Tip, covers func(repos.Tip) bool, now time.Time) (changed, full bool) {
	current := map[string]bool{} // commits that a branch has which is reported
	for _, tip := range tips {
		if covers(tip) {
			current[tip.Commit] = true
		}
	}
	changed = r.dropOutdated(current)

	taken := make(map[string]string, len(tips))
	for _, tip := range tips {
		key := branchKey(tip.Branch)
		before, had := r.Tips[key]
		switch {
		case had && before == tip.Commit:
			taken[key] = before
			continue
		case !r.Looked || !covers(tip) || r.waits(tip.Commit):
		case len(r.Open) >= maxOpen:
			full = true
			if had {
				taken[key] = before
			}
			continue
		default:
			told := r.dropResult(tip.Commit)
			r.Open = append(r.Open, &item{
				Branch: tip.Branch,
				Commit: tip.Commit,
				Since:  now,
				Told:   told,
			})
		}
		taken[key] = tip.Commit
		changed = true
	}

	changed = changed || len(taken) != len(r.Tips) || !r.Looked
	r.Tips = taken
	r.Looked = true
	return changed, full
}

// waits reports whether a commit waits for its comparison.
func (r *record) waits(commit string) bool {
	return slices.ContainsFunc(r.Open, func(it *item) bool { return it.Commit == commit && it.State == "" })
}

// dropResult removes the result of a commit that waits for the server, such as that it is outdated: the commit
// is there again. It reports whether the server may have the status pending.
func (r *record) dropResult(commit string) (told bool) {
	for i, it := range r.Open {
		if it.Commit == commit {
			r.Open = slices.Delete(slices.Clone(r.Open), i, i+1)
			return it.Told
		}
	}
	return false
}

// outdated is the description of a commit that was not compared.
const outdated = "not compared: the branch has a newer commit, or is gone"

// dropOutdated removes the commits that wait and that no branch has any more. A commit with the
// status pending stays, with a result.
func (r *record) dropOutdated(current map[string]bool) (changed bool) {
	var left []*item
	for _, it := range r.Open {
		if it.State == "" && !current[it.Commit] {
			changed = true
			if !it.Told {
				continue
			}
			it.State = forge.Error
			it.Description = outdated
		}
		left = append(left, it)
	}
	r.Open = left
	return changed
}

// finish moves a commit from Open to Done.
func (r *record) finish(it *item) {
	for i, other := range r.Open {
		if other == it {
			r.Open = append(r.Open[:i:i], r.Open[i+1:]...)
			break
		}
	}
	r.Done = append(r.Done, it)
	r.Done = r.Done[max(0, len(r.Done)-maxDone):]
}

// store keeps a record in a file. Its methods return after fileTakes at the latest, also if the file system
// hangs. They are safe for concurrent use.
type store struct {
	file versioned.File
	// turn holds one token. A call of a file system that hangs has it until the file system answers.
	turn chan struct{}
}

var errSilent = errors.New("the file system does not answer")

func newStore(path string) *store {
	s := &store{turn: make(chan struct{}, 1)}
	s.turn <- struct{}{}
	s.file = versioned.File{
		Path:  path,
		Mode:  0o600,
		Limit: maxRecord,
		Version: func(content []byte) (uint64, error) {
			r, err := parseRecord(content)
			if err != nil {
				return 0, err
			}
			return r.Version, nil
		},
	}
	return s
}

func parseRecord(content []byte) (*record, error) {
	r := &record{}
	if err := json.Unmarshal(content, r); err != nil {
		return nil, fmt.Errorf("read the record of reports: %w", err)
	}
	if r.Version == 0 {
		return nil, errors.New("the record of reports has no version")
	}
	for _, it := range append(r.Open[:len(r.Open):len(r.Open)], r.Done...) {
		if it == nil {
			return nil, errors.New("the record of reports has an empty entry")
		}
	}
	if r.Tips == nil {
		r.Tips = map[string]string{}
	}
	if r.Comments == nil {
		r.Comments = map[int64]int64{}
	}
	return r, nil
}

// within calls f, and waits for it for a time.
func (s *store) within(ctx context.Context, f func() error) error {
	limit := time.NewTimer(fileTakes)
	defer limit.Stop()
	select {
	case <-s.turn:
	case <-limit.C:
		return errSilent
	case <-ctx.Done():
		return ctx.Err()
	}

	done := make(chan error, 1)
	go func() { // lasts until the file system answers; no other call begins meanwhile
		err := f()
		s.turn <- struct{}{}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-limit.C:
		return errSilent
	case <-ctx.Done():
	}

	// What is being written should count for the next start.
	last := time.NewTimer(endWithin)
	defer last.Stop()
	select {
	case err := <-done:
		return err
	case <-last.C:
		return ctx.Err()
	}
}

// load returns the newest record, or an empty one if there is none.
func (s *store) load(ctx context.Context) (*record, error) {
	var content []byte
	err := s.within(ctx, func() (err error) {
		content, _, err = s.file.Read()
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return &record{Tips: map[string]string{}, Comments: map[int64]int64{}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read which commits were reported: %w", err)
	}
	return parseRecord(content)
}

// setAside renames a record that cannot be read.
func (s *store) setAside(ctx context.Context) (names []string, err error) {
	var renamed []string
	err = s.within(ctx, func() (err error) {
		renamed, err = s.file.SetAside()
		return err
	})
	if err != nil {
		return nil, err
	}
	return renamed, nil
}

// save writes the next version of a record. After an error the caller must load the record again.
func (s *store) save(ctx context.Context, r *record) error {
	before := r.Version
	r.Version++
	content, err := json.Marshal(r)
	if err == nil {
		err = s.within(ctx, func() error { return s.file.Write(before, content) })
	}
	if err != nil {
		return fmt.Errorf("note which commits are reported: %w", err)
	}
	return nil
}
