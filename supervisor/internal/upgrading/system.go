package upgrading

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"saltern/image/bundle"
	"saltern/internal/command"
	"saltern/internal/pause"
	"saltern/internal/printable"
	"saltern/supervisor/internal/child"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
	"saltern/supervisor/upgrade"
	"saltern/supervisor/upgrade/rollout"
)

const (
	// turnWait is how long a node waits for the cluster's turn to restart.
	turnWait = 45 * time.Minute
	// bootTakes is the longest time that a machine may take to go down.
	bootTakes = 10 * time.Minute
	// bootIDs is the path of the kernel's identifier of this boot of the machine.
	bootIDs = "/proc/sys/kernel/random/boot_id"
	maxWord = 500
)

// System is the operating system of this machine, for upgrades of all nodes. It implements
// rollout.Node.
type System struct {
	env      child.Env
	setup    *setup.Machine // nil: the node was configured by hand
	sys      upgrade.System
	keyDirs  []string
	boot     string // path of the file that identifies this boot
	document func() status.Document
	table    func() nodes.Table // returns the table of nodes; nil: this node has no cluster
	// reboot waits until the cluster can spare this machine, then starts the machine's restart. It
	// writes the reasons for waiting to tell. It returns nil when the restart has begun.
	reboot func(ctx context.Context, tell io.Writer) error
	asked  chan string // versions for which the machine must restart

	mu     sync.Mutex
	found  []status.Finding // findings about the system's age
	busy   string           // the work that has claimed the system, see [System.claim]; empty: none
	fault  string           // why the last work failed; empty: it succeeded
	drives string
}

// NewSystem returns the system of this machine. socket is the path of the local API. setup may be
// nil: the node was configured by hand. table may be nil: the node has no cluster.
func NewSystem(
	env child.Env,
	socket string,
	setup *setup.Machine,
	document func() status.Document,
	table func() nodes.Table,
) *System {
	s := &System{
		env:      env,
		setup:    setup,
		keyDirs:  upgrade.KeyDirs(),
		boot:     bootIDs,
		document: document,
		table:    table,
		asked:    make(chan string),
	}
	s.reboot = func(ctx context.Context, tell io.Writer) error {
		_, err := command.Do(ctx, command.Exec{Tee: tell, Cut: true}, env.Executable, "--config", env.ConfigPath,
			"--socket", socket, "reboot", "--wait", turnWait.String())
		return err
	}
	return s
}

// State implements rollout.Node.
func (s *System) State(context.Context) (rollout.State, error) {
	st, err := s.sys.Status()
	if err != nil && !errors.Is(err, upgrade.ErrNoSlots) {
		return rollout.State{}, err
	}

	d := s.document()
	out := rollout.State{Serving: d.ServesItself()}
	if !out.Serving && len(d.Problems) > 0 {
		out.Trouble = nodeapi.Summary{Problems: d.Problems}.Cause()
	}

	if d.Minions.Connected != nil {
		out.Minions = *d.Minions.Connected
	}

	if id, err := os.ReadFile(s.boot); err == nil {
		out.Boot = strings.TrimSpace(string(id))
	}

	if s.table != nil {
		t := s.table()
		now, ok := t.HasTurn(s.env.Now())
		out.Turn = ok && now.Node == s.env.Settings.Node && !now.Options
	}

	s.mu.Lock()
	out.Busy = s.busy
	out.Fault = s.fault
	out.Drives = s.drives
	s.mu.Unlock()

	if err != nil {
		return out, nil
	}

	keys, err := bundle.Keys(s.keyDirs...)
	if err != nil {
		return out, err
	}

	out.Image = true
	out.Version = st.Version
	out.Created = st.Created
	out.Flavour = st.Flavour
	out.Trying = st.Trying
	out.Keys = len(keys)
	out.Window = s.env.Settings.Upgrade.Window
	other := upgrade.Other(st.Running)
	if st.Next == other {
		out.Next, out.NextCreated = st.Versions[other], st.Built[other]
	} else {
		out.Left, out.LeftCreated = st.Versions[other], st.Built[other]
	}

	if st.GaveUp != "" {
		out.GaveUp = st.GaveUpAt
	}

	return out, nil
}

// Install implements rollout.Node.
func (s *System) Install(ctx context.Context, r io.Reader) error {
	err := s.claim("writes a version since " + s.env.Now().UTC().Format("15:04:05 UTC"))
	if err != nil {
		return err
	}
	defer s.setBusy("", "")
	keys, err := bundle.Keys(s.keyDirs...)
	if err != nil {
		return err
	}

	m, err := s.sys.Install(ctx, r, keys, func(string) {})
	if err != nil {
		return err
	}

	s.env.Log.Info("a version of the system was written and is tried at the next boot", "version", m.Version)
	return nil
}

// Restart implements rollout.Node.
func (s *System) Restart(ctx context.Context, version string) error {
	st, err := s.State(ctx)
	switch {
	case err != nil:
		return err
	case st.Next != version:
		return fmt.Errorf("the next boot of this node does not try version %s: %w",
			printable.Brief(version, 64), errNotNext)
	}

	err = s.claim("restarts")
	if err != nil {
		return err
	}

	select {
	case s.asked <- version:
		return nil
	case <-ctx.Done():
		s.setBusy("", "")
		return fmt.Errorf("restart for an upgrade: %w", ctx.Err())
	}
}

var errNotNext = errors.New("somebody has written another one, or gone back")

// Run restarts the machine whenever Restart has requested it, until ctx ends.
func (s *System) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case version := <-s.asked:
			since := "restarts for version " + version + ", since " + s.env.Now().UTC().Format("15:04:05 UTC")
			s.setBusy(since, "")
			s.env.Log.Info("this machine restarts for an upgrade when its cluster can spare it", "version", version)
			err := s.reboot(ctx, &lastLine{func(line string) { s.setBusy(since+": "+line, "") }})
			if err == nil { // the machine goes down at any moment; until then the system stays claimed
				err = pause.For(ctx, bootTakes)
				if err == nil {
					err = fmt.Errorf("the machine has not gone down within %s", bootTakes)
				}
			}

			if ctx.Err() == nil {
				s.env.Log.Error("this machine does not restart for an upgrade", "error", err)
				s.setBusy("", printable.Brief(err.Error(), maxWord))
			}
		}
	}
}

// WatchAge checks hourly how old the system is, until ctx ends.
func (s *System) WatchAge(ctx context.Context) {
	for {
		st, err := s.State(ctx)
		if err != nil {
			s.env.Log.Warn("how old the system is cannot be told", "error", err)
		}
		found := ageFindings(st, s.env.Now(), s.setUpSince())
		s.mu.Lock()
		s.found = found
		s.mu.Unlock()
		if pause.For(ctx, time.Hour) != nil {
			return
		}
	}
}

// ageFindings returns the findings about the age of a system that runs from the image, which gets
// packages only by an upgrade. since is when the node was set up; zero: long ago, or not known.
func ageFindings(st rollout.State, now, since time.Time) (found []status.Finding) {
	if !st.Image {
		return nil
	}

	if age := now.Sub(st.Created); !st.Created.IsZero() && age > 90*24*time.Hour {
		found = append(found,
			status.Finding{
				Code: status.SystemOld,
				Cause: fmt.Sprintf("version %s was built %s, %d days ago: security fixes of since then are missing",
					st.Version, st.Created.UTC().Format("2006-01-02"), int(age.Hours()/24)),
			})
	}

	// In its first week, while an administrator may only be trying it out, the node does not report
	// that it has no keys for upgrades.
	if st.Keys == 0 && now.Sub(since) > 7*24*time.Hour {
		found = append(found,
			status.Finding{
				Code:  status.SystemFixed,
				Cause: "it trusts no key: the image was built without one, and none was added",
			})
	}

	switch {
	case st.Window != "" && st.WentBack():
		found = append(found,
			status.Finding{
				Code:    status.UpgradeStopped,
				Subject: st.Left,
				Cause: fmt.Sprintf("this node went back from version %s to %s", status.Clip(st.Left),
					status.Clip(st.Version)),
			})
	case !st.GaveUp.IsZero():
		found = append(found,
			status.Finding{
				Code:    status.UpgradeGaveUp,
				Subject: st.Left,
				Cause: fmt.Sprintf("it was to be tried from %s on, and was not known to be good after its tries; version %s runs",
					st.GaveUp.UTC().Format("2006-01-02 15:04 UTC"), status.Clip(st.Version)),
			})
	}

	return found
}

// setUpSince returns when this node was set up, or zero if that is not known.
func (s *System) setUpSince() time.Time {
	if s.setup == nil {
		return time.Time{}
	}
	return s.setup.Where().Since
}

// Findings returns the problems of the system.
func (s *System) Findings() []status.Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.found
}

// claim records the work that begins, or refuses it with [rollout.ErrBusy] while other work is under
// way: a version must not be written while the machine restarts. setBusy ends the claim.
func (s *System) claim(work string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy != "" {
		return fmt.Errorf("this node %w: it %s", rollout.ErrBusy, s.busy)
	}
	s.busy, s.fault = work, ""
	return nil
}

func (s *System) setBusy(busy, fault string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy, s.fault = printable.Brief(busy, maxWord), fault
}

// setDriving records the upgrade of all nodes that this node drives. Empty: it drives none.
func (s *System) setDriving(driving string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drives = driving
}

// lastLine is a writer that calls tell with the last line of each write.
type lastLine struct{ tell func(string) }

// Write implements io.Writer.
func (l *lastLine) Write(b []byte) (int, error) {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	l.tell(lines[len(lines)-1])
	return len(b), nil
}
