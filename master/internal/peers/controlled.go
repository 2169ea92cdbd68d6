package peers

import (
	"context"
	"errors"

	"saltern/internal/control"
	"saltern/internal/rpc"
	"saltern/master/cluster"
	"saltern/master/cluster/node"
	"saltern/master/internal/eauth"
	"saltern/master/internal/explain"
	"saltern/master/internal/fleet"
	"saltern/master/internal/presence"
	"saltern/master/internal/repos"
	"saltern/master/internal/schedule"
	"saltern/master/jobs"
)

// Controlled answers the supervisor's calls over the control socket. It implements control.Master.
type Controlled struct {
	Pool      *cluster.Pool // may be nil: the master is not in a cluster
	View      *presence.View
	Repos     *repos.Service
	Scheduled *schedule.Schedule
	Explainer *explain.Service
	History   *fleet.Recorder // may be nil: the master keeps no history
	JobFiles  JobFiles
	*eauth.Tokens
}

// JobFiles writes the files of jobs ([jobs.Local]).
type JobFiles interface {
	LayOut(ctx context.Context, jid string, minions []string) error
	LayOutLoads(ctx context.Context) error
}

// LayOutJob implements control.Master.
func (c Controlled) LayOutJob(ctx context.Context, q control.JobFiles) error {
	if q.JID == "" {
		return c.JobFiles.LayOutLoads(ctx)
	}
	err := c.JobFiles.LayOut(ctx, q.JID, q.Minions)
	if errors.Is(err, jobs.ErrJID) {
		return &rpc.Error{Code: rpc.CodeBadRequest, Text: err.Error()}
	}
	return err
}

// Minions implements control.Master.
func (c Controlled) Minions(finger bool) control.Minions {
	list := c.View.Minions(finger)
	for i := range list.Minions {
		list.Minions[i].Refused = c.Explainer.RefusedOf(list.Minions[i].ID)
	}
	return list
}

// Schedule implements control.Master.
func (c Controlled) Schedule() (control.Schedule, error) { return c.Scheduled.List(control.NextRuns) }

// Explain implements control.Master.
func (c Controlled) Explain(ctx context.Context, q control.ExplainQuestion) (control.Explanation, error) {
	found, err := c.Explainer.Explain(ctx, q)
	if errors.Is(err, explain.ErrArgument) {
		return found, &rpc.Error{Code: rpc.CodeBadRequest, Text: err.Error()}
	}
	return found, err
}

// SyncHistory implements control.Master.
func (c Controlled) SyncHistory() error {
	if c.History == nil {
		return nil
	}
	return c.History.Sync()
}

// Git implements control.Master.
func (c Controlled) Git() control.Git { return c.Repos.Git() }

// FetchGit implements control.Master.
func (c Controlled) FetchGit(ctx context.Context, remote string) (control.Git, error) {
	return c.Repos.FetchGit(ctx, remote)
}

// RemoveMember implements control.Master.
func (c Controlled) RemoveMember(ctx context.Context, r control.Removal) error {
	return c.onCluster(r.ID != "" && len(r.Node) <= control.MaxNode, func() error { return c.Pool.Remove(ctx, r) })
}

// StageSecret implements control.Master.
func (c Controlled) StageSecret(ctx context.Context) error {
	return c.onCluster(true, func() error { return c.Pool.StageSecret(ctx) })
}

// CommitSecret implements control.Master.
func (c Controlled) CommitSecret(ctx context.Context, finger string) error {
	return c.onCluster(finger != "", func() error { return c.Pool.CommitSecret(ctx, finger) })
}

// onCluster calls f, and adds a code to f's error. It returns an error without calling f if the
// master is not in a cluster, or if valid is false. valid is false if the argument of the call is
// missing or too long.
func (c Controlled) onCluster(valid bool, f func() error) error {
	switch {
	case c.Pool == nil:
		return &rpc.Error{Code: rpc.CodeNoCluster, Text: "this master belongs to no cluster"}
	case !valid:
		return &rpc.Error{Code: rpc.CodeBadRequest, Text: "an argument is missing or too long"}
	}

	err := f()
	for cause, code := range map[error]rpc.Code{
		node.ErrNotMember: rpc.CodeNoSuchMember, node.ErrLast: rpc.CodeLastMember,
		node.ErrNotStaged: rpc.CodeNotStaged, node.ErrInactive: rpc.CodeNoCluster,
	} {
		if errors.Is(err, cause) {
			return &rpc.Error{Code: code, Text: err.Error()}
		}
	}

	return err
}
