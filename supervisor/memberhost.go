package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
)

// host is the member as the node API sees it.
type host struct{ m *member }

// Table implements nodeapi.Host.
func (h host) Table() nodes.Table { return h.m.keeper.Table() }

// Secrets implements nodeapi.Host.
func (h host) Secrets() ([]string, error) {
	dir := h.m.n.cfg.NodeDir()
	own, err := setup.ReadSecret(dir)
	if err != nil {
		return nil, err
	}
	next, err := setup.ReadNextSecret(dir)
	return []string{own, next}, err
}

// ClusterKey implements nodeapi.Host.
func (h host) ClusterKey() (*nodeapi.ClusterKey, error) {
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	if h.m.key == nil {
		return nil, fmt.Errorf("this node waits for %s", h.m.waits)
	}
	if self, ok := h.m.self(); !ok || self.State == nodes.Removed || h.m.removed != "" {
		return nil, errors.New("this node does not belong to the cluster any more")
	}
	return h.m.key, nil
}

// Storage implements nodeapi.Host.
func (h host) Storage() nodeapi.Storage {
	return nodeapi.Storage{Kind: h.m.n.cfg.Storage.Kind, Path: h.m.n.cfg.Storage.Path}
}

// StorageAuthority implements nodeapi.Host.
func (h host) StorageAuthority() (nodeapi.Authority, error) {
	if h.m.n.volume == nil {
		return nodeapi.Authority{}, fmt.Errorf("%w: this node has no shared volume", nodeapi.ErrStorage)
	}
	a, err := h.m.n.volume.Authority()
	if err != nil {
		return nodeapi.Authority{}, fmt.Errorf("%w: %w", nodeapi.ErrStorage, err)
	}
	return nodeapi.Authority{Cert: a.Cert, Key: a.Key}, nil
}

// Summary implements nodeapi.Host.
func (h host) Summary() nodeapi.Summary {
	d := h.m.n.document()
	s := nodeapi.Summary{Setup: d.Setup, Version: d.Version, Time: h.m.n.opt.Now(), Table: h.m.keeper.Table().Version, Problems: d.Problems[:min(len(d.Problems), 8)]}
	for _, n := range d.Nodes {
		if n.Name == h.m.n.cfg.Node {
			s.Node = n
		}
	}
	h.m.mu.Lock()
	s.Secret, s.NextSecret = h.m.secrets.own, h.m.secrets.next
	h.m.mu.Unlock()
	return s
}

// Offer implements nodeapi.Host.
func (h host) Offer(t nodes.Table) error {
	_, err := h.m.keeper.Offer(t)
	return err
}

const changeTakes = 20 * time.Second

// Admit implements nodeapi.Host.
func (h host) Admit(ctx context.Context, n nodes.Node) (nodes.Table, error) {
	if h.m.n.cfg.Storage.Kind == settings.LocalStorage {
		return nodes.Table{}, fmt.Errorf("%w: this cluster keeps everything in a local directory of its first node", nodeapi.ErrStorage)
	}
	if ip, err := netip.ParseAddr(n.Address); err == nil && ip.IsLoopback() {
		if own, err := netip.ParseAddr(h.m.n.cfg.Peering.Address); err == nil && !own.IsLoopback() {
			return nodes.Table{}, fmt.Errorf("%w: %s is a loopback address", nodeapi.ErrName, n.Address)
		}
	}
	before := h.Table()
	if o, ok := before.Find(n.Name); ok && o.State == nodes.Removed {
		if st := h.m.n.volumeFacts(); st != nil && !st.LetGo(n.Name) {
			return nodes.Table{}, fmt.Errorf("%w: a node named %s was removed, and the shared volume has not let it go yet; try again in a moment", nodeapi.ErrStorage, n.Name)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, changeTakes)
	defer cancel()
	t, err := h.m.keeper.Change(ctx, func(t *nodes.Table) error {
		err := nodes.Admit(t, n)
		switch {
		case errors.Is(err, nodes.ErrRemoved):
			return fmt.Errorf("%w: %w", nodeapi.ErrRemoved, err)
		case err != nil:
			return fmt.Errorf("%w: %w", nodeapi.ErrName, err)
		}
		return nil
	})
	if err == nil {
		h.m.spread(t)
	}
	return t, err
}

// SetState implements nodeapi.Host. A node that goes is taken out here.
func (h host) SetState(ctx context.Context, name string, s nodes.State) (nodes.Table, error) {
	ctx, cancel := context.WithTimeout(ctx, changeTakes)
	defer cancel()
	if s == nodes.Removed {
		if st := h.m.n.volumeFacts(); st != nil && st.Holds(name) {
			return nodes.Table{}, fmt.Errorf("%w: the shared volume still counts on the copy of %s (%s)", nodeapi.ErrStorage, name, clip(st.Doing+" "+st.Plan))
		}
		err := h.m.drop(ctx, name)
		return h.Table(), err
	}
	t, err := h.m.keeper.Change(ctx, func(t *nodes.Table) error { return t.Set(name, s) })
	if err == nil {
		h.m.spread(t)
	}
	return t, err
}
