package health

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"saltern/internal/control"
	"saltern/master/jobs"
)

// ErrCacheShared means that another master of the cluster uses the cachedir. Salt's tutorial of the
// master cluster puts the cachedir on the shared storage. Saltern's masters must not share it: each
// has a journal in its cachedir, and they exchange the data of the cachedir themselves.
var ErrCacheShared = errors.New("option cachedir: another master uses it")

// statusAge is how old a status must be before its master is assumed to have ended. A running
// master writes its status every 2 s, possibly by the clock of another machine.
const statusAge = time.Minute

// OwnCache returns an error if a master with another id writes its status in the cachedir. So it
// detects a shared cachedir even if the shared storage has no locks.
func OwnCache(dir, id string, now time.Time) error {
	path := filepath.Join(dir, control.StatusFile)
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}

	age := now.Sub(info.ModTime())
	if age.Abs() > statusAge {
		return nil // the other master has ended
	}

	var s control.Status
	b, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(b, &s) != nil || s.ID == id || s.ID == "" {
		return nil
	}

	return CacheHint(fmt.Errorf("%w: %.100q, at work %d s ago", ErrCacheShared, s.ID, int(age.Seconds())))
}

// CacheHint adds advice to an error about a cachedir that two masters use. If the journal is in
// use, the process that uses it may also be an earlier process of this master that still runs.
func CacheHint(err error) error {
	if !errors.Is(err, jobs.ErrInUse) && !errors.Is(err, ErrCacheShared) {
		return err
	}
	return fmt.Errorf("%w; give each master of the cluster a cachedir of its own on a local disk, such as /var/cache/salt/master: they tell each other jobs, grains and pillars, and share cluster_pki_dir, file_roots and pillar_roots only",
		err)
}
