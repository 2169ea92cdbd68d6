// Package recovery makes a node a new cluster. When most nodes of a cluster are permanently lost,
// one remaining node can become a cluster that has no other node. It keeps the key, minions, jobs
// and files, and gets a new volume and a new secret. It refuses the lost nodes. The stage of the
// recovery is saved in a file, so that a node continues after a power failure:
//
//	copy     this node's copy of the volume becomes a local directory; if this
//	         fails, nothing has changed
//	switch   between two lives of the node: the old pool is removed, and the table
//	         of nodes then lists only this node
//	masters  the node serves, and its master removes the lost masters; meanwhile
//	         the directory is moved to the new volume
package recovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"saltern/internal/durable"
	"saltern/internal/pause"
	"saltern/supervisor/api"
	"saltern/supervisor/internal/datadisk"
	"saltern/supervisor/layout"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
	"saltern/supervisor/storage"
)

const (
	stageCopy    = "copy"
	stageSwitch  = "switch"
	stageMasters = "masters"
)

// record is the content of the file that records a recovery.
type record struct {
	Stage string   `json:"stage"`
	Brick string   `json:"brick"`
	Lost  []string `json:"lost"` // addresses of the lost masters
}

func recordPath(s *settings.Settings) string { return filepath.Join(s.DataDir, "recover.json") }

// readRecord returns the record, or nil if there is none.
func readRecord(s *settings.Settings) (*record, error) {
	b, _, err := durable.ReadFile(recordPath(s), nodes.MaxTable, durable.Follow)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var r record
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", recordPath(s), err)
	}
	return &r, nil
}

func (r *record) write(s *settings.Settings) error {
	b, err := json.Marshal(r)
	if err == nil {
		_, err = layout.WriteFile(recordPath(s), append(b, '\n'), 0o600)
	}
	return err
}

// Member is this node's part in its cluster.
type Member interface {
	Table() nodes.Table
	Removed() string // source that says that this node was removed; "": none does
	Answers(node string) bool
	Drop(ctx context.Context, node string) error
	RemoveMaster(ctx context.Context, address string) error
}

// Recovery is the state of a recovery, which continues after a restart of the supervisor. Its
// methods are safe for concurrent use.
type Recovery struct {
	executable string
	log        *slog.Logger

	mu    sync.Mutex
	fault string // why the last try failed; empty: it succeeded
}

// New returns a Recovery. executable is the program to start as the child that copies the data.
func New(executable string, log *slog.Logger) *Recovery {
	return &Recovery{executable: executable, log: log}
}

// Worker carries out the part of a recovery that happens while the node runs.
type Worker struct {
	*Recovery
	Settings *settings.Settings
	Member   Member      // nil: the node has no cluster
	Ready    func() bool // reports whether the shared volume works
	Serving  func() bool // reports whether the node answers minions
}

// Recover starts a recovery, which makes this node a new cluster. If force is set, it does so even
// if other nodes answer.
func (w Worker) Recover(ctx context.Context, force bool) error {
	m, cfg := w.Member, w.Settings
	if m == nil {
		return fmt.Errorf("%w: this node is not part of a cluster", api.ErrState)
	}

	t := m.Table()
	self, ok := t.Find(cfg.Node)
	lost := t.Peers(cfg.Node)
	switch r, err := readRecord(cfg); {
	case err != nil:
		return err
	case r != nil:
		return nil // a recovery is under way already
	}

	if m.Removed() != "" || !ok {
		return fmt.Errorf("%w: this node was removed from its cluster; it cannot become one", api.ErrState)
	}
	if len(lost) == 0 {
		return fmt.Errorf("%w: this is the only node of the cluster already", api.ErrState)
	}

	var alive []string
	for _, n := range lost {
		if m.Answers(n.Name) {
			alive = append(alive, n.Name)
		}
	}

	if len(alive) > 0 && !force {
		return fmt.Errorf("%w: %s still answers; two clusters with one key would serve the same minions. "+
			"For a dead node: applianced remove NODE; "+
			"if it shall be given up all the same: switch it off, or --force", api.ErrState, strings.Join(alive, ", "))
	}
	if !cfg.OnVolume() {
		for _, n := range lost { // the storage is a shared directory that works: it suffices to remove the lost nodes
			if err := m.Drop(ctx, n.Name); err != nil {
				return err
			}
		}
		return nil
	}

	if w.Ready() && !force {
		return fmt.Errorf("%w: the shared volume works; what is on it would be left behind. "+
			"For a dead node: applianced remove NODE",
			api.ErrState)
	}
	if self.Brick == "" || self.Storage != "data" {
		return fmt.Errorf("%w: this node keeps no copy of the data; recover on one that does, or restore a backup",
			api.ErrState)
	}

	r := record{Stage: stageCopy, Brick: self.Brick}
	for _, n := range lost {
		r.Lost = append(r.Lost, n.Address)
	}

	return r.write(cfg)
}

// Recovering returns the progress of a recovery.
func (w Worker) Recovering() (api.Recovering, error) {
	r, err := readRecord(w.Settings)
	if err != nil || r == nil {
		return api.Recovering{Fault: w.lastFault()}, err
	}
	return api.Recovering{Stage: r.Stage, Fault: w.lastFault()}, nil
}

// failed records why a try failed. It logs the same reason only once in a row.
func (r *Recovery) failed(err error) {
	if r.lastFault() != status.Clip(err.Error()) {
		r.log.Error("recover", "error", err)
	}
	r.setFault(err)
}

// setFault records why the last try failed; nil means that it succeeded.
func (r *Recovery) setFault(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = ""
	if err != nil {
		r.fault = status.Clip(err.Error())
	}
}

func (r *Recovery) lastFault() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fault
}

// Run carries out the steps of a recovery until ctx ends. leave ends this life of the node, so that
// the next one begins.
func (w Worker) Run(ctx context.Context, leave func()) {
	for {
		r, err := readRecord(w.Settings)
		if err == nil && r != nil {
			err = w.doStep(ctx, r, leave)
		}

		if ctx.Err() != nil {
			return
		}

		if err != nil {
			w.failed(err)
		}

		if pause.About(ctx, time.Second) != nil {
			return
		}
	}
}

func (w Worker) doStep(ctx context.Context, r *record, leave func()) error {
	switch r.Stage {
	case stageCopy:
		w.setFault(nil)
		err := storage.NewRecovery(w.Settings, w.executable, w.log).Copy(ctx, r.Brick)
		if ctx.Err() != nil {
			return nil // the next start tries again
		}
		if err != nil { // nothing has changed: end the recovery
			return errors.Join(err, os.Remove(recordPath(w.Settings)))
		}

		r.Stage = stageSwitch
		if err := r.write(w.Settings); err != nil {
			return err
		}

		leave()
	case stageMasters:
		if w.Member == nil || !w.Serving() {
			return nil
		}

		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		for _, a := range r.Lost {
			if err := w.Member.RemoveMaster(ctx, a); err != nil {
				return fmt.Errorf("take out the master %s: %w", a, err)
			}
		}

		if err := os.Remove(recordPath(w.Settings)); err != nil {
			return err
		}

		w.setFault(nil)
		w.log.Info("this node is a cluster of its own now; the lost nodes are refused", "peer",
			strings.Join(r.Lost, " "))
	}

	return nil
}

// Switch carries out the step of a recovery that belongs between two lives of the node. If the step
// fails, the next start of the node tries it again.
func (r *Recovery) Switch(ctx context.Context, cfg *settings.Settings) {
	rec, err := readRecord(cfg)
	if err == nil && (rec == nil || rec.Stage != stageSwitch) {
		return
	}

	var brick string
	if err == nil {
		err = datadisk.Mount(ctx, cfg)
	}
	if err == nil {
		brick, err = storage.NewRecovery(cfg, r.executable, r.log).Switch(ctx, rec.Brick)
	}
	if err == nil {
		err = nodes.Recover(cfg.DataDir, cfg.Node, brick)
	}
	if err == nil {
		rec.Stage = stageMasters
		err = rec.write(cfg)
	}

	r.setFault(err)
	if err != nil {
		r.log.Error("recover: the lost volume; it is tried again at the next start: applianced reload", "error", err)
	}
}
