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

// bounds of incoming files.
const (
	maxBatch = 32 // keys of one, whose hashes fit into a name
	// batchesAtOnce is how many are being written: those who sign in meanwhile
	// share the next one.
	batchesAtOnce = 3
	// lull and gather say how long others may join a batch: until none has come
	// for so long and none is being written, but not longer than gather. Its cost
	// on the volume hardly depends on their number.
	lull         = 25 * time.Millisecond
	gather       = 250 * time.Millisecond
	maxBatchFile = 256 << 10 // bytes
	maxBatches   = 512       // files of this master that are there
	maxIncoming  = 8192      // files of all masters that are read
)

// incomingName is the name of an incoming file: master, time, token, a short
// hash of each id. Nobody changes a file or uses a name again, so no cache of a
// volume can hold an old one; and who cannot read a file yet knows from its name
// whether it may be about an id.
var incomingName = regexp.MustCompile(`^incoming_([0-9A-Za-z.:_-]{1,80})_([0-9]{19})_([0-9a-f]{16})_((?:[0-9a-f]{4}){1,32})$`)

// masterName is what may stand in the name of an incoming file.
var masterName = regexp.MustCompile(`^[0-9A-Za-z.:_-]{1,80}$`)

// about tells from the name of an incoming file whether it may hold one of some
// ids.
func about(name string, hashes map[string]bool) bool {
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

// removedName is the name of a mark: token of the incoming file, hash of the id.
var removedName = regexp.MustCompile(`^removed_([0-9a-f]{16})_[0-9a-f]{32}$`)

// claim is a new key in an incoming file.
type claim struct {
	id    string
	state State
	pem   string
	batch *batch
	done  bool // a file of a state holds the id, or did; under incoming.mu
	sure  bool // and of this claim's making there is no other; under incoming.mu
	void  bool // the key was removed; under incoming.mu
}

func (c *claim) same(o *claim) bool { return c.state == o.state && c.pem == o.pem }

// mark is the name of the file that says that the key was removed.
func (c *claim) mark() string {
	h := sha256.Sum256([]byte(c.id))
	return "removed_" + c.batch.token + "_" + hex.EncodeToString(h[:16])
}

// batch is an incoming file. All but name and token are under incoming.mu.
type batch struct {
	name, token string
	when        string // time in the name
	claims      []*claim
	own         bool // made in this life
	there       bool // written and not removed
	since       time.Time
	filed       time.Time // zero: not yet
	again       time.Time // not before, after an error
}

// incomingKey is a line of an incoming file.
type incomingKey struct {
	ID    string `json:"id"`
	State string `json:"state"`
	Pub   string `json:"pub"`
}

// incoming is what the incoming files of all masters hold.
type incoming struct {
	dir    string
	master string // "" only reads
	mode   os.FileMode
	bounds crypt.Bounds
	log    *slog.Logger

	// quiet and late say when the keys of a batch are filed: when no other key
	// has come for so long, or the batch is so old. linger is how long a batch
	// stays afterwards, foreign the age at which that of another is filed, retry
	// the pause of one that could not be filed.
	quiet, late, linger, foreign, retry time.Duration
	// unreadFor is how long a file that is not whole is waited for when it may be
	// about the same id: longer than a volume shows an old size. It is ignored
	// afterwards: its writer, if he lives, has still to look for others.
	unreadFor time.Duration

	looks sharing
	slots chan struct{} // batches being written
	fresh chan struct{} // capacity 1: there are changed ids
	poked chan struct{} // capacity 1: there is a batch to file

	mu      sync.Mutex
	batches map[string]*batch
	own     int // of them that this master made in this life
	byID    map[string][]*claim
	partial map[string]time.Time // files that are not whole, and since when they are known
	marks   map[string]time.Time // removed_ files, and since when they are known
	changed map[string]struct{}  // ids whose index entry may be old
	next    *commit
	newest  time.Time // when a key came here last

	claimed, filed, overflow atomic.Uint64
}

// commit is the outcome of a batch.
type commit struct {
	claims []*claim
	more   chan struct{} // capacity 1: there is another claim
	done   chan struct{}
	err    error
}

var errIncomingFull = errors.New("too many new keys wait to become files")

func newIncoming(dir, master string, mode os.FileMode, bounds crypt.Bounds, log *slog.Logger) *incoming {
	if !masterName.MatchString(master) {
		master = ""
	}

	return &incoming{
		dir:       dir,
		master:    master,
		mode:      mode,
		bounds:    bounds,
		log:       log,
		quiet:     500 * time.Millisecond,
		late:      5 * time.Second,
		linger:    30 * time.Second,
		foreign:   3 * time.Minute,
		retry:     5 * time.Second,
		unreadFor: 3 * time.Second,
		slots:     make(chan struct{}, batchesAtOnce),
		fresh:     make(chan struct{}, 1),
		poked:     make(chan struct{}, 1),
		batches:   map[string]*batch{},
		byID:      map[string][]*claim{},
		partial:   map[string]time.Time{},
		marks:     map[string]time.Time{},
		changed:   map[string]struct{}{},
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// add has a key written to the volume, together with those that come at the
// same time, and returns when it is durable and the claims of all other masters
// that were made before are known.
func (in *incoming) add(c *claim) error {
	in.mu.Lock()
	if in.own >= maxBatches {
		in.mu.Unlock()
		in.overflow.Add(1)
		return errIncomingFull
	}

	in.newest = time.Now()
	w := in.next
	if w == nil || len(w.claims) >= maxBatch {
		w = &commit{more: make(chan struct{}, 1), done: make(chan struct{})}
		in.next = w
		go in.commit(w) // ends with the volume's answer; callers wait for it
	}

	w.claims = append(w.claims, c)
	in.mu.Unlock()
	poke(w.more)
	<-w.done

	return w.err
}

func (in *incoming) commit(w *commit) {
	defer close(w.done)
	in.await(w)
	in.slots <- struct{}{}
	defer func() { <-in.slots }()
	in.mu.Lock()
	if in.next == w {
		in.next = nil
	}
	in.mu.Unlock()
	w.err = in.write(w.claims)
}

// await returns when a batch is to be written: it is full, or nobody joins it
// any more.
func (in *incoming) await(w *commit) {
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

// write makes an incoming file. Whoever has made one looks for those of others
// afterwards, so of two masters with the same id at least one sees the other. It
// looks while the keys are being written: the name says enough.
func (in *incoming) write(claims []*claim) error {
	var token [8]byte
	_, _ = rand.Read(token[:]) // never fails
	b := &batch{token: hex.EncodeToString(token[:]), claims: claims, own: true, since: time.Now()}
	b.when = fmt.Sprintf("%019d", b.since.UnixNano())
	b.name = "incoming_" + in.master + "_" + b.when + "_" + b.token + "_"
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
	in.keep(b)
	in.mu.Unlock()

	path := filepath.Join(in.dir, b.name)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, in.mode)
	if err == nil {
		others := make(chan error, 1)
		go func() { others <- in.list(hashes, true) }()
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

	b.there = true
	in.claimed.Add(uint64(len(claims)))
	poke(in.poked)
	return nil
}

// keep remembers a batch; mu is held.
func (in *incoming) keep(b *batch) {
	in.batches[b.name] = b
	if b.own {
		in.own++
	}
	for _, c := range b.claims {
		c.batch = b
		_, c.void = in.marks[c.mark()]
		in.byID[c.id] = append(in.byID[c.id], c)
	}
}

// forget is called when a batch is gone; mu is held.
func (in *incoming) forget(b *batch) {
	if in.batches[b.name] != b {
		return
	}

	delete(in.batches, b.name)
	b.there = false
	if b.own {
		in.own--
	}

	for _, c := range b.claims {
		in.byID[c.id] = slices.DeleteFunc(in.byID[c.id], func(o *claim) bool { return o == c })
		if len(in.byID[c.id]) == 0 {
			delete(in.byID, c.id)
		}
		in.touch(c.id)
	}
}

func (in *incoming) touch(id string) {
	in.changed[id] = struct{}{}
	poke(in.fresh)
}

// of gives the claims for an id whose files are there, oldest file first;
// those that are void are left out.
func (in *incoming) of(id string) []*claim {
	in.mu.Lock()
	defer in.mu.Unlock()
	var out []*claim
	for _, c := range in.byID[id] {
		if !c.void {
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b *claim) int { return strings.Compare(a.batch.when, b.batch.when) })
	return out
}

// unread reports whether there is a file that may be about an id, made a moment
// ago and not whole yet.
func (in *incoming) unread(id string) bool {
	hash := shortHash(id)
	in.mu.Lock()
	defer in.mu.Unlock()
	for name, since := range in.partial {
		if about(name, map[string]bool{hash: true}) && time.Since(since) < in.unreadFor {
			return true
		}
	}
	return false
}

// waits reports whether a claim is to become a file.
func (in *incoming) waits(c *claim) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return !c.done && !c.void && in.batches[c.batch.name] == c.batch
}

// open reports whether the file of a claim is still to be made, or looked for:
// somebody may have ended between making it and seeing that the id has another.
func (in *incoming) open(c *claim) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return !c.sure && !c.void && in.batches[c.batch.name] == c.batch
}

// takeChanged gives the ids that are to be looked at.
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

// IncomingStats are counters since the start, and what is there now.
type IncomingStats struct {
	Claimed  uint64 `json:"claimed"`  // new keys that were acknowledged from an incoming file
	Filed    uint64 `json:"filed"`    // files made of such, also for other masters
	Overflow uint64 `json:"overflow"` // new keys that waited for their file, for lack of room
	Waiting  int    `json:"waiting"`  // keys known here that are to become files
}

// Incoming tells of new keys on a volume; all zero on a local disk.
func (s *Store) Incoming() IncomingStats {
	in := s.in
	if in == nil {
		return IncomingStats{}
	}

	in.mu.Lock()
	defer in.mu.Unlock()
	st := IncomingStats{Claimed: in.claimed.Load(), Filed: in.filed.Load(), Overflow: in.overflow.Load()}
	for _, b := range in.batches {
		for _, c := range b.claims {
			if !c.done && !c.void {
				st.Waiting++
			}
		}
	}

	return st
}
