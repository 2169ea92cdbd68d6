package keyuse

import "time"

const (
	// recent is how long an observation stays valid. Two machines with one address can block each
	// other's packets for tens of seconds.
	recent = time.Minute
	// quiet is the silence after which a machine counts as stopped, unless another machine with its
	// address has blocked its packets: each running machine sends requests every two seconds.
	quiet = 20 * time.Second
	// lateFor is how long a request may wait in a socket after the start that sent it has ended. A
	// start is running if its requests still arrive later than lateFor after the next start has
	// begun. If only one of the two starts is running by this rule, the memory of its machine was
	// put back to an older state. If both starts are running, there are two machines.
	lateFor = 5 * time.Second

	// learnAfter is how long one machine must have used a key alone before its facts become the
	// known facts of the node. adoptAfter is that time if other facts are known already.
	learnAfter = time.Minute
	adoptAfter = 10 * learnAfter

	// BeatEvery is how often a machine draws a new ID, which a copy of its memory does not have. It
	// is well below recent.
	BeatEvery = recent / 6

	// SettledAfter is how long a machine must run before it may remove itself from its cluster. By
	// then the other nodes have noticed whether there is another machine with the same key, because
	// each machine sends requests every two seconds.
	SettledAfter = 15 * time.Second
)
