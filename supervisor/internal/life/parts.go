package life

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"saltern/supervisor/api"
	"saltern/supervisor/internal/member"
	"saltern/supervisor/internal/salttools"
	"saltern/supervisor/webhook"
)

// Parts adds what this life serves by the local API to p.
func (n *Life) Parts(p api.Parts) api.Parts {
	p.Services = services{n.manager, n.trial}
	p.Logs = logs{n.manager, n.programs}
	p.Events = histories{n.observer, n.cfg.Settings.Node, n.records.peers}
	p.Recovery = n.recoverer
	p.Settings = n.cfg.Settings
	p.Options = n.rolls
	p.Audit = n.records
	p.Upgrades = n.upgrades

	if n.volume != nil {
		p.Storage = n.volume
	}

	if n.member != nil {
		verbs := member.Verbs{Member: n.member}
		p.Turns = verbs
		p.Virtual = n.virtual
		p.Tools = verbs
		p.Cluster = clusterVerbs{verbs, n.cfg.Setup.JoinString}
	}

	masters := n.masters()
	p.Git = masters
	p.Schedule = masters

	if n.backups != nil {
		p.Backups = n.backups
	}

	return n.role.parts(n, p)
}

// masters returns the masters of all nodes.
func (n *Life) masters() salttools.Cluster {
	return salttools.Cluster{
		Node:       n.cfg.Settings.Node,
		Own:        n.tools,
		Masterless: n.cfg.Settings.Arbiter,
		Peers:      n.peers(),
	}
}

// serveWebhook serves the calls of git servers until ctx ends.
func (n *Life) serveWebhook(ctx context.Context) {
	masters := n.masters()
	webhook.Serve(ctx, webhook.Config{
		Address: n.cfg.Settings.Webhook.Listen,
		Secret:  n.cfg.Settings.WebhookSecret(),
		NotOurs: api.ErrState,
		Now:     n.cfg.Now,
		Log:     n.cfg.Log,
		Fetch: func(ctx context.Context, remote string) error {
			list, err := masters.Git(ctx, true, remote)
			if err == nil && len(list.Unasked) > 0 {
				err = fmt.Errorf("not asked: %s", strings.Join(slices.Sorted(maps.Keys(list.Unasked)), ", "))
			}
			return err
		},
	})
}

// clusterVerbs are a member's, and the line with which another node joins.
type clusterVerbs struct {
	member.Verbs
	joinString func() (string, error)
}

// JoinString implements api.Cluster. Another node may just have changed the
// cluster's secret, and this one not have looked since.
func (v clusterVerbs) JoinString() (string, error) {
	if err := v.LookForSecret(); err != nil {
		return "", fmt.Errorf("%w: %w", api.ErrState, err)
	}
	return v.joinString()
}
