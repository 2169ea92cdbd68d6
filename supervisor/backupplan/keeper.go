package backupplan

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"saltern/supervisor/api"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// ErrRunning means that this node is making a backup already. It is an [api.ErrState].
var ErrRunning = fmt.Errorf("%w: this node makes a backup already", api.ErrState)

// Config configures a [Keeper].
type Config struct {
	Settings   *settings.Settings
	ConfigPath string // path of appliance.yaml
	Version    string
	Executable string // path of a program that calls [Main] when its arguments are "backup helper"
	Log        *slog.Logger
	Now        func() time.Time
	// Rank returns this node's place among the nodes that serve, counted from 0, and their number.
	// ready reports whether this node serves.
	Rank func() (rank, total int, ready bool)
}

// child reads the place for backups and makes backups. Its methods return soon after ctx ends.
type child interface {
	readPlace(ctx context.Context) (seen, error)
	makeBackup(ctx context.Context, now bool) Outcome
}

// Keeper makes the scheduled backups until Run returns. Its methods are safe for concurrent use.
type Keeper struct {
	cfg      Config
	schedule settings.Schedule
	child    child
	asked    chan struct{}
	began    time.Time

	mu     sync.Mutex
	view   seen
	looked bool   // the record was read at least once
	fault  string // why the last look failed; empty: it succeeded
	tries  int
	busy   bool
	since  time.Time             // when this node began the backup under way
	last   Outcome               // result of this node's last try
	failed *status.BackupFailure // this node's last failure, if it is newer than the record's
}

// New returns the keeper of a node. If the settings have no backup.every, it returns nil.
func New(cfg Config) (*Keeper, error) {
	if !cfg.Settings.Backup.On() {
		return nil, nil
	}
	schedule, err := cfg.Settings.Backup.Schedule()
	if err != nil {
		return nil, err
	}
	return &Keeper{
		cfg:      cfg,
		schedule: schedule,
		child:    process{cfg},
		asked:    make(chan struct{}, 1),
		began:    cfg.Now(),
	}, nil
}

// Run makes backups until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	var making sync.WaitGroup
	defer making.Wait()
	tick := time.NewTicker(30 * time.Second)
	defer tick.Stop()

	for now := false; ; {
		k.updateView(ctx)
		if ctx.Err() == nil && k.beginIfDue(now) {
			forced := now
			making.Go(func() { k.makeBackup(ctx, forced) })
		}

		select {
		case <-ctx.Done():
			return
		case <-k.asked:
			now = true
		case <-tick.C:
			now = false
		}
	}
}

// Start asks this node to make a backup now, even if none is due.
func (k *Keeper) Start() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.busy {
		return ErrRunning
	}
	select {
	case k.asked <- struct{}{}:
	default: // a start is requested already
	}
	return nil
}

func (k *Keeper) updateView(ctx context.Context) {
	s, err := k.child.readPlace(ctx)
	if ctx.Err() != nil {
		return
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.fault
	k.fault = s.Error
	if err != nil {
		k.fault = briefError(err)
	}

	if s.Record != nil {
		k.view, k.looked = s, true
		if l := s.Record.Last; l != nil && k.failed != nil && !l.Time.Before(k.failed.Time) {
			k.failed = nil
		}
	}

	if k.fault != "" && k.fault != before {
		k.cfg.Log.Warn("how the backups are cannot be seen", "error", k.fault)
	}
}

// beginIfDue reports whether this node must make a backup now. If so, it sets busy. If forced is
// set, it does not check whether a backup is due.
func (k *Keeper) beginIfDue(forced bool) bool {
	rank, total, ready := k.cfg.Rank()
	k.mu.Lock()
	defer k.mu.Unlock()

	switch {
	case k.busy, !forced && (!ready || k.view.Record == nil || k.fault != ""):
		return false
	case !forced:
		now := k.cfg.Now()
		r := *k.view.Record
		r.Failure = k.failure() // the record may lack this failure
		at := r.nextTime(k.schedule, now)
		if at.IsZero() {
			at = k.began
		}

		if r.Failure != nil && r.Failure.Node == k.cfg.Settings.Node {
			rank += total // after its own failure this node tries after all other nodes
		}

		// A node waits one minute for each node with a lower rank.
		if now.Before(at.Add(time.Duration(rank)*time.Minute)) || r.holder(k.cfg.Settings.Node, now) != nil {
			return false
		}
	}

	k.busy, k.since = true, k.cfg.Now()
	return true
}

func (k *Keeper) makeBackup(ctx context.Context, forced bool) {
	k.cfg.Log.Info("a backup is made", "path", k.cfg.Settings.Backup.To)
	out := k.child.makeBackup(ctx, forced)
	if ctx.Err() == nil {
		k.updateView(ctx)
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	k.busy = false
	k.tries++
	k.last = out

	switch {
	case ctx.Err() != nil: // this process ends: the next process makes the backup
	case out.Kind == Failed:
		k.failed = &status.BackupFailure{Node: k.cfg.Settings.Node, Time: k.cfg.Now(), Cause: out.Text}
		k.cfg.Log.Warn("no backup was made", "path", k.cfg.Settings.Backup.To, "error", out.Text)
	case out.Kind == Made:
		k.failed = nil
		k.cfg.Log.Info("a backup was made", "path", k.cfg.Settings.Backup.To, "note", out.Text)
	default:
		k.cfg.Log.Info("no backup was to be made", "result", string(out.Kind), "note", out.Text)
	}
}
