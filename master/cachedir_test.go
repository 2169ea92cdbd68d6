package master

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"saltern/master/jobs"
)

// The cachedir of Salt's tutorial is on the share. The second master says what to do
// instead of "journal is in use", also where the share has no locks.
func TestSharedCacheDir(t *testing.T) {
	t.Parallel()
	first := startMaster(t, "id: n1\n")
	first.m.writeStatus(within(t))
	cfg := *first.m.cfg
	cfg.ID, cfg.ClusterID = "n2", "prod"
	second := &Master{cfg: &cfg, now: time.Now}
	if err := second.ownCache(); !errors.Is(err, ErrCacheShared) || !strings.Contains(err.Error(), `"n1"`) || !strings.Contains(err.Error(), "of its own") {
		t.Errorf("the second: %v", err)
	}
	again := &Master{cfg: first.m.cfg, now: time.Now}
	if err := again.ownCache(); err != nil {
		t.Errorf("the same master: %v", err)
	}
	if err := second.sharedCache(jobs.ErrInUse); !errors.Is(err, jobs.ErrInUse) || !strings.Contains(err.Error(), "of its own") {
		t.Errorf("a lock: %v", err)
	}
	if err := again.sharedCache(jobs.ErrInUse); strings.Contains(err.Error(), "cluster") {
		t.Errorf("a master alone is told of a cluster: %v", err)
	}
	first.stop()
	old := time.Now().Add(-2 * statusAge)
	must(t, os.Chtimes(first.path("cache", "status.json"), old, old))
	if err := second.ownCache(); err != nil {
		t.Errorf("a master that has ended: %v", err)
	}
}
