package reactor

import (
	"cmp"
	"context"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"time"

	"saltern/master/event"
	"saltern/master/internal/background"
	"saltern/master/internal/launch"
	"saltern/master/internal/wheel"
	"saltern/master/runner"
	"saltern/master/value"
)

// Config configures an Engine.
type Config struct {
	Rules *Rules
	Depth int // length of each of the two queues (reactor_worker_hwm); 0: 10,000
	// Threads is how many runners and wheel functions in Python run at once
	// (reactor_worker_threads); 0 means 10.
	Threads int
	ID      string
	Bus     *event.Bus
	Fire    func(tag string, data *value.Map)
	// Compiler compiles the reaction files. Run closes it before it returns.
	Compiler Compiler
	// Locate returns the path on this disk of a file of the file server. ok is false if the file
	// does not exist.
	Locate func(ctx context.Context, ref string) (path string, ok bool, err error)
	Launch *launch.Launcher
	Wheel  *wheel.Service
	Runs   *runner.Runs
	// Settle waits until the event bus has accepted all readers that connected before the call.
	Settle func(ctx context.Context) error
	// UserKey returns the key of the user as whom the master runs. A request to change the rules
	// must contain this key.
	UserKey func() (string, error)
	Log     *slog.Logger
}

// Engine executes reactions to events (salt/utils/reactor.py). Events wait in a bounded queue.
// Calls of runners and wheel functions in Python then wait in a second bounded queue, and start in
// the order of their events. Overflow policy: when the second queue is full, the first queue fills
// up; when the first queue is full, the newest events are dropped, counted and logged. Requests to
// the reactor and changes of its rules have a queue of their own, so that a rule can be deleted
// while its reactions wait.
type Engine struct {
	cfg     Config
	rules   *Rules
	backlog *background.Backlog
	sub     *event.Subscription
	orders  *event.Subscription // requests to the reactor, and changes at other masters
}

// Salt's defaults (salt/config/__init__.py).
const (
	defaultDepth   = 10000
	defaultThreads = 10
)

// ordersDepth is the length of the queue of orders. Orders are lost when it is full: the sender of
// a request gets no answer, and this master learns of a change with the next one.
const ordersDepth = 1024

// Stats are the engine's metrics; Lost counts since the start.
type Stats struct {
	background.BacklogStats        // waiting and running runners and wheel functions in Python
	Events                  int    // events that wait
	Lost                    uint64 // events dropped because the queue was full
}

// Stats returns the current metrics.
func (r *Engine) Stats() Stats {
	return Stats{BacklogStats: r.backlog.Stats(), Events: r.sub.Waiting(), Lost: r.sub.Dropped()}
}

// NewEngine returns an Engine. It collects events from this call on, even before Run: the start of
// the master and the first sign-ins of minions may fire events before Run.
func NewEngine(cfg Config) *Engine {
	if cfg.Depth <= 0 {
		cfg.Depth = defaultDepth
	}
	if cfg.Threads <= 0 {
		cfg.Threads = defaultThreads
	}
	r := &Engine{cfg: cfg, rules: cfg.Rules}
	r.backlog = background.NewBacklog(background.BacklogConfig{Workers: cfg.Threads, Depth: cfg.Depth, Now: time.Now})
	r.sub = cfg.Bus.Subscribe("reactor", cfg.Depth, func(tag string) bool {
		return !isOrder(tag) && len(r.rules.Files(tag)) > 0
	})
	r.orders = cfg.Bus.Subscribe("reactor orders", ordersDepth, isOrder)
	return r
}

// Run executes reactions until ctx ends. Like Salt, it drops the events that are still waiting when
// ctx ends, and logs their number.
func (r *Engine) Run(ctx context.Context) {
	cut := 0
	following, stop := context.WithCancel(ctx)
	var followed sync.WaitGroup
	followed.Go(func() { r.rules.Follow(following) })
	followed.Go(func() { r.obeyOrders(following) })
	defer func() {
		stop()
		followed.Wait()
		events := r.sub.Waiting() + cut
		r.sub.Close()
		r.orders.Close()
		r.cfg.Compiler.Close()

		if left := r.backlog.Close(); left+events > 0 {
			r.cfg.Log.Warn("reactions that waited are lost, since the master stops", "runners", left, "events", events)
		}
	}()

	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-r.sub.C:
			if !ok {
				return
			}
			if ctx.Err() != nil {
				cut++
				return
			}

			if e.Lost > 0 {
				r.cfg.Log.Error("reactor is too slow; events were lost", "lost", e.Lost)
			}

			if e.Origin == event.Peer {
				continue // only the master that fired the event reacts to it
			}
			if e.Data.Str("user") == user {
				continue // a reaction fired the event (salt/utils/reactor.py Reactor.run)
			}
			r.reactTo(ctx, e)
			if ctx.Err() != nil { // ctx may have ended before the reaction was finished
				cut++
				return
			}
		}
	}
}

// isOrder reports whether an event with this tag is for the reactor itself.
func isOrder(tag string) bool { return tag == event.TagReactorRules || manages(tag) }

// obeyOrders answers requests to the reactor and adopts changes of the rules until ctx ends.
func (r *Engine) obeyOrders(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-r.orders.C:
			if !ok {
				return
			}
			if e.Lost > 0 {
				r.cfg.Log.Error("requests to the reactor were lost", "lost", e.Lost)
			}

			if event.MayOrder(e, event.ReactorRules) {
				r.rules.Obey(e.Data)
			} else if e.Origin != event.Peer && e.Data.Str("user") != user && manages(e.Tag) {
				r.manage(ctx, e)
			}
		}
	}
}

// localFiles returns the file patterns of a rule, with each salt:// reference replaced by the path
// of the file on this disk (salt/utils/reactor.py render_reaction). It logs and leaves out files
// that do not exist.
func (r *Engine) localFiles(ctx context.Context, refs []string, tag string) (found []string) {
	for _, ref := range refs {
		if !strings.HasPrefix(ref, "salt://") {
			found = append(found, ref)
			continue
		}

		path, ok, err := r.cfg.Locate(ctx, ref)
		if err != nil || !ok {
			r.cfg.Log.Error("Can not render SLS for reaction: file is missing", "path", ref, "tag", tag,
				"error", cmp.Or(err, fs.ErrNotExist))
			continue
		}

		found = append(found, literal.Replace(path))
	}

	return found
}

// literal escapes a path into a glob pattern that matches only this path.
var literal = strings.NewReplacer("[", "[[]", "*", "[*]", "?", "[?]")
