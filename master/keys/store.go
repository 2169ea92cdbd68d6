package keys

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"saltern/internal/durable"
	"saltern/master/crypt"
)

// Errors of the Store that callers distinguish.
var (
	// ErrUnknown means that the id has no key in the given state, or none at all.
	ErrUnknown = errors.New("no such key")
	// ErrPendingFull means that one source, or all sources together, have as many pending keys as
	// the configuration allows. The store also returns it when there are too many rejected or
	// denied keys.
	ErrPendingFull = errors.New("too many pending keys")
	// ErrChanged means that another program or call has changed the key since the caller looked it
	// up.
	ErrChanged = errors.New("key has changed meanwhile")
)

// defaultMaxPending bounds the pending keys. Salt has no such bound, so anybody who reaches a Salt
// master's port can fill its disk.
const defaultMaxPending = 100_000

// Config of a Store. The zero value is usable.
type Config struct {
	// Create means that Open creates missing folders. If Create is false, a missing folder is an
	// error. On a volume that several nodes share, only the node that forms the cluster may set
	// Create: concurrent mkdirs on several nodes end in a split brain.
	Create bool
	// Permissive is permissive_pki_access: members of the group may read the key files.
	Permissive bool
	// MaxPending bounds the pending keys. The same number bounds, separately, the rejected and the
	// denied keys that sign-ins add. 0 means the default.
	MaxPending int
	// PendingPerSource bounds the pending keys of one source (see SwapFrom). PendingPerKey bounds
	// how many of these ids may have the same public key. PendingRate is how many new keys a source
	// may send per second, after PendingBurst keys at once. In each field 0 means the default. Keys
	// without a known source are bounded by MaxPending only.
	PendingPerSource, PendingPerKey int
	PendingRate, PendingBurst       float64
	// Bounds of the key sizes; the zero value means crypt.DefaultBounds.
	Bounds crypt.Bounds
	// ScanEvery is how often Run checks whether a folder has changed (one stat per folder). 0 means
	// 1 second, or 3 seconds on a volume.
	ScanEvery time.Duration
	// FullEvery is how often Run compares every file with the index, to find files whose content
	// another machine has changed. 0 means 5 minutes, or 30 minutes on a volume; a negative value
	// means never.
	FullEvery time.Duration
	// NoNotify disables inotify, for file systems where it is of no use.
	NoNotify bool
	// Incoming is the name of this master in the names of incoming files. If it is set, the store
	// writes new keys on a volume to incoming files first, many keys in one, and Run writes a file
	// for each key later. If it is "", the store only reads the incoming files of other masters.
	Incoming string
	Logger   *slog.Logger // nil discards all messages

	volume func(dir string) bool // replaces onVolume in tests; nil otherwise
	// load replaces loadFile in tests; nil otherwise
	load func(s *Store, id string, st State, before *keyFile) (*keyFile, error)
	now  func() time.Time // replaces time.Now in tests; nil otherwise
}

const stripes = 64

// Store is the set of minion keys under one folder. All methods may be called concurrently. Lookups
// read only memory. The methods that change keys write to the disk first, durably, and may block as
// long as the disk does.
type Store struct {
	dir     string
	cfg     Config
	log     *slog.Logger
	gen     atomic.Uint64
	seed    maphash.Seed
	stripe  [stripes]sync.Mutex // each stripe serialises the changes of some ids; locked before mu
	scans   atomic.Uint64       // number of folder listings, for tests and metrics
	waiting atomic.Int64        // number of pending keys being written, see reserve

	mu    sync.RWMutex
	files [numStates]map[string]*keyFile

	snapMu      sync.Mutex
	acceptedIDs []string            // accepted ids, sorted; a change replaces the slice, so that callers may share it
	dirty       map[string]struct{} // ids whose presence in acceptedIDs may be outdated

	listenersMu sync.RWMutex
	listeners   []func(Change)

	pending  *pendings
	syncs    [numStates]sharing // share the syncs of each folder
	looks    sharing            // shares the scans that Look asks for
	onVolume bool               // on a volume, where listing a folder is much faster than checking each file
	incoming *incoming          // claims of new keys; nil on a local disk

	failedLooks failedLooks

	hintMu sync.Mutex
	hints  map[string][]State // states of keys that Run must check, by id; see Hint
	hinted chan struct{}      // capacity 1: signals new hints

	scanMu   sync.Mutex // held during a scan, so that only one scan runs at a time
	dirsSeen [numStates]dirSeen
	rootSeen dirSeen // the folder of incoming files as of its last listing
}

// Open reads all keys under dir (Salt's pki_dir, or cluster_pki_dir) and returns the store. The
// caller must call Run, which detects the changes that other programs make.
func Open(dir string, cfg Config) (*Store, error) {
	cfg.MaxPending = cmp.Or(cfg.MaxPending, defaultMaxPending)
	cfg.PendingPerSource = cmp.Or(cfg.PendingPerSource, DefaultPendingPerSource)
	cfg.PendingPerKey = cmp.Or(cfg.PendingPerKey, DefaultPendingPerKey)
	cfg.PendingRate = cmp.Or(cfg.PendingRate, DefaultPendingRate)
	cfg.PendingBurst = cmp.Or(cfg.PendingBurst, DefaultPendingBurst)

	if cfg.now == nil {
		cfg.now = time.Now
	}

	if cfg.Bounds == (crypt.Bounds{}) {
		cfg.Bounds = crypt.DefaultBounds
	}

	if cfg.volume == nil {
		cfg.volume = onVolume
	}

	if cfg.load == nil {
		cfg.load = (*Store).loadFile
	}

	lists := cfg.volume(dir)
	if cfg.ScanEvery <= 0 {
		cfg.ScanEvery = time.Second
		if lists { // peers report most changes immediately
			cfg.ScanEvery = 3 * time.Second
		}
	}

	if cfg.FullEvery == 0 {
		cfg.FullEvery = 5 * time.Minute
		if lists {
			cfg.FullEvery = 30 * time.Minute
		}
	}

	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	s := &Store{
		dir:      dir,
		cfg:      cfg,
		log:      cfg.Logger,
		seed:     maphash.MakeSeed(),
		dirty:    map[string]struct{}{},
		onVolume: lists,
		hints:    map[string][]State{},
		hinted:   make(chan struct{}, 1),
	}

	s.pending = newPendings(&s.cfg)
	for st := range s.files {
		s.files[st] = map[string]*keyFile{}
	}

	if err := s.makeTree(); err != nil {
		return nil, err
	}

	if lists {
		s.incoming = newIncoming(dir, cfg.Incoming, s.fileMode(), cfg.Bounds, cfg.Logger)
	}

	if cfg.Create {
		s.removeTemporary(time.Now().Add(-time.Hour))
	}

	if err := s.scanFolders(true); err != nil {
		return nil, fmt.Errorf("read minion keys: %w", err)
	}

	return s, nil
}

func (s *Store) makeTree() error {
	mode := os.FileMode(0o700)
	if s.cfg.Permissive {
		mode = 0o750
	}

	dirs := []string{s.dir}
	for st := Accepted; st < numStates; st++ {
		dirs = append(dirs, s.stateDir(st))
	}

	dirs = append(dirs, filepath.Join(s.dir, autosignDir))
	for _, d := range dirs {
		st, err := os.Stat(d)
		switch {
		case err == nil && !st.IsDir():
			return fmt.Errorf("open minion keys: %s is not a folder", d)
		case errors.Is(err, os.ErrNotExist) && s.cfg.Create:
			if err := os.MkdirAll(d, mode); err != nil {
				return fmt.Errorf("make folder for minion keys: %w", err)
			}
		case errors.Is(err, os.ErrNotExist) && filepath.Base(d) != autosignDir:
			return fmt.Errorf("open minion keys: %w; if it belongs on a shared volume, `applianced storage status` says whether that is there and what to do",
				err)
		case err != nil && filepath.Base(d) != autosignDir:
			return fmt.Errorf("open minion keys: %w", err)
		}
	}

	return nil
}

// removeTemporary removes temporary files that a crash has left behind: those last changed before
// limit.
func (s *Store) removeTemporary(limit time.Time) {
	for st := Accepted; st < numStates; st++ {
		left, err := filepath.Glob(filepath.Join(s.stateDir(st), ".tmp-*"))
		if err != nil {
			continue // the pattern is invalid because the folder's name contains special characters
		}
		for _, path := range left {
			if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.ModTime().Before(limit) {
				_ = os.Remove(path)
			}
		}
	}
}

// syncState makes the names in a state's folder durable.
func (s *Store) syncState(st State) error {
	return s.syncs[st].do(0, func() error { return durable.SyncDir(s.stateDir(st)) })
}

func (s *Store) stateDir(st State) string           { return filepath.Join(s.dir, st.Dir()) }
func (s *Store) keyPath(st State, id string) string { return filepath.Join(s.dir, st.Dir(), id) }
func (s *Store) lockID(id string) (unlock func())   { m := s.stripeOf(id); m.Lock(); return m.Unlock }
func (s *Store) stripeOf(id string) *sync.Mutex {
	return &s.stripe[maphash.String(s.seed, id)%stripes]
}

// Lookup returns the key of a minion in any state except Denied, or false if there is none. It
// causes no disk access.
func (s *Store) Lookup(id string) (Entry, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	st, f := s.effective(id)
	if f == nil {
		return Entry{}, false
	}
	return Entry{State: st, PEM: f.pem, Gen: f.gen, file: f}, true
}

// effective returns the state and the key that sign-ins of an id are checked against. The caller
// holds mu. effective ignores a pending file beside an accepted one with the same key: a volume
// that heals its copies may restore a pending file that a rename removed. In that case Salt would
// treat the minion as pending.
func (s *Store) effective(id string) (State, *keyFile) {
	for _, st := range lookupOrder {
		f := s.files[st][id]
		if f == nil {
			continue
		}
		if a := s.files[Accepted][id]; st == Pending && a != nil && a.pem == f.pem {
			return Accepted, a
		}
		return st, f
	}
	return None, nil
}

// Denied returns the key that was offered for id and did not match the accepted one. It returns
// false when there is none.
func (s *Store) Denied(id string) (Entry, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	f := s.files[Denied][id]
	if f == nil {
		return Entry{}, false
	}
	return Entry{State: Denied, PEM: f.pem, Gen: f.gen, file: f}, true
}

// Bounds returns the key sizes that the store accepts.
func (s *Store) Bounds() crypt.Bounds { return s.cfg.Bounds }

// Count returns the number of keys in a state's folder.
func (s *Store) Count(st State) int {
	if st >= numStates {
		return 0
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.files[st])
}

// Accepted returns the sorted ids of accepted minions. All callers share the slice and must not
// change it; later changes of the store do not change a returned slice. If nothing has changed
// since the last call, Accepted returns the same slice again.
func (s *Store) Accepted() []string {
	s.snapMu.Lock()
	defer s.snapMu.Unlock()
	if len(s.dirty) == 0 {
		return s.acceptedIDs
	}

	changed := make([]string, 0, len(s.dirty))
	for id := range s.dirty {
		changed = append(changed, id)
	}

	clear(s.dirty)
	slices.Sort(changed)
	s.mu.RLock()
	in := make([]bool, len(changed))
	for i, id := range changed {
		st, _ := s.effective(id)
		in[i] = st == Accepted
	}
	s.mu.RUnlock()

	next := make([]string, 0, len(s.acceptedIDs)+len(changed))
	i := 0
	for j, id := range changed {
		for i < len(s.acceptedIDs) && s.acceptedIDs[i] < id {
			next = append(next, s.acceptedIDs[i])
			i++
		}

		if i < len(s.acceptedIDs) && s.acceptedIDs[i] == id {
			i++
		}

		if in[j] {
			next = append(next, id)
		}
	}

	s.acceptedIDs = append(next, s.acceptedIDs[i:]...)
	return s.acceptedIDs
}

// List returns the ids of a state, sorted, in a new slice.
func (s *Store) List(want State) []string {
	if want == Accepted {
		return slices.Clone(s.Accepted())
	}
	if want == None || want >= numStates {
		return nil
	}

	s.mu.RLock()
	out := make([]string, 0, len(s.files[want]))
	for id := range s.files[want] {
		if st, _ := s.effective(id); st == want || want == Denied {
			out = append(out, id)
		}
	}
	s.mu.RUnlock()

	slices.Sort(out)
	return out
}

// Finger returns the fingerprint of a minion's key, see Fingerprint. The call protects a pending
// key from eviction for ten minutes.
func (s *Store) Finger(id, hashType string) (string, error) {
	e, ok := s.Lookup(id)
	if !ok {
		return "", fmt.Errorf("fingerprint of %q: %w", id, ErrUnknown)
	}
	if e.State == Pending {
		s.pending.noteLook(id)
	}
	return Fingerprint(e.PEM, hashType)
}

// OnChange registers a function that the store calls for every change of a key, whoever made the
// change. Changes of one id arrive in order; changes of different ids may arrive concurrently. The
// function must be quick and must not change the store. Call OnChange before Run.
func (s *Store) OnChange(f func(Change)) {
	s.listenersMu.Lock()
	defer s.listenersMu.Unlock()
	s.listeners = append(s.listeners, f)
}

// applyFound sets the index entries of an id to found (nil: no file) and calls the listeners if the
// minion's state or key has changed. The caller holds the stripe lock of the id.
func (s *Store) applyFound(id string, found map[State]*keyFile) {
	s.mu.Lock()
	oldState, old := s.effective(id)
	for st, f := range found {
		switch {
		case f == nil:
			delete(s.files[st], id)
		default:
			s.files[st][id] = f
		}
	}

	newState, now := s.effective(id)
	s.mu.Unlock()
	if old == now && oldState == newState {
		return
	}

	if newState == Pending {
		s.pending.addIndexed(id, now.pem)
	} else if oldState == Pending {
		s.pending.dropIndexed(id)
	}

	if (oldState == Accepted) != (newState == Accepted) {
		s.snapMu.Lock()
		s.dirty[id] = struct{}{}
		s.snapMu.Unlock()
	}

	if old != nil && now != nil && oldState == newState && old.pem == now.pem {
		return // the key has not changed, only its file
	}

	c := Change{ID: id, Old: oldState, New: newState}
	if now != nil {
		c.Gen = now.gen
	}

	s.listenersMu.RLock()
	cbs := s.listeners
	s.listenersMu.RUnlock()

	for _, f := range cbs {
		f(c)
	}
}

// newFile returns the index entry of a file that was read. present is the present entry or nil; if
// present has the same key, the new entry keeps its generation.
func (s *Store) newFile(pem string, sig fileSig, present *keyFile) *keyFile {
	f := &keyFile{pem: crypt.NormalizePEM(pem), sig: sig, bounds: s.cfg.Bounds}
	if present != nil && present.pem == f.pem {
		f.gen = present.gen
	} else {
		f.gen = s.gen.Add(1)
	}
	return f
}
