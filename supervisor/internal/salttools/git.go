package salttools

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"saltern/internal/control"
	"saltern/supervisor/api"
	"saltern/supervisor/internal/everynode"
	"saltern/supervisor/status"
)

// Git returns the master's git remotes. If fetch is set, the master first fetches the remote with
// that URL or name. If there is no such remote, the result is empty.
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

// Git returns the git remotes of the masters of all nodes; it asks them at the same time. If fetch
// is set, the masters first fetch the remote with that URL or name, or all remotes for "".
func (c Cluster) Git(ctx context.Context, fetch bool, remote string) (status.GitList, error) {
	ctx, cancel := context.WithTimeout(ctx, minionsTakes)
	defer cancel()
	ask := map[string]func() (status.GitView, error){}
	if !c.Masterless {
		ask[c.Node] = func() (status.GitView, error) { return c.Own.Git(ctx, fetch, remote) }
	}

	if c.Peers != nil {
		for name, p := range c.Peers() {
			ask[name] = func() (status.GitView, error) { return p.Git(ctx, fetch, remote) }
		}
	}

	out := status.GitList{Schema: status.Schema, Nodes: map[string][]status.GitRemote{}}
	out.Unasked = everynode.Ask(ask, func(name string, v status.GitView) {
		if len(v.Remotes) > 0 {
			out.Nodes[name] = v.Remotes
		}
	})

	switch {
	case len(ask) > 0 && len(out.Unasked) == len(ask):
		return status.GitList{}, fmt.Errorf("no master answers: %s; next: applianced status",
			firstOf(out.Unasked, c.Node))
	case fetch && len(out.Nodes) == 0 && remote == "":
		return status.GitList{}, fmt.Errorf("%w: no git remote is configured; see gitfs_remotes and ext_pillar",
			api.ErrState)
	case fetch && len(out.Nodes) == 0:
		return status.GitList{}, fmt.Errorf("%w: no git remote is %.200q; next: applianced git", api.ErrState, remote)
	}

	return out, nil
}

// FetchAll asks the masters of all nodes to fetch the git remote with that URL or name. The error
// names the nodes that did not answer.
func (c Cluster) FetchAll(ctx context.Context, remote string) error {
	list, err := c.Git(ctx, true, remote)
	if err == nil && len(list.Unasked) > 0 {
		err = fmt.Errorf("not asked: %s", strings.Join(slices.Sorted(maps.Keys(list.Unasked)), ", "))
	}
	return err
}

// firstOf returns the value of name or, if there is none, any value.
func firstOf(m map[string]string, name string) string {
	if v, ok := m[name]; ok {
		return v
	}
	for _, v := range m {
		return v
	}
	return ""
}
