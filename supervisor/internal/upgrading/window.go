package upgrading

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"saltern/image/bundle"
	"saltern/internal/audit"
	"saltern/internal/pause"
	"saltern/supervisor/internal/child"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
	"saltern/supervisor/upgrade"
	"saltern/supervisor/upgrade/rollout"
)

const (
	windowLook = 2 * time.Minute
	// A node waits windowRank looks (see Run) for each serving node whose name sorts before its
	// own. After a failed try it waits windowAgain looks.
	windowRank  = 2
	windowAgain = 5
)

// Window installs a newer version of the system on all nodes of the cluster while the upgrade
// window is open, through an upgrade of all nodes that this node drives.
//
// The first node by name that serves and is offered a newer version drives the upgrade. Safety does
// not depend on this order: nodes that begin at the same time see each other, and none continues;
// and a node restarts only when it has the cluster's turn. If the driving node fails, another one
// continues when all nodes serve again.
type Window struct {
	env       child.Env
	record    *audit.Log
	opens     settings.Window
	status    func() (upgrade.Status, error)
	offered   func(ctx context.Context, st upgrade.Status) (bundle.Manifest, error)
	beginRoll func(ctx context.Context, r *rollout.Roll) (<-chan rollout.Result, error)
	document  func() status.Document

	// Only Run uses these fields. until is when the window next closes or opens, looks counts the
	// looks in this window, and done is set when nothing is left to do in it.
	until time.Time
	looks int
	done  bool

	mu    sync.Mutex
	state status.Upgrade
	found []status.Finding
}

// NewWindow returns the window of a node, or nil if the settings have none. channel offers the
// versions that upgrades installs. record is the audit log.
func NewWindow(
	env child.Env,
	record *audit.Log,
	channel *Channel,
	upgrades *Upgrades,
	document func() status.Document,
) (*Window, error) {
	if env.Settings.Upgrade.Window == "" {
		return nil, nil
	}

	opens, err := env.Settings.Upgrade.Opens()
	return &Window{
		env:       env,
		record:    record,
		opens:     opens,
		status:    channel.status,
		offered:   channel.offered,
		beginRoll: upgrades.beginRoll,
		document:  document,
	}, err
}

// Run looks every few minutes whether there is something to install, until ctx ends.
func (w *Window) Run(ctx context.Context) {
	for {
		if err := w.tryInstall(ctx); errors.Is(err, upgrade.ErrNoSlots) {
			return // not made from the image: a distribution provides its packages
		} else if err != nil && ctx.Err() == nil {
			w.env.Log.Warn("the upgrade window cannot be used", "error", err)
			w.setFinding(status.UpgradeUnmade, "", err.Error())
		}
		if pause.For(ctx, windowLook+rand.N(windowLook/4)) != nil {
			return
		}
	}
}

// tryInstall installs a newer version if the window is open and this node must drive the upgrade.
func (w *Window) tryInstall(ctx context.Context) error {
	st, err := w.status()
	if err != nil {
		return err
	}

	open, until := w.opens.At(w.env.Now())
	if !until.Equal(w.until) {
		w.until = until
		w.looks = 0
		w.done = false
	}

	w.update(func(u *status.Upgrade) {
		u.Window = w.env.Settings.Upgrade.Window
		u.Open = open
		u.Until = until
	})

	place, _, ready := w.document().ServingRank()
	if !open || w.done || !ready {
		return nil
	}

	w.looks++
	if w.looks <= place*windowRank {
		return nil
	}

	m, err := w.offered(ctx, st)
	if err != nil {
		w.looks = -windowAgain
		return fmt.Errorf("ask for a newer version: %w", err)
	}
	if !st.Newer(m) || w.env.Now().Sub(m.Created) < w.env.Settings.Upgrade.Delay {
		w.done = true
		w.update(func(*status.Upgrade) { w.found = nil })
		return nil
	}

	return w.install(ctx, st, m)
}

// install starts an upgrade of all nodes and records its result.
func (w *Window) install(ctx context.Context, st upgrade.Status, m bundle.Manifest) error {
	rec := audit.Record{
		Actor:  audit.Actor{User: "upgrade.window", Proof: audit.Setting, From: audit.Local},
		Action: "cluster.upgrade",
		Object: "version " + m.Version,
		Op:     audit.NewOp(),
		Result: audit.Asked,
	}

	w.record.Write(ctx, rec)
	w.env.Log.Info("the upgrade window is open and a newer version is offered", "version", m.Version)
	w.update(func(u *status.Upgrade) {
		u.Doing = "installs version " + status.Clip(m.Version)
		u.Result = ""
	})

	fetching, cancel := context.WithCancel(ctx)
	defer cancel()
	roll := &rollout.Roll{Manifest: m, Window: w.env.Settings.Upgrade.Window,
		Open: func() (io.ReadCloser, error) { return st.Fetch(fetching, w.env.Settings.Upgrade.URL) },
		May: func() bool {
			open, _ := w.opens.At(w.env.Now())
			return open
		}}

	out := rollout.Result{Code: rollout.Busy}
	ended, err := w.beginRoll(ctx, roll)
	if err == nil {
		out = <-ended
	} else {
		out.Cause = err.Error()
	}

	w.noteResult(m, out)
	w.record.Note(recorded(rec, out))
	return nil
}

// noteResult shows the result of a try in the status and decides when to try again.
func (w *Window) noteResult(m bundle.Manifest, out rollout.Result) {
	version := status.Clip(m.Version)
	w.update(func(u *status.Upgrade) {
		u.Doing, u.Result = "", fmt.Sprintf("version %s: %s", version, out.Code)
		w.found = nil
	})

	switch out.Code {
	case rollout.Busy: // another node or an administrator drives an upgrade
		w.looks = -windowAgain
	case rollout.Stopped:
		w.done = true
		w.setFinding(status.UpgradeStopped, version, out.Cause)
	case rollout.Closed:
		w.done = true
		w.setFinding(status.UpgradeUnfinished, version, out.Cause)
	case rollout.Refused, rollout.Away, rollout.Unwritten:
		w.looks = -windowAgain
		w.setFinding(status.UpgradeUnmade, "", "version "+version+" cannot be installed: "+out.Cause)
	default:
		w.done = out.Code.Good()
	}
}

// recorded returns the audit record of a try, completed with its result.
func recorded(rec audit.Record, out rollout.Result) audit.Record {
	rec.Time, rec.Detail = time.Time{}, out.Cause
	switch out.Code {
	case rollout.Busy, rollout.Refused, rollout.Away:
		rec.Result = audit.Refused
	case rollout.Last:
		rec.Result, rec.Detail = audit.Started, "this node restarts, as the last one"
	default:
		rec.Result = audit.OK
		if !out.Code.Good() {
			rec.Result = audit.Failed
		}
	}
	return rec
}

func (w *Window) update(change func(*status.Upgrade)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.state)
}

func (w *Window) setFinding(code status.Code, subject, cause string) {
	w.update(func(*status.Upgrade) {
		w.found = []status.Finding{{Code: code, Subject: subject, Cause: status.Clip(cause)}}
	})
}

// Facts returns the window's part of the status. w may be nil: there is none.
func (w *Window) Facts() (*status.Upgrade, []status.Finding) {
	if w == nil {
		return nil, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state.Window == "" { // the machine was not made from the image
		return nil, nil
	}
	s := w.state
	return &s, w.found
}
