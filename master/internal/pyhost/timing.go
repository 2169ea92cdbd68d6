package pyhost

import "time"

const (
	// startTakes is how long a parent may take to start.
	startTakes = time.Minute
	// beginTakes is how long a worker may take from the fork until its task begins. In that time it
	// reads options and loads functions.
	beginTakes = 2 * time.Minute
	// firstPause is how long the host waits before the next start after a start has failed, or
	// after a second parent has died without a successful task in between. The wait doubles each
	// time, up to lastPause.
	firstPause = time.Second
	lastPause  = 30 * time.Second
	// lostTakes is how long a worker may take to end by itself after its answer ended too early, and how long
	// the connection of a killed worker may take to end.
	lostTakes = time.Second
	// computingLook is how often the host looks whether a worker computes or only waits.
	computingLook = 100 * time.Millisecond
	// computesFor is how long a worker may hold up others by computing. After that, those that wait
	// share the processors with it.
	computesFor = 30 * time.Second
	// obeyTakes is how long a parent may take to fork or kill a worker. A parent that takes longer
	// hangs, and is killed.
	obeyTakes = 20 * time.Second
	// killTakes is how long a worker may take to end after its answer, or after it was killed.
	killTakes = 10 * time.Second
	// stopTakes is how long a parent may take to end its workers when the host is closed.
	stopTakes = 2 * time.Second
)
