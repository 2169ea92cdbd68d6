package pyhost

import (
	"cmp"
	"errors"
	"log/slog"
	"runtime"
	"time"

	"saltern/internal/command"
)

// ErrNoSalt means that no Python with Salt's library was found. The text of the error that wraps it
// lists the interpreters that were tried.
var ErrNoSalt = errors.New("no Python with Salt's library was found")

var (
	errClosed = errors.New("the master is stopping")
	// errSlow means that a worker did not begin its task in time and was killed.
	errSlow = errors.New("it did not load Salt within two minutes; look whether the disks of the configuration and of Salt's library answer")
)

// Defaults and bounds of a host.
const (
	// workersPerCPU and leastWorkers determine the default of Config.MaxWorkers. There are many
	// workers for each CPU, because most tasks wait for minions or for a service on the network.
	workersPerCPU = 16
	leastWorkers  = 32
	// computingPerCPU and one more determine the default of Config.MaxComputing: enough that no
	// processor is idle while a worker starts or waits for a moment.
	computingPerCPU = 2
	// DefaultMemory is how many bytes of data memory a worker, and each process that its task
	// starts, may use.
	DefaultMemory = 2 << 30
	// leastMemory is how many bytes of data memory Salt's library itself needs.
	leastMemory = 256 << 20
	maxFiles    = 4096
	maxTries    = 5 // how many workers may be forked for one task, one after the other
	maxRequest  = 64 << 20
	maxAnswer   = 31 << 20
	maxWarm     = 1000 // names that a parent loads in advance
	maxName     = 255  // bytes of such a name
	maxOrdered  = 200  // names in one order: with maxName, they fit into one message to the parent
)

// Config of a Host. The zero value of a field is its default.
type Config struct {
	Pythons []string // interpreters in the order in which to try them: paths, or names in PATH
	// Program is the Python source that defines the functions which host.py calls: load, work, pack
	// and unpack.
	Program string
	// Layer returns the current directory of packages, or "" if there is none. When it changes, the
	// parent is replaced. It may be nil: there is no such directory.
	Layer      func() string
	Env        []string // environment of the processes; nil: [command.PythonEnviron]
	MaxWorkers int      // workers that run at the same time; 0: 16 for each CPU, at least 32
	// MaxComputing is how many of the workers may compute at the same time; workers that only wait
	// do not count. 0: 2 for each CPU and one more.
	MaxComputing int
	Memory       int64         // bytes of data memory that a process may use; 0: DefaultMemory
	Idle         time.Duration // time without a task after which the parent stops; 0: 5 min
	Log          *slog.Logger
}

func (c *Config) setDefaults() {
	if c.MaxWorkers <= 0 {
		c.MaxWorkers = max(leastWorkers, workersPerCPU*runtime.NumCPU())
	}

	if c.MaxComputing <= 0 {
		c.MaxComputing = computingPerCPU*runtime.NumCPU() + 1
	}
	c.MaxComputing = min(c.MaxComputing, c.MaxWorkers)

	if c.Memory <= 0 {
		c.Memory = DefaultMemory
	}

	c.Memory = max(c.Memory, leastMemory)
	c.Idle = cmp.Or(c.Idle, 5*time.Minute)
	if c.Layer == nil {
		c.Layer = func() string { return "" }
	}

	if c.Env == nil {
		c.Env = append(command.PythonEnviron(), "LC_ALL=C.UTF-8")
	}

	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
}
