package peers

import (
	"context"
	"time"

	"saltern/internal/control"
	"saltern/master/cluster"
	"saltern/master/runner"
	"saltern/master/value"
)

// AddRunners adds the runners cluster.* to a table.
func AddRunners(t *runner.Table, m *Membership, now func() time.Time) {
	pool := m.Pool
	t.Add("cluster.members", func(context.Context, *runner.Env, []any, *value.Map) (any, error) {
		out := clusterMembers(pool.Status(), now())
		j := m.Jobs.ClusterStats()
		out.Set("job_records",
			value.NewMap("handed_over", j.Handed, "imported", j.Imported, "held", j.Held, "lost", j.Lost))
		d := m.Shared()
		out.Set("minion_data", value.NewMap("sent", d.Sent, "taken", d.Taken, "lost", d.Lost, "bad", d.Bad))
		return out, nil
	})

	t.Add("cluster.rotate", func(ctx context.Context, _ *runner.Env, _ []any, _ *value.Map) (any, error) {
		return true, pool.Rotate(ctx)
	})
	t.Add("cluster.remove", func(ctx context.Context, _ *runner.Env, args []any, named *value.Map) (any, error) {
		id := named.Str("id")
		if len(args) == 1 {
			id, _ = args[0].(string)
		}

		if id == "" {
			return nil, &runner.ArgumentError{Reason: "remove() missing 1 required positional argument: 'id'"}
		}

		if err := pool.Remove(ctx, control.Removal{ID: id}); err != nil {
			return nil, err
		}

		return value.NewMap("removed", id, "cluster_secret", pool.Secret()), nil
	})

	t.Add("cluster.secret_next", func(ctx context.Context, _ *runner.Env, _ []any, _ *value.Map) (any, error) {
		return true, pool.StageSecret(ctx)
	})
	t.Add("cluster.secret_commit", func(ctx context.Context, _ *runner.Env, args []any, named *value.Map) (any, error) {
		finger := named.Str("finger")
		if len(args) == 1 {
			finger, _ = args[0].(string)
		}

		if finger == "" {
			return nil, &runner.ArgumentError{Reason: "secret_commit() missing 1 required positional argument: 'finger'"}
		}

		return true, pool.CommitSecret(ctx, finger)
	})

	t.Add("cluster.secret",
		func(context.Context, *runner.Env, []any, *value.Map) (any, error) { return pool.Secret(), nil })
}

// clusterMembers returns the answer of the runner cluster.members.
func clusterMembers(s cluster.Status, now time.Time) *value.Map {
	out := value.NewMap("id", s.ID, "state", s.Phase, "version", s.Version, "key_generation", s.KeyGen,
		"owner", s.Owner)
	peers := value.NewMap()
	for _, p := range s.Peers {
		v := value.NewMap("connected", p.Connected, "alive", p.Alive, "salt", !p.Own, "version", p.Version,
			"key_generation", p.KeyGen)
		if !p.Heard.IsZero() {
			v.Set("heard_seconds", now.Sub(p.Heard).Seconds())
		}

		if p.Error != "" {
			v.Set("error", p.Error)
		}

		for _, d := range []cluster.Duty{cluster.Jobs, cluster.Returns, cluster.Events} {
			q := p.Queues[d.String()]
			v.Set(d.String(),
				value.NewMap("waiting", q.Waiting, "bytes", q.Bytes, "lag_seconds", q.Lag.Seconds(),
					"handled", q.Handled, "lost", q.Lost))
		}

		peers.Set(p.ID, v)
	}

	out.Set("peers", peers)
	// withheld_events counts events of minions that were not forwarded, because one of Salt's
	// masters would have acted on them.
	out.Set("withheld_events", int64(s.Withheld))
	if c := s.Consensus; c != nil {
		out.Set("salt_consensus",
			value.NewMap("role", c.Role, "leader", c.Leader, "term", c.Term, "index", c.Index, "commit", c.Commit,
				"voters", c.Voters, "learners", c.Learners))
	}

	return out
}
