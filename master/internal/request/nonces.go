package request

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"
)

// NonceKey identifies one request of one minion: a hash of the minion's id and the request's nonce.
type NonceKey = [16]byte

func nonceKey(id, nonce string) NonceKey {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(id)+len(nonce)), uint32(len(id)))
	b = append(append(b, id...), nonce...)
	sum := sha256.Sum256(b)
	return NonceKey(sum[:16])
}

// Nonces records requests with a lasting effect, so that no request takes effect twice. It contains
// the requests that this master has taken, including those before a restart, and the requests that
// other masters of the cluster have taken. A request is recorded before it takes effect. If a
// recorded request arrives again and this master does not know the answer, the answer is "bad
// load". The minion then signs in and repeats the request with another nonce
// (salt/channel/client.py _crypted_transfer), so nothing is lost.
//
// Each request is written to a journal at once. The journal is synced every few seconds. If the
// process is killed, no record is lost; after a power loss the records of the last seconds are
// lost.
//
// Overflow policy: the records are divided into two halves. When the newer half is full, or its age
// reaches window, the older half is dropped and a new half begins. All methods may be called
// concurrently.
type Nonces struct {
	window time.Duration
	size   int // how many requests a half may hold
	path   string
	now    func() time.Time
	log    *slog.Logger
	stop   chan struct{}
	done   chan struct{}

	// mu is also held while a record is written to the journal. The write ends in the page cache,
	// without a sync.
	mu          sync.Mutex
	cur, old    map[NonceKey]bool // the two halves; a value is true if this master took the request
	began       time.Time         // time at which cur was begun
	file        *os.File          // journal of cur; nil if it cannot be written
	dirty       bool
	earlyHalves uint64 // how often a half was full before its age reached window
}

const (
	nonceSize    = 1 << 18 // most requests in a half
	nonceRecord  = 16 + 8  // key, and Unix time in seconds: negative if another master took the request
	nonceSync    = 5 * time.Second
	nonceMagic   = "saltern nonces 1\n"
	maxNonceFile = nonceSize*nonceRecord + int64(len(nonceMagic))
)

// NonceWindow returns how long the master must store requests if it refuses requests older than
// ttl. If the clock of a minion is ahead by ttl, the minion's requests are valid for twice ttl.
func NonceWindow(ttl time.Duration) time.Duration { return max(replayWindow, 2*ttl) }

// OpenNonces reads the two journals of the previous run: the journal of the newer half, at path,
// and that of the older half. If OpenNonces cannot read a journal, it logs the error, and the
// Nonces do not contain the requests in that journal. If it cannot open a journal for writing, it
// logs the error, and the master runs without a journal. The caller must call Close.
func OpenNonces(path string, window time.Duration, now func() time.Time, log *slog.Logger) *Nonces {
	n := &Nonces{
		window: window,
		size:   nonceSize,
		path:   path,
		now:    now,
		log:    log,
		stop:   make(chan struct{}),
		done:   make(chan struct{}),
		cur:    map[NonceKey]bool{},
		old:    map[NonceKey]bool{},
		began:  now(),
	}

	for _, half := range []struct {
		path string
		into map[NonceKey]bool
	}{{path + ".old", n.old}, {path, n.cur}} {
		first, err := n.readJournal(half.path, half.into)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			log.Warn("requests of before the start are not all known: a recorded one could be taken again",
				"path", half.path, "error", err)
		}

		if half.path == path && !first.IsZero() {
			n.began = first
		}
	}

	if err := n.reopen(len(n.cur) == 0); err != nil {
		n.dropJournal(err)
	}

	go n.syncLoop()
	return n
}

// readJournal reads the records of a journal into dest, except expired records. first is the time
// of the first record, or the zero time if there are no records.
func (n *Nonces) readJournal(path string, dest map[NonceKey]bool) (first time.Time, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return first, err
	}
	defer f.Close()

	b, err := io.ReadAll(io.LimitReader(f, maxNonceFile))
	if err != nil {
		return first, err
	}
	if len(b) < len(nonceMagic) || string(b[:len(nonceMagic)]) != nonceMagic {
		return first, errors.New("not a journal of nonces")
	}

	now := n.now()
	// Ignore an incomplete record at the end.
	for b = b[len(nonceMagic):]; len(b) >= nonceRecord; b = b[nonceRecord:] {
		s := int64(binary.BigEndian.Uint64(b[16:]))
		own := s > 0
		at := time.Unix(max(s, -s), 0)
		if first.IsZero() {
			first = at
		}

		if now.Sub(at) < 2*n.window {
			dest[NonceKey(b[:16])] = own
		}
	}

	return first, nil
}

// reopen opens the journal for appending. If truncate is set, it first empties the journal. The
// caller holds mu, or has the only reference to n.
func (n *Nonces) reopen(truncate bool) error {
	flags := os.O_WRONLY | os.O_CREATE | os.O_APPEND | syscall.O_NOFOLLOW
	if truncate {
		flags |= os.O_TRUNC
	}

	f, err := os.OpenFile(n.path, flags, 0o600)
	if err != nil {
		return err
	}

	size, err := f.Seek(0, io.SeekEnd)
	if err == nil && size == 0 {
		_, err = f.WriteString(nonceMagic)
	} else if torn := (size - int64(len(nonceMagic))) % nonceRecord; err == nil && torn != 0 {
		err = f.Truncate(size - torn)
	}

	if err != nil {
		_ = f.Close()
		return err
	}

	n.file = f
	return nil
}

func (n *Nonces) dropJournal(err error) {
	n.log.Error("requests cannot be remembered over a restart: a recorded one could be taken again then",
		"path", n.path, "error", err)
	if n.file != nil {
		_ = n.file.Close()
		n.file = nil
	}
}

// addOwn records a request that this master takes, and reports whether the request was not recorded
// before.
func (n *Nonces) addOwn(k NonceKey) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addKeys([]NonceKey{k}, true)
}

// Learn records requests that another master has taken.
func (n *Nonces) Learn(keys []NonceKey) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addKeys(keys, false)
}

// addKeys records requests, and reports whether any of them was not recorded before. here means
// that this master takes the requests; otherwise another master has taken them. The caller holds
// mu.
func (n *Nonces) addKeys(keys []NonceKey, here bool) bool {
	now := n.now()
	if full := len(n.cur)+len(keys) > n.size; full || now.Sub(n.began) >= n.window {
		n.startHalf(now, full)
	}

	sign := now.Unix()
	if !here {
		sign = -sign
	}

	var room [nonceRecord]byte
	out, fresh := room[:0], false
	for _, k := range keys {
		if _, known := n.cur[k]; known {
			continue
		}

		if _, known := n.old[k]; known {
			continue
		}

		fresh = true
		n.cur[k] = here
		out = append(out, k[:]...)
		out = binary.BigEndian.AppendUint64(out, uint64(sign))
	}

	if n.file != nil && len(out) > 0 {
		if _, err := n.file.Write(out); err != nil {
			n.dropJournal(err)
		}
		n.dirty = true
	}

	return fresh
}

// startHalf drops the older half and begins a new one. full means that the newer half has reached
// the bound on its requests. The caller holds mu.
func (n *Nonces) startHalf(now time.Time, full bool) {
	if full && now.Sub(n.began) < n.window {
		n.earlyHalves++
		if n.earlyHalves&(n.earlyHalves-1) == 0 { // log only the first, second, fourth, eighth … such half
			n.log.Warn("more requests than can be remembered: a recorded one could be taken again", "after",
				now.Sub(n.began).Round(time.Second), "times", n.earlyHalves)
		}
	}

	n.old = n.cur
	n.cur = map[NonceKey]bool{}
	n.began = now
	if n.file == nil {
		return
	}

	err := os.Rename(n.path, n.path+".old")
	if err == nil {
		_ = n.file.Close()
		n.file = nil
		err = n.reopen(true)
	}

	if err != nil {
		n.dropJournal(err)
	}
}

// forget removes the record of a request that has failed, so that this master accepts the same
// request again. The journal and the other masters keep the record. So after a restart, or at
// another master, the minion must repeat the request with another nonce.
func (n *Nonces) forget(k NonceKey) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.cur, k)
	delete(n.old, k)
}

// Own returns at most limit requests that this master has taken. The caller sends these requests to
// another master that may not know them.
func (n *Nonces) Own(limit int) []NonceKey {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []NonceKey
	for _, half := range []map[NonceKey]bool{n.cur, n.old} {
		for k, own := range half {
			if own && len(out) < limit {
				out = append(out, k)
			}
		}
	}
	return out
}

// syncLoop syncs the journal every nonceSync until Close.
func (n *Nonces) syncLoop() {
	defer close(n.done)
	t := time.NewTicker(nonceSync)
	defer t.Stop()

	for {
		select {
		case <-n.stop:
			return
		case <-t.C:
		}

		n.mu.Lock()
		f := n.file
		if !n.dirty {
			f = nil
		}

		n.dirty = false
		n.mu.Unlock()
		// If startHalf has closed the file since f was read, Sync fails, and that half is never
		// synced.
		if f != nil {
			_ = f.Sync()
		}
	}
}

// Close syncs and closes the journal.
func (n *Nonces) Close() error {
	close(n.stop)
	<-n.done
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.file == nil {
		return nil
	}
	err := errors.Join(n.file.Sync(), n.file.Close())
	n.file = nil
	if err != nil {
		return fmt.Errorf("close the journal of nonces: %w", err)
	}
	return nil
}
