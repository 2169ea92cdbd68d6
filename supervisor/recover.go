package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"saltern/supervisor/api"
	"saltern/supervisor/datadisk"
	"saltern/supervisor/layout"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/storage"
)

// When most nodes of a cluster are lost for good, one that is left becomes a
// cluster of its own: the same key, the same minions, jobs and files, a new
// volume, a new secret, and the lost nodes are refused. Where this stands is
// kept in a file, so that a node whose power fails goes on:
//
//	copy     this node's copy of the volume becomes a directory of its own; what
//	         fails until here changes nothing
//	switch   between two lives of the node: the old pool is forgotten, the table
//	         of nodes becomes that of one node
//	masters  the node serves, and its master takes out the lost ones; meanwhile
//	         the directory is moved to the new volume
const (
	recoverCopy    = "copy"
	recoverSwitch  = "switch"
	recoverMasters = "masters"
)

// recovery is that file.
type recovery struct {
	Stage string   `json:"stage"`
	Brick string   `json:"brick"`
	Lost  []string `json:"lost"` // addresses of masters
}

func recoverFile(s *settings.Settings) string { return filepath.Join(s.DataDir, "recover.json") }

// readRecovery gives nil when there is none.
func readRecovery(s *settings.Settings) (*recovery, error) {
	b, err := layout.ReadFile(recoverFile(s), nodes.MaxTable, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var r recovery
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", recoverFile(s), err)
	}
	return &r, nil
}

func (r *recovery) write(s *settings.Settings) error {
	b, err := json.Marshal(r)
	if err == nil {
		_, err = layout.WriteFile(recoverFile(s), append(b, '\n'), 0o600)
	}
	return err
}

// Recover implements api.Cluster.
func (s *Supervisor) Recover(ctx context.Context, force bool) error {
	m, err := s.ours()
	if err != nil {
		return err
	}
	t, cfg := m.keeper.Table(), m.n.cfg
	self, ok := t.Find(cfg.Node)
	lost := t.Peers(cfg.Node)
	switch r, err := readRecovery(cfg); {
	case err != nil:
		return err
	case r != nil:
		return nil // under way
	}
	if _, gone := m.gone(); gone || !ok {
		return fmt.Errorf("%w: this node was removed from its cluster; it cannot become one", api.ErrState)
	}
	if len(lost) == 0 {
		return fmt.Errorf("%w: this is the only node of the cluster already", api.ErrState)
	}
	var alive []string
	for _, n := range lost {
		if m.answers(n.Name) {
			alive = append(alive, n.Name)
		}
	}
	if len(alive) > 0 && !force {
		return fmt.Errorf("%w: %s still answers; two clusters with one key would serve the same minions. For a dead node: applianced remove NODE; "+
			"if it shall be given up all the same: switch it off, or --force", api.ErrState, strings.Join(alive, ", "))
	}
	if !cfg.OnVolume() {
		for _, n := range lost { // the shared directory is there
			if err := m.drop(ctx, n.Name); err != nil {
				return err
			}
		}
		return nil
	}
	if m.n.volume.State().Ready && !force {
		return fmt.Errorf("%w: the shared volume works; what is on it would be left behind. For a dead node: applianced remove NODE", api.ErrState)
	}
	if self.Brick == "" || self.Storage != "data" {
		return fmt.Errorf("%w: this node keeps no copy of the data; recover on one that does, or restore a backup", api.ErrState)
	}
	r := recovery{Stage: recoverCopy, Brick: self.Brick}
	for _, n := range lost {
		r.Lost = append(r.Lost, n.Address)
	}
	return r.write(cfg)
}

// Recovering implements api.Cluster.
func (s *Supervisor) Recovering() (api.Recovering, error) {
	n, err := s.running()
	if err != nil {
		return api.Recovering{}, err
	}
	r, err := readRecovery(n.cfg)
	if err != nil || r == nil {
		return api.Recovering{Fault: s.recoverFault(nil, false)}, err
	}
	return api.Recovering{Stage: r.Stage, Fault: s.recoverFault(nil, false)}, nil
}

// recoverFailed keeps why a try failed. It is logged once, not with each try.
func (s *Supervisor) recoverFailed(err error) {
	if s.recoverFault(nil, false) != clip(err.Error()) {
		s.opt.Log.Error("recover", "error", err)
	}
	s.recoverFault(err, true)
}

// recoverFault keeps and gives the reason why the last try failed.
func (s *Supervisor) recoverFault(err error, set bool) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if set {
		s.recoverErr = ""
		if err != nil {
			s.recoverErr = clip(err.Error())
		}
	}
	return s.recoverErr
}

const recoverEvery = time.Second

// recovers does what of a recovery is done while the node runs, until ctx ends;
// leave has the node start anew.
func (s *Supervisor) recovers(ctx context.Context, n *node, leave func()) {
	for {
		r, err := readRecovery(n.cfg)
		if err == nil && r != nil {
			err = s.recoverStep(ctx, n, r, leave)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.recoverFailed(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(recoverEvery):
		}
	}
}

func (s *Supervisor) recoverStep(ctx context.Context, n *node, r *recovery, leave func()) error {
	switch r.Stage {
	case recoverCopy:
		s.recoverFault(nil, true)
		err := storage.NewRecovery(n.cfg, n.opt.Executable, n.opt.Log).Copy(ctx, r.Brick)
		if ctx.Err() != nil {
			return nil // again at the next start
		}
		if err != nil { // nothing has been changed
			return errors.Join(err, os.Remove(recoverFile(n.cfg)))
		}
		r.Stage = recoverSwitch
		if err := r.write(n.cfg); err != nil {
			return err
		}
		leave()
	case recoverMasters:
		if !n.serving() || n.member == nil {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, changeTakes)
		defer cancel()
		for _, a := range r.Lost {
			if err := n.saltRun(ctx, "cluster.remove", a); err != nil && !strings.Contains(err.Error(), noSuchMaster) {
				return fmt.Errorf("take out the master %s: %w", a, err)
			}
		}
		if err := os.Remove(recoverFile(n.cfg)); err != nil {
			return err
		}
		s.recoverFault(nil, true)
		n.opt.Log.Info("this node is a cluster of its own now; the lost nodes are refused", "peer", strings.Join(r.Lost, " "))
	}
	return nil
}

// switchOver is done between two lives of the node. A fault leaves all as it
// is for the next start.
func (s *Supervisor) switchOver(ctx context.Context, cfg *settings.Settings) {
	r, err := readRecovery(cfg)
	if err == nil && (r == nil || r.Stage != recoverSwitch) {
		return
	}
	var brick string
	if err == nil {
		err = datadisk.Mount(ctx, cfg)
	}
	if err == nil {
		brick, err = storage.NewRecovery(cfg, s.opt.Executable, s.opt.Log).Switch(ctx, r.Brick)
	}
	if err == nil {
		err = nodes.Recover(cfg.DataDir, cfg.Node, brick)
	}
	if err == nil {
		r.Stage = recoverMasters
		err = r.write(cfg)
	}
	if s.recoverFault(err, true); err != nil {
		s.opt.Log.Error("recover: the lost volume; it is tried again at the next start: applianced reload", "error", err)
	}
}
