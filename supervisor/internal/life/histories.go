package life

import (
	"context"
	"time"

	"saltern/supervisor/history"
	"saltern/supervisor/internal/observe"
	"saltern/supervisor/nodeapi"
)

// histories are what this node saw, and what the others saw. It implements api.Events.
type histories struct {
	*observe.Observer
	node  string
	peers func() map[string]*nodeapi.Client // nil: the node is alone
}

// historyTakes bounds the question to all nodes.
const historyTakes = 20 * time.Second

// History implements api.Events: it asks all nodes at once.
func (h histories) History(ctx context.Context, q history.Query) (list history.List, err error) {
	ctx, cancel := context.WithTimeout(ctx, historyTakes)
	defer cancel()
	ask := map[string]func() ([]history.Event, error){h.node: func() ([]history.Event, error) { return h.Events(q) }}
	if h.peers != nil {
		for name, c := range h.peers() {
			ask[name] = func() ([]history.Event, error) { return c.Events(ctx, q) }
		}
	}
	if list.Unasked, err = everyNode(ask, list.Add); err != nil {
		return history.List{}, err
	}
	list.Newest(q.Last)
	return list, nil
}
