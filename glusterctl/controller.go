package glusterctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"saltern/glusterctl/cli"
	"saltern/glusterctl/layout"
	"saltern/glusterctl/mount"
	"saltern/internal/command"
	"saltern/internal/pause"
)

// Port of glusterd.
const Port = "24007"

// Config holds the settings of a [Controller].
type Config struct {
	Log *slog.Logger
	// Runner runs commands; nil means command.Exec.
	Runner command.Runner
	// Dial tries a TCP connection to address:24007. nil means a real one, for one second at
	// most.
	Dial func(ctx context.Context, address string) error
	// Alive reports whether a brick or self-heal daemon of this machine runs. nil means that
	// its process is looked for.
	Alive func(cli.Process) bool
	// Mounter and Prober are for this node's mount. They may be nil: there is none.
	Mounter *mount.Mounter
	Prober  *mount.Prober
	// Tree returns the directories of the volume for these nodes. Helper starts a child of this
	// program that calls [HelperMain]. The child creates the tree, because the volume may hang.
	Tree   func(nodes []string) layout.Tree
	Helper []string
	// ClearBrick removes glusterd's marks from an empty directory. nil means
	// [disk.ClearBrick], which needs CAP_SYS_ADMIN.
	ClearBrick func(ctx context.Context, dir string) error
	// StartDaemon starts the local glusterd. It may be nil: another program starts it.
	StartDaemon func(ctx context.Context) error
	// Lead reports before each change whether this node may still make changes. It may be nil:
	// always.
	Lead func(ctx context.Context) error

	// RetryFor is how long a step is tried again that is refused for a passing reason. 0 means
	// 200 s, a little longer than glusterd keeps the lock of a peer that has vanished.
	RetryFor time.Duration
	// HealFor is how long healing may make no progress. 0 means 30 min.
	HealFor time.Duration
	// Sleep waits between tries; nil means a timer. Jitter returns a number in [0, 1); nil means
	// math/rand.
	Sleep  func(ctx context.Context, d time.Duration) error
	Jitter func() float64
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Controller observes and changes one volume from one node. Several goroutines may call Observe.
// Apply runs one plan at a time.
type Controller struct {
	cfg      Config
	client   *cli.Client
	applying sync.Mutex
}

// New creates a controller.
func New(cfg Config) *Controller {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Dial == nil {
		cfg.Dial = dialGlusterd
	}

	if cfg.Alive == nil {
		cfg.Alive = isAlive
	}

	cfg.RetryFor = cmp.Or(cfg.RetryFor, 200*time.Second)
	cfg.HealFor = cmp.Or(cfg.HealFor, 30*time.Minute)
	if cfg.Sleep == nil {
		cfg.Sleep = pause.For
	}

	if cfg.Jitter == nil {
		cfg.Jitter = rand.Float64
	}

	if cfg.Now == nil {
		cfg.Now = time.Now
	}

	client := &cli.Client{Runner: cfg.Runner} // the client has its own default
	cfg.Runner = cmp.Or[command.Runner](cfg.Runner, command.Exec{})
	return &Controller{cfg: cfg, client: client}
}

// Plan calls [NewPlan].
func (c *Controller) Plan(obs *Observation, d Desired) Plan { return NewPlan(obs, d) }

// Probe adds a machine to the pool. A machine that is a member already is not an error. A machine
// that does not answer is not asked, because glusterd would wait two minutes for it.
func (c *Controller) Probe(ctx context.Context, m Member) error {
	if err := c.cfg.Dial(ctx, m.Address); err != nil {
		return fmt.Errorf("reach glusterd of %s: %w", m.Name, err)
	}
	return c.client.Change(ctx, "peer", "probe", m.Name)
}

// StartHeal makes the self-heal daemons look for entries to heal now.
func (c *Controller) StartHeal(ctx context.Context, volume string) error {
	return c.client.Change(ctx, "volume", "heal", volume)
}

// HealEntries lists the entries to heal on each brick.
func (c *Controller) HealEntries(ctx context.Context, volume string) ([]cli.Heal, error) {
	return c.client.HealEntries(ctx, volume)
}

func dialGlusterd(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(address, Port))
	if err != nil {
		return err
	}
	return conn.Close()
}

var errNoHelper = errors.New("no helper is configured")
