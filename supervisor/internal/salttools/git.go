package salttools

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"saltern/control"
	"saltern/supervisor/api"
	"saltern/supervisor/status"
)

// Git asks the master for its git remotes; fetch: after those of that URL or name
// were fetched. A master without such a remote gives none.
func (t Tools) Git(ctx context.Context, fetch bool, remote string) (status.GitView, error) {
	var g control.Git
	var err error
	if fetch {
		g, err = t.Control.FetchGit(ctx, remote)
	} else {
		g, err = t.Control.Git(ctx)
	}
	if err != nil && !errors.Is(err, control.ErrNoSuchRemote) {
		return status.GitView{}, err
	}
	return status.ViewOfGit(g), nil
}

// Git implements api.Git: it asks the masters of all nodes at once.
func (c Cluster) Git(ctx context.Context, fetch bool, remote string) (status.GitList, error) {
	ctx, cancel := context.WithTimeout(ctx, minionsTakes)
	defer cancel()
	out := status.GitList{Schema: status.Schema, Nodes: map[string][]status.GitRemote{}, Unasked: map[string]string{}}
	var mu sync.Mutex
	var all sync.WaitGroup
	ask := func(name string, f func(context.Context, bool, string) (status.GitView, error)) {
		all.Go(func() {
			v, err := f(ctx, fetch, remote)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				out.Unasked[name] = status.Clip(err.Error())
			} else if len(v.Remotes) > 0 {
				out.Nodes[name] = v.Remotes
			}
		})
	}
	asked := 0
	if !c.Masterless {
		asked++
		ask(c.Node, c.Own.Git)
	}
	if c.Peers != nil {
		for name, p := range c.Peers() {
			asked++
			ask(name, p.Git)
		}
	}
	all.Wait()
	switch {
	case asked > 0 && len(out.Unasked) == asked:
		return status.GitList{}, fmt.Errorf("no master answers: %s; next: applianced status", firstOf(out.Unasked, c.Node))
	case fetch && len(out.Nodes) == 0 && remote == "":
		return status.GitList{}, fmt.Errorf("%w: no git remote is configured; see gitfs_remotes and ext_pillar", api.ErrState)
	case fetch && len(out.Nodes) == 0:
		return status.GitList{}, fmt.Errorf("%w: no git remote is %.200q; next: applianced git", api.ErrState, remote)
	}
	return out, nil
}

// firstOf is the value of a name, or else of any.
func firstOf(m map[string]string, name string) string {
	if v, ok := m[name]; ok {
		return v
	}
	for _, v := range m {
		return v
	}
	return ""
}
