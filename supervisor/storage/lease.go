package storage

import (
	"context"
	"sync"
	"time"
)

// The lease says who changes the pool: a lock (flock) on one file of the volume, and a number in
// that file, the beat, that its holder counts up every second.
//
// The lock alone would suffice if all nodes kept asking for it: when a node is lost, GlusterFS ends
// its lock on the bricks and notifies no other node. But a node that asks for a lock just when
// another node is lost may hang for ever. In version 10.3 the client's thread that cancels the
// requests to the lost brick never returns from that request, and all other requests of that moment
// hang with it. So a node reads the beat every second, and asks for the lock only if the beat does
// not change:
//
//   - The holder counts on the lease for leaseFor from the moment it began to
//     write a beat. A holder that could not write for that long has lost the lease
//     and starts over like any other node.
//   - Others ask for the lock when they have read the same beat for
//     leaseSilence, which is longer, in at least leaseReads reads. They read every
//     other second while the beat changes, every second when it does not.
//   - A holder whose applianced ends, or is killed, unlocks the file and writes
//     that it is free. The others ask for the lock once when they read that.
//   - A frozen holder keeps the lock without using the lease. A node that was
//     refused the lock leaseRefused times while the beat did not change begins the
//     next term: another file, which only one node can create. Before each beat a holder
//     checks whether there is a later term.
const (
	leaseFile    = ".storage-lease"
	leaseEvery   = time.Second
	leaseFor     = 4 * leaseEvery
	leaseSilence = 10 * leaseEvery
	leaseReads   = 6
	leaseRefused = 2
)

// lease is the supervisor's side of the lease. Its child, leaseChild, touches the file.
type lease struct {
	child worker

	mu           sync.Mutex
	heldUntil    time.Time // the lease is ours until then
	holder       string    // name of the node that holds the lease, as the file says; empty: not known
	newestChange uint64    // mark of the newest change of files, as read from the file; see mirror.go
	ownChange    uint64    // the mark that this node publishes while it holds the lease
	otherSeen    time.Time // when another holder's beat was read last
}

// leaseQuestion is the request for one step of the lease, from the supervisor to its child.
type leaseQuestion struct {
	Files uint64 `json:"files,omitempty"`
}

type leaseReply struct {
	Held   bool   `json:"held"`
	Holder string `json:"holder"`
	Files  uint64 `json:"files,omitempty"`
	// Fresh reports whether another holder's beat has changed since the last read.
	Fresh bool `json:"fresh,omitempty"`
}

// holdWhile makes a step of the lease every second until ctx ends. While wanted returns true, it
// acquires and renews the lease; otherwise it releases it. It calls gained each time this node
// acquires the lease.
func (l *lease) holdWhile(ctx context.Context, wanted func() bool, gained func()) {
	defer l.child.finish()
	tick := time.NewTicker(leaseEvery)
	defer tick.Stop()

	rest := false // skip the next second, because another holder's beat has just changed
	for {
		switch {
		case !wanted():
			rest = false
			l.child.stopChild() // releases the lock
			l.mu.Lock()
			l.heldUntil, l.holder = time.Time{}, ""
			l.mu.Unlock()
		case rest:
			rest = false
		default:
			asked := time.Now()
			var r leaseReply
			l.mu.Lock()
			q := leaseQuestion{l.ownChange}
			l.mu.Unlock()

			// A child that takes longer is killed.
			err := l.child.ask(ctx, 20*time.Second, q, &r)
			l.mu.Lock()
			before := l.heldUntil
			if err == nil && r.Holder != "" { // Holder is empty while the file has no beat yet
				l.newestChange = r.Files
				if !r.Held {
					l.otherSeen = asked
				}
			}

			switch {
			case err != nil:
				l.holder = ""
			case r.Held:
				l.heldUntil, l.holder = asked.Add(leaseFor), r.Holder
			default:
				l.heldUntil, l.holder = time.Time{}, r.Holder
			}
			l.mu.Unlock()

			rest = err == nil && r.Fresh
			if err == nil && r.Held && before.Before(asked) {
				gained()
			}
		}

		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// isHeld reports whether this node has the lease at this moment. It also returns the name of the
// node that has it, or "" if that is not known.
func (l *lease) isHeld() (bool, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.heldUntil), l.holder
}

// markChange records that files for minions have changed. While this node has the lease, it
// publishes the mark of the change to the other nodes.
func (l *lease) markChange(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ownChange = max(l.newestChange+1, l.ownChange+1, uint64(max(0, now.UnixNano())))
}

// newestMark returns the mark of the newest change of files. ok reports whether
// another node watches for changes and publishes them.
func (l *lease) newestMark() (mark uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newestChange, l.newestChange > 0 && time.Since(l.otherSeen) < leaseSilence && !time.Now().Before(l.heldUntil)
}
