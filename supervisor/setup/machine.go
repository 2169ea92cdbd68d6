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

// World is the part of the supervisor of this node that the set-up uses. All methods are safe for
// concurrent use.
type World interface {
	// Configured reports whether appliance.yaml exists.
	Configured() bool
	// Configure writes appliance.yaml and starts the node with it. form reports whether this node
	// creates the shared data of a new cluster.
	Configure(text []byte, form bool) error
	// Look returns the state of the node.
	Look() NodeLook
	// Disk prepares the block device dev for this node's copy of the volume. If erase is true, it
	// erases the device. Disk may be repeated.
	Disk(ctx context.Context, cfg *settings.Settings, dev string, erase bool) error
	// Brick returns a directory for this node's copy of the shared volume.
	Brick(*settings.Settings) (string, error)
	// Undo starts to remove everything that the set-up has created, through [Machine.Anew].
	Undo() error
}

// Host is the part of the machine outside of the appliance that the set-up changes.
type Host interface {
	// SetAdmin sets the keys and the password of the administrator's account.
	SetAdmin(ctx context.Context, a Admin) error
	// SetNetwork applies a network permanently, see [Networker.Set].
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

// NodeLook is the state of the node at one moment, as the set-up sees it.
type NodeLook struct {
	Running bool // the node runs with the present appliance.yaml
	// Storage reports whether the shared storage is available and has the cluster's key.
	// StorageWaiting says what is missing.
	Storage        bool
	StorageWaiting string
	// Serving reports whether the node answers minions. ServingWaiting says what is missing.
	Serving        bool
	ServingWaiting string
	Table          nodes.Table
	Addresses      []string // addresses that minions use
	Console        string   // address of the console for browsers; empty: there is none
	// Finger is the fingerprint of the masters' key. Empty: not known.
	Finger string
}

// Config configures a [Machine].
type Config struct {
	Dir     string // directory of the set-up's own state
	DataDir string // the node's data directory, where the table of nodes is
	NodeDir string // directory of the files that make the node a member, settings.NodeDir
	Base    Base
	World   World
	// Facts returns the facts of the machine.
	Facts func(context.Context) Facts
	// Source searches for answers that were given with the machine. An error means that such
	// answers exist and are wrong; the set-up shows the error's text.
	Source  func(context.Context) (Given, error)
	Version string
	Log     *slog.Logger
	Now     func() time.Time
	// Host changes the machine. It may be nil: the set-up does not change the machine.
	Host Host
	// Ours reports whether the machine is an appliance. If so, the set-up names the machine after
	// its node.
	Ours bool
}

// ErrState means that the request is not possible in the present state of the set-up.
var ErrState error = &rpc.Kind{Code: rpc.CodeState, Text: "not possible now"}

// Machine is the state machine of the set-up: it leads a new node to the state in which it serves.
// Run does the work; the other methods are safe for concurrent use.
type Machine struct {
	cfg   Config
	store store
	wake  chan struct{}

	saving   sync.Mutex // held while the state is written; taken before mu
	mu       sync.Mutex // not held during disk access, which may hang
	state    saved
	doing    string // description of the running step
	looking  bool   // whether Source is searching for answers given with the machine
	claim    claim
	draft    *nodeapi.Identity // nil: no key was needed yet; see draftIdentity
	broken   error             // why the state on disk cannot be read; nil: it was read
	sourced  bool              // whether Source has searched for answers given with the machine
	ignored  []string          // answers that Source found and that the set-up does not use, with the reason
	removing bool              // whether Anew is removing what the set-up has created; no step may begin
	// decisions counts the decisions of people: the outcome of a step that began before the last
	// decision does not count. stop cancels the step under way.
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
				Check: []string{"look at " + m.cfg.Dir + "; remove it to start over"}},
		}
	}

	if s.Since.IsZero() {
		s.Since = m.cfg.Now()
	}

	m.saving.Lock()
	defer m.saving.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state, m.broken = s, err
}

// Active reports whether this node uses the set-up. If its appliance.yaml was written by hand, the
// node does not.
func (m *Machine) Active() bool {
	m.mu.Lock()
	phase := m.state.Phase
	m.mu.Unlock()
	return phase != status.SetupNew || !m.cfg.World.Configured()
}

// Intervals of the machine.
const (
	look    = 250 * time.Millisecond // pause between two checks of a node that is starting
	passing = time.Second            // pause before the first retry after a failure that may pass by itself
	longest = 10 * time.Second       // longest pause between later retries
)

// Run leads the node through the steps of the set-up until ctx ends.
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

// outcome tells Run how to continue after doNext.
type outcome int

const (
	onward outcome = iota // look for the next step at once
	idle                  // wait until a person decides something
	again                 // repeat the step after a pause
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
		m.sourced = m.sourced && m.state.Failure == nil // a retry searches again
		m.mu.Unlock()
		return idle
	default:
		if m.advance(ctx, s) {
			return again
		}
	}

	return onward
}

// Anew waits until no step runs and calls forget, which removes everything that the set-up has
// created. Then the set-up starts from the beginning. answers reports whether to search again for
// answers given with the machine. If forget fails, the machine makes no step until Anew is called
// again.
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

// Intended returns the text of the appliance.yaml that the set-up will write or has written.
// Without answers, the text has only the directories that the machine uses.
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

// waitForWork waits until Run is woken, but at most for d. If d is zero, the wait has no limit.
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

// change applies f to a copy of the state and saves the copy. The copy becomes the state only after
// it is on the disk.
func (m *Machine) change(f func(*saved)) error {
	m.saving.Lock()
	defer m.saving.Unlock()
	before := m.snapshot()
	next := before
	next.Done = slices.Clone(before.Done)
	f(&next)

	if next.Phase != before.Phase {
		next.Since = m.cfg.Now().UTC()
	}

	if err := m.store.writeState(next); err != nil {
		return err
	}

	if next.Phase != before.Phase {
		m.cfg.Log.Info("set-up", "state", next.Phase, "before", before.Phase)
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	m.state, m.doing = next, ""
	return nil
}

// amend applies f to the state in memory only.
func (m *Machine) amend(f func(*saved)) {
	m.saving.Lock()
	defer m.saving.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	f(&m.state)
}

// decide changes the state because a person wants it, and cancels the step under way.
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

// stopWith records the failure f, which stops the set-up.
func (m *Machine) stopWith(f Failure) {
	m.cfg.Log.Error("set-up has stopped", "tried", f.Tried, "error", f.Cause)
	// The disk may be full. Then the failure is kept in memory only.
	err := m.change(func(s *saved) {
		f.Back = !s.Part || m.isAlone(*s)
		s.Failure = &f
	})
	if err != nil {
		m.amend(func(s *saved) { s.Failure = &f })
	}
}

func (m *Machine) setDoing(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.doing = fmt.Sprintf(format, args...)
}

// source searches for answers given with the machine, and starts the set-up with them if they are
// valid.
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

	// The failure is kept in memory only, because the answers may be corrected before the next
	// boot.
	m.amend(func(s *saved) {
		if s.Phase != status.SetupNew {
			return
		}
		s.Failure = &Failure{
			Tried: "read the answers in " + given.From,
			Cause: settings.OneLine(err),
			Check: []string{"fix them, then: applianced setup retry; or answer on the console: applianced setup"},
			Back:  true,
		}
	})
}

// acceptAnswers starts the set-up with complete, valid answers.
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

// doStep makes one step. stale reports whether a person decided something during the step; the
// caller then ignores err.
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

// public returns the answers without the secrets, which a ready node no longer needs.
func public(a Answers) Answers {
	a.Secret = ""
	a.JoinString = ""
	a.Admin.Password = ""
	return a
}

// passingError is a failure that may pass by itself. If always is set, the set-up retries the step;
// otherwise it does so only without a person (saved.Auto).
type passingError struct {
	error
	always bool
}

func (p *passingError) Unwrap() error { return p.error }

// hinted is an error with hints: a list of what the administrator should check.
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

// Remove records that the cluster has removed this node.
func (m *Machine) Remove() {
	if m.snapshot().Phase == status.SetupRemoved {
		return
	}
	if err := m.change(func(s *saved) { s.Phase = status.SetupRemoved }); err != nil {
		m.cfg.Log.Error("set-up", "error", err)
	}
}

// mkNodeDir creates the directory for the files that make the node a member.
func (m *Machine) mkNodeDir() error {
	if err := os.MkdirAll(filepath.Dir(m.cfg.NodeDir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(m.cfg.NodeDir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return os.Chmod(m.cfg.NodeDir, 0o700)
}
