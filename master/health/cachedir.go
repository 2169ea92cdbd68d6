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

// ErrCacheShared means that another master of the cluster uses the cachedir. Salt's
// tutorial of the master cluster puts it on the share; masters of this kind keep a
// journal in it and tell each other what they know.
var ErrCacheShared = errors.New("option cachedir: another master uses it")

// statusAge is from when on a status is that of a master which has ended: it is
// written every 2 s, by a clock that may be another machine's.
const statusAge = time.Minute

// OwnCache refuses a cachedir in which a master of another id writes its status,
// which shows also where a share has no locks.
func OwnCache(dir, id string, now time.Time) error {
	path := filepath.Join(dir, control.StatusFile)
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}

	age := now.Sub(info.ModTime())
	if age.Abs() > statusAge {
		return nil // so long ago that he has ended
	}

	var s control.Status
	b, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(b, &s) != nil || s.ID == id || s.ID == "" {
		return nil
	}

	return CacheHint(fmt.Errorf("%w: %.100q, at work %d s ago", ErrCacheShared, s.ID, int(age.Seconds())))
}

// CacheHint says what to do about a cachedir of two masters. A journal in use may
// also be that of a former process of this master which has not ended yet.
func CacheHint(err error) error {
	if !errors.Is(err, jobs.ErrInUse) && !errors.Is(err, ErrCacheShared) {
		return err
	}
	return fmt.Errorf("%w; give each master of the cluster a cachedir of its own on a local disk, such as /var/cache/salt/master: they tell each other jobs, grains and pillars, and share cluster_pki_dir, file_roots and pillar_roots only",
		err)
}
