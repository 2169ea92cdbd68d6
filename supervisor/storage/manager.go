package storage

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"saltern/glusterctl"
	"saltern/glusterctl/disk"
	"saltern/glusterctl/layout"
	"saltern/glusterctl/mount"
	"saltern/internal/command"
	"saltern/internal/pause"
	"saltern/supervisor/nodes"
)

// layoutVersion is the version of the volume's directory tree that this program creates and needs.
const layoutVersion = 1

// Config configures a [Manager].
type Config struct {
	Log *slog.Logger
	// Self is this node's name in the table.
	Self string
	// Volume is the name of the volume, Mount where it is mounted.
	Volume string
	Mount  string
	// Dir is a directory on this node's own disk for data that must be readable without the volume.
	// Mirror is the copy of the files for minions, on the same disk.
	Dir    string
	Mirror string
	// Bricks is the directory for this node's copies.
	Bricks string
	// Helper is the command line, without the helper's own arguments, that starts a child which
	// calls [HelperMain].
	Helper []string
	// UID and GID are the account of the master process, which owns its files.
	UID, GID int
	// Form reports whether this node formed the cluster. Only this node may create the volume, and
	// only once. All other nodes join.
	Form bool
	// TwoCopies allows two nodes to hold two copies without an arbiter.
	TwoCopies bool
	// Others requests certificates from other nodes, in a cluster whose table requires TLS. It may
	// be nil: there is no other node.
	Others Certifier
	// Allowed is the path of a file without which systemd does not start glusterd. A reboot removes
	// the file.
	Allowed string
	// MayServe reports whether glusterd may start and so serve this node's copy; why is the reason
	// for waiting. It may be nil: glusterd may start.
	MayServe func() (may bool, why string)
	// Lead may return an error to refuse a change, even on the node with the lease. It may be nil:
	// no change is refused.
	Lead func(ctx context.Context) error
	// Mirrored is called when files for minions have changed in the copy. It must not block. It may
	// be nil.
	Mirrored func()
	// Now is the clock. It may be nil: time.Now.
	Now func() time.Time
}

// Manager keeps the storage of one node. Its methods are safe for concurrent use and never wait for
// the volume, unless their comments say so.
type Manager struct {
	cfg       Config
	timers    glusterctl.Timers
	ctl       *glusterctl.Controller
	mounter   *mount.Mounter
	keeper    *mount.Keeper
	daemon    *daemon
	lease     lease
	mirror    mirror
	clocks    worker
	probes    worker
	wake      chan struct{} // wakes keepChanging
	renewedAt time.Time     // when the certificate was last checked; only keepChanging uses it
	askedAt   time.Time     // when another node was last asked for the authority; only keepChanging uses it

	mu            sync.Mutex
	table         nodes.Table
	stopChange    context.CancelFunc // ends the change under way
	stopObserving context.CancelFunc // ends the full observation under way
	obs           *glusterctl.Observation
	fullAt        time.Time // time of the newest full observation in obs
	stoppedSince  time.Time // since when the volume takes no writes; zero: it takes writes
	// lackingSince is when this node's glusterd began to lack the volume that the other glusterds
	// of the pool have. Zero: it has the volume.
	lackingSince time.Time
	hiddenSince  time.Time       // since when this node's brick runs but clients cannot find it; zero: clients find it
	plan         glusterctl.Plan // made from table and obs; empty without obs
	doing        string
	fault        string // error of the last change or local step; empty: none
	stuck        []glusterctl.Stuck
	tracker      glusterctl.HealTracker
	trackedAt    time.Time
	ahead        map[string]clockDiff // how far other nodes' clocks are ahead, by their stamps on the volume
	measured     map[string]clockDiff // how far other nodes' clocks are ahead, from NoteClocks
	formed       bool                 // the volume was created once: this node never creates another
}

type clockDiff struct {
	ahead time.Duration
	at    time.Time
}

// New creates a manager. It changes nothing before Run.
func New(cfg Config) *Manager {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}

	m := &Manager{
		cfg:      cfg,
		timers:   glusterctl.DefaultTimers(),
		wake:     make(chan struct{}, 1),
		ahead:    map[string]clockDiff{},
		measured: map[string]clockDiff{},
	}

	m.formed = exists(m.formedMark())
	m.mounter = &mount.Mounter{
		Volume:  cfg.Volume,
		Point:   cfg.Mount,
		Server:  cfg.Self,
		Options: []string{"log-level=WARNING"},
	}

	if systemdRuns() {
		m.mounter.Attach, m.mounter.Detach = attachUnit, detachUnit
	}

	prober := &mount.Prober{
		Mounter:  m.mounter,
		Command:  m.helper("probe"),
		WriteDir: probeDir(cfg.Self),
		Timeout:  m.timers.ProbeTimeout(),
		Ask:      m.askProbe,
	}

	m.keeper = &mount.Keeper{
		Probe:   m.probeMount(prober),
		Mount:   m.mounter.Mount,
		Unmount: m.mounter.Unmount,
		Log:     cfg.Log,
		Every:   5 * time.Second,
		Healthy: m.healthy,
	}

	m.daemon = &daemon{runner: command.Exec{}, bricks: cfg.Bricks, allowed: cfg.Allowed}
	m.lease.child.command = m.helper("lease", cfg.Mount, cfg.Self)
	m.probes.command = m.helper("probes", cfg.Mount, probeDir(cfg.Self))
	m.clocks.command = m.helper("clocks", cfg.Mount, cfg.Self)
	m.mirror.passWanted = make(chan struct{}, 1)
	m.mirror.attributesMayLack = func() bool { return !m.isCalm() }
	m.mirror.clockSpread = m.clockSpread
	m.mirror.child.command = m.helper("mirror", mirrorSpec{
		Source: cfg.Mount,
		Dest:   cfg.Mirror,
		Trees:  mirroredTrees(),
		Keys:   &account{cfg.UID, cfg.GID},
		Stage:  stageDir,
	}.argument())

	m.ctl = glusterctl.New(glusterctl.Config{
		Log:     cfg.Log,
		Mounter: m.mounter,
		Prober:  prober,
		Helper:  cfg.Helper,
		Machine: machine{m: m},
		Tree:    func(nodes []string) layout.Tree { return layout.Cluster(cfg.UID, cfg.GID, nodes...) },
		Lead:    m.mayChange,
	})

	return m
}

// Refresh waits until this node's copy of files and options equals the volume's content at the time
// of the call. Files that are being written keep their earlier version in the copy. Refresh returns
// an error if the volume does not answer before ctx ends.
func (m *Manager) Refresh(ctx context.Context) error {
	err := m.mirror.waitForNew(ctx)
	if _, unsteady := errors.AsType[*Unsteady](err); unsteady {
		return nil
	}
	return err
}

// Newest updates this node's copy of files and options from the volume, and returns the time of the
// volume's state that the copy shows. An error says why the copy is older than the call: the volume
// did not answer within some seconds, or a pass failed. An [Unsteady] names files that are older
// than asOf. Any number of callers share one pass.
func (m *Manager) Newest(ctx context.Context) (asOf time.Time, err error) {
	return m.mirror.newest(ctx)
}

// probeDir is the directory on the volume where the probes of a node write.
func probeDir(node string) string { return "nodes/" + node + "/probe" }

func (m *Manager) helper(args ...string) []string { return append(slices.Clone(m.cfg.Helper), args...) }

func (m *Manager) formedMark() string { return filepath.Join(m.cfg.Dir, "volume-made") }

// SetTable sets the table of nodes, which determines the members of the pool. If a change of the
// pool is running, SetTable stops it between two steps.
func (m *Manager) SetTable(t nodes.Table) {
	m.mu.Lock()
	if reflect.DeepEqual(m.table, t) {
		m.mu.Unlock()
		return
	}

	m.table = t
	m.replan()
	if m.stopChange != nil {
		m.stopChange()
	}

	if n, ok := t.Find(m.cfg.Self); ok && n.State == nodes.Leaving && m.stopObserving != nil {
		m.stopObserving()
	}
	m.mu.Unlock()

	m.wakeChanging()
}

func (m *Manager) wakeChanging() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Desired returns the state of the pool that the table requires, as glusterctl's type.
func (m *Manager) Desired() glusterctl.Desired {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.desired()
}

// desired returns the state of the pool that the table requires. The caller holds mu.
func (m *Manager) desired() glusterctl.Desired {
	d := glusterctl.Desired{
		Volume:    m.cfg.Volume,
		Self:      m.cfg.Self,
		Form:      m.cfg.Form && !m.formed,
		TwoCopies: m.cfg.TwoCopies,
		TLS:       m.table.StorageTLS,
		Timers:    m.timers,
		Mount:     m.cfg.Mount,
		Layout:    layoutVersion,
	}

	used := map[string]bool{}
	for _, n := range m.table.Nodes {
		role := glusterctl.Role(n.Storage)
		switch {
		case n.State == nodes.Removed, n.State == nodes.Leaving && n.Name != m.cfg.Self:
			continue
		case n.State == nodes.Leaving: // a leaving node observes the pool until the other nodes have removed it
			role = glusterctl.Client
		case role == "":
			role = glusterctl.Client
		}

		d.Members = append(d.Members, glusterctl.Member{Name: n.Name, Address: n.Address, Role: role, Brick: n.Brick})
		used[n.Name], used[n.Address] = true, true
	}

	for _, n := range m.table.Nodes {
		if (n.State == nodes.Removed || n.State == nodes.Leaving) && !used[n.Name] &&
			!slices.Contains(d.Leaving, n.Name) {
			d.Leaving = append(d.Leaving, n.Name)
		}
	}

	return d
}

// membership reports in listed whether the table lists this node as a member, and in leaving
// whether the node leaves.
func (m *Manager) membership() (listed, leaving bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.table.Find(m.cfg.Self)
	return ok && n.State != nodes.Removed, ok && n.State == nodes.Leaving
}

// decidesOnly reports whether this node is the arbiter. An arbiter copies no files for minions, and
// leaves changes of the pool to the nodes with the data. It could change nothing without them: the
// volume stops if all of them are lost.
func (m *Manager) decidesOnly() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.table.Find(m.cfg.Self)
	return ok && n.IsArbiter()
}

// serves reports whether this node serves minions according to the table.
func (m *Manager) serves() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.table.Find(m.cfg.Self)
	return ok && n.Serves() && n.State != nodes.Leaving
}

// Run keeps the storage until ctx ends. The volume stays mounted after that.
func (m *Manager) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer m.probes.stopChild()
	defer wg.Wait()

	wg.Go(func() { m.lease.holdWhile(ctx, m.mayLead, m.wakeChanging) })
	wg.Go(func() {
		m.mirror.keepCopying(ctx, m.cfg.Now, func() bool { return !m.decidesOnly() && m.mountWorks() },
			m.lease.newestMark, func(r mirrorReport) {
				m.lease.markChange(m.cfg.Now())
				m.cfg.Log.Info("files for minions copied", "copied", r.Copied, "removed", r.Removed, "bytes", r.Bytes)
				if m.cfg.Mirrored != nil {
					m.cfg.Mirrored()
				}
			})
	})

	wg.Go(func() { m.keepClocks(ctx) })
	wg.Go(func() { m.keepMount(ctx) })
	wg.Go(func() { m.keepObserving(ctx) })
	m.keepChanging(ctx)

	return nil
}

// hangLimit is how long one call on the volume may hang while the volume answers other calls. It is
// longer than the volume's own limit for unanswered requests (network.frame-timeout, 30 s, checked
// every 10 s).
const hangLimit = 60 * time.Second

// Forget removes the cluster from this node's storage, so that the node can join a cluster as a new
// machine: it unmounts the volume and removes glusterd's identity. Copies in bricks stay where they
// are. The caller must end Run first.
func (m *Manager) Forget(ctx context.Context) error {
	err := m.mounter.Unmount(ctx, true)
	if serr := m.daemon.stop(ctx); serr != nil {
		return errors.Join(err, serr)
	}
	return errors.Join(err, glusterctl.ResetDaemon(glusterctl.DaemonState), setHosts(hostsPath, ""),
		remove(m.formedMark()), m.forgetIdentity())
}

// FreshBrick returns a directory for a new copy on this node: the directory has never held a copy
// and is not one of others.
func (m *Manager) FreshBrick(others ...string) (string, error) {
	return disk.FreshBrick(m.cfg.Bricks, m.cfg.Volume, others...)
}

// machine implements [glusterctl.Machine], which gives the controller of the volume access to this
// machine.
type machine struct {
	glusterctl.ThisMachine
	m *Manager
}

// Dial implements [glusterctl.Machine].
func (h machine) Dial(ctx context.Context, address string) error { return h.m.dialMember(ctx, address) }

// ClearBrick implements [glusterctl.Machine].
func (h machine) ClearBrick(ctx context.Context, dir string) error { return h.m.clearBrick(ctx, dir) }

// StartDaemon implements [glusterctl.Machine].
func (h machine) StartDaemon(ctx context.Context) error { return h.m.startDaemon(ctx) }

func (m *Manager) startDaemon(ctx context.Context) error {
	d := m.Desired()
	if err := setHosts(hostsPath, glusterctl.HostsBlock(d.Members)); err != nil {
		return err
	}
	if err := m.ensureCertificate(ctx, d); err != nil {
		return err
	}
	if err := m.daemon.start(ctx, exists(m.restartMark())); err != nil {
		return err
	}
	return remove(m.restartMark())
}

// keepClocks compares this node's clock with the other nodes' until ctx ends.
func (m *Manager) keepClocks(ctx context.Context) {
	defer m.clocks.stopChild()
	for pause.About(ctx, clocksEvery) == nil {
		if !m.mountWorks() {
			continue
		}

		var r clocksReply
		if err := m.clocks.ask(ctx, m.timers.ProbeTimeout(), struct{}{}, &r); err != nil {
			continue // the probe of the mount reports such an error
		}

		m.mu.Lock()
		for n, d := range r.Ahead {
			m.ahead[n] = clockDiff{d, m.cfg.Now()}
		}
		m.mu.Unlock()
	}
}

var errNotNow = errors.New("another node makes the changes of the pool")
