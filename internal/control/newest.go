package control

import (
	"context"
	"time"
)

// NewestTakes bounds how long a supervisor needs to copy what is new, or to say why
// it cannot.
const NewestTakes = 40 * time.Second

// NewestQuestion asks a supervisor to copy what is new on the shared volume.
type NewestQuestion struct {
	// All: every node does.
	All bool `json:"all,omitempty"`
}

// Newest is how new the files are from which a node's master serves.
type Newest struct {
	// Direct: they are served from where they are written. AsOf means nothing then.
	Direct bool `json:"direct,omitempty"`
	// Copy is the node's copy, and Source what it is a copy of: what is below one is below
	// the other.
	Copy   string `json:"copy,omitempty"`
	Source string `json:"source,omitempty"`
	// AsOf is the time of which the node's copy is.
	AsOf time.Time `json:"as_of,omitzero"`
	// Why says why AsOf is not the time of the question; empty: it is.
	Why string `json:"why,omitempty"`
	// Except says which files are older than AsOf all the same, because they are being
	// written; empty: none.
	Except string `json:"except,omitempty"`
	// Others are the other nodes whose files are older, each with the reason. Only
	// when all were asked.
	Others map[string]string `json:"others,omitempty"`
}

// clean bounds what the other side says and makes it fit for one line each.
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

// Newest has the supervisor copy what is new on the shared volume, and returns how new
// the copy is then. An error means that it could not be asked.
func (d *Door) Newest(ctx context.Context, q NewestQuestion) (Newest, error) {
	n, err := ask(ctx, &d.rpc, copyNewest, q)
	return n.clean(), err
}
