package life

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"saltern/supervisor/history"
	"saltern/supervisor/internal/everynode"
	"saltern/supervisor/internal/observe"
	"saltern/supervisor/nodeapi"
)

// histories are what this node saw, and what the others saw.
type histories struct {
	*observe.Observer
	node  string
	peers func() map[string]*nodeapi.Client // nil: the node is alone
}

// historyTakes bounds the question to all nodes.
const historyTakes = 20 * time.Second

// History asks all nodes at once.
func (h histories) History(ctx context.Context, q history.Query) (list history.List, _ error) {
	ctx, cancel := context.WithTimeout(ctx, historyTakes)
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

// noAnswer is the error when all nodes are unasked.
func noAnswer(unasked map[string]string) error {
	return fmt.Errorf("no node answers: %s; next: applianced status",
		unasked[slices.Min(slices.Collect(maps.Keys(unasked)))])
}
