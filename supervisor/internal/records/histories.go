package records

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"saltern/supervisor/history"
	"saltern/supervisor/internal/everynode"
	"saltern/supervisor/nodeapi"
)

// Observer knows the events that a node saw: [observe.Observer].
type Observer interface {
	Events(q history.Query) ([]history.Event, error)
}

// Histories joins the events of this node and of the other nodes.
type Histories struct {
	Observer
	node  string
	peers func() map[string]*nodeapi.Client // returns the clients of the other nodes; nil: this node has no cluster
}

// NewHistories returns the histories of the node with this name and of its peers. observer has the
// events of the node itself. peers may be nil: the node has no cluster.
func NewHistories(node string, observer Observer, peers func() map[string]*nodeapi.Client) Histories {
	return Histories{Observer: observer, node: node, peers: peers}
}

// History asks all nodes for their events at the same time.
func (h Histories) History(ctx context.Context, q history.Query) (list history.List, _ error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	ask := map[string]func() ([]history.Event, error){h.node: func() ([]history.Event, error) { return h.Events(q) }}
	if h.peers != nil {
		for name, c := range h.peers() {
			ask[name] = func() ([]history.Event, error) { return c.Events(ctx, q) }
		}
	}
	if list.Unasked = everynode.Ask(ask, list.Add); len(list.Unasked) == len(ask) {
		return history.List{}, noAnswer(list.Unasked)
	}
	list.Newest(q.Last)
	return list, nil
}

// noAnswer returns the error for a request that no node has answered.
func noAnswer(unasked map[string]string) error {
	return fmt.Errorf("no node answers: %s; next: applianced status",
		unasked[slices.Min(slices.Collect(maps.Keys(unasked)))])
}
