// Package share copies data that one master of a cluster has received to all other masters: grains,
// pillars and mines of minions, and tokens. Each master stores the data in the files of Salt's own
// cache.
//
//	cache (a change here) ── Changed ─ have ──► peers ─ Take ─ cache
//	connected, every 30 s ── sum ──► peer ── list ──► have ──► want ──► have … done
//	connected ◄── sum ── peer
//
// A change is sent to all peers at once; the master neither waits for an answer nor repeats it.
// When a connection begins, and every 30 seconds, each master sends the sums of its buckets of
// entries. A peer whose sums differ asks for the lists of entries in the buckets that differ, and
// then for the entries that it lacks, a limited number at a time. So each master only fetches what
// it lacks. If two masters have different versions of an entry, both keep the newer version, see
// package cache.
//
// # Bounds and what happens beyond them
//
//	changes that wait to be sent    65,536 entries; more are left to the comparison
//	messages of peers               64 MiB; more are dropped, and left to the comparison
//	entries requested at once 128 of a peer; the others wait
package share

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"saltern/master/cache"
)

const (
	maxChanges  = 1 << 16
	maxIncoming = 64 << 20
	maxAsked    = 128
	maxListed   = 1000
	maxInline   = 256 << 10 // bytes of data in one message, but a single entry may be larger
	maxAnswer   = 8 << 20   // bytes of data in the answers to one kindWant
)

const (
	compareEvery = 30 * time.Second
)

// Config configures a Share. All fields are required.
type Config struct {
	Store *cache.Store
	// Send sends bytes to a peer, or to all peers if peer is "". It returns false if the queue has
	// no room for the bytes. It must not block.
	Send func(peer string, b []byte) bool
	Log  *slog.Logger
}

// Share exchanges the data of one master with its peers. The caller creates it with New and then
// calls Run. The other methods may be called concurrently, and even before Run.
type Share struct {
	cfg   Config
	in    chan incoming
	bytes atomic.Int64 // total size of the messages in the channel in
	wake  chan struct{}

	mu       sync.Mutex
	changed  map[entryKey]struct{}
	newPeers map[string]struct{} // peers that have connected since the last sums were sent

	pulls  map[string]*pull // state of fetching, by peer; only the goroutine of Run uses it
	failed bool
	count  counters
}

type counters struct{ sent, taken, lost, bad atomic.Uint64 }

type incoming struct {
	peer string
	b    []byte
}

// pull is the state of fetching entries from one peer.
type pull struct {
	want     []entryKey // entries that must still be requested, in order
	pending  map[entryKey]struct{}
	asked    []entryKey
	since    time.Time // when the last request was sent or the last answer arrived
	answered bool      // a part of the answer to the last request has arrived
}

// Status holds counters since the start.
type Status struct {
	Sent  uint64 // number of changes sent; a change that is sent to several peers counts once
	Taken uint64 // entries of peers that replaced entries of this master
	Lost  uint64 // changes and messages dropped; the next comparison finds the entries
	Bad   uint64 // messages that could not be parsed
}

// New returns a Share. It registers the Share with the store, so that the store reports each change
// to the Share.
func New(cfg Config) (*Share, error) {
	s := &Share{
		cfg:      cfg,
		in:       make(chan incoming, 1024),
		wake:     make(chan struct{}, 1),
		changed:  map[entryKey]struct{}{},
		newPeers: map[string]struct{}{},
		pulls:    map[string]*pull{},
	}
	return s, cfg.Store.Share(s.noteChange)
}

// Status returns the counters.
func (s *Share) Status() Status {
	return Status{s.count.sent.Load(), s.count.taken.Load(), s.count.lost.Load(), s.count.bad.Load()}
}

func (s *Share) noteChange(b cache.Bank, id string) {
	s.mu.Lock()
	if len(s.changed) < maxChanges {
		s.changed[entryKey{b, id}] = struct{}{}
	} else {
		s.count.lost.Add(1)
	}
	s.mu.Unlock()
	s.wakeRun()
}

func (s *Share) wakeRun() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Connected schedules a comparison of entries with a peer that has just connected. It does not
// block.
func (s *Share) Connected(peer string) {
	s.mu.Lock()
	s.newPeers[peer] = struct{}{}
	s.mu.Unlock()
	s.wakeRun()
}

// Receive queues a message from a peer for Run. It does not block.
func (s *Share) Receive(peer string, b []byte) {
	if n := int64(len(b)); s.bytes.Add(n) <= maxIncoming || s.bytes.Load() == n {
		select {
		case s.in <- incoming{peer, b}:
			return
		default:
		}
	}
	s.bytes.Add(-int64(len(b)))
	s.count.lost.Add(1)
}

// Run exchanges data with the peers until ctx ends.
func (s *Share) Run(ctx context.Context) {
	compare, tick := time.NewTicker(compareEvery), time.NewTicker(500*time.Millisecond)
	defer compare.Stop()
	defer tick.Stop()

	for {
		select {
		case m := <-s.in:
			s.handle(m)
			s.bytes.Add(-int64(len(m.b)))
		case <-s.wake:
			s.sendChanges()
		case <-compare.C:
			s.report(s.cfg.Store.Rescan(time.Now()))
			s.sendMessage("", sumMessage(kindSum, s.cfg.Store.Sums()))
		case <-tick.C:
			s.report(s.cfg.Store.RescanTokens())
			for peer, p := range s.pulls {
				if time.Since(p.since) > 10*time.Second {
					delete(s.pulls, peer) // the peer does not answer; the next comparison asks again
				}
			}
		case <-ctx.Done():
			return
		}
	}
}

// SendLast sends the changes that were not sent yet. Call it after Run has ended.
func (s *Share) SendLast() { s.sendChanges() }

// report logs the first of several disk errors in a row. A nil err ends the series.
func (s *Share) report(err error) {
	if err != nil && !s.failed {
		s.cfg.Log.Error("data of minions that other masters have is not kept", "error", err)
	}
	s.failed = err != nil
}

func (s *Share) sendMessage(peer string, b []byte) bool {
	ok := b != nil && s.cfg.Send(peer, b)
	if !ok {
		s.count.lost.Add(1)
	}
	return ok
}

// sendChanges sends the changed entries to all peers, and the sums of this master to new peers.
func (s *Share) sendChanges() {
	s.mu.Lock()
	changed, greet := s.changed, s.newPeers
	s.changed, s.newPeers = map[entryKey]struct{}{}, map[string]struct{}{}
	s.mu.Unlock()

	for peer := range greet {
		delete(s.pulls, peer)
		s.sendMessage(peer, sumMessage(kindMeet, s.cfg.Store.Sums()))
	}

	var list []entryKey
	for k := range changed {
		list = append(list, k)
	}

	s.count.sent.Add(uint64(len(list)))
	s.sendEntries("", list, 0)
}

// sendEntries sends entries with their data to a peer. It sends at most maxBytes bytes of data, but
// at least one entry. 0 means no bound.
func (s *Share) sendEntries(peer string, list []entryKey, maxBytes int) {
	var batch []cache.Entry
	size, all := 0, 0
	flush := func() {
		if len(batch) > 0 {
			s.sendMessage(peer, haveMessage(batch))
		}
		batch, size = nil, 0
	}

	for _, k := range list {
		e, ok := s.cfg.Store.Entry(k.bank, k.id)
		if !ok {
			continue
		}
		if maxBytes > 0 && all > 0 && all+len(e.Packed) > maxBytes {
			break
		}

		if size+len(e.Packed) > maxInline || len(batch) >= maxAsked {
			flush()
		}

		batch = append(batch, e)
		size, all = size+len(e.Packed), all+len(e.Packed)
	}

	flush()
}

// handle handles a message from a peer.
func (s *Share) handle(m incoming) {
	msg, err := parseMessage(m.b)
	if err != nil {
		s.count.bad.Add(1)
		s.cfg.Log.Debug("data of minions from a master cannot be read", "peer", m.peer, "error", err)
		return
	}

	switch msg.kind {
	case kindHave:
		s.takeEntries(m.peer, msg.entries)
	case kindSum, kindMeet:
		ours := s.cfg.Store.Sums()
		// While the peer was not connected, this master may have made changes that the peer lacks.
		if msg.kind == kindMeet {
			s.sendMessage(m.peer, sumMessage(kindSum, ours))
		}

		var differ []byte
		for i, n := range ours {
			if n != msg.sums[i] {
				differ = append(differ, byte(i))
			}
		}

		if len(differ) > 0 && s.pulls[m.peer] == nil {
			s.sendMessage(m.peer, bytesMessage(kindList, differ))
		}
	case kindList:
		in := map[int]bool{}
		for _, b := range msg.buckets {
			in[int(b)] = true
		}
		for part := range slices.Chunk(s.cfg.Store.Entries(in), maxListed) {
			s.sendMessage(m.peer, haveMessage(part))
		}
	case kindWant:
		s.sendEntries(m.peer, msg.keys, maxAnswer)
		s.sendMessage(m.peer, bytesMessage(kindDone, nil))
	case kindDone:
		s.endQuestion(m.peer)
	}
}

// takeEntries stores entries from a peer. It asks the peer for the data of entries that arrived
// without data and are needed.
func (s *Share) takeEntries(peer string, entries []cache.Entry) {
	p := s.pulls[peer]
	for _, e := range entries {
		k := entryKey{e.Bank, e.ID}
		outcome, err := s.cfg.Store.Take(e)
		s.report(err)
		if outcome == cache.Taken {
			s.count.taken.Add(1)
		}

		if outcome == cache.Wanted {
			if p == nil {
				p = &pull{pending: map[entryKey]struct{}{}}
				s.pulls[peer] = p
			}

			if _, ok := p.pending[k]; !ok {
				p.pending[k] = struct{}{}
				p.want = append(p.want, k)
			}

			continue
		}

		if p != nil {
			if _, ok := p.pending[k]; ok {
				delete(p.pending, k)
				p.answered, p.since = true, time.Now()
			}
		}
	}

	if p != nil && p.asked == nil {
		s.askNext(peer, p)
	}
}

// endQuestion handles the end of an answer. It again requests the entries that were requested but
// that the answer did not contain. If the answer contained no entries, the peer does not have the
// requested entries any more.
func (s *Share) endQuestion(peer string) {
	p := s.pulls[peer]
	if p == nil {
		return
	}
	for _, k := range p.asked {
		if _, open := p.pending[k]; open && p.answered {
			p.want = append(p.want, k)
		} else {
			delete(p.pending, k)
		}
	}
	s.askNext(peer, p)
}

func (s *Share) askNext(peer string, p *pull) {
	p.asked = nil
	p.answered = false
	p.since = time.Now()
	for len(p.want) > 0 && len(p.asked) < maxAsked {
		k := p.want[0]
		p.want = p.want[1:]
		if _, open := p.pending[k]; open {
			p.asked = append(p.asked, k)
		}
	}
	if len(p.asked) == 0 || !s.sendMessage(peer, wantMessage(p.asked)) {
		delete(s.pulls, peer)
	}
}
