package keyuse

import "time"

const (
	// recent is how long what was heard counts. Two machines at one address keep each other
	// from being heard for tens of seconds.
	recent = time.Minute
	// quiet is how long a machine is silent that does not run, when no other one has kept it
	// from being heard: each asks every two seconds.
	quiet = 20 * time.Second
	// lateFor is how long requests of a start that is over may wait in a socket. A start that
	// speaks later than that after the next one has begun runs. One machine comes back so when
	// its memory is put back; only two machines do so both.
	lateFor = 5 * time.Second

	// learnAfter is how long a machine must have been alone with a key until its facts are
	// known, adoptAfter how long when those of another one are.
	learnAfter = time.Minute
	adoptAfter = 10 * learnAfter

	// BeatEvery is how often a machine draws an id that a copy of its memory does not have: well
	// within the time for which what was heard counts.
	BeatEvery = recent / 6

	// SettledAfter is how long a machine runs before it takes itself out of its cluster:
	// until then the others have found out whether there is another one. Each asks every two
	// seconds.
	SettledAfter = 15 * time.Second
)
