package life

import (
	"context"

	"saltern/internal/control/toolrun"
	"saltern/internal/rpc"
	"saltern/supervisor/api"
	"saltern/supervisor/history"
	"saltern/supervisor/internal/childlog"
	"saltern/supervisor/internal/member"
	"saltern/supervisor/internal/records"
	"saltern/supervisor/internal/salttools"
	"saltern/supervisor/options"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
	"saltern/supervisor/storage"
	"saltern/supervisor/upgrade/rollout"
	"saltern/supervisor/webhook"
)

// Register registers this life's functions for the methods of the local API in h. It registers no
// functions of parts that the node does not have: calls of their methods return an error that names
// the missing part.
func (n *Life) Register(h *rpc.Handlers) {
	n.registerServices(h)
	n.registerHistory(h)
	n.registerRolls(h)
	n.registerMasters(h)
	n.role.register(n, h)

	rpc.Handle(h, api.RecoverNode, rpc.Order(func(ctx context.Context, q api.ClusterRequest) error {
		return n.recoverer.Recover(ctx, q.Force)
	}))
	rpc.Handle(h, api.ReadRecovery, func(context.Context, rpc.None) (api.Recovering, error) {
		return n.recoverer.Recovering()
	})
	if n.volume != nil {
		rpc.Handle(h, api.ReadStorage, func(context.Context, rpc.None) (storage.State, error) {
			return n.volume.State(), nil
		})
	}
	if n.member != nil {
		n.registerCluster(h, member.Verbs{Member: n.member})
		n.registerVirtual(h)
	}
}

func (n *Life) registerServices(h *rpc.Handlers) {
	rpc.Handle(h, api.ReadOutput, func(_ context.Context, q api.OutputRequest) (api.OutputLines, error) {
		lines, err := n.manager.Output(q.Service, q.Lines)
		return api.OutputLines{Lines: lines}, err
	})
	rpc.Handle(h, api.ReadLog, func(_ context.Context, q api.LogRequest) (api.LogPage, error) {
		if _, err := n.manager.Output(q.Service, 0); err != nil {
			return api.LogPage{}, err
		}
		page, err := n.programs.Log(q.Service).Page(childlog.Query(q.LogQuery))
		return api.LogPage(page), err
	})
	rpc.Handle(h, api.RestartService, rpc.Order(func(_ context.Context, service string) error {
		if service == status.MasterService {
			n.trial.ForgetRefusal() // let the master try refused options again
		}
		return n.manager.Restart(service)
	}))
}

func (n *Life) registerHistory(h *rpc.Handlers) {
	seen := records.NewHistories(n.cfg.Settings.Node, n.observer, n.masterPeers())
	rpc.Handle(h, api.ListEvents, func(_ context.Context, q history.Query) (api.EventList, error) {
		events, err := seen.Events(q)
		return api.EventList{Events: events}, err
	})
	rpc.Handle(h, api.ListHistory, seen.History)
	rpc.Handle(h, api.ListRecords, n.records.Audit)
}

// registerRolls registers the methods that change all nodes one after another, and the methods of
// backups.
func (n *Life) registerRolls(h *rpc.Handlers) {
	rpc.Handle(h, api.ApplyOptions, rpc.Order(n.rolls.Apply))
	rpc.Handle(h, api.ReadOptionsRoll, func(context.Context, rpc.None) (options.Progress, error) {
		return n.rolls.Applying(), nil
	})
	rpc.Handle(h, api.UpgradeNodes, rpc.Order(n.upgrades.Upgrade))
	rpc.Handle(h, api.ReadUpgrade, func(context.Context, rpc.None) (rollout.Progress, error) {
		return n.upgrades.Upgrading(), nil
	})

	if n.backups != nil {
		rpc.Handle(h, api.ListBackups, func(context.Context, rpc.None) (status.BackupList, error) {
			return n.backups.List(), nil
		})
		rpc.Handle(h, api.MakeBackup, rpc.Order(func(context.Context, rpc.None) error { return n.backups.Start() }))
	}
}

// registerMasters registers the methods that ask the masters of all nodes.
func (n *Life) registerMasters(h *rpc.Handlers) {
	masters := n.masters()
	rpc.Handle(h, api.ReadGit, func(ctx context.Context, _ rpc.None) (status.GitList, error) {
		return masters.Git(ctx, false, "")
	})
	rpc.Handle(h, api.FetchGit, func(ctx context.Context, q api.GitRequest) (status.GitList, error) {
		return masters.Git(ctx, true, q.Remote)
	})
	rpc.Handle(h, api.ExplainMinion, masters.Explain)
	rpc.Handle(h, api.ReadSchedule, rpc.Question(masters.Schedule))
}

func (n *Life) registerCluster(h *rpc.Handlers, verbs member.Verbs) {
	rpc.Handle(h, api.ShowJoinString, func(context.Context, rpc.None) (api.JoinLine, error) {
		line, err := verbs.JoinString(n.cfg.Setup.JoinString)
		return api.JoinLine{JoinString: line}, err
	})
	rpc.Handle(h, api.DrainNode, rpc.Order(func(ctx context.Context, q api.ClusterRequest) error {
		return verbs.Drain(ctx, q.Node, q.End)
	}))
	rpc.Handle(h, api.LeaveCluster, rpc.Order(func(ctx context.Context, _ rpc.None) error { return verbs.Leave(ctx) }))
	rpc.Handle(h, api.RemoveNode, rpc.Order(func(ctx context.Context, q api.ClusterRequest) error {
		return verbs.Remove(ctx, q.Node, q.Force)
	}))
	rpc.Handle(h, api.PingNode, func(ctx context.Context, q api.ClusterRequest) ([]setup.Check, error) {
		return verbs.Ping(ctx, q.Node)
	})
	rpc.Handle(h, api.RotateSecret, func(ctx context.Context, q api.ClusterRequest) (api.Rotated, error) {
		without, err := verbs.RotateSecret(ctx, q.Force)
		return api.Rotated{Without: without}, err
	})
	rpc.Handle(h, api.TakeClusterKey, rpc.Order(func(ctx context.Context, q api.ClusterRequest) error {
		return verbs.TakeKey(ctx, q.Key)
	}))
	rpc.Handle(h, api.ReadClusterKeys, func(context.Context, rpc.None) (api.ClusterKeys, error) { return verbs.Keys() })
	rpc.Handle(h, api.MakeClusterKey, rpc.Question(verbs.NewKey))

	rpc.Handle(h, api.ReadTurn, rpc.Question(verbs.Turn))
	rpc.Handle(h, api.ChangeTurn, rpc.Order(func(ctx context.Context, q api.ClusterRequest) error {
		if q.End {
			return verbs.EndTurn(ctx)
		}
		return verbs.TakeTurn(ctx, q.Force)
	}))
	rpc.Handle(h, api.RunTool, func(ctx context.Context, q toolrun.Request) (rpc.Stream, error) {
		node, frames, err := verbs.RunTool(ctx, q)
		return api.ToolAnswer(node, frames), err
	})
}

func (n *Life) registerVirtual(h *rpc.Handlers) {
	rpc.Handle(h, api.CheckVirtual, rpc.Order(func(ctx context.Context, _ rpc.None) error { return n.virtual.Fit(ctx) }))
	rpc.Handle(h, api.SetVirtual, rpc.Order(func(ctx context.Context, q api.VirtualRequest) error {
		if err := q.Check(); err != nil {
			return err
		}
		return n.virtual.SetVirtual(ctx, *q.Address)
	}))
}

// masters returns the masters of all nodes.
func (n *Life) masters() salttools.Cluster {
	return salttools.Cluster{
		Node:       n.cfg.Settings.Node,
		Own:        n.tools,
		Masterless: n.cfg.Settings.Arbiter,
		Peers:      n.masterPeers(),
	}
}

// serveWebhook answers the calls of git servers until ctx ends.
func (n *Life) serveWebhook(ctx context.Context) {
	webhook.Serve(ctx, webhook.Config{
		Address: n.cfg.Settings.Webhook.Listen,
		Secret:  n.cfg.Settings.WebhookSecret(),
		NotOurs: api.ErrState,
		Now:     n.cfg.Now,
		Log:     n.cfg.Log,
		Fetch:   n.masters().FetchAll,
	})
}
