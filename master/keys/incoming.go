package keys

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"saltern/master/crypt"
)

// Bounds of incoming files.
const (
	maxBatch = 32 // keys in one file; their hashes fit into its name
	// batchesAtOnce is how many batches are written at once. Minions that sign in meanwhile share
	// the next one.
	batchesAtOnce = 3
	// lull and gather bound how long a batch waits for more keys: until none has come for lull and
	// no other batch is being written, but at most gather. The cost of a batch on the volume hardly
	// depends on the number of its keys.
	lull         = 25 * time.Millisecond
	gather       = 250 * time.Millisecond
	maxBatchFile = 256 << 10 // bytes
	maxBatches   = 512       // existing files of this master
	maxIncoming  = 8192      // files of all masters
)

// incomingName matches the name of an incoming file: master, time, token, a short hash of each id.
// Files never change and names are never reused, so no cache of a volume can return an old one. A
// master that cannot read a file yet knows from its name whether it may concern an id.
var incomingName = regexp.MustCompile(`^incoming_([0-9A-Za-z.:_-]{1,80})_([0-9]{19})_([0-9a-f]{16})_((?:[0-9a-f]{4}){1,32})$`)

// masterName matches the names of masters that may appear in the name of an incoming file.
var masterName = regexp.MustCompile(`^[0-9A-Za-z.:_-]{1,80}$`)

// mayConcern reports whether an incoming file with this name may contain one of the ids.
func mayConcern(name string, hashes map[string]bool) bool {
	for h := incomingName.FindStringSubmatch(name)[4]; h != ""; h = h[4:] {
		if hashes[h[:4]] {
			return true
		}
	}
	return false
}

func shortHash(id string) string {
	h := sha256.Sum256([]byte(id))
	return hex.EncodeToString(h[16:18])
}

// removedName matches the name of a mark: token of the incoming file, hash of the id.
var removedName = regexp.MustCompile(`^removed_([0-9a-f]{16})_[0-9a-f]{32}$`)

// claim is a new key in an incoming file.
type claim struct {
	id           string
	state        State
	pem          string
	batch        *batch
	hasFile      bool // the id has or had a file in a state; guarded by incoming.mu
	noSecondFile bool // and this claim left no second file; guarded by incoming.mu
	removed      bool // the key was removed; guarded by incoming.mu
}

func (c *claim) sameKey(o *claim) bool { return c.state == o.state && c.pem == o.pem }

// markName returns the name of the mark for a removed key.
func (c *claim) markName() string {
	h := sha256.Sum256([]byte(c.id))
	return "removed_" + c.batch.token + "_" + hex.EncodeToString(h[:16])
}

// batch is an incoming file. incoming.mu guards all fields but name and token.
type batch struct {
	name, token string
	timeText    string // time in the name
	claims      []*claim
	isOwn       bool // written since the start of this process
	exists      bool // exists on the volume
	since       time.Time
	filedAt     time.Time // zero while not filed
	retryAt     time.Time // do not retry before this time, after an error
}

// incomingKey is a key in an incoming file.
type incomingKey struct {
	ID    string `json:"id"`
	State string `json:"state"`
	Pub   string `json:"pub"`
}

// incoming is the content of the incoming files of all masters.
type incoming struct {
	dir    string
	master string // "": write no incoming files
	mode   os.FileMode
	bounds crypt.Bounds
	log    *slog.Logger

	// quiet and late determine when the keys of a batch are filed: when no other key has come for
	// quiet, or when the batch is older than late. linger is how long a batch stays afterwards,
	// foreign the age at which this master files a batch of another one, retry the pause after a
	// failure.
	quiet, late, linger, foreign, retry time.Duration
	// unreadFor is how long an incomplete file is waited for when it may concern the same id; it is
	// longer than a volume shows an old size. Afterwards the file is ignored: its writer, if alive,
	// will look for other claims itself.
	unreadFor time.Duration

	listings      sharing
	slots         chan struct{} // batches being written
	changedSignal chan struct{} // capacity 1: signals changed ids
	batchSignal   chan struct{} // capacity 1: signals a batch to file

	mu         sync.Mutex
	batches    map[string]*batch
	ownBatches int // number of batches that this process wrote
	byID       map[string][]*claim
	partial    map[string]time.Time // incomplete files, with the time of their discovery
	marks      map[string]time.Time // removed_ files, with the time of their discovery
	changed    map[string]struct{}  // ids whose index entry may be outdated
	gathering  *commit
	newest     time.Time // time of the last new key

	claimed, filed, overflow atomic.Uint64
}

// commit is the pending outcome of a batch.
type commit struct {
	claims []*claim
	more   chan struct{} // capacity 1: signals another claim
	done   chan struct{}
	err    error
}

var errIncomingFull = errors.New("too many new keys wait to become files")

func newIncoming(dir, master string, mode os.FileMode, bounds crypt.Bounds, log *slog.Logger) *incoming {
	if !masterName.MatchString(master) {
		master = ""
	}

	return &incoming{
		dir:           dir,
		master:        master,
		mode:          mode,
		bounds:        bounds,
		log:           log,
		quiet:         500 * time.Millisecond,
		late:          5 * time.Second,
		linger:        30 * time.Second,
		foreign:       3 * time.Minute,
		retry:         5 * time.Second,
		unreadFor:     3 * time.Second,
		slots:         make(chan struct{}, batchesAtOnce),
		changedSignal: make(chan struct{}, 1),
		batchSignal:   make(chan struct{}, 1),
		batches:       map[string]*batch{},
		byID:          map[string][]*claim{},
		partial:       map[string]time.Time{},
		marks:         map[string]time.Time{},
		changed:       map[string]struct{}{},
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// addClaim writes a key to the volume, together with others that come at the same time. It returns
// when the key is durable and all earlier claims of other masters are known.
func (in *incoming) addClaim(c *claim) error {
	in.mu.Lock()
	if in.ownBatches >= maxBatches {
		in.mu.Unlock()
		in.overflow.Add(1)
		return errIncomingFull
	}

	in.newest = time.Now()
	w := in.gathering
	if w == nil || len(w.claims) >= maxBatch {
		w = &commit{more: make(chan struct{}, 1), done: make(chan struct{})}
		in.gathering = w
		go in.commit(w) // ends when the volume answers; callers wait for it
	}

	w.claims = append(w.claims, c)
	in.mu.Unlock()
	signal(w.more)
	<-w.done

	return w.err
}

func (in *incoming) commit(w *commit) {
	defer close(w.done)
	in.awaitGathering(w)
	in.slots <- struct{}{}
	defer func() { <-in.slots }()
	in.mu.Lock()
	if in.gathering == w {
		in.gathering = nil
	}
	in.mu.Unlock()
	w.err = in.writeBatch(w.claims)
}

// awaitGathering waits until a batch must be written: it is full, or no more keys join it.
func (in *incoming) awaitGathering(w *commit) {
	end, t := time.Now().Add(gather), time.NewTimer(lull)
	defer t.Stop()
	for time.Now().Before(end) {
		select {
		case <-t.C:
			if len(in.slots) == 0 {
				return
			}
		case <-w.more:
		}

		in.mu.Lock()
		full := len(w.claims) >= maxBatch
		in.mu.Unlock()

		if full {
			return
		}

		t.Reset(lull)
	}
}

// writeBatch writes an incoming file. Each writer looks for files of others afterwards, so of two
// masters with the same id at least one sees the other. It looks while the keys are still being
// written, since the name is enough.
func (in *incoming) writeBatch(claims []*claim) error {
	var token [8]byte
	_, _ = rand.Read(token[:]) // never fails
	b := &batch{token: hex.EncodeToString(token[:]), claims: claims, isOwn: true, since: time.Now()}
	b.timeText = fmt.Sprintf("%019d", b.since.UnixNano())
	b.name = "incoming_" + in.master + "_" + b.timeText + "_" + b.token + "_"
	list := make([]incomingKey, len(claims))
	hashes := map[string]bool{}
	for i, c := range claims {
		hashes[shortHash(c.id)] = true
		b.name += shortHash(c.id)
		list[i] = incomingKey{c.id, c.state.String(), c.pem}
	}

	data, err := json.Marshal(list)
	if err != nil {
		return err
	}

	in.mu.Lock()
	in.rememberBatch(b)
	in.mu.Unlock()

	path := filepath.Join(in.dir, b.name)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, in.mode)
	if err == nil {
		others := make(chan error, 1)
		go func() { others <- in.listFiles(hashes, true) }()
		err = errors.Join(fillNew(f, data, in.mode), <-others)
		if err != nil {
			_ = os.Remove(path)
		}
	}

	in.mu.Lock()
	defer in.mu.Unlock()
	if err != nil {
		in.forget(b)
		return err
	}

	b.exists = true
	in.claimed.Add(uint64(len(claims)))
	signal(in.batchSignal)
	return nil
}

// rememberBatch adds a batch; mu is held.
func (in *incoming) rememberBatch(b *batch) {
	in.batches[b.name] = b
	if b.isOwn {
		in.ownBatches++
	}
	for _, c := range b.claims {
		c.batch = b
		_, c.removed = in.marks[c.markName()]
		in.byID[c.id] = append(in.byID[c.id], c)
	}
}

// forget drops a batch that no longer exists; mu is held.
func (in *incoming) forget(b *batch) {
	if in.batches[b.name] != b {
		return
	}

	delete(in.batches, b.name)
	b.exists = false
	if b.isOwn {
		in.ownBatches--
	}

	for _, c := range b.claims {
		in.byID[c.id] = slices.DeleteFunc(in.byID[c.id], func(o *claim) bool { return o == c })
		if len(in.byID[c.id]) == 0 {
			delete(in.byID, c.id)
		}
		in.markChanged(c.id)
	}
}

func (in *incoming) markChanged(id string) {
	in.changed[id] = struct{}{}
	signal(in.changedSignal)
}

// claimsOf returns the claims for an id whose files exist, oldest file first, without the void
// ones.
func (in *incoming) claimsOf(id string) []*claim {
	in.mu.Lock()
	defer in.mu.Unlock()
	var out []*claim
	for _, c := range in.byID[id] {
		if !c.removed {
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b *claim) int { return strings.Compare(a.batch.timeText, b.batch.timeText) })
	return out
}

// unread reports whether a recent, still incomplete file may concern an id.
func (in *incoming) unread(id string) bool {
	hash := shortHash(id)
	in.mu.Lock()
	defer in.mu.Unlock()
	for name, since := range in.partial {
		if mayConcern(name, map[string]bool{hash: true}) && time.Since(since) < in.unreadFor {
			return true
		}
	}
	return false
}

// isWaiting reports whether a claim still has to become a file.
func (in *incoming) isWaiting(c *claim) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return !c.hasFile && !c.removed && in.batches[c.batch.name] == c.batch
}

// isUnsettled reports whether the file of a claim must still be created or checked: its writer may
// have ended after creating it and before it saw that the id has another file.
func (in *incoming) isUnsettled(c *claim) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return !c.noSecondFile && !c.removed && in.batches[c.batch.name] == c.batch
}

// takeChanged returns the ids to be checked and clears the list.
func (in *incoming) takeChanged() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	out := make([]string, 0, len(in.changed))
	for id := range in.changed {
		out = append(out, id)
	}
	clear(in.changed)
	return out
}

// IncomingStats holds counters since the start, and present sizes.
type IncomingStats struct {
	Claimed  uint64 `json:"claimed"`  // new keys that were acknowledged from an incoming file
	Filed    uint64 `json:"filed"`    // files created for such keys, also for other masters
	Overflow uint64 `json:"overflow"` // new keys that had to wait for their own file, for lack of room
	Waiting  int    `json:"waiting"`  // known keys that have not become files yet
}

// Incoming returns statistics of new keys on a volume; all are zero on a local disk.
func (s *Store) Incoming() IncomingStats {
	in := s.incoming
	if in == nil {
		return IncomingStats{}
	}

	in.mu.Lock()
	defer in.mu.Unlock()
	st := IncomingStats{Claimed: in.claimed.Load(), Filed: in.filed.Load(), Overflow: in.overflow.Load()}
	for _, b := range in.batches {
		for _, c := range b.claims {
			if !c.hasFile && !c.removed {
				st.Waiting++
			}
		}
	}

	return st
}
