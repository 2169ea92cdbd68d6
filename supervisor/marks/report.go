package marks

import (
	"errors"
	"time"
)

// MaxReport bounds a report as JSON: 128 nodes with two places each take 200 KiB.
const MaxReport = 1 << 20

// Report is what a node tells another one of itself and of what it remembers. Whoever
// asks takes it for that of the node only when it dialled the address that the table of
// nodes has of it: a copy of the machine somewhere else is not heard.
type Report struct {
	// Start is the running start of the node.
	Start string `json:"start"`
	// Marks are how far its own places have come.
	Marks map[Place]History `json:"marks"`
	// Memory is what it remembers of all nodes.
	Memory Memory `json:"memory"`
	// Table is the version of its table of nodes.
	Table uint64 `json:"table"`
	// Copy tells that it has a copy of the volume on its disk, Serving that it serves it.
	Copy    bool `json:"copy,omitempty"`
	Serving bool `json:"serving,omitempty"`
	// Heard is who answered when the node that answers last asked the one that asks now;
	// nil: nobody did.
	Heard *Heard `json:"heard,omitempty"`
}

// Heard is a machine that answered as a node.
type Heard struct {
	Start string        `json:"start"`
	Ago   time.Duration `json:"ago"`
}

// heardFor is how long a machine that answered counts as running.
const heardFor = 20 * time.Second

// Twin reports whether another machine than the one with this start answers in its place.
func (r Report) Twin(start string) bool {
	return r.Heard != nil && r.Heard.Start != "" && r.Heard.Start != start && r.Heard.Ago < heardFor
}

// Check reports what is wrong with a report that came from elsewhere.
func (r Report) Check() error {
	if r.Start != "" && !startID.MatchString(r.Start) {
		return errors.New("marks: the start of the node is no id")
	}
	own := Memory{}
	if len(r.Marks) > 0 {
		own[anyCertificate] = r.Marks
	}
	return errors.Join(own.Check(), r.Memory.Check())
}

// anyCertificate stands for the node itself where its certificate does not matter.
const anyCertificate = "0000000000000000000000000000000000000000000000000000000000000000"
