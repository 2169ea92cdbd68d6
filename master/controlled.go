package master

import (
	"context"
	"errors"

	"saltern/control"
	"saltern/master/cluster"
	"saltern/master/cluster/node"
	"saltern/master/event"
)

// controlled is this master as its supervisor asks it, on the control socket.
type controlled struct {
	cluster *cluster.Pool // nil: alone
	minions func(finger bool) control.Minions
}

// serveControl lets the supervisor in.
func (m *Master) serveControl() error {
	ln, err := event.Listen(m.cfg.SockDir, control.Socket, 0o600)
	if err != nil {
		return err
	}
	m.control = control.Serve(ln, controlled{m.cluster, m.presence.Minions}, m.log)
	return nil
}

// Minions implements control.Master.
func (c controlled) Minions(finger bool) control.Minions { return c.minions(finger) }

// RemoveMember implements control.Master.
func (c controlled) RemoveMember(ctx context.Context, id string) error {
	return c.do(id != "", func() error { return c.cluster.Remove(ctx, id) })
}

// StageSecret implements control.Master.
func (c controlled) StageSecret(ctx context.Context) error {
	return c.do(true, func() error { return c.cluster.StageSecret(ctx) })
}

// CommitSecret implements control.Master.
func (c controlled) CommitSecret(ctx context.Context, finger string) error {
	return c.do(finger != "", func() error { return c.cluster.CommitSecret(ctx, finger) })
}

// do calls f if there are a cluster and an argument, and gives an error its code.
func (c controlled) do(given bool, f func() error) error {
	switch {
	case c.cluster == nil:
		return &control.Error{Code: control.CodeNoCluster, Text: "this master belongs to no cluster"}
	case !given:
		return &control.Error{Code: control.CodeBadRequest, Text: "an argument is missing"}
	}
	err := f()
	for cause, code := range map[error]control.Code{
		node.ErrNotMember: control.CodeNoSuchMember, node.ErrLast: control.CodeLastMember,
		node.ErrNotStaged: control.CodeNotStaged, node.ErrInactive: control.CodeNoCluster,
	} {
		if errors.Is(err, cause) {
			return &control.Error{Code: code, Text: err.Error()}
		}
	}
	return err
}
