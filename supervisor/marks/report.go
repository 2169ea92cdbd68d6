package marks

import (
	"errors"
	"time"
)

// MaxReport is the largest size of a report as JSON, in bytes: 128 nodes with two places each take
// 200 KiB.
const MaxReport = 1 << 20

// Report holds a node's own histories and the counts that it remembers of other nodes. A caller
// accepts it as that node's report only if the caller has dialled the node's address in the table:
// a copy of the machine may answer at another address.
type Report struct {
	// Start identifies the running start of the node.
	Start string `json:"start"`
	// Marks are the histories of the node's own places.
	Marks map[Place]History `json:"marks"`
	// Memory holds the marks of all nodes that the node remembers.
	Memory Memory `json:"memory"`
	// Table is the version of the node's table of nodes.
	Table uint64 `json:"table"`
	// Copy reports whether the node has a copy of the volume on its disk, Serving whether it serves
	// the copy.
	Copy    bool `json:"copy,omitempty"`
	Serving bool `json:"serving,omitempty"`
	// Heard describes the machine that answered when the reporting node last asked the node that
	// receives this report. It may be nil: no machine answered.
	Heard *Heard `json:"heard,omitempty"`
}

// Heard describes a machine that answered as a node.
type Heard struct {
	Start string        `json:"start"`
	Ago   time.Duration `json:"ago"`
}

// heardFor is how long a machine counts as running after an answer.
const heardFor = 20 * time.Second

// Twin reports whether another machine answers in place of the machine whose supervisor has this
// start.
func (r Report) Twin(start string) bool {
	return r.Heard != nil && r.Heard.Start != "" && r.Heard.Start != start && r.Heard.Ago < heardFor
}

// Check returns an error if a report from another node is malformed or beyond the bounds.
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

// anyCertificate is used in place of the node's certificate where the certificate does not matter.
const anyCertificate = "0000000000000000000000000000000000000000000000000000000000000000"
