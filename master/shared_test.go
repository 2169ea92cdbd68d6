package master

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"saltern/master/health"
	"saltern/master/jobs"
)

// The cachedir of Salt's tutorial is on the share. The second master says what to do
// instead of "journal is in use", also where the share has no locks.
func TestSharedCacheDir(t *testing.T) {
	t.Parallel()
	first := startMaster(t, "id: n1\n")
	first.m.reporter.Write()
	dir := first.path("cache")
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
	again := *first.m.cfg
	again.PublishPort = 0
	if _, err := New(t.Context(), &again, first.m.log); !errors.Is(err, jobs.ErrInUse) ||
		strings.Contains(err.Error(), "cluster") {
		t.Errorf("a second master alone: %v", err)
	}

	first.stop()
	old := time.Now().Add(-time.Hour)
	must(t, os.Chtimes(first.path("cache", "status.json"), old, old))
	if err := health.OwnCache(dir, "n2", time.Now()); err != nil {
		t.Errorf("a master that has ended: %v", err)
	}
}
