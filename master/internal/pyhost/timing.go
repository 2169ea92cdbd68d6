package pyhost

import "time"

const (
	// startTakes is how long a parent may take to start.
	startTakes = time.Minute
	// beginTakes is how long a worker may take from the fork until its task begins: it reads options
	// and loads functions.
	beginTakes = 2 * time.Minute
	// firstPause is the pause before the next start when a start has failed, or when a parent has
	// died for the second time and no task has succeeded in between. It doubles each time, up to
	// lastPause.
	firstPause = time.Second
	lastPause  = 30 * time.Second
	// lostTakes is how long a worker whose answer ended too early gets to end by itself.
	lostTakes = time.Second
	// obeyTakes is how long a parent may take to fork or kill a worker. One that takes longer hangs
	// and is killed.
	obeyTakes = 20 * time.Second
	// stopTakes is how long a parent gets to end its workers when the host is closed.
	stopTakes = 2 * time.Second
)
