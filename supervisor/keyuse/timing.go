package keyuse

import "time"

const (
	// recent is how long a machine that spoke counts as running.
	recent = time.Minute
	// turnApart is between two turns of speakers that both count: requests of a start that
	// is over may wait in a socket, and are read in one moment.
	turnApart = time.Second
	// turnsEach is how many turns each of two starts takes within recent when both run. One
	// machine takes a turn with a start that is over when requests of that are late, or when
	// its memory is put back; no start of it takes two.
	turnsEach = 2

	// learnAfter is how long a machine must have been alone with a key until its facts are
	// known, adoptAfter how long when those of another one are.
	learnAfter = time.Minute
	adoptAfter = 10 * time.Minute

	// SettledAfter is how long a machine runs before it takes itself out of its cluster:
	// until then the others have found out whether there is another one. Each asks every two
	// seconds.
	SettledAfter = 15 * time.Second
)
