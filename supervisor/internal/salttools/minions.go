package salttools

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"saltern/supervisor/internal/everynode"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/status"
)

// minionsTakes is the longest time that one node may take to answer.
const minionsTakes = 15 * time.Second

// Cluster asks the masters of all nodes of a cluster.
type Cluster struct {
	Node string // name of this node
	Own  Tools
	// Masterless reports whether this node is an arbiter: only the other nodes have masters.
	Masterless bool
	// Peers returns the clients of the other nodes. It may be nil: this node has no cluster.
	Peers func() map[string]*nodeapi.Client
}

// Minions returns the minions of the masters of all nodes. If finger is set, it includes the
// fingerprints of the keys.
func (c Cluster) Minions(ctx context.Context, finger bool) (status.MinionList, error) {
	ctx, cancel := context.WithTimeout(ctx, minionsTakes)
	defer cancel()
	ask := map[string]func() (status.MinionView, error){c.Node: func() (status.MinionView, error) { return c.Own.Minions(ctx, finger) }}
	if c.Peers != nil {
		for name, p := range c.Peers() {
			ask[name] = func() (status.MinionView, error) { return p.Minions(ctx, finger) }
		}
	}

	lists := map[string]status.MinionView{}
	unasked := everynode.Ask(ask, func(name string, v status.MinionView) { lists[name] = v })
	if len(lists) == 0 {
		return status.MinionList{}, fmt.Errorf("no master answers: %s; next: applianced status", unasked[c.Node])
	}

	return status.MinionList{
		Schema:  status.Schema,
		Minions: mergeViews(lists),
		Since:   completeSince(lists),
		Unasked: unasked,
	}, nil
}

// completeSince returns the time from which the records of all answering masters about their
// minions are complete. It returns nil if one of these masters keeps no record.
func completeSince(lists map[string]status.MinionView) (since *time.Time) {
	for _, l := range lists {
		if l.Since == nil {
			return nil
		}
		if since == nil || l.Since.After(*since) {
			since = l.Since
		}
	}
	return since
}

// keyOrder is the order of key states in the list.
var keyOrder = map[string]int{"accepted": 1, "pending": 2, "rejected": 3, "denied": 4}

// mergeViews merges the views of several masters into one list. A minion is listed with its newest
// time, and as connected if it has a subscription at any master.
func mergeViews(lists map[string]status.MinionView) []status.Minion {
	type key struct{ id, key string }
	at := map[key]int{}
	out := []status.Minion{}
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		for _, m := range lists[name].Minions {
			m.Node = ""
			if m.Connected {
				m.Node = name
			}

			i, ok := at[key{m.ID, m.Key}]
			if !ok {
				at[key{m.ID, m.Key}] = len(out)
				out = append(out, m)
				continue
			}

			o := &out[i]
			if m.Connected {
				o.Connected, o.Node = true, name
			}

			if m.Seen != nil && (o.Seen == nil || m.Seen.After(*o.Seen)) {
				o.Seen, o.Address = m.Seen, m.Address
			}

			if m.Refused != nil && (o.Refused == nil || m.Refused.At.After(o.Refused.At)) {
				o.Refused = m.Refused
			}

			o.Finger = cmp.Or(o.Finger, m.Finger)
		}
	}

	nameSubscribers(out, lists)
	slices.SortFunc(out, func(a, b status.Minion) int {
		return cmp.Or(cmp.Compare(keyOrder[a.Key], keyOrder[b.Key]), strings.Compare(a.ID, b.ID))
	})

	return out
}

// nameSubscribers assigns subscriptions without a name to minions that last sent something from the
// same address, beginning with the minion that sent last. If one address has subscriptions at
// several masters (NAT), it assigns none of them.
func nameSubscribers(out []status.Minion, lists map[string]status.MinionView) {
	slots, nodes := map[string]int{}, map[string]string{}
	for name, l := range lists {
		for a, n := range l.Subscriptions {
			slots[a] += n
			if _, twice := nodes[a]; twice {
				nodes[a] = ""
			} else {
				nodes[a] = name
			}
		}
	}

	var waiting []*status.Minion
	for i := range out {
		if m := &out[i]; m.Key == "accepted" && !m.Connected && m.Seen != nil {
			waiting = append(waiting, m)
		}
	}

	slices.SortStableFunc(waiting, func(a, b *status.Minion) int { return b.Seen.Compare(*a.Seen) })
	for _, m := range waiting {
		if slots[m.Address] > 0 {
			slots[m.Address]--
			m.Connected, m.Node = true, nodes[m.Address]
		}
	}
}
