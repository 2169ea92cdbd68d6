package merge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/master/internal/diff"
	"saltern/master/internal/git"
	"saltern/master/internal/merge/forge"
	"saltern/master/internal/merge/options"
	"saltern/master/internal/repos"
	"saltern/test/await"
	"saltern/test/check"
)

// held is a Comparer that holds comparisons up until it is opened.
type held struct {
	Comparer
	mu    sync.Mutex
	begun []string
	open  chan struct{}
}

func (h *held) Compare(ctx context.Context, r diff.Request, tell func(string)) (*diff.Report, error) {
	h.mu.Lock()
	h.begun = append(h.begun, r.To.Ref)
	h.mu.Unlock()
	select {
	case <-h.open:
		return h.Comparer.Compare(ctx, r, tell)
	case <-ctx.Done():
		return nil, errors.New("cut off")
	}
}

func (h *held) started() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string{}, h.begun...)
}

// TestRestart: a master that ends while it compares goes on after the next start, also if another one does; a
// commit that was pushed over is not compared, and no commit is reported twice.
func TestRestart(t *testing.T) {
	t.Parallel()
	r := newRig(t, options.Gitea, 1, "into: main")
	r.stopService()
	slow := &held{Comparer: r.compare, open: make(chan struct{})}
	r.compare = slow
	r.start()

	old := r.push("feature", "web.sls", "port: 1\n")
	r.fetch()
	await.That(t, "a comparison", func() bool { return len(slow.started()) == 1 })
	r.cluster.other.Store(true) // a comparison ends when this master is not the owner any more
	await.That(t, "a result that nobody sends", func() bool { return len(r.server.of(old)) == 1 })
	r.stopService()
	r.cluster.other.Store(false)
	newer := r.push("feature", "web.sls", "port: 2\n")
	second := r.push("second", "web.sls", "port: 3\n")
	r.fetch()
	r.start()
	if got := r.server.final(old); got.State != "error" || got.Description != outdated {
		t.Errorf("the commit that was pushed over got %+v", got)
	}
	close(slow.open)
	for _, commit := range []string{newer, second} {
		if got := r.server.final(commit); got.State != "success" {
			t.Errorf("got %+v", got)
		}
	}

	await.That(t, "a record of the results", func() bool { return len(r.record().Done) == 3 })
	count := len(r.server.everything())
	r.stopService()
	r.start()
	third := r.push("third", "web.sls", "port: 4\n")
	r.fetch()
	r.server.final(third)
	rest := r.server.everything()[count:]
	if strings.Count(rest, `"state"`) != 2 { // pending, and the result
		t.Errorf("after a restart were sent: %s", rest)
	}
}

// TestBrokenRecord: a record that cannot be read is set aside, and nothing old is reported.
func TestBrokenRecord(t *testing.T) {
	t.Parallel()
	r := newRig(t, options.Gitea, 1, "into: main")
	old := r.push("feature", "web.sls", "port: 1\n")
	r.fetch()
	r.server.final(old)
	r.stopService()
	files, err := filepath.Glob(filepath.Dir(r.path()) + "/*merge.saltern*") // a version that follows would count
	check.Must(t, err)
	for _, file := range files {
		check.Must(t, os.Remove(file))
	}
	check.Must(t, os.WriteFile(r.path(), []byte(`{"version": 9999, "open": [null]}`), 0o600))
	r.start()
	await.That(t, "a look", func() bool {
		got, err := newStore(r.path()).load(t.Context())
		return err == nil && got.Looked
	})
	commit := r.push("other", "web.sls", "port: 2\n")
	r.fetch()
	r.server.final(commit)
	if got := r.server.of(old); len(got) != 2 {
		t.Errorf("the old commit got %+v", got)
	}
}

// TestTake: whatever is pushed, removed and pushed over, each commit that a branch has in the end waits or
// was reported, none waits twice, and no commit that is gone is compared.
func TestTake(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		r := &record{}
		r.take(nil, nil, time.Time{})
		branches := map[string]string{}
		reported := map[string]bool{}
		covers := func(tip repos.Tip) bool { return !strings.HasPrefix(tip.Branch, "x") }
		for range 60 {
			branch := fmt.Sprint([]string{"a", "b", "x"}[random.IntN(3)], random.IntN(3))
			switch random.IntN(5) {
			case 0:
				delete(branches, branch)
			case 1: // the commit of another branch
				branches[branch] = branches["a0"]
			case 2:
				if it := waiting(r); it != nil {
					it.Told = true
				}
			case 3:
				if it := waiting(r); it != nil {
					it.State = forge.Success
					reported[it.Commit] = true
					r.finish(it)
				}
			default:
				branches[branch] = fmt.Sprint("c", random.IntN(6))
			}
			r.take(tipsOf(branches), covers, time.Time{})

			open := map[string]int{}
			for _, it := range r.Open {
				open[it.Commit]++
				if it.State == "" {
					reported[it.Commit] = true
				}
			}
			for _, tip := range tipsOf(branches) {
				if covers(tip) && !reported[tip.Commit] || open[tip.Commit] > 1 {
					t.Fatalf("seed %d: %s of %s waits %d times", seed, tip.Commit, tip.Branch, open[tip.Commit])
				}
			}
			for _, it := range r.Open {
				if it.State == "" && !has(branches, it.Commit) {
					t.Fatalf("seed %d: %s is gone and waits", seed, it.Commit)
				}
			}
		}
	}
}

func waiting(r *record) *item {
	for _, it := range r.Open {
		if it.State == "" {
			return it
		}
	}
	return nil
}

func has(branches map[string]string, commit string) bool {
	for branch, c := range branches {
		if c == commit && !strings.HasPrefix(branch, "x") {
			return true
		}
	}
	return false
}

func tipsOf(branches map[string]string) (tips []repos.Tip) {
	for branch, commit := range branches {
		if commit != "" {
			tips = append(tips, repos.Tip{Branch: branch, Commit: commit})
		}
	}
	return tips
}

// TestManyBranches: what finds no room is taken later, with the newest commit.
func TestManyBranches(t *testing.T) {
	r := &record{Looked: true}
	branches := map[string]string{}
	for i := range 3 * maxOpen {
		branches[fmt.Sprintf("b%03d", i)] = fmt.Sprint("c", i)
	}
	all := func(repos.Tip) bool { return true }
	seen := map[string]bool{}
	for range 3 {
		if _, full := r.take(tipsOf(branches), all, time.Time{}); len(r.Open) != maxOpen || full != (len(seen) < 2*maxOpen) {
			t.Fatalf("%d wait, %v", len(r.Open), full)
		}
		for len(r.Open) > 0 {
			seen[r.Open[0].Commit] = true
			r.finish(r.Open[0])
		}
	}
	if len(seen) != len(branches) || len(r.Done) != maxDone {
		t.Errorf("%d taken, %d kept", len(seen), len(r.Done))
	}
}

// changed are Remotes whose tips a test changes.
type changed struct {
	*repos.Service
	change atomic.Pointer[func(*repos.Tips)]
	asked  atomic.Int32 // fetches
}

func (c *changed) Tips(remote string, known *git.Snapshot) (repos.Tips, error) {
	tips, err := c.Service.Tips(remote, known)
	if change := c.change.Load(); change != nil {
		(*change)(&tips)
	}
	return tips, err
}

func (c *changed) FetchGit(context.Context, string) (control.Git, error) {
	c.asked.Add(1)
	return control.Git{}, nil
}

// TestOwnerWithoutFetch: a new owner that knows older commits than the one before, and whose fetches fail,
// reports nothing until one succeeds. It asks for one, and the fault becomes known.
func TestOwnerWithoutFetch(t *testing.T) {
	t.Parallel()
	r := newRig(t, options.Gitea, 1, "into: main")
	old := r.push("feature", "web.sls", "port: 1\n")
	r.fetch()
	r.server.final(old)
	newer := r.push("feature", "web.sls", "port: 2\n")
	r.fetch()
	r.server.final(newer)
	r.stopService()

	began := time.Now()
	remotes := &changed{Service: r.repos}
	stale := func(tips *repos.Tips) {
		tips.Fetched = began.Add(-time.Minute)
		for i := range tips.All {
			if tips.All[i].Commit == newer {
				tips.All[i].Commit = old
			}
		}
	}
	remotes.change.Store(&stale)
	r.remotes = remotes
	r.start()
	await.That(t, "a fault and fetches", func() bool {
		r.ahead.Add(int64(time.Minute))
		return r.problem() != nil && remotes.asked.Load() >= 2
	})
	for _, commit := range []string{old, newer} {
		if got := r.server.of(commit); len(got) != 2 {
			t.Errorf("a commit got %+v", got)
		}
	}

	fresh := func(tips *repos.Tips) { tips.Fetched = time.Now().Add(time.Duration(r.ahead.Load())) }
	remotes.change.Store(&fresh)
	r.ahead.Add(int64(time.Hour))
	await.That(t, "the end of the fault", func() bool { return r.problem() == nil })
}

// TestNewRefspecs: an administrator adds refspecs for merge requests: those that are there are noted, and new
// ones are reported.
func TestNewRefspecs(t *testing.T) {
	t.Parallel()
	r := newRig(t, options.Gitea, 1, "forks: true}\ngit_pillar_refspecs: ['+refs/heads/*:refs/remotes/origin/*', '+refs/pull/*:refs/remotes/origin/pull/*']\nx: {y: 1")
	r.stopService()
	remotes := &changed{Service: r.repos}
	without := func(tips *repos.Tips) {
		tips.Foreign = nil
		tips.All = slices.DeleteFunc(tips.All, func(tip repos.Tip) bool { return tip.Foreign })
	}
	remotes.change.Store(&without)
	r.remotes = remotes
	fork := func(name string, number int) string {
		commit := r.push(name, "web.sls", fmt.Sprintf("port: %d\n", number))
		r.up.Git("update-ref", fmt.Sprintf("refs/pull/%d/head", number), commit)
		r.up.Git("update-ref", "-d", "refs/heads/"+name)
		return commit
	}
	old := fork("stranger", 5)
	r.start()
	own := r.push("a", "web.sls", "port: 1\n")
	r.fetch()
	r.server.final(own)
	r.stopService()

	remotes.change.Store(nil)
	r.start()
	await.That(t, "a look", func() bool { return r.record().Tips[branchKey("pull/5/head")] != "" })
	opened := fork("another", 6)
	r.fetch()
	r.server.final(opened)
	if got := r.server.of(old); len(got) > 0 {
		t.Errorf("the old one got %+v", got)
	}
}

// TestStopsAreNoDeaths: a master that is stopped while it compares has not died of the commit.
func TestStopsAreNoDeaths(t *testing.T) {
	t.Parallel()
	r := newRig(t, options.Gitea, 1, "into: main")
	r.stopService()
	slow := &held{Comparer: r.compare, open: make(chan struct{})}
	r.compare = slow
	r.push("feature", "web.sls", "port: 1\n")
	for i := range 2 {
		r.start()
		await.That(t, "a comparison", func() bool { return len(slow.started()) == i+1 })
		r.stopService()
		if got := r.record().Open; len(got) != 1 || got[0].Tries != 0 {
			t.Errorf("after a stop wait %+v", got)
		}
	}
}

// TestPendingIsReplaced: a commit that was told to be pending, left and came back has the status pending still,
// and gets another whatever comes.
func TestPendingIsReplaced(t *testing.T) {
	r := &record{Looked: true}
	all := func(repos.Tip) bool { return true }
	a := tipsOf(map[string]string{"a": "c1"})
	r.take(a, all, time.Time{})
	r.Open[0].Told = true
	r.take(nil, all, time.Time{}) // outdated
	r.take(a, all, time.Time{})   // there again
	r.take(nil, all, time.Time{})
	if len(r.Open) != 1 || r.Open[0].Description != outdated {
		t.Errorf("wait %+v", r.Open)
	}
}
