package setup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"saltern/internal/rpc"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// World is the node that is set up, as the supervisor runs it. All methods may
// be called at any time.
type World interface {
	// Configured reports whether there is an appliance.yaml.
	Configured() bool
	// Configure writes it and has the node start with it. form tells that this
	// node makes what the cluster shares.
	Configure(text []byte, form bool) error
	// Look tells how the node does.
	Look() NodeLook
	// Disk makes a data disk ready to hold that copy; it may be done twice.
	Disk(ctx context.Context, cfg *settings.Settings, dev string, erase bool) error
	// Brick names a directory for this node's copy of the shared volume.
	Brick(*settings.Settings) (string, error)
	// Undo has all that was made taken away, with [Machine.Anew].
	Undo() error
}

// NodeLook is how the node does at the moment.
type NodeLook struct {
	Running bool // with appliance.yaml as it is
	// Storage tells that the shared storage is there with the cluster's key on
	// it, StorageWaiting what is missing.
	Storage        bool
	StorageWaiting string
	// Serving tells that minions are answered, ServingWaiting what is missing.
	Serving        bool
	ServingWaiting string
	Table          nodes.Table
	Addresses      []string // for minions
	Console        string   // address of the pages for browsers; empty: there are none
	// Finger is the fingerprint of the masters' key, empty while it is not known.
	Finger string
}

// Config is what a Machine works with.
type Config struct {
	Dir     string // of the set-up's own state
	DataDir string // of the node, where the table of nodes is
	NodeDir string // of what makes the node a member, settings.NodeDir
	Base    Base
	World   World
	// Facts looks at the machine.
	Facts func(context.Context) Facts
	// Source looks for answers that were given with the machine. An error says
	// that they are there and wrong. Its text is shown.
	Source  func(context.Context) (Given, error)
	Version string
	Log     *slog.Logger
	Now     func() time.Time
	// Accounts sets up the administrator's account; nil: it is left out.
	Accounts func(context.Context, Admin) error
	// Network puts the answers' network in force; nil: it is left out.
	Network func(context.Context, Network) error
	// Hostname gives the machine a host name; nil: it keeps its own.
	Hostname func(ctx context.Context, name string) error
	// Ours says that the machine is the appliance's: it is called as its node is.
	Ours bool
}

// ErrState marks a request that does not fit to where the set-up stands.
var ErrState error = &rpc.Kind{Code: rpc.CodeState, Text: "not possible now"}

// Machine takes the node through its states. Run does the work; the other
// methods are safe for concurrent use.
type Machine struct {
	cfg   Config
	store store
	wake  chan struct{}

	mu      sync.Mutex
	s       saved
	doing   string // words for the step under way
	looking bool   // for answers given with the machine
	claim   claim
	draft   *nodeapi.Identity // nil: none was needed yet; see draftIdentity
	broken  error             // the state on disk cannot be read
	sourced bool              // answers given with the machine were looked for
	unused  []string          // what was found then and is not used
	away    bool              // all that was made is being removed: no step may begin
	// turn counts what people decided; a step that began before is worth
	// nothing. stop ends the step under way.
	turn int
	stop context.CancelFunc

	// steps is held while a step is made.
	steps sync.Mutex
}

// NewMachine reads where the set-up stands.
func NewMachine(cfg Config) *Machine {
	m := &Machine{cfg: cfg, store: store{dir: cfg.Dir}, wake: make(chan struct{}, 1)}
	m.load()
	return m
}

func (m *Machine) load() {
	s, err := m.store.get()
	if err != nil {
		s = saved{
			Phase: status.SetupFailed,
			Failure: &Failure{Tried: "read where the set-up stands", Cause: err.Error(),
				Check: []string{"look at " + m.cfg.Dir + "; remove it to begin anew"}},
		}
	}

	if s.Since.IsZero() {
		s.Since = m.cfg.Now()
	}

	m.mu.Lock()
	m.s, m.broken = s, err
	m.mu.Unlock()
}

// Active reports whether the set-up has to do with this node: it is not when
// somebody wrote appliance.yaml by hand.
func (m *Machine) Active() bool {
	m.mu.Lock()
	phase := m.s.Phase
	m.mu.Unlock()
	return phase != status.SetupNew || !m.cfg.World.Configured()
}

// times of the machine.
const (
	look    = 250 * time.Millisecond // at a node that gets ready
	passing = time.Second            // between tries of what may pass by itself, at first
	longest = 10 * time.Second
)

// Run takes the node through its states until ctx ends.
func (m *Machine) Run(ctx context.Context) {
	pause := passing
	for ctx.Err() == nil {
		switch m.next(ctx) {
		case idle:
			m.wait(ctx, 0)
			pause = passing
		case again:
			m.wait(ctx, pause)
			pause = min(pause*3/2, longest)
		case onward:
			pause = passing
		}
	}
}

// outcome is what follows a look at the state.
type outcome int

const (
	onward outcome = iota // there may be more to do at once
	idle                  // nothing to do until somebody decides something
	again                 // the same after a pause
)

// next does what is to be done next, if anything.
func (m *Machine) next(ctx context.Context) outcome {
	m.steps.Lock()
	defer m.steps.Unlock()
	m.mu.Lock()
	s := m.s
	sourced := m.sourced
	away := m.away
	m.mu.Unlock()

	switch {
	case away:
		return idle
	case s.Phase == status.SetupNew && !sourced && s.Failure == nil && m.cfg.Source != nil && !m.cfg.World.Configured():
		m.source(ctx)
	case s.Failure != nil, s.Phase == status.SetupNew, s.Phase == status.SetupReady, s.Phase == status.SetupRemoved, s.Phase == status.SetupFailed:
		m.mu.Lock()
		m.sourced = m.sourced && m.s.Failure == nil // a retry looks again
		m.mu.Unlock()
		return idle
	default:
		if m.advance(ctx, s) {
			return again
		}
	}

	return onward
}

// Anew has forget remove all that the set-up has made, while no step is under
// way, and begins as new; answers tells to look for those given with the machine
// again. When forget fails, nothing is done until Anew is called again.
func (m *Machine) Anew(answers bool, forget func() error) error {
	m.mu.Lock()
	m.away = true
	m.turn++
	if m.stop != nil {
		m.stop()
	}
	m.mu.Unlock()

	m.steps.Lock()
	defer m.steps.Unlock()
	if err := forget(); err != nil {
		return err
	}

	m.load()
	m.mu.Lock()
	m.away = false
	m.sourced = !answers
	m.doing = ""
	m.draft = nil
	m.mu.Unlock()

	m.nudge()
	return nil
}

// Intended gives the settings that the set-up writes, or has written; of a
// machine without answers, where it keeps things.
func (m *Machine) Intended() []byte {
	if s := m.snapshot(); s.Answers.Node != "" {
		if text, err := Render(s.Answers, m.cfg.Base); err == nil {
			return text
		}
	}
	text, _ := yaml.Marshal(map[string]string{"data_dir": m.cfg.DataDir, "runtime_dir": m.cfg.Base.RuntimeDir})
	return text
}

func (m *Machine) snapshot() saved {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.s
}

// wait pauses until there is something to do, at most for d unless it is 0.
func (m *Machine) wait(ctx context.Context, d time.Duration) {
	var after <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		after = t.C
	}
	select {
	case <-ctx.Done():
	case <-m.wake:
	case <-after:
	}
}

func (m *Machine) nudge() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// change changes the state and keeps it. Nothing is believed to have happened
// that is not on the disk.
func (m *Machine) change(f func(*saved)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := m.s
	next.Done = slices.Clone(m.s.Done)
	f(&next)

	if next.Phase != m.s.Phase {
		next.Since = m.cfg.Now().UTC()
	}

	if err := m.store.put(next); err != nil {
		return err
	}

	if next.Phase != m.s.Phase {
		m.cfg.Log.Info("set-up", "state", next.Phase, "before", m.s.Phase)
	}

	m.s, m.doing = next, ""
	return nil
}

// decide changes the state because a person says so, whatever is under way.
func (m *Machine) decide(f func(*saved)) error {
	m.mu.Lock()
	m.turn++
	if m.stop != nil {
		m.stop()
	}
	m.mu.Unlock()
	err := m.change(f)
	m.nudge()
	return err
}

// fail stops the set-up with a reason.
func (m *Machine) fail(f Failure) {
	m.cfg.Log.Error("set-up has stopped", "tried", f.Tried, "error", f.Cause)
	// a full disk, perhaps: remembered in memory only
	if err := m.change(func(s *saved) { f.Back = !s.Part || m.alone(*s); s.Failure = &f }); err != nil {
		m.mu.Lock()
		m.s.Failure = &f
		m.mu.Unlock()
	}
}

func (m *Machine) say(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.doing = fmt.Sprintf(format, args...)
}

// source looks for answers given with the machine.
func (m *Machine) source(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.mu.Lock()
	if m.away {
		m.mu.Unlock()
		return
	}

	m.looking = true
	m.sourced = true
	m.stop = cancel
	m.mu.Unlock()

	given, err := m.cfg.Source(ctx)
	m.mu.Lock()
	m.looking = false
	m.stop = nil
	m.unused = given.Unused
	m.mu.Unlock()

	switch {
	case ctx.Err() != nil, err == nil && given.Answers == nil:
		return
	case err == nil:
		v := Validate(*given.Answers, m.cfg.Facts(ctx), m.cfg.Base)
		if err = Faults(v.Faults); err == nil {
			err = m.begin(v.Answers, given.From, true)
		}
		if err == nil {
			return
		}
	}

	m.cfg.Log.Error("answers for the set-up are wrong", "path", given.From, "error", err)
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.s.Phase == status.SetupNew { // kept in memory: they may be fixed before the next boot
		m.s.Failure = &Failure{
			Tried: "read the answers in " + given.From,
			Cause: settings.OneLine(err),
			Check: []string{"fix them, then: applianced setup retry; or answer on the console: applianced setup"},
			Back:  true,
		}
	}
}

// begin takes complete, valid answers.
func (m *Machine) begin(a Answers, source string, auto bool) error {
	return m.decide(func(s *saved) {
		*s = saved{Phase: status.SetupPreflight, Answers: a, Source: source, Auto: auto}
	})
}

// advance makes the next step that is not done. It reports whether the same has
// to be tried again after a pause.
func (m *Machine) advance(ctx context.Context, s saved) (again bool) {
	for _, st := range plan(s.Answers) {
		if slices.Contains(s.Done, st.id) && !(st.id == stepConfig && !m.cfg.World.Configured()) {
			continue
		}
		if st.phase != s.Phase || st.part && !s.Part {
			if err := m.change(func(s *saved) { s.Phase = st.phase; s.Part = s.Part || st.part }); err != nil {
				m.fail(Failure{
					Tried: st.name,
					Cause: err.Error(),
					Check: []string{"make room on the disk of " + m.cfg.Dir},
				})
			}

			return false
		}

		err, stale := m.do(ctx, st, s.Answers)
		if ctx.Err() != nil || stale {
			return false
		}

		var p *passingError
		switch {
		case err == nil:
			err = m.change(func(s *saved) { s.Done = append(s.Done, st.id) })
			if err != nil {
				m.fail(Failure{
					Tried: st.name,
					Cause: err.Error(),
					Check: []string{"make room on the disk of " + m.cfg.Dir},
				})
			}

			return false
		case errors.As(err, &p) && (s.Auto || p.always):
			m.say("waits: %s", settings.OneLine(err))
			return true
		}

		m.fail(Failure{Tried: st.name, Cause: settings.OneLine(err), Check: hints(err)})
		return false
	}

	if err := m.change(func(s *saved) { s.Phase = status.SetupReady; s.Answers = public(s.Answers) }); err != nil {
		m.say("waits: %v", err)
		return true
	}

	return false
}

// do makes one step. stale tells that somebody decided something meanwhile.
func (m *Machine) do(ctx context.Context, st step, a Answers) (err error, stale bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.mu.Lock()
	if m.away {
		m.mu.Unlock()
		return nil, true
	}

	turn := m.turn
	m.stop = cancel
	m.mu.Unlock()

	err = st.do(m, ctx, a)
	m.mu.Lock()
	defer m.mu.Unlock()

	m.stop = nil
	return err, turn != m.turn
}

// public takes out what is not needed any more when the node is ready.
func public(a Answers) Answers {
	a.Secret = ""
	a.JoinString = ""
	a.Admin.Password = ""
	return a
}

// passingError is a failure that may pass by itself; always also when somebody
// watches.
type passingError struct {
	error
	always bool
}

func (p *passingError) Unwrap() error { return p.error }

// hinted is a failure with what to look at.
type hinted struct {
	error
	check []string
}

func (h *hinted) Unwrap() error { return h.error }

func hint(err error, check ...string) error { return &hinted{err, check} }

func hints(err error) []string {
	if h, ok := errors.AsType[*hinted](err); ok {
		return h.check
	}
	return []string{"journalctl -u applianced; then try again"}
}

// preflight makes the checks again with what the machine has now.
func (m *Machine) preflight(ctx context.Context, a Answers) ([]Check, error) {
	id, err := m.draftIdentity()
	if err != nil {
		return nil, err
	}
	p := Preflight{Facts: m.cfg.Facts(ctx), Base: m.cfg.Base, Identity: id, Version: m.cfg.Version}
	checks, _ := p.Run(ctx, a)
	return checks, nil
}

// Remove tells that the cluster has let this node go.
func (m *Machine) Remove() {
	if m.snapshot().Phase == status.SetupRemoved {
		return
	}
	if err := m.change(func(s *saved) { s.Phase = status.SetupRemoved }); err != nil {
		m.cfg.Log.Error("set-up", "error", err)
	}
}

// mkNodeDir makes the directory of what makes the node a member.
func (m *Machine) mkNodeDir() error {
	if err := os.MkdirAll(filepath.Dir(m.cfg.NodeDir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(m.cfg.NodeDir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return os.Chmod(m.cfg.NodeDir, 0o700)
}
