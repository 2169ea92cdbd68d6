package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"
)

// Manager owns a set of services. Its methods are safe for concurrent use.
type Manager struct {
	log   *slog.Logger
	now   func() time.Time
	order []*running // in start order: dependencies first
}

type running struct {
	*Service
	cancel context.CancelCauseFunc
	done   chan struct{}
}

// ErrUnknown is returned for the name of a service that does not exist.
var ErrUnknown = errors.New("no such service")

// NewManager returns a manager without services. Parts of a service may store the manager before
// Add is called.
func NewManager(log *slog.Logger, now func() time.Time) *Manager {
	return &Manager{log: log, now: now}
}

// Add checks the specs (unique names, known dependencies, no circle) and orders them. Nothing
// starts before [Manager.Run]. Add may be called only once, before any other method.
func (m *Manager) Add(specs ...Spec) error {
	byName := map[string]Spec{}
	for _, s := range specs {
		if _, twice := byName[s.Name]; twice || s.Name == "" || s.Runner == nil {
			return fmt.Errorf("service %q: name missing or used twice, or no runner", s.Name)
		}
		byName[s.Name] = s
	}

	const visiting, visited = 1, 2
	mark := map[string]int{}
	var visit func(name, by string) error
	visit = func(name, by string) error {
		s, ok := byName[name]
		switch {
		case !ok:
			return fmt.Errorf("service %q needs %q: %w", by, name, ErrUnknown)
		case mark[name] == visiting:
			return fmt.Errorf("service %q needs itself through %q", name, by)
		case mark[name] == visited:
			return nil
		}

		mark[name] = visiting
		for _, d := range s.After {
			if err := visit(d, name); err != nil {
				return err
			}
		}

		mark[name] = visited
		m.order = append(m.order, &running{Service: newService(s, m.log, m.now), done: make(chan struct{})})
		return nil
	}

	for _, s := range specs {
		if err := visit(s.Name, ""); err != nil {
			return err
		}
	}

	return nil
}

// Run starts all services and blocks until ctx has ended and every service has stopped. It stops
// each service before those on which the service depends. The contexts of the services end with the
// cause of ctx, which a [Lasting] passes to Leave. The error lists the services that did not end
// within limit; it is nil if all ended. For loops Run waits without a limit, because the next life
// must not do the same work beside them; it logs those that have not ended within limit. Run may be
// called only once.
func (m *Manager) Run(ctx context.Context, limit time.Duration) error {
	for _, r := range m.order {
		// The services' context must outlive ctx, because Run stops them one after another when ctx
		// ends.
		own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
		r.cancel = cancel
		deps := m.dependencies(r.spec)
		go func() {
			defer close(r.done)
			r.loop(own, deps)
		}()
	}

	<-ctx.Done()
	var faults *multierror.Error
	for _, r := range slices.Backward(m.order) {
		if r.spec.loop {
			continue
		}

		r.cancel(context.Cause(ctx))
		if !endsBefore(r.done, time.After(limit)) {
			faults = multierror.Append(faults, fmt.Errorf("service %s did not stop within %s", r.spec.Name, limit))
		}
	}

	for _, r := range m.order {
		r.cancel(context.Cause(ctx))
	}

	over, end := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer end()
	for _, r := range m.order {
		if r.spec.loop && !endsBefore(r.done, over.Done()) {
			m.log.Warn("a part of this program does not end, perhaps because a disk hangs: it is waited for",
				"part", r.spec.Name, "limit", limit)
			<-r.done
		}
	}

	return faults.ErrorOrNil()
}

// endsBefore waits for done or for limit. It reports whether done came first.
func endsBefore[T any](done <-chan struct{}, limit <-chan T) bool {
	select {
	case <-done:
		return true
	case <-limit:
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func (m *Manager) dependencies(s Spec) Condition {
	var list []Condition
	for _, name := range s.After {
		if d := m.find(name); d != nil {
			list = append(list, &upCondition{d.Service})
		}
	}
	if list == nil {
		return nil
	}
	return All(list...)
}

// unknown returns the error for a mistyped name. The error lists the existing services.
func (m *Manager) unknown(name string) error {
	var have []string
	for _, r := range m.order {
		if !r.spec.loop {
			have = append(have, r.spec.Name)
		}
	}
	if len(have) == 0 {
		return fmt.Errorf("%q: %w; this node runs none", name, ErrUnknown)
	}
	slices.Sort(have)
	return fmt.Errorf("%q: %w; there are: %s", name, ErrUnknown, strings.Join(have, ", "))
}

func (m *Manager) find(name string) *running {
	i := slices.IndexFunc(m.order, func(r *running) bool { return r.spec.Name == name })
	if i < 0 {
		return nil
	}
	return m.order[i]
}

// Services returns a snapshot of all services except loops, in the order in which they start, each
// with its last n events.
func (m *Manager) Services(n int) []Info {
	out := make([]Info, 0, len(m.order))
	for _, r := range m.order {
		if !r.spec.loop {
			out = append(out, r.Info(n))
		}
	}
	return out
}

// Restart ends the run of a service, or the pause before its next run, and starts the service
// again.
func (m *Manager) Restart(name string) error {
	r := m.find(name)
	if r == nil || r.spec.loop {
		return m.unknown(name)
	}
	r.Restart()
	return nil
}

// Named refers to one service of a manager by its name. The service may be added later.
type Named struct {
	Manager *Manager
	Name    string
}

// Info returns a snapshot of the service without its events. If there is no such service, it
// returns the zero value.
func (n Named) Info() Info {
	r := n.Manager.find(n.Name)
	if r == nil || r.spec.loop {
		return Info{}
	}
	return r.Info(0)
}

// Restart ends the run of the service and starts it again; see [Manager.Restart].
func (n Named) Restart() error { return n.Manager.Restart(n.Name) }

// Output returns the last n lines that a service wrote.
func (m *Manager) Output(name string, n int) ([]string, error) {
	r := m.find(name)
	if r == nil || r.spec.loop {
		return nil, m.unknown(name)
	}
	if r.spec.Output == nil {
		return nil, nil
	}
	return r.spec.Output.Tail(n), nil
}

// upCondition waits until a service is up.
type upCondition struct {
	s *Service
}

func (c *upCondition) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.s.upNow():
		return nil
	}
}

// String names the service and describes its state: for example, what the service waits for.
func (c *upCondition) String() string {
	i := c.s.Info(0)
	now := i.Message
	if !strings.HasPrefix(now, string(i.State)) { // "waiting for …" begins with the state already
		now = fmt.Sprintf("%s: %s", i.State, now)
	}
	return fmt.Sprintf("service %s to be up (%s)", c.s.spec.Name, now)
}
