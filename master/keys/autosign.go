package keys

import (
	"cmp"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	autosignDir = "minions_autosign"
	// maxListFile bounds autosign_file, autoreject_file and grain files.
	maxListFile = 4 << 20
	sweepEvery  = time.Minute
)

// AutosignConfig holds the options of Salt's master that accept or reject new keys without an
// administrator (daemons/masterapi.py AutoKey). The zero value matches no key.
type AutosignConfig struct {
	AutoAccept     bool   // auto_accept: accept every key; insecure, the master warns about it
	AutosignFile   string // autosign_file; "" for none
	AutorejectFile string // autoreject_file; "" for none
	// Dir is <pki_dir>/minions_autosign. A file there whose name is a minion id accepts the first
	// key of that minion, once.
	Dir string
	// Timeout is autosign_timeout: a file in Dir that is older is removed unused. 0 means Salt's
	// default of 120 minutes; a negative value means never.
	Timeout time.Duration
	// GrainsDir is autosign_grains_dir. A file there whose name is a grain lists the values of that
	// grain with which a minion's key is accepted. "" means that no grain accepts a key.
	GrainsDir string
	// Permissive is permissive_pki_access: files that a group of this process may write are
	// trusted, too.
	Permissive bool
	Logger     *slog.Logger     // nil discards
	Now        func() time.Time // nil means time.Now
}

// Autosign decides whether a new key is accepted or rejected without an administrator. It is safe
// for concurrent use.
type Autosign struct {
	cfg AutosignConfig

	mu     sync.Mutex
	lists  map[string]*listFile
	warned map[string]struct{} // files whose wrong permissions were logged
	swept  time.Time
}

// NewAutosign returns an Autosign. It does not read the files yet: the Autosign reads a file when
// it first needs the file, and again when the file has changed.
func NewAutosign(cfg AutosignConfig) *Autosign {
	cfg.Timeout = cmp.Or(cfg.Timeout, 120*time.Minute)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Autosign{cfg: cfg, lists: map[string]*listFile{}, warned: map[string]struct{}{}}
}

// Open reports whether every key is accepted (auto_accept). A master should have auto_accept set
// only for a short time.
func (a *Autosign) Open() bool { return a.cfg.AutoAccept }

// Reject reports whether autoreject_file names the id.
func (a *Autosign) Reject(id string) bool {
	named, _ := a.listed(a.cfg.AutorejectFile, id)
	return ValidID(id) == nil && named
}

// Doubtful reports whether autoreject_file may name the id although Reject returns false, because
// the file is unusable or has unreadable lines. Then the caller must accept no key without an
// administrator, whatever Accept returns.
func (a *Autosign) Doubtful(id string) bool {
	_, sure := a.listed(a.cfg.AutorejectFile, id)
	return !sure
}

// Accept reports whether a new key of id may be accepted at once. grains holds the values that the
// minion sent for this purpose, as text in Python's notation. Anybody can send such values, so they
// are no safer than passwords in plain text. If Accept returns true, it may have removed a file in
// Dir, which accepts only one key. So call Accept only if its result decides whether the key is
// accepted.
func (a *Autosign) Accept(id string, grains map[string]string) bool {
	if ValidID(id) != nil {
		return false
	}
	if a.cfg.AutoAccept {
		return true
	}
	named, _ := a.listed(a.cfg.AutosignFile, id)
	return named || a.consumeStub(id) || a.grains(grains)
}

// listed reports as found whether a file contains the id. sure is false when the file exists but
// cannot be read, or has faulty lines; in that case found may be wrong.
func (a *Autosign) listed(path, id string) (found, sure bool) {
	if path == "" {
		return false, true
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.lists[path]
	if l == nil {
		l = &listFile{}
		a.lists[path] = l
	}

	before := l.sig
	if !l.refresh(path, a.trusted) {
		_, err := os.Lstat(path)
		return false, errors.Is(err, os.ErrNotExist)
	}

	if l.faulty > 0 && l.sig != before {
		a.cfg.Logger.Error("file has lines that are neither ids nor expressions; fix them. Until then autoreject_file accepts nobody by itself, and such lines of autosign_file count for nothing",
			"path", path, "lines", l.faulty)
	}

	found, sure = l.matches(id)
	return found, sure && l.faulty == 0
}

// trusted reports whether only users whom Salt's rules permit may write the file. It logs a file
// that other users may write, but each file only once. The caller holds mu.
func (a *Autosign) trusted(path string, st os.FileInfo) bool {
	ok := st.Mode().Perm()&0o002 == 0
	if ok && st.Mode().Perm()&0o020 != 0 {
		ok = a.cfg.Permissive && (os.Getuid() != 0 || inGroup(st))
	}
	if ok {
		delete(a.warned, path)
		return true
	}
	if _, before := a.warned[path]; !before {
		a.warned[path] = struct{}{}
		a.cfg.Logger.Warn("wrong permissions, ignoring the content", "path", path, "mode", st.Mode().Perm().String())
	}
	return false
}

// consumeStub removes the file <Dir>/<id> and reports whether it existed. If several masters share
// the folder, only the one that removes the file gets true.
func (a *Autosign) consumeStub(id string) bool {
	if a.cfg.Dir == "" {
		return false
	}

	a.removeExpired()
	path := filepath.Join(a.cfg.Dir, id)
	st, err := os.Lstat(path)
	if err != nil || !st.Mode().IsRegular() || a.expired(st) {
		return false
	}

	if err := os.Remove(path); err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			a.cfg.Logger.Error("using up an autosign file", "minion", id, "error", err)
		}
		return false
	}

	return true
}

func (a *Autosign) expired(st os.FileInfo) bool {
	return a.cfg.Timeout > 0 && a.cfg.Now().Sub(st.ModTime()) > a.cfg.Timeout
}

// removeExpired removes expired files, at most once per sweepEvery.
func (a *Autosign) removeExpired() {
	now := a.cfg.Now()
	a.mu.Lock()
	due := a.cfg.Timeout > 0 && now.Sub(a.swept) >= sweepEvery
	if due {
		a.swept = now
	}
	a.mu.Unlock()

	if !due {
		return
	}

	list, err := os.ReadDir(a.cfg.Dir)
	if err != nil {
		return // no folder, so no autosign files
	}

	for _, e := range list {
		st, err := e.Info()
		if err != nil || !st.Mode().IsRegular() || !a.expired(st) {
			continue
		}

		path := filepath.Join(a.cfg.Dir, e.Name())
		if err := os.Remove(path); err == nil {
			a.cfg.Logger.Warn("autosign file expired", "path", path)
		}
	}
}

func (a *Autosign) grains(grains map[string]string) bool {
	if len(grains) == 0 || a.cfg.GrainsDir == "" {
		return false
	}

	list, err := os.ReadDir(a.cfg.GrainsDir)
	if err != nil {
		a.cfg.Logger.Warn("reading autosign_grains_dir", "error", err)
		return false
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range list {
		value, sent := grains[e.Name()]
		if !sent {
			continue
		}

		path := filepath.Join(a.cfg.GrainsDir, e.Name())
		data, st, err := readRegular(path, maxListFile, true)
		if err != nil || !a.trusted(path, st) {
			continue
		}

		for line := range strings.Lines(string(data)) {
			line = strings.TrimSpace(line)
			if line != "" && !strings.HasPrefix(line, "#") && line == value {
				return true
			}
		}
	}

	return false
}
