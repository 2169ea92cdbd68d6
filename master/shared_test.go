package master_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"saltern/master"
	"saltern/master/health"
	"saltern/master/internal/mastertest"
	"saltern/master/jobs"
	"saltern/test/check"
)

// As in Salt's tutorial, the cachedir is on the shared storage. The error of the second master says
// what to do instead of "journal is in use", also if the shared storage has no locks.
func TestSharedCacheDir(t *testing.T) {
	t.Parallel()
	first := mastertest.Start(t, "id: n1\n")
	first.Parts.Reporter.Write()
	dir := first.Path("cache")
	if err := health.OwnCache(dir, "n2", time.Now()); !errors.Is(err, health.ErrCacheShared) ||
		!strings.Contains(err.Error(), `"n1"`) || !strings.Contains(err.Error(), "of its own") {
		t.Errorf("the second: %v", err)
	}

	if err := health.OwnCache(dir, "n1", time.Now()); err != nil {
		t.Errorf("the same master: %v", err)
	}

	if err := health.CacheHint(jobs.ErrInUse); !errors.Is(err, jobs.ErrInUse) ||
		!strings.Contains(err.Error(), "of its own") {
		t.Errorf("a lock: %v", err)
	}

	// A master alone is not told of a cluster.
	again := *first.Parts.Options
	again.PublishPort = 0
	if _, err := master.New(t.Context(), &again, first.Parts.Log); !errors.Is(err, jobs.ErrInUse) ||
		strings.Contains(err.Error(), "cluster") {
		t.Errorf("a second master alone: %v", err)
	}

	first.Stop()
	old := time.Now().Add(-time.Hour)
	check.Must(t, os.Chtimes(first.Path("cache", "status.json"), old, old))
	if err := health.OwnCache(dir, "n2", time.Now()); err != nil {
		t.Errorf("a master that has ended: %v", err)
	}
}
