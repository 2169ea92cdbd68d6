package merge

import "time"

const (
	// fileTakes is how long a call of the file system may take.
	fileTakes = 10 * time.Second
	// endWithin is how long the end of the master waits for the file system.
	endWithin = time.Second
	// lookEvery is how often a worker looks for new commits. A look at commits that are known costs nothing.
	lookEvery = 2 * time.Second
	// askAfter is how long a new owner waits for a fetch of the remote before it asks for one.
	askAfter = 10 * time.Second
	// fetchedWithin is how long a new owner waits for a fetch of the remote before that is a fault.
	fetchedWithin = 90 * time.Second
	// ownerEvery is how often a worker that compares or waits for a server looks whether this master is
	// still the owner.
	ownerEvery = time.Second
	// busyPause is the pause after a comparison found no place among those that people ask for.
	busyPause = 10 * time.Second
	// firstPause and lastPause bound the pauses between tries to reach a server.
	firstPause = 2 * time.Second
	lastPause  = 2 * time.Minute
	// refusedPause is the first pause after a server has refused a commit, which is doubled each time.
	refusedPause = 15 * time.Second
	// maxRefusals is after how many refusals a commit is given up.
	maxRefusals = 5
	// patientFaults is after how many faults of one commit further ones count as refusals, if the server
	// takes the statuses of others meanwhile.
	patientFaults = 20
	// maxMisses is after how many faults in a row, of different commits, the server counts as away.
	maxMisses = 2
	// commentsTake is after how long a fault ends the comments of a round.
	commentsTake = 30 * time.Second
	// reportAfter is how long a server fails before that is a problem of the node.
	reportAfter = 5 * time.Minute
)
