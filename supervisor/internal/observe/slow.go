package observe

import (
	"errors"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"saltern/internal/control"
	"saltern/supervisor/internal/probe"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
)

// slowFacts collects the facts that need a file system, which may hang. Only one goroutine collects
// at a time; callers get the last results until the collection is done. A goroutine that hangs in
// the kernel cannot be ended, but at most one can hang.
type slowFacts struct {
	paths  []string
	pki    string
	report string // path of the master's status file

	mu      sync.Mutex
	running bool
	since   time.Time // when the collection under way began
	at      string    // path that the running collection reads
	last    time.Time
	answer  slowAnswer
}

const (
	slowHangs = 5 * time.Second // a collection that takes longer is reported as a problem
)

func newSlowFacts(cfg *settings.Settings) *slowFacts {
	s := &slowFacts{
		paths:  []string{cfg.DataDir, cfg.StorageDir()},
		pki:    cfg.SharedPKIDir(),
		report: filepath.Join(cfg.CacheDir(), control.StatusFile),
	}
	if cfg.OnVolume() { // the storage manager and the master watch the volume
		s.paths, s.pki = s.paths[:1], ""
	}
	return s
}

// lastAnswers returns the last answers, and starts a new collection when they are two seconds old.
func (s *slowFacts) lastAnswers(now time.Time) slowAnswer {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.answer
	switch {
	case s.running && now.Sub(s.since) > slowHangs:
		out.hang = map[string]time.Duration{s.at: now.Sub(s.since)}
	case !s.running && now.Sub(s.last) >= 2*time.Second:
		s.running, s.since = true, now
		go s.startLook()
	}
	return out
}

// startLook collects the facts once, and stores them as the last answers.
func (s *slowFacts) startLook() {
	disks := map[string]diskFact{}
	for _, p := range s.paths {
		s.notePath(p)
		d, err := probe.StatDisk(p)
		disks[p] = diskFact{d, err}
	}

	var keys probe.Keys
	var err error
	if s.pki != "" {
		s.notePath(s.pki)
		keys, err = probe.CountKeys(s.pki)
	}

	locked := setup.LockedOut()
	s.notePath(s.report)
	master, merr := control.ReadStatus(s.report)
	s.mu.Lock()
	defer s.mu.Unlock()

	if merr != nil && !errors.Is(merr, fs.ErrNotExist) {
		master = s.answer.master // the file may be half written: keep the old report, which becomes stale in time
	}

	s.running = false
	s.last = s.since
	s.answer = slowAnswer{
		disks:   disks,
		keys:    &keys,
		keysErr: err,
		master:  master,
		locked:  locked,
	}
}

// masterSpoke reports whether the master with that process ID has written its status after t. If
// that is not known, it returns true. A master that writes its status is busy, not hung, because
// every two seconds it asks most of its parts for that status. Salt's own master writes no status,
// so masterSpoke returns true for it.
func (s *slowFacts) masterSpoke(pid int, t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.Before(t) || s.running && time.Since(s.since) > slowHangs {
		return true // a file system hangs, so nothing is known
	}
	m := s.answer.master
	return m == nil || m.PID != pid || m.Written.After(t)
}

// notePath records the path that is read next. If the collection hangs, the findings name that path
// as the one whose file system does not answer.
func (s *slowFacts) notePath(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = path
}
