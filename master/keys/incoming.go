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

// Limits of incoming files.
const (
	maxBatch = 32 // most keys in one file; the file's name must have room for a hash of each id
	// batchesAtOnce is how many batches this master writes at once. Minions that sign in while all
	// these batches are being written share the next batch.
	batchesAtOnce = 3
	// lull and gather determine how long a batch waits for more keys: until no key has come for
	// lull and no other batch is being written, but no longer than gather. On a volume a batch of
	// many keys costs hardly more than a batch of one.
	lull         = 25 * time.Millisecond
	gather       = 250 * time.Millisecond
	maxBatchFile = 256 << 10 // most bytes that are read from one file
	maxBatches   = 512       // most files that this process has at a time
	maxIncoming  = 8192      // most files of all masters that are read
)

// incomingName matches the name of an incoming file: master, time, token, and a short hash of each
// id. The files never change, and no name is used twice, so a volume cannot return an outdated file
// from a cache. A master that cannot read a file yet can see from the file's name whether the file
// may concern an id.
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

// removedName matches the name of a mark: the token of the incoming file and the hash of the id.
var removedName = regexp.MustCompile(`^removed_([0-9a-f]{16})_[0-9a-f]{32}$`)

// claim is a new key in an incoming file that has yet to get a file in the folder of its state.
type claim struct {
	id           string
	state        State
	pem          string
	batch        *batch
	hasFile      bool // the id has or had a key file in some state; guarded by incoming.mu
	noSecondFile bool // it was checked that this claim has left no second file; guarded by incoming.mu
	removed      bool // the key has been removed; guarded by incoming.mu
}

func (c *claim) sameKey(o *claim) bool { return c.state == o.state && c.pem == o.pem }

// markName returns the name of the file that marks this claim's key as removed.
func (c *claim) markName() string {
	h := sha256.Sum256([]byte(c.id))
	return "removed_" + c.batch.token + "_" + hex.EncodeToString(h[:16])
}

// batch is an incoming file and its claims. incoming.mu guards all fields but name and token.
type batch struct {
	name, token string
	timeText    string // time in the name, 19 digits that sort
	claims      []*claim
	isOwn       bool      // this process wrote the file
	exists      bool      // the file exists on the volume
	since       time.Time // time at which the batch was written or first read; zero for a batch of an earlier run
	filedAt     time.Time // time at which all keys of the batch had their files; zero before that
	retryAt     time.Time // time of the next attempt, after an error
}

// incomingKey is a key in an incoming file.
type incomingKey struct {
	ID    string `json:"id"`
	State string `json:"state"`
	Pub   string `json:"pub"`
}

// incoming holds the content of the incoming files of all masters.
type incoming struct {
	dir    string
	master string // this master's name; "": write no incoming files
	mode   os.FileMode
	bounds crypt.Bounds
	log    *slog.Logger

	// quiet and late determine when the keys of a batch become files: when no further key has come
	// for quiet, or when the batch is older than late. linger is how long a filed batch remains on
	// the volume. foreign is the age at which this master files a batch of another master. retry is
	// the pause after a failure.
	quiet, late, linger, foreign, retry time.Duration
	// unreadFor is how long a claim waits for an incomplete file that may concern the claim's id. A
	// volume reports an outdated size for a shorter time than that. After unreadFor the claim
	// ignores the file: the writer of the file, if alive, checks for other claims itself.
	unreadFor time.Duration

	listings      sharing
	slots         chan struct{} // holds an element for each batch that is being written
	changedSignal chan struct{} // capacity 1: signals changed ids
	batchSignal   chan struct{} // capacity 1: signals that there is a batch to file

	mu         sync.Mutex
	batches    map[string]*batch
	ownBatches int // number of batches that this process wrote
	byID       map[string][]*claim
	partial    map[string]time.Time // incomplete files by name, with the time at which each was found
	marks      map[string]time.Time // marks (removed_ files) by name, with the time at which each was found
	changed    map[string]struct{}  // ids whose entry in the index may be outdated
	gathering  *commit
	newest     time.Time // time at which the last new key came

	claimed, filed, overflow atomic.Uint64
}

// commit is a batch that gathers claims. err is its outcome and may be read once done is closed.
type commit struct {
	claims []*claim
	more   chan struct{} // capacity 1: signals that another claim has joined
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

// addClaim writes a key to the volume, in one file with other keys that arrive at the same time. It
// returns when the key is durable and this master has read all earlier claims of other masters.
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
		go in.commit(w) // callers wait for commit, so it ends when the volume answers
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

// awaitGathering waits until the batch must be written: until the batch is full, no more keys
// arrive, or gather has passed.
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

// writeBatch writes an incoming file. Each master looks for the files of other masters after it has
// created its own, so of two masters with the same id at least one sees the other's file. A master
// need not write its keys before it looks, because the name of its file is enough for the other
// master.
func (in *incoming) writeBatch(claims []*claim) error {
	var token [8]byte
	_, _ = rand.Read(token[:]) // Read never fails
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

// rememberBatch adds a batch and its claims. The caller holds mu.
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

// forget removes a batch from in, because the file of the batch no longer exists. The caller holds
// mu.
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

// claimsOf returns the claims for an id that have not been removed, beginning with the claims in
// the oldest file.
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

// unread reports whether an incomplete file that may concern an id was found less than unreadFor
// ago.
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

// isWaiting reports whether a claim has yet to become a file.
func (in *incoming) isWaiting(c *claim) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return !c.hasFile && !c.removed && in.batches[c.batch.name] == c.batch
}

// isUnsettled reports whether the key file of a claim has not been created or not been checked yet.
// A check is needed because the writer of the file may have died before it noticed that the id has
// another file.
func (in *incoming) isUnsettled(c *claim) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return !c.noSecondFile && !c.removed && in.batches[c.batch.name] == c.batch
}

// takeChanged returns the ids whose index entry may be outdated, and clears the list.
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
	Claimed uint64 `json:"claimed"` // new keys that were acknowledged when their incoming file was durable
	Filed   uint64 `json:"filed"`   // key files created from incoming files of this and other masters
	// new keys that had to wait for their own file, because there were too many incoming files
	Overflow uint64 `json:"overflow"`
	Waiting  int    `json:"waiting"` // keys in incoming files that have no file yet
}

// Incoming returns statistics about new keys on a volume. On a local disk all of them are zero.
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
