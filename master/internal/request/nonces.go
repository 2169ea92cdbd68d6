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

// NonceKey identifies one request of one minion: a hash of its id and nonce.
type NonceKey = [16]byte

func nonceKey(id, nonce string) NonceKey {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(id)+len(nonce)), uint32(len(id)))
	b = append(append(b, id...), nonce...)
	sum := sha256.Sum256(b)
	return NonceKey(sum[:16])
}

// Nonces remembers which requests with a lasting effect were taken: here, by another master of the
// cluster, or before a restart. A request is noted before its effect. A request that is known, but
// whose answer is not, is answered "bad load": its minion signs in and sends it again with another
// nonce (salt/channel/client.py _crypted_transfer), so that nothing is lost.
//
// The journal is written at each request and synced every few seconds. A process that dies forgets
// nothing; a machine that loses power forgets the last seconds.
//
// Overflow policy: the older half goes, after window or when a half is full. All methods may be
// called concurrently.
type Nonces struct {
	window time.Duration
	size   int // of a half
	path   string
	now    func() time.Time
	log    *slog.Logger
	stop   chan struct{}
	done   chan struct{}

	mu          sync.Mutex        // also held while a record is written, into the page cache
	cur, old    map[NonceKey]bool // true: taken here
	began       time.Time         // of cur
	file        *os.File          // nil: no journal, or it cannot be written
	dirty       bool
	earlyHalves uint64 // halves that were dropped before their time
}

const (
	nonceSize    = 1 << 18 // of a half
	nonceRecord  = 16 + 8  // key, and the time in seconds with the sign for "here"
	nonceSync    = 5 * time.Second
	nonceMagic   = "saltern nonces 1\n"
	maxNonceFile = nonceSize*nonceRecord + int64(len(nonceMagic))
)

// NonceWindow returns how long requests must be remembered when those older than ttl are refused:
// with a clock that is ahead a request is valid for twice that long.
func NonceWindow(ttl time.Duration) time.Duration { return max(replayWindow, 2*ttl) }

// OpenNonces reads the journal at path and its older half beside it. A journal that cannot be read
// or written is logged; its requests are then not known, and new ones go on. The result must be
// closed.
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

// readJournal reads the records that are not too old, and returns the time of the first one.
func (n *Nonces) readJournal(path string, into map[NonceKey]bool) (first time.Time, err error) {
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
	for b = b[len(nonceMagic):]; len(b) >= nonceRecord; b = b[nonceRecord:] { // a torn end is left out
		s := int64(binary.BigEndian.Uint64(b[16:]))
		own := s > 0
		at := time.Unix(max(s, -s), 0)
		if first.IsZero() {
			first = at
		}

		if now.Sub(at) < 2*n.window {
			into[NonceKey(b[:16])] = own
		}
	}

	return first, nil
}

// reopen opens the journal for more records. The caller holds mu, or has the only reference.
func (n *Nonces) reopen(fresh bool) error {
	flags := os.O_WRONLY | os.O_CREATE | os.O_APPEND | syscall.O_NOFOLLOW
	if fresh {
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

// addOwn remembers a request of this master, and reports whether it is new.
func (n *Nonces) addOwn(k NonceKey) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addKeys([]NonceKey{k}, true)
}

// Learn remembers requests that another master has taken.
func (n *Nonces) Learn(keys []NonceKey) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addKeys(keys, false)
}

// addKeys reports whether any of keys is new. The caller holds mu.
func (n *Nonces) addKeys(keys []NonceKey, own bool) bool {
	now := n.now()
	if full := len(n.cur)+len(keys) > n.size; full || now.Sub(n.began) >= n.window {
		n.startHalf(now, full)
	}

	sign := now.Unix()
	if !own {
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
		n.cur[k] = own
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

// startHalf begins a new half. The caller holds mu.
func (n *Nonces) startHalf(now time.Time, full bool) {
	if full && now.Sub(n.began) < n.window {
		n.earlyHalves++
		if n.earlyHalves&(n.earlyHalves-1) == 0 { // the first, the second, the fourth …
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

// forget allows a request again that has failed. The journal and the other masters are not told:
// there the minion needs another nonce.
func (n *Nonces) forget(k NonceKey) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.cur, k)
	delete(n.old, k)
}

// Own returns the requests that this master has taken, at most so many, for another master that may
// not know them.
func (n *Nonces) Own(most int) []NonceKey {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []NonceKey
	for _, half := range []map[NonceKey]bool{n.cur, n.old} {
		for k, own := range half {
			if own && len(out) < most {
				out = append(out, k)
			}
		}
	}
	return out
}

// syncLoop syncs the journal every nonceSync.
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
		if f != nil { // one that was closed meanwhile is the older half
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
