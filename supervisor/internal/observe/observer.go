// Package observe watches a node. Every second or two it collects facts, from its own checks and,
// as plain data, from other parts of the supervisor. From the facts it derives findings, and from
// these the problems and the status document. It reports the result to systemd, to the node's
// history and to the master. The derivations are pure functions. If a file system hangs, that is a
// fact too, and the observer continues.
package observe

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"saltern/internal/control"
	"saltern/internal/pause"
	"saltern/lbproxy"
	"saltern/supervisor/history"
	"saltern/supervisor/internal/probe"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
	"saltern/supervisor/systemd"
)

// Config configures an [Observer].
type Config struct {
	Settings *settings.Settings
	Version  string
	Started  time.Time // when this process started
	Board    *status.Board
	Log      *slog.Logger
	Now      func() time.Time
	Notify   systemd.Notifier
	Balancer *lbproxy.Client
	// Services returns the services with their last events. It must not block.
	Services func(events int) []service.Info
}

// Observer keeps one node's status. Its methods are safe for concurrent use.
type Observer struct {
	cfg    Config
	slow   *slowFacts
	clock  clock
	tries  []*folders
	events *history.Recorder
	course *history.Course
	doc    atomic.Pointer[status.Document]
	ready  bool // whether READY=1 was sent; only Run uses it

	mu       sync.Mutex
	since    *time.Time // since when the node serves; nil: it does not
	answered time.Time  // when the front last answered
	served   bool       // whether the node has served in this life
}

// New returns an observer. It does nothing before Run.
func New(cfg Config) *Observer {
	o := &Observer{
		cfg:    cfg,
		slow:   newSlowFacts(cfg.Settings),
		tries:  newFolders(cfg.Settings),
		events: history.NewRecorder(filepath.Join(cfg.Settings.LogDir(), "events.jsonl"), cfg.Log),
		course: history.NewCourse(filepath.Join(cfg.Settings.LogDir(), "course.json"), cfg.Log),
	}
	d := o.compose(facts{})
	o.doc.Store(&d)
	return o
}

// Document returns the newest status.
func (o *Observer) Document() status.Document { return *o.doc.Load() }

// Serving reports whether the node answers minions.
func (o *Observer) Serving() bool { return o.doc.Load().ServingSince != nil }

// Events returns the events of this node.
func (o *Observer) Events(q history.Query) ([]history.Event, error) {
	return o.events.Last(q)
}

// Points returns the metrics of the last day.
func (o *Observer) Points() []control.Point { return o.course.Points(o.cfg.Now()) }

// MasterSpoke reports whether the running master has written its status after t. If that is not
// known, it returns true.
func (o *Observer) MasterSpoke(t time.Time) bool {
	return o.slow.masterSpoke(pidOf(facts{services: o.cfg.Services(0)}, status.MasterService), t)
}

// Run observes until ctx ends. It also sends the heartbeat to systemd's watchdog, so no part of Run
// may block for longer than a few seconds. node returns what the node knows about itself and must
// not block.
func (o *Observer) Run(ctx context.Context, node func() Node) {
	var beside sync.WaitGroup
	beside.Go(func() { o.clock.keepAsking(ctx, probe.ClockSynchronised) })
	beside.Go(func() { runFolders(ctx, o.tries) })
	defer beside.Wait()

	defer o.events.Wait()
	defer o.course.Wait()
	told := conditions{path: o.cfg.Settings.ConditionsFile()}
	failed := ""
	for {
		f := o.look(ctx, node)
		d := o.compose(f)
		o.doc.Store(&d)
		o.notify(d)
		o.events.Note(d)
		o.course.Note(sample(f, d))
		text := ""
		if err := told.writeIfDue(o.cfg.Now(), d.Problems); err != nil {
			text = err.Error()
		}

		if text != "" && text != failed {
			o.cfg.Log.Warn(text)
		}

		failed = text
		wait := 500 * time.Millisecond
		if d.ServingSince != nil && f.front == nil && !slices.ContainsFunc(minionServices, f.settles) {
			wait = 2 * time.Second
		}

		if pause.About(ctx, wait) != nil {
			return
		}
	}
}

// look collects the facts of one round.
func (o *Observer) look(ctx context.Context, node func() Node) facts {
	cfg := o.cfg.Settings
	f := facts{now: o.cfg.Now(), name: cfg.Node, services: o.cfg.Services(8), observed: true}
	var tasks sync.WaitGroup
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()

	if !cfg.Arbiter {
		tasks.Go(func() {
			began := time.Now()
			f.front = pingFront(ctx, cfg)
			f.round = time.Since(began)
		})
	}

	if cfg.LB.Enabled {
		tasks.Go(func() { f.balancer, f.balErr = askBalancer(ctx, o.cfg.Balancer) })
	}

	f.slowAnswer = o.slow.lastAnswers(o.cfg.Now())
	f.unwritable = unwritable(o.tries)
	f.Node = node()
	f.clock = o.clock.Load()
	f.network = networkFindings(cfg, f.Cluster)
	tasks.Wait()

	if cfg.Arbiter {
		f.front = arbiterFault(f.Volume)
	}

	return f
}

// networkFindings returns the findings about this node's address in its cluster.
func networkFindings(cfg *settings.Settings, cluster []status.Finding) []status.Finding {
	if !cfg.Peering.Enabled {
		return nil
	}

	if f := probe.AddressFinding(cfg.Peering.Address); f != nil {
		return []status.Finding{*f}
	}

	away := func(f status.Finding) bool { return f.Code == status.NodeUnreachable }
	if !slices.ContainsFunc(cluster, away) {
		return nil
	}

	if fault := probe.LinkFault(cfg.Peering.Address); fault != "" {
		return []status.Finding{{Code: status.NetworkDown, Cause: fault}}
	}

	return nil
}

// pingFront pings the front, where minions connect.
func pingFront(ctx context.Context, cfg *settings.Settings) error {
	if !cfg.LB.Enabled {
		return answers(ctx, cfg.MasterRequest())
	}
	var last error
	for _, a := range cfg.FrontRequest() {
		if last = answers(ctx, reachable(a)); last == nil {
			return nil
		}
	}
	return last
}

// answers pings an address. A master that answers and reports a fault of its own counts as
// answering, because another finding shows the fault.
func answers(ctx context.Context, address string) error {
	err := probe.Ping(ctx, address)
	if _, unwell := errors.AsType[probe.UnwellError](err); unwell {
		return nil
	}
	return err
}

// reachable replaces a wildcard in a listening address by an address that can be dialled.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	switch ip := net.ParseIP(host); {
	case ip == nil || !ip.IsUnspecified():
		return address
	case ip.To4() != nil:
		return net.JoinHostPort("127.0.0.1", port)
	}
	return net.JoinHostPort("::1", port)
}
