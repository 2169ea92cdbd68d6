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

// World is the node that is set up, as the supervisor runs it. All methods are safe for
// concurrent use.
type World interface {
	// Configured reports whether appliance.yaml exists.
	Configured() bool
	// Configure writes appliance.yaml and makes the node start with it. form reports whether this
	// node creates what the cluster shares.
	Configure(text []byte, form bool) error
	// Look returns the state of the node.
	Look() NodeLook
	// Disk prepares a data disk for that copy. It may be repeated.
	Disk(ctx context.Context, cfg *settings.Settings, dev string, erase bool) error
	// Brick returns a directory for this node's copy of the shared volume.
	Brick(*settings.Settings) (string, error)
	// Undo removes all that was made, with [Machine.Anew].
	Undo() error
}

// Host is the machine beside its node, as far as the set-up changes it.
type Host interface {
	// SetAdmin sets the keys and the password of the administrator's account.
	SetAdmin(ctx context.Context, a Admin) error
	// SetNetwork applies a network for good, see [Networker.Set].
	SetNetwork(ctx context.Context, n Network) error
	// SetHostname sets the host name.
	SetHostname(ctx context.Context, name string) error
}

// ThisHost is the machine that this process runs on.
type ThisHost struct{ Networker *Networker }

// SetAdmin implements [Host].
func (h ThisHost) SetAdmin(ctx context.Context, a Admin) error { return Accounts(ctx, a) }

// SetNetwork implements [Host].
func (h ThisHost) SetNetwork(ctx context.Context, n Network) error { return h.Networker.Set(ctx, n) }

// SetHostname implements [Host].
func (h ThisHost) SetHostname(ctx context.Context, name string) error { return SetHostname(ctx, name) }

// NodeLook is the state of the node at one moment.
type NodeLook struct {
	Running bool // with appliance.yaml as it is
	// Storage reports whether the shared storage is there with the cluster's key on it.
	// StorageWaiting says what is missing.
	Storage        bool
	StorageWaiting string
	// Serving reports whether minions are answered. ServingWaiting says what is missing.
	Serving        bool
	ServingWaiting string
	Table          nodes.Table
	Addresses      []string // for minions
	Console        string   // address of the pages for browsers; empty: there are none
	// Finger is the fingerprint of the masters' key. It is empty while it is not known.
	Finger string
}

// Config configures a [Machine].
type Config struct {
	Dir     string // of the set-up's own state
	DataDir string // of the node, where the table of nodes is
	NodeDir string // of what makes the node a member, settings.NodeDir
	Base    Base
	World   World
	// Facts returns the facts of the machine.
	Facts func(context.Context) Facts
	// Source searches for answers that were given with the machine. An error means that they are
	// there and wrong. The set-up shows its text.
	Source  func(context.Context) (Given, error)
	Version string
	Log     *slog.Logger
	Now     func() time.Time
	// Host is the machine. It may be nil: the set-up leaves the machine as it is.
	Host Host
	// Ours reports whether the machine is an appliance, whose host name follows the name of its
	// node.
	Ours bool
}

// ErrState means that the request is not possible in the present state of the set-up.
var ErrState error = &rpc.Kind{Code: rpc.CodeState, Text: "not possible now"}

// Machine takes the node through its states. Run does the work; the other
// methods are safe for concurrent use.
type Machine struct {
	cfg   Config
	store store
	wake  chan struct{}

	mu       sync.Mutex
	state    saved
	doing    string // words for the step under way
	looking  bool   // for answers given with the machine
	claim    claim
	draft    *nodeapi.Identity // may be nil: no key was needed yet; see draftIdentity
	broken   error             // the state on disk cannot be read
	sourced  bool              // answers given with the machine were looked for
	ignored  []string          // what was found then and is not used
	removing bool              // all that was made is being removed: no step may begin
	// decisions counts what people have decided: the outcome of a step that began before the last
	// decision does not count. stop ends the step under way.
	decisions int
	stop      context.CancelFunc

	// steps is held while a step runs.
	steps sync.Mutex
}

// NewMachine creates a machine and reads the state of its set-up.
func NewMachine(cfg Config) *Machine {
	m := &Machine{cfg: cfg, store: store{dir: cfg.Dir}, wake: make(chan struct{}, 1)}
	m.loadState()
	return m
}

func (m *Machine) loadState() {
	s, err := m.store.readState()
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
	m.state, m.broken = s, err
	m.mu.Unlock()
}

// Active reports whether this node uses the set-up. It does not if somebody wrote appliance.yaml
// by hand.
func (m *Machine) Active() bool {
	m.mu.Lock()
	phase := m.state.Phase
	m.mu.Unlock()
	return phase != status.SetupNew || !m.cfg.World.Configured()
}

// Times of the machine.
const (
	look    = 250 * time.Millisecond // at a node that gets ready
	passing = time.Second            // between tries of what may pass by itself, at first
	longest = 10 * time.Second
)

// Run takes the node through its states until ctx ends.
func (m *Machine) Run(ctx context.Context) {
	pause := passing
	for ctx.Err() == nil {
		switch m.doNext(ctx) {
		case idle:
			m.waitForWork(ctx, 0)
			pause = passing
		case again:
			m.waitForWork(ctx, pause)
			pause = min(pause*3/2, longest)
		case onward:
			pause = passing
		}
	}
}

// outcome says what Run does after doNext.
type outcome int

const (
	onward outcome = iota // there may be more to do at once
	idle                  // nothing to do until somebody decides something
	again                 // the same after a pause
)

// doNext makes the next step, if there is one.
func (m *Machine) doNext(ctx context.Context) outcome {
	m.steps.Lock()
	defer m.steps.Unlock()
	m.mu.Lock()
	s := m.state
	sourced := m.sourced
	away := m.removing
	m.mu.Unlock()

	switch {
	case away:
		return idle
	case s.Phase == status.SetupNew && !sourced && s.Failure == nil && m.cfg.Source != nil && !m.cfg.World.Configured():
		m.source(ctx)
	case s.Failure != nil, s.Phase == status.SetupNew, s.Phase == status.SetupReady,
		s.Phase == status.SetupRemoved, s.Phase == status.SetupFailed:
		m.mu.Lock()
		m.sourced = m.sourced && m.state.Failure == nil // a retry looks again
		m.mu.Unlock()
		return idle
	default:
		if m.advance(ctx, s) {
			return again
		}
	}

	return onward
}

// Anew calls forget, which removes all that the set-up has made, while no step runs. Then it
// begins as new. answers reports whether to search again for answers given with the machine. When
// forget fails, the machine does nothing until Anew is called again.
func (m *Machine) Anew(answers bool, forget func() error) error {
	m.mu.Lock()
	m.removing = true
	m.decisions++
	if m.stop != nil {
		m.stop()
	}
	m.mu.Unlock()

	m.steps.Lock()
	defer m.steps.Unlock()
	if err := forget(); err != nil {
		return err
	}

	m.loadState()
	m.mu.Lock()
	m.removing = false
	m.sourced = !answers
	m.doing = ""
	m.draft = nil
	m.mu.Unlock()

	m.wakeRun()
	return nil
}

// Intended returns the settings that the set-up writes or has written. For a machine without
// answers, they are where it keeps things.
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
	return m.state
}

// waitForWork waits until there is something to do, at most for d. With 0 it waits without a
// limit.
func (m *Machine) waitForWork(ctx context.Context, d time.Duration) {
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

func (m *Machine) wakeRun() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// change changes the state and saves it. The new state counts only once it is on the disk.
func (m *Machine) change(f func(*saved)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := m.state
	next.Done = slices.Clone(m.state.Done)
	f(&next)

	if next.Phase != m.state.Phase {
		next.Since = m.cfg.Now().UTC()
	}

	if err := m.store.writeState(next); err != nil {
		return err
	}

	if next.Phase != m.state.Phase {
		m.cfg.Log.Info("set-up", "state", next.Phase, "before", m.state.Phase)
	}

	m.state, m.doing = next, ""
	return nil
}

// decide changes the state because a person wants it, whatever is under way.
func (m *Machine) decide(f func(*saved)) error {
	m.mu.Lock()
	m.decisions++
	if m.stop != nil {
		m.stop()
	}
	m.mu.Unlock()
	err := m.change(f)
	m.wakeRun()
	return err
}

// stopWith stops the set-up with a reason.
func (m *Machine) stopWith(f Failure) {
	m.cfg.Log.Error("set-up has stopped", "tried", f.Tried, "error", f.Cause)
	// the disk may be full: then memory alone remembers it
	err := m.change(func(s *saved) {
		f.Back = !s.Part || m.isAlone(*s)
		s.Failure = &f
	})
	if err != nil {
		m.mu.Lock()
		m.state.Failure = &f
		m.mu.Unlock()
	}
}

func (m *Machine) setDoing(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.doing = fmt.Sprintf(format, args...)
}

// source searches for answers given with the machine.
func (m *Machine) source(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.mu.Lock()
	if m.removing {
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
	m.ignored = given.Unused
	m.mu.Unlock()

	switch {
	case ctx.Err() != nil, err == nil && given.Answers == nil:
		return
	case err == nil:
		v := Validate(*given.Answers, m.cfg.Facts(ctx), m.cfg.Base)
		if err = Faults(v.Faults); err == nil {
			err = m.acceptAnswers(v.Answers, given.From, true)
		}
		if err == nil {
			return
		}
	}

	m.cfg.Log.Error("answers for the set-up are wrong", "path", given.From, "error", err)
	m.mu.Lock()
	defer m.mu.Unlock()

	// The failure is kept in memory only: the answers may be corrected before the next boot.
	if m.state.Phase == status.SetupNew {
		m.state.Failure = &Failure{
			Tried: "read the answers in " + given.From,
			Cause: settings.OneLine(err),
			Check: []string{"fix them, then: applianced setup retry; or answer on the console: applianced setup"},
			Back:  true,
		}
	}
}

// acceptAnswers starts with complete, valid answers.
func (m *Machine) acceptAnswers(a Answers, source string, auto bool) error {
	return m.decide(func(s *saved) {
		*s = saved{Phase: status.SetupPreflight, Answers: a, Source: source, Auto: auto}
	})
}

// advance makes the next step that is not done. again reports whether the step must be tried
// again after a pause.
func (m *Machine) advance(ctx context.Context, s saved) (again bool) {
	for _, st := range planSteps(s.Answers) {
		if slices.Contains(s.Done, st.id) && !(st.id == stepConfig && !m.cfg.World.Configured()) {
			continue
		}
		if st.phase != s.Phase || st.part && !s.Part {
			if err := m.change(func(s *saved) { s.Phase = st.phase; s.Part = s.Part || st.part }); err != nil {
				m.stopWith(Failure{
					Tried: st.name,
					Cause: err.Error(),
					Check: []string{"make room on the disk of " + m.cfg.Dir},
				})
			}

			return false
		}

		err, stale := m.doStep(ctx, st, s.Answers)
		if ctx.Err() != nil || stale {
			return false
		}

		var p *passingError
		switch {
		case err == nil:
			err = m.change(func(s *saved) { s.Done = append(s.Done, st.id) })
			if err != nil {
				m.stopWith(Failure{
					Tried: st.name,
					Cause: err.Error(),
					Check: []string{"make room on the disk of " + m.cfg.Dir},
				})
			}

			return false
		case errors.As(err, &p) && (s.Auto || p.always):
			m.setDoing("waits: %s", settings.OneLine(err))
			return true
		}

		m.stopWith(Failure{Tried: st.name, Cause: settings.OneLine(err), Check: hintsOf(err)})
		return false
	}

	if err := m.change(func(s *saved) { s.Phase = status.SetupReady; s.Answers = public(s.Answers) }); err != nil {
		m.setDoing("waits: %v", err)
		return true
	}

	return false
}

// doStep makes one step. stale reports whether somebody decided something meanwhile.
func (m *Machine) doStep(ctx context.Context, st step, a Answers) (err error, stale bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.mu.Lock()
	if m.removing {
		m.mu.Unlock()
		return nil, true
	}

	turn := m.decisions
	m.stop = cancel
	m.mu.Unlock()

	err = st.do(m, ctx, a)
	m.mu.Lock()
	defer m.mu.Unlock()

	m.stop = nil
	return err, turn != m.decisions
}

// public removes from the answers what a ready node does not need any more.
func public(a Answers) Answers {
	a.Secret = ""
	a.JoinString = ""
	a.Admin.Password = ""
	return a
}

// passingError is a failure that may pass by itself, even while somebody watches.
type passingError struct {
	error
	always bool
}

func (p *passingError) Unwrap() error { return p.error }

// hinted is an error that says what to check.
type hinted struct {
	error
	check []string
}

func (h *hinted) Unwrap() error { return h.error }

func withHint(err error, check ...string) error { return &hinted{err, check} }

func hintsOf(err error) []string {
	if h, ok := errors.AsType[*hinted](err); ok {
		return h.check
	}
	return []string{"journalctl -u applianced; then try again"}
}

// preflight repeats the checks with the present facts of the machine.
func (m *Machine) preflight(ctx context.Context, a Answers) ([]Check, error) {
	id, err := m.draftIdentity()
	if err != nil {
		return nil, err
	}
	p := Preflight{Facts: m.cfg.Facts(ctx), Base: m.cfg.Base, Identity: id, Version: m.cfg.Version}
	checks, _ := p.Run(ctx, a)
	return checks, nil
}

// Remove notes that the cluster has let this node go.
func (m *Machine) Remove() {
	if m.snapshot().Phase == status.SetupRemoved {
		return
	}
	if err := m.change(func(s *saved) { s.Phase = status.SetupRemoved }); err != nil {
		m.cfg.Log.Error("set-up", "error", err)
	}
}

// mkNodeDir creates the directory of what makes the node a member.
func (m *Machine) mkNodeDir() error {
	if err := os.MkdirAll(filepath.Dir(m.cfg.NodeDir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(m.cfg.NodeDir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return os.Chmod(m.cfg.NodeDir, 0o700)
}
