package master

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"saltern/master/jobs"
)

// ErrCacheShared means that another master of the cluster uses the cachedir. Salt's
// tutorial of the master cluster puts it on the share; masters of this kind keep a
// journal in it and tell each other what they know.
var ErrCacheShared = errors.New("option cachedir: another master uses it")

// statusAge is from when on a status is that of a master which has ended: it is
// written every 2 s, by a clock that may be another machine's.
const statusAge = time.Minute

// ownCache refuses a cachedir in which another master writes its status, which shows
// also where a share has no locks.
func (m *Master) ownCache() error {
	path := filepath.Join(m.cfg.CacheDir, "status.json")
	info, err := os.Stat(path)
	if err != nil || m.now().Sub(info.ModTime()).Abs() > statusAge {
		return nil // nobody, or so long ago that he has ended
	}
	var s Status
	b, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(b, &s) != nil || s.ID == m.cfg.ID || s.ID == "" {
		return nil
	}
	return m.sharedCache(fmt.Errorf("%w: %.100q, at work %d s ago", ErrCacheShared, s.ID, int(m.now().Sub(info.ModTime()).Seconds())))
}

// sharedCache says what to do. A journal in use may also be that of a former process
// of this master which has not ended yet.
func (m *Master) sharedCache(err error) error {
	if m.cfg.ClusterID == "" || !errors.Is(err, jobs.ErrInUse) && !errors.Is(err, ErrCacheShared) {
		return err
	}
	return fmt.Errorf("%w; give each master of the cluster a cachedir of its own on a local disk, such as /var/cache/salt/master: they tell each other jobs, grains and pillars, and share cluster_pki_dir, file_roots and pillar_roots only", err)
}
