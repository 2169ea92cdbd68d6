package storage

import (
	"context"
	"sync"
	"time"
)

// The lease says who changes the pool: a lock (flock) on one file of the
// volume, and a number in that file that its holder counts up every second.
//
// The lock alone would do, if it were asked for again and again: GlusterFS ends
// it on the bricks when a node is lost, and does not tell. But a request for a
// lock that is on its way when a node vanishes can stop the client for ever
// (10.3: the thread that ends the requests of the lost brick does not come back
// from that one, and all others of that moment hang). So a lock is asked for
// only once by who finds the file without a beat, and the beat is what is looked
// at every second:
//
//   - The holder counts on the lease for leaseFor from the moment it began to
//     write a beat. One that could not write for so long has lost it, and starts
//     over like anybody else.
//   - Others ask for the lock when they have read the same beat for
//     leaseSilence, which is longer, in at least leaseReads reads. They read every
//     other second while it counts, every second when it does not.
//   - A holder whose applianced ends, or is killed, unlocks the file and writes
//     that it is free: others ask for the lock when they read that, once.
//   - A holder that is frozen keeps the lock and counts on nothing: who was
//     refused the lock leaseRefused times beside the same beat goes on to the next
//     term, a file of its own that one node alone can make. Before each beat a
//     holder looks whether there is a later term.
const (
	leaseFile    = ".storage-lease"
	leaseEvery   = time.Second
	leaseFor     = 4 * time.Second
	leaseSilence = 10 * time.Second
	leaseReads   = 6
	leaseRefused = 2
	leaseHangs   = 20 * time.Second // a child that takes longer is given up
)

// lease is the parent's side.
type lease struct {
	child worker

	mu     sync.Mutex
	until  time.Time // the lease is ours until then
	holder string    // as the file says
	files  uint64    // the newest mark of a change of files, as the file says; see mirror.go
	mine   uint64    // the one that this node tells while it holds the lease
	told   time.Time // when another holder's beat was read last
}

// leaseQuestion carries what the holder tells the others beside its beat.
type leaseQuestion struct {
	Files uint64 `json:"files,omitempty"`
}

type leaseReply struct {
	Held   bool   `json:"held"`
	Holder string `json:"holder"`
	Files  uint64 `json:"files,omitempty"`
	// Fresh: the beat of another holder is not the one that was read before.
	Fresh bool `json:"fresh,omitempty"`
}

// keep asks for the lease until ctx ends. wanted reports whether this node may
// have it now; gained is called when it has got it.
func (l *lease) keep(ctx context.Context, wanted func() bool, gained func()) {
	defer l.child.finish()
	tick := time.NewTicker(leaseEvery)
	defer tick.Stop()

	rest := false // who has just read that the holder lives looks a second later
	for {
		switch {
		case !wanted():
			rest = false
			l.child.close() // gives the lock back
			l.mu.Lock()
			l.until, l.holder = time.Time{}, ""
			l.mu.Unlock()
		case rest:
			rest = false
		default:
			asked := time.Now()
			var r leaseReply
			l.mu.Lock()
			q := leaseQuestion{l.mine}
			l.mu.Unlock()

			err := l.child.ask(ctx, leaseHangs, q, &r)
			l.mu.Lock()
			before := l.until
			if err == nil && r.Holder != "" { // a beat that is being written reads as none
				l.files = r.Files
				if !r.Held {
					l.told = asked
				}
			}

			switch {
			case err != nil:
				l.holder = ""
			case r.Held:
				l.until, l.holder = asked.Add(leaseFor), r.Holder
			default:
				l.until, l.holder = time.Time{}, r.Holder
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

// held reports whether this node has the lease at this moment, and who else.
func (l *lease) held() (bool, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.until), l.holder
}

// changed marks that files for minions have changed. The others learn it when
// this node holds the lease.
func (l *lease) changed(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mine = max(l.files+1, l.mine+1, uint64(max(0, now.UnixNano())))
}

// watched gives the newest mark of a change of files, and whether another node
// looks for changes and tells.
func (l *lease) watched() (mark uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.files, l.files > 0 && time.Since(l.told) < leaseSilence && !time.Now().Before(l.until)
}
