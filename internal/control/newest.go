package control

import (
	"context"
	"time"
)

// NewestTakes bounds how long a supervisor takes to copy the newest files, or to report why it
// cannot.
const NewestTakes = 40 * time.Second

// NewestQuestion asks a supervisor to copy the newest files from the shared volume.
type NewestQuestion struct {
	// All asks every node to copy.
	All bool `json:"all,omitempty"`
}

// Newest reports how up to date the files are from which a node's master serves.
type Newest struct {
	// Direct means that the master serves the original files. AsOf then has no meaning.
	Direct bool `json:"direct,omitempty"`
	// Copy is the folder of the node's copy, Source the folder of the originals. Every path below
	// Copy also exists below Source, and the reverse.
	Copy   string `json:"copy,omitempty"`
	Source string `json:"source,omitempty"`
	// AsOf is the time as of which the copy has the content of Source.
	AsOf time.Time `json:"as_of,omitzero"`
	// Why is the reason why AsOf is earlier than the request. It is empty if AsOf is not earlier.
	Why string `json:"why,omitempty"`
	// Except names files that are older than AsOf because somebody is writing to them; empty: none.
	Except string `json:"except,omitempty"`
	// Others lists the other nodes whose files are older, each with the reason. It is set only if
	// the request was for all nodes.
	Others map[string]string `json:"others,omitempty"`
}

// clean returns n with its lists cut to their bounds and each text made safe for one line.
func (n Newest) clean() Newest {
	n.Why = oneLine(n.Why)
	n.Except = oneLine(n.Except)
	others := map[string]string{}
	for node, why := range n.Others {
		if len(others) < maxNodes {
			others[oneLine(node)] = oneLine(why)
		}
	}
	n.Others = others
	return n
}

// Newest asks the supervisor to copy the newest files from the shared volume, and returns how up to
// date the copy is afterwards. An error means that the supervisor did not answer.
func (d *Door) Newest(ctx context.Context, q NewestQuestion) (Newest, error) {
	n, err := ask(ctx, &d.rpc, copyNewest, q)
	return n.clean(), err
}
