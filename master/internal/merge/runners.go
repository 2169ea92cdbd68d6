package merge

import (
	"context"

	"saltern/master/runner"
	"saltern/master/value"
)

// AddRunners adds the runner git.reports, which lists the commits that wait and the latest results of
// each entry. It reads what the masters of a cluster share, so each of them has the same answer.
func (s *Service) AddRunners(t *runner.Table) {
	t.Add("git.reports", func(ctx context.Context, _ *runner.Env, _ []any, _ *value.Map) (any, error) {
		out := []any{}
		if s == nil {
			return out, nil
		}
		for _, w := range s.workers {
			out = append(out, w.list(ctx))
		}
		return out, nil
	})
}

// list returns the state of an entry.
func (w *worker) list(ctx context.Context) *value.Map {
	out := value.NewMap("remote", w.to.Remote, "form", string(w.to.Form), "project", w.to.Project, "context", w.to.Context)
	s := w.service
	if tips, _ := s.cfg.Remotes.Tips(w.to.Remote, nil); tips.URL != "" { // what comparisons name
		out.Set("url", tips.URL)
	}
	if w.to.Into != "" {
		out.Set("into", w.to.Into)
	}

	s.mu.Lock()
	failing := s.failing[w.name()]
	if failing == nil {
		failing = s.failing[w.name()+", comments"]
	}
	s.mu.Unlock()
	if failing != nil {
		out.Set("fault", failing.Error())
	}

	r, err := w.store.load(ctx)
	if err != nil {
		out.Set("error", err.Error())
		return out
	}
	waiting := []any{}
	for _, it := range r.Open {
		waiting = append(waiting, it.data())
	}
	done := []any{}
	for i := len(r.Done) - 1; i >= 0; i-- {
		done = append(done, r.Done[i].data())
	}
	out.Set("looked", r.Looked)
	out.Set("waiting", waiting)
	out.Set("reported", done)
	return out
}

func (it *item) data() *value.Map {
	m := value.NewMap("branch", it.Branch, "commit", it.Commit, "since", it.Since.UTC().Format("2006-01-02T15:04:05Z"))
	if it.State != "" {
		m.Set("state", string(it.State))
		m.Set("description", it.Description)
	}
	if it.Refused {
		m.Set("refused", true)
	}
	return m
}
