package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/service"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
	"saltern/supervisor/storage"
)

// newVolume makes the manager of the shared volume; nil when this node has
// none.
func (n *node) newVolume(cfg *settings.Settings) *storage.Manager {
	if !cfg.OnVolume() {
		return nil
	}
	c := storage.FromSettings(cfg, n.opt.Executable, n.master, n.opt.Log)
	c.AskAuthority = func(ctx context.Context) (storage.Authority, error) {
		if n.member == nil {
			return storage.Authority{}, errors.New("this node belongs to no cluster")
		}
		return n.member.askAuthority(ctx)
	}
	return storage.New(c)
}

// askAuthority gets the authority of the storage's certificates from the first
// node that gives it.
func (m *member) askAuthority(ctx context.Context) (storage.Authority, error) {
	t := m.keeper.Table()
	errs := []error{errors.New("no other node is known")}
	for i, o := range t.Peers(m.n.cfg.Node) {
		if i == 0 {
			errs = nil
		}
		c := nodeapi.NewClient(m.id, m.addressOf(o), o.Certificate)
		ctx, cancel := context.WithTimeout(ctx, peerTakes)
		a, err := c.StorageAuthority(ctx)
		cancel()
		c.Close()
		if err == nil {
			return storage.Authority{Cert: a.Cert, Key: a.Key}, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", o.Name, err))
	}
	return storage.Authority{}, errors.Join(errs...)
}

// tablePoll is how often this node's copy of the table of nodes is looked at.
const tablePoll = time.Second

// keepVolume keeps the shared volume until ctx ends.
func (n *node) keepVolume(ctx context.Context) {
	if n.volume == nil {
		return
	}
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		n.feedTable(ctx)
	}()
	_ = n.volume.Run(ctx) // it ends with ctx and has nothing to say
	<-fed
}

// feedTable gives the manager each new version of the table of nodes.
func (n *node) feedTable(ctx context.Context) {
	path := filepath.Join(n.cfg.DataDir, nodes.File)
	seen := ""
	for {
		if now := signature(path); now != seen {
			b, err := os.ReadFile(path)
			var t nodes.Table
			if err == nil {
				t, err = nodes.Parse(b)
			}
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				n.opt.Log.Error("the table of nodes cannot be used", "path", path, "error", err)
			} else if err == nil {
				n.volume.SetTable(t)
			}
			seen = now
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(tablePoll):
		}
	}
}

// volumeReady is what the master waits for before its start. Once it runs it
// goes on when the volume hangs: it serves files from this node's copy.
func (n *node) volumeReady() service.Condition {
	if n.volume == nil {
		return nil
	}
	return service.Poll("the shared volume", 500*time.Millisecond, time.Second, func(context.Context) error {
		if w := n.volume.State().Waiting; w != "" {
			return errors.New(w)
		}
		return nil
	})
}

// volumeFacts is what the manager says, nil without one.
func (n *node) volumeFacts() *storage.State {
	if n.volume == nil {
		return nil
	}
	s := n.volume.State()
	return &s
}

// storageOf describes the storage for the status.
func storageOf(kind, path string, v *storage.State) status.Storage {
	out := status.Storage{Kind: kind, Path: path}
	if v == nil {
		return out
	}
	out.Total, out.Free = v.Space.Total, v.Space.Free
	if out.Total > 0 {
		out.FreePercent = 100 * float64(out.Free) / float64(out.Total)
	}
	if v.Space.Inodes > 0 {
		out.InodesFree = 100 * float64(v.Space.InodesFree) / float64(v.Space.Inodes)
	}
	return out
}

// storageWord says in one word how the shared volume is on this node.
func storageWord(v *storage.State) string {
	switch {
	case v == nil:
		return "ok"
	case v.Mount.State == "hung":
		return "hangs"
	case !v.Ready:
		return "waiting"
	case v.Heal.Known && v.Heal.Pending > 0:
		return "healing"
	}
	return "ok"
}

// Storage implements api.StorageNode.
func (s *Supervisor) Storage() (storage.State, bool) {
	s.mu.Lock()
	n := s.node
	s.mu.Unlock()
	if n == nil || n.volume == nil {
		return storage.State{}, false
	}
	return n.volume.State(), true
}
