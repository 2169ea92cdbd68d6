package pyhost

import "time"

const (
	// startTakes bounds the start of a parent.
	startTakes = time.Minute
	// beginTakes bounds the time from the fork of a worker until its task begins: options
	// are read, functions loaded.
	beginTakes = 2 * time.Minute
	// firstPause is the pause after a parent that could not be started, or that died for
	// the second time with no task done in between. It doubles up to lastPause.
	firstPause = time.Second
	lastPause  = 30 * time.Second
	// lostTakes is how long a worker whose answer ends too early gets to end by itself.
	lostTakes = time.Second
	// obeyTakes is how long a parent may take to fork or kill a worker. One that takes longer
	// hangs, and is killed.
	obeyTakes = 20 * time.Second
	// stopTakes is how long parents get to end their workers when the host is closed.
	stopTakes = 2 * time.Second
)
