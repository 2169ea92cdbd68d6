package master

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"

	"saltern/internal/control"
	"saltern/master/conf"
	"saltern/master/health"
	"saltern/master/internal/launch"
	"saltern/master/internal/notify"
	"saltern/master/internal/notify/alert"
	"saltern/master/internal/notify/rules"
	"saltern/master/internal/presence"
	"saltern/master/internal/syndics"
	"saltern/master/keys"
	"saltern/master/value"
)

// openNotify creates the part that sends notifications by the rules of saltern_notify.
func (m *Master) openNotify() {
	c := m.cfg
	if c.NotifyRules.Has(rules.Drift) && m.recorder == nil {
		m.log.Warn("no message about drift is sent, because this master keeps no history (saltern_history_days)")
	}
	m.notify = notify.New(notify.Config{
		Rules:   c.NotifyRules,
		Dir:     filepath.Join(c.CacheDir, "notify"),
		Node:    cmp.Or(c.Node, c.ID),
		Bus:     m.bus,
		Cluster: m.cluster,
		Near: surroundings{
			options:  c,
			keys:     m.keys,
			presence: m.presence,
			problems: m.problems,
			targets:  m.targets,
			launch:   m.launch,
			syndics:  m.syndics,
		},
		Problem: m.problems.Report,
		Now:     m.now,
		Log:     m.log,
	})
	m.notify.AddRunners(m.runs.Table)
	m.notices.Open(m.notify)
}

// surroundings is the master as notifications see it.
type surroundings struct {
	options  *conf.Master
	keys     *keys.Store
	presence *presence.View
	problems *health.Problems
	targets  *launch.Targets
	launch   *launch.Launcher
	syndics  *syndics.Registry
}

// Accepted implements notify.Surroundings.
func (s surroundings) Accepted() []string { return s.keys.List(keys.Accepted) }

// Known implements notify.Surroundings.
func (s surroundings) Known(id string) bool {
	e, ok := s.keys.Lookup(id)
	return ok && e.State == keys.Accepted
}

// IsSyndic implements notify.Surroundings.
func (s surroundings) IsSyndic(id string) bool { return s.syndics.Known(id) }

// Pending implements notify.Surroundings.
func (s surroundings) Pending() map[string]string {
	out := map[string]string{}
	for _, id := range s.keys.List(keys.Pending) {
		e, ok := s.keys.Lookup(id)
		if !ok || e.State != keys.Pending {
			continue
		}
		if finger, err := keys.Fingerprint(e.PEM, s.options.HashType); err == nil {
			out[id] = finger
		}
	}
	return out
}

// Presence implements notify.Surroundings.
func (s surroundings) Presence() *presence.View { return s.presence }

// Problems implements notify.Surroundings. In an appliance it returns the problems of the node's
// status, otherwise the master's own.
func (s surroundings) Problems(ctx context.Context) ([]alert.Problem, error) {
	node := cmp.Or(s.options.Node, s.options.ID)
	var out []alert.Problem
	if s.options.Door == "" {
		for _, p := range s.problems.List() {
			out = append(out, alert.Problem{
				Node:  node,
				Scope: node,
				Code:  string(p.What),
				Title: p.Text,
				Since: p.Since,
			})
		}
		return out, nil
	}

	status, err := machines(s.options).Status(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range status.Findings {
		scope := node
		if slices.ContainsFunc(status.Nodes, func(n control.NodeState) bool { return n.Name == p.Subject }) {
			scope = p.Subject // so that alerts of all nodes that see it have the same key
		}
		out = append(out, alert.Problem{
			Node:    node,
			Scope:   scope,
			Code:    p.Code,
			Title:   p.Title,
			Subject: p.Subject,
			Cause:   p.Cause,
			Next:    p.Next,
			Notice:  p.Severity == "notice",
			Since:   p.Since,
		})
	}
	return out, nil
}

// Select implements notify.Surroundings.
func (s surroundings) Select(target any, targetType string) ([]string, error) {
	return s.targets.Match(target, targetType)
}

// Ping implements notify.Surroundings.
func (s surroundings) Ping(ctx context.Context, minions []string) error {
	_, err := s.launch.StartOwn(ctx, s.launch.Own("test.ping", []any{}, value.List(minions), "list", ""))
	return err
}
