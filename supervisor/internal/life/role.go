package life

import (
	"context"

	"saltern/internal/control"
	"saltern/internal/rpc"
	"saltern/supervisor/api"
	"saltern/supervisor/internal/mastersvc"
	"saltern/supervisor/internal/member"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// role determines which services a node runs and which requests it serves.
type role interface {
	// services returns the services of a node with this role, in the order in which they start.
	services(n *Life) []service.Spec
	// register adds to h the methods that only a node with this role carries out, or refuses.
	register(n *Life, h *rpc.Handlers)
	// newest updates the files from which the node's master serves.
	newest(ctx context.Context, n *Life) control.Newest
}

// roleOf returns the role of a node with these settings.
func roleOf(s *settings.Settings) role {
	if s.Arbiter {
		return arbiter{}
	}
	return server{}
}

// server is the role of a node with a master.
type server struct{}

func (server) services(n *Life) []service.Spec {
	wait, belongs := n.conditions()
	begin := mastersvc.Start{Wait: wait, Spoke: n.observer.MasterSpoke}
	if n.cluster != nil {
		begin.WriteSecret = n.cluster.WriteSecret
	}

	specs := []service.Spec{n.master.Spec(begin), service.Loop("packages", n.packages.Run)}
	specs = append(specs, n.balancerSpecs(belongs)...)
	if n.virtual != nil {
		specs = append(specs, n.virtual.Spec())
	}

	if n.cfg.Settings.API.Enabled {
		specs = append(specs, n.api.Spec(belongs))
	} else {
		specs = append(specs, n.noAPI())
	}
	return append(specs, service.Loop("admin socket", n.socket.Run))
}

func (server) register(n *Life, h *rpc.Handlers) {
	masters := n.masters()
	rpc.Handle(h, api.ListMinions, func(ctx context.Context, q api.MinionsRequest) (status.MinionList, error) {
		return masters.Minions(ctx, q.Finger)
	})
	rpc.Handle(h, api.ChangeKeys, rpc.Order(masters.ChangeKeys))
	rpc.Handle(h, api.ListTokens, rpc.Question(masters.Tokens))
	rpc.Handle(h, api.RevokeTokens, masters.RevokeTokens)
}

func (server) newest(ctx context.Context, n *Life) control.Newest {
	if n.volume == nil || n.cfg.Move != nil {
		return control.Newest{Direct: true}
	}
	return n.volume.NewestFiles(ctx, n.cfg.Settings)
}

// arbiter is the role of a node that decides between the copies of two other nodes. It runs no
// service for minions.
type arbiter struct{}

func (arbiter) services(n *Life) []service.Spec {
	if err := mastersvc.WriteNoMaster(n.cfg.Settings); err != nil {
		n.cfg.Log.Warn("Salt's tools will not say that this node is the arbiter", "error", err)
	}
	return append(n.balancerSpecs(nil), n.noAPI())
}

// register registers functions that return an error. The error names the nodes with a master.
func (arbiter) register(n *Life, h *rpc.Handlers) {
	rpc.Handle(h, api.ListMinions, func(context.Context, api.MinionsRequest) (status.MinionList, error) {
		return status.MinionList{}, member.NoMaster("list minions and keys", n.member.Table())
	})
	rpc.Handle(h, api.ChangeKeys, rpc.Order(func(context.Context, api.KeyChange) error {
		return member.NoMaster("change keys", n.member.Table())
	}))
	rpc.Handle(h, api.ListTokens, func(context.Context, rpc.None) (control.Tokens, error) {
		return control.Tokens{}, member.NoMaster("list log-ins", n.member.Table())
	})
	rpc.Handle(h, api.RevokeTokens, func(context.Context, control.Revocation) (control.Revoked, error) {
		return control.Revoked{}, member.NoMaster("end log-ins", n.member.Table())
	})
}

func (arbiter) newest(context.Context, *Life) control.Newest { return control.Newest{Direct: true} }
