package member

import (
	"context"
	"errors"
	"fmt"
	"time"

	"saltern/supervisor/nodes"
	"saltern/supervisor/options"
)

// Options implements nodeapi.Host.
func (h host) Options() options.Node { return h.m.cfg.Options }

// Targets returns the other nodes that belong to the cluster, for a change of the master's options.
func (m Verbs) Targets() (list []options.Target) {
	t := m.keeper.Table()
	clients := m.peers.clients()
	for _, n := range t.Peers(m.env.Settings.Node) {
		if n.State == nodes.Joining || n.State == nodes.Leaving {
			continue // a joining node loads the present options when it starts; a leaving node needs none
		}
		client := clients[n.Name]
		if client == nil {
			client = m.peers.clientFor(n)
		}
		list = append(list, options.Target{Name: n.Name, Node: client.Options()})
	}
	return list
}

// OptionsTurn returns the cluster's turn, for a change of the master's options.
func (m Verbs) OptionsTurn() options.Turn { return optionsTurn{m.turns} }

type optionsTurn struct{ turns *turns }

// Take implements options.Turn.
func (o optionsTurn) Take(ctx context.Context, until time.Time) error {
	t := o.turns
	ctx, cancel := context.WithTimeout(ctx, changeTakes)
	defer cancel()

	_, err := t.peers.change(ctx, func(table *nodes.Table) error {
		now := t.env.Now().UTC().Truncate(time.Second)
		to := nodes.Turn{
			Node:    t.env.Settings.Node,
			Life:    t.life,
			Since:   now,
			Options: true,
			Until:   until.UTC().Truncate(time.Second),
		}
		if had, ok := table.HasTurn(now); ok && had.Options && had.Node == to.Node && had.Life == to.Life {
			to.Since, to.Key = had.Since, had.Key
		}

		return table.TakeTurn(to, false)
	})
	if errors.Is(err, nodes.ErrTurn) {
		return fmt.Errorf("%w: %w", options.ErrHeld, err)
	}

	return err
}

// Give implements options.Turn.
func (o optionsTurn) Give(ctx context.Context) error { return o.turns.giveBack(ctx, true) }
