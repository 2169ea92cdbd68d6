package glusterctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"saltern/glusterctl/cli"
	"saltern/glusterctl/layout"
	"saltern/glusterctl/mount"
	"saltern/internal/command"
)

// Port is the TCP port of glusterd.
const Port = "24007"

// Config holds the settings of a [Controller].
type Config struct {
	Log *slog.Logger
	// Runner runs commands; nil means command.Exec.
	Runner command.Runner
	// Machine is this machine. It may be nil: [ThisMachine].
	Machine Machine
	// Mounter mounts the volume on this node, and Prober checks the mount. Both may be nil: this
	// node has no mount.
	Mounter *mount.Mounter
	Prober  *mount.Prober
	// Tree returns the directories of the volume for nodes. Helper is the command line of a child
	// that runs this program and calls [HelperMain]. The child creates the tree, because calls on
	// the volume may hang.
	Tree   func(nodes []string) layout.Tree
	Helper []string
	// Lead returns an error if this node may no longer make changes. It is called before each
	// change. It may be nil: changes are always allowed.
	Lead func(ctx context.Context) error

	// RetryFor is how long a step is repeated after temporary refusals. 0 means 200 s, a little
	// longer than glusterd keeps the lock of a lost peer.
	RetryFor time.Duration
	// HealFor is how long healing may make no progress. 0 means 30 min.
	HealFor time.Duration
	// Clock returns the time and waits. It may be nil: [SystemClock].
	Clock Clock
}

// Controller observes and changes one volume from one node. Several goroutines may call Observe.
// Only one plan may be applied at a time.
type Controller struct {
	cfg      Config
	client   *cli.Client
	applying sync.Mutex
}

// New creates a controller.
func New(cfg Config) *Controller {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Machine == nil {
		cfg.Machine = ThisMachine{}
	}
	if cfg.Clock == nil {
		cfg.Clock = SystemClock{}
	}

	cfg.RetryFor = cmp.Or(cfg.RetryFor, 200*time.Second)
	cfg.HealFor = cmp.Or(cfg.HealFor, 30*time.Minute)
	client := &cli.Client{Runner: cfg.Runner} // if Runner is nil, the client chooses a default itself
	cfg.Runner = cmp.Or[command.Runner](cfg.Runner, command.Exec{})
	return &Controller{cfg: cfg, client: client}
}

// Plan calls [NewPlan].
func (c *Controller) Plan(obs *Observation, d Desired) Plan { return NewPlan(obs, d) }

// Probe adds a machine to the pool. If the machine is a member already, that is no error. If the
// machine does not answer, Probe does not pass it to glusterd, because glusterd would wait two
// minutes for it.
func (c *Controller) Probe(ctx context.Context, m Member) error {
	if err := c.cfg.Machine.Dial(ctx, m.Address); err != nil {
		return fmt.Errorf("reach glusterd of %s: %w", m.Name, err)
	}
	return c.client.Change(ctx, "peer", "probe", m.Name)
}

// StartHeal asks the self-heal daemons to look for entries to heal now.
func (c *Controller) StartHeal(ctx context.Context, volume string) error {
	return c.client.Change(ctx, "volume", "heal", volume)
}

// HealEntries returns the entries to heal on each brick.
func (c *Controller) HealEntries(ctx context.Context, volume string) ([]cli.Heal, error) {
	return c.client.HealEntries(ctx, volume)
}

var errNoHelper = errors.New("no helper is configured")
