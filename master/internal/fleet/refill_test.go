package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"saltern/master/history"
	"saltern/master/jobs"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// node is the job cache and the history of a master.
type node struct {
	*testing.T
	dir      string
	store    *history.Store
	recorder *Recorder
	jobs     *jobs.Local
	news     *newsCount
}

// newsCount counts the runs that a Watcher gets.
type newsCount struct{ runs atomic.Int64 }

func (n *newsCount) Ran(*history.Run) { n.runs.Add(1) }

func (n *node) open() {
	n.Helper()
	n.news = &newsCount{}
	var err error
	n.store, err = history.Open(history.Config{Dir: n.history()})
	check.Must(n, err)
	n.recorder, err = New(n.Context(), Config{
		Store: n.store,
		Dir:   n.history(),
		Watch: n.news,
		Now:   time.Now,
		Log:   slog.New(slog.DiscardHandler),
	})
	check.Must(n, err)
	n.jobs, err = jobs.Open(jobs.Config{
		Dir:          filepath.Join(n.dir, "jobs"),
		SegmentBytes: 10_000,
		Archive:      n.recorder,
	}, slog.New(slog.DiscardHandler))
	check.Must(n, err)
}

func (n *node) close() {
	n.Helper()
	check.Must(n, n.jobs.Close(await.Context(n)))
	check.Must(n, n.store.Close())
}

func (n *node) history() string { return filepath.Join(n.dir, "history") }

// run stores the returns of a job, and of a poll for it.
func (n *node) run(count int) {
	n.Helper()
	for _, function := range []string{"state.apply", "saltutil.find_job"} {
		jid := jobs.FromTime(time.Now())
		load := value.NewMap("jid", jid, "fun", function, "user", "alice", "tgt", "*", "tgt_type", "glob")
		check.Must(n, n.jobs.SaveLoad(await.Context(n), jid, load, []string{}))
		for i := range count {
			_, err := n.jobs.SaveReturn(await.Context(n), jobs.Return{
				JID:  jid,
				ID:   fmt.Sprintf("web%d", i),
				Data: value.NewMap("return", states("a=failed"), "retcode", 2, "success", false),
			})
			check.Must(n, err)
		}
	}
}

// has waits until the history has so many runs and the recorder lacks nothing.
func (n *node) has(runs int) {
	n.Helper()
	f := NewFleet(n.recorder, accepted{}, nil, time.Now)
	await.That(n, fmt.Sprintf("%d runs", runs), func() bool {
		s, err := f.Summary(n.Context(), time.Now().Add(-time.Hour))
		check.Must(n, err)
		if s.Partial {
			return false
		}
		if s.Runs != runs {
			n.Fatalf("%d runs, want %d, and the answer is not partial", s.Runs, runs)
		}
		return true
	})
}

// TestLostHistoryIsFilledFromJobCache: the folder of the history is lost, or an older copy, and the job cache is whole.
func TestLostHistoryIsFilledFromJobCache(t *testing.T) {
	n := &node{T: t, dir: t.TempDir()}
	n.open()
	n.run(150)
	n.close()
	copied := t.TempDir()
	check.Must(t, os.CopyFS(copied, os.DirFS(n.history())))
	n.open()
	n.run(150)
	n.close()

	n.open()
	n.has(300)
	if runs := n.news.runs.Load(); runs > 0 {
		t.Errorf("%d runs are news after a start", runs)
	}
	n.close()

	lose := map[string]func(){
		"lost":       func() {},
		"older copy": func() { check.Must(t, os.CopyFS(n.history(), os.DirFS(copied))) },
	}
	for name, replace := range lose {
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, killed %v", name, killed), func(t *testing.T) {
				n.T = t
				check.Must(t, os.RemoveAll(n.history()))
				replace()
				n.open()
				if killed { // in the middle: Close does not wait for the rest
					ctx, cancel := context.WithCancel(t.Context())
					cancel()
					_ = n.jobs.Close(ctx)
					check.Must(t, n.store.Close())
					n.open()
				}
				n.has(300)
				last, ok := n.recorder.Table().Last("web149")
				if !ok || last.Run.JID == "" || len(last.Summary.FailedStates) != 1 {
					t.Errorf("the last run of web149 is %+v", last)
				}
				if runs := n.news.runs.Load(); runs > 0 {
					t.Errorf("%d runs of before are news", runs)
				}
				n.close()
			})
		}
	}
}
