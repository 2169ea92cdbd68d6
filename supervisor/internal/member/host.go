package member

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"saltern/internal/audit"
	"saltern/internal/control"
	"saltern/internal/control/toolrun"
	"saltern/supervisor/history"
	"saltern/supervisor/keyuse"
	"saltern/supervisor/marks"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
)

// host implements nodeapi.Host for a member.
type host struct{ m *Member }

// Table implements nodeapi.Host.
func (h host) Table() nodes.Table { return h.m.keeper.Table() }

// Secrets implements nodeapi.Host. It reads the secrets at every call: a removal on another node
// invalidates older join strings.
func (h host) Secrets() ([]string, error) {
	_ = Verbs{h.m}.LookForSecret() // ignore an error: without the storage no machine can join
	dir := h.m.env.Settings.NodeDir()
	own, err := setup.ReadSecret(dir)
	if err != nil {
		return nil, err
	}
	next, err := setup.ReadNextSecret(dir)
	return []string{own, next}, err
}

// ClusterKey implements nodeapi.Host.
func (h host) ClusterKey() (*nodeapi.ClusterKey, error) {
	key, waits := h.m.shared.foundKey()
	if key == nil {
		return nil, fmt.Errorf("this node waits for %s", waits)
	}
	if !h.m.mayGiveKey() {
		return nil, errors.New("this node does not belong to the cluster any more")
	}
	return key, nil
}

// Storage implements nodeapi.Host.
func (h host) Storage() nodeapi.Storage {
	return nodeapi.Storage{Kind: h.m.env.Settings.Storage.Kind, Path: h.m.env.Settings.Storage.Path, Arbiters: true}
}

// StorageAuthority implements nodeapi.Host.
func (h host) StorageAuthority() (nodeapi.Authority, error) {
	v := h.m.cfg.Volume
	if v == nil {
		return nodeapi.Authority{}, fmt.Errorf("%w: this node has no shared volume", nodeapi.ErrStorage)
	}
	a, err := v.Authority()
	if err != nil {
		return nodeapi.Authority{}, fmt.Errorf("%w: %w", nodeapi.ErrStorage, err)
	}
	return nodeapi.Authority{Cert: a.Cert, Key: a.Key}, nil
}

// Summary implements nodeapi.Host.
func (h host) Summary() nodeapi.Summary {
	d := h.m.cfg.Observer.Document()
	s := nodeapi.Summary{
		Setup:    d.Setup,
		Version:  d.Version,
		Time:     h.m.env.Now(),
		Table:    h.m.keeper.Table().Version,
		Problems: d.Problems[:min(len(d.Problems), 8)],
	}

	for _, n := range d.Nodes {
		if n.Name == h.m.env.Settings.Node {
			s.Node = n
		}
	}

	s.Life, s.Uses = h.m.uses.life, h.m.uses.reports()
	names := h.m.shared.fingerprints()
	s.Secret, s.NextSecret = names.own, names.next
	if h.m.cfg.Records != nil {
		s.Heads = audit.HeadsText(h.m.cfg.Records.Heads())
	}

	return s
}

// Marks implements nodeapi.Host.
func (h host) Marks(asker string) marks.Report { return h.m.marks.report(asker) }

// Used implements nodeapi.Host.
func (h host) Used(n nodes.Node, s keyuse.Speaker, source string) string {
	return h.m.uses.recordUse(n, s, source)
}

// Offer implements nodeapi.Host.
func (h host) Offer(t nodes.Table) error {
	_, err := h.m.keeper.Offer(t)
	return err
}

// LookForTable implements nodeapi.Host.
func (h host) LookForTable() {
	h.m.shared.look.Start(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = h.m.keeper.Look(ctx) // after an error Run soon looks at the storage again
	})
}

// SignStorage implements nodeapi.Host.
func (h host) SignStorage(request []byte, node string) (nodeapi.Certificate, error) {
	v := h.m.cfg.Volume
	if v == nil {
		return nodeapi.Certificate{}, fmt.Errorf("%w: this node has no shared volume", nodeapi.ErrStorage)
	}
	c, err := v.Sign(request, node)
	if err != nil {
		return nodeapi.Certificate{}, fmt.Errorf("%w: %w", nodeapi.ErrStorage, err)
	}
	return nodeapi.Certificate{Cert: c.Cert, Authority: c.Authority}, nil
}

const changeTakes = 20 * time.Second

// Admit implements nodeapi.Host.
func (h host) Admit(ctx context.Context, n nodes.Node) (nodes.Table, error) {
	if h.m.env.Settings.Storage.Kind == settings.LocalStorage {
		return nodes.Table{}, fmt.Errorf("%w: this cluster keeps everything in a local directory of its first node",
			nodeapi.ErrStorage)
	}
	if n.IsArbiter() && !h.m.env.Settings.OnVolume() {
		return nodes.Table{}, fmt.Errorf("%w: it has no shared volume whose copies an arbiter could decide between",
			nodeapi.ErrRole)
	}

	if ip, err := netip.ParseAddr(n.Address); err == nil && ip.IsLoopback() {
		if own, err := netip.ParseAddr(h.m.env.Settings.Peering.Address); err == nil && !own.IsLoopback() {
			return nodes.Table{}, fmt.Errorf("%w: %s is a loopback address", nodeapi.ErrName, n.Address)
		}
	}

	before := h.Table()
	if o, ok := before.Find(n.Name); ok && o.State == nodes.Removed {
		if st := volumeState(h.m.cfg.Volume); st != nil && !st.LetGo(n.Name) {
			return nodes.Table{}, fmt.Errorf(
				"%w: a node named %s was removed, and the shared volume has not let it go yet; try again in a moment",
				nodeapi.ErrStorage, n.Name)
		}
	}

	ctx, cancel := context.WithTimeout(ctx, changeTakes)
	defer cancel()
	err := h.m.removals.checkNameFree(ctx, n)
	if err == nil {
		before, err = h.m.peers.change(ctx, func(t *nodes.Table) error { return nodes.Admit(t, n) })
	}

	switch {
	case err == nil:
		return before, nil
	case errors.Is(err, nodes.ErrRemoved):
		err = fmt.Errorf("%w: %w", nodeapi.ErrRemoved, err)
	case errors.Is(err, nodes.ErrArbiter):
		err = fmt.Errorf("%w: %w", nodeapi.ErrRole, err)
	case errors.Is(err, nodes.ErrTaken), errors.Is(err, nodes.ErrCopied):
		err = fmt.Errorf("%w: %w", nodeapi.ErrName, err)
	}

	return nodes.Table{}, err
}

// SetState implements nodeapi.Host. The state Removed removes the asking node from the cluster.
func (h host) SetState(ctx context.Context, name string, s nodes.State) (nodes.Table, error) {
	ctx, cancel := context.WithTimeout(ctx, changeTakes)
	defer cancel()
	if s == nodes.Removed {
		if st := volumeState(h.m.cfg.Volume); st != nil && st.Holds(name) {
			return nodes.Table{}, fmt.Errorf("%w: the shared volume still counts on the copy of %s (%s)",
				nodeapi.ErrStorage, name, status.Clip(st.Doing+" "+st.Plan))
		}
		err := h.m.Drop(ctx, name)
		return h.Table(), err
	}
	err := h.m.Change(ctx, func(t *nodes.Table) error { return t.Set(name, s) })
	return h.Table(), err
}

// Audit implements nodeapi.Host.
func (h host) Audit(ctx context.Context, q audit.Query) (audit.Page, error) {
	return h.m.cfg.Records.Own(ctx, q)
}

// Events implements nodeapi.Host.
func (h host) Events(q history.Query) ([]history.Event, error) { return h.m.cfg.Observer.Events(q) }

// Points implements nodeapi.Host.
func (h host) Points() []control.Point { return h.m.cfg.Observer.Points() }

// Newest implements nodeapi.Host.
func (h host) Newest(ctx context.Context) control.Newest { return h.m.cfg.Newest(ctx) }

// RestartService implements nodeapi.Host.
func (h host) RestartService(name string) error { return h.m.cfg.Restarts.RestartSoon(name) }

// Record implements nodeapi.Host.
func (h host) Record(r audit.Record) { h.m.cfg.Record.Note(r) }

// Git implements nodeapi.Host.
func (h host) Git(ctx context.Context, fetch bool, remote string) (status.GitView, error) {
	if self, ok := h.m.Self(); !ok || self.State == nodes.Removed {
		return status.GitView{}, errors.New("this node does not belong to the cluster any more")
	}
	if h.m.env.Settings.Arbiter {
		return status.GitView{}, nil // an arbiter has no master, and so no remotes
	}
	return h.m.cfg.Tools.Git(ctx, fetch, remote)
}

// Tool implements nodeapi.Host.
func (h host) Tool(ctx context.Context, r toolrun.Request) (func(context.Context, io.Writer), error) {
	if self, ok := h.m.Self(); !ok || self.State == nodes.Removed {
		return nil, errors.New("this node does not belong to the cluster any more")
	}
	if h.m.env.Settings.Arbiter {
		return nil, h.m.peers.noMaster("run Salt's tools")
	}
	return h.m.cfg.Guest(ctx, r)
}

// Minions implements nodeapi.Host.
func (h host) Minions(ctx context.Context, finger bool) (status.MinionView, error) {
	if self, ok := h.m.Self(); !ok || self.State == nodes.Removed {
		return status.MinionView{}, errors.New("this node does not belong to the cluster any more")
	}
	if h.m.env.Settings.Arbiter {
		return status.MinionView{}, h.m.peers.noMaster("list minions")
	}
	return h.m.cfg.Tools.Minions(ctx, finger)
}
