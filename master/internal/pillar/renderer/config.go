package renderer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"time"

	"saltern/master/value"
)

// Errors that callers distinguish.
var (
	// ErrNoSalt means that no Python with Salt's library was found. The text of the error that
	// wraps it lists the programs that were tried.
	ErrNoSalt = errors.New("no Python with the Salt library")
	// ErrNotNeeded means that Minion.Needed returned false.
	ErrNotNeeded = errors.New("the renderer is not needed any more")
	// errStart means that a Python process could not be started now, because memory was short or
	// the process was not ready in time.
	errStart = errors.New("the renderers cannot be started now")
	// errClosed means that the pool is closed.
	errClosed = errors.New("the renderers are stopped")
	// errTimeout means that a request took too long, and that its worker was killed.
	errTimeout = errors.New("rendering took too long")
	// errDied means that the worker of a request died, and the worker of the second try as well.
	errDied = errors.New("the renderer process died")
)

// Config of a Pool. The zero value of a field is its default.
type Config struct {
	Python     []string // interpreters to try (option saltern_renderer_python); empty: pythons
	ConfigFile string   // master configuration file that Salt reads; "": only Overrides
	// Layer returns the current directory of packages, or "" if there is none. When it changes, the
	// processes are replaced. It may be nil: there is no such directory.
	Layer             func() string
	Overrides         *value.Map    // options that replace those in ConfigFile
	Env               []string      // environment of the processes; nil: PATH, HOME and a UTF-8 locale
	MaxWorkers        int           // 0: number of CPUs, at least 2
	WorkerIdle        time.Duration // time without work after which a worker stops; 0: 30 s
	IdleStop          time.Duration // time without work after which the nursery stops; 0: 5 min
	StartTimeout      time.Duration // time for the nursery's start, see pyfork.Config; 0: 60 s
	RequestTimeout    time.Duration // time for one request; 0: 60 s
	MemoryLimit       int64         // address space of a worker in bytes; 0: 2 GiB
	SessionsPerWorker int           // sessions after which a worker is replaced; 0: 1000
	MaxMessage        int           // bytes of one request or reply; 0: 64 MiB
	RetryStart        time.Duration // time after a failed start in which further starts fail at once, see Pool.failedAt; 0: 30 s
	Fresh             bool          // render each template as with Template.Fresh; tests compare with it
	Nice              int           // how much less than this process the processes count for the scheduler, 0 to 19
	// Confined means that workers render by Session.Confined only, and cannot start programs, open
	// sockets or change files, see confine.py.
	Confined bool
	Log      *slog.Logger // nil: no log
}

// Unable reports whether err means that this master cannot render now. If so, a later try or
// another master may succeed. If not, the template or a module is at fault.
func Unable(err error) bool {
	for _, cause := range []error{errStart, errClosed, errTimeout, errDied, context.Canceled,
		context.DeadlineExceeded} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return false
}

// pythons lists the interpreters to try if none is configured: the Python of Salt's own packages,
// then the system's Python.
var pythons = []string{"/opt/saltstack/salt/bin/python3", "python3"}

func (c *Config) setDefaults() {
	setDefault(&c.MaxWorkers, max(2, runtime.NumCPU()))
	setDefault(&c.WorkerIdle, 30*time.Second)
	setDefault(&c.IdleStop, 5*time.Minute)
	setDefault(&c.StartTimeout, time.Minute)
	setDefault(&c.RequestTimeout, time.Minute)
	setDefault(&c.MemoryLimit, 2<<30)
	setDefault(&c.SessionsPerWorker, 1000)
	setDefault(&c.MaxMessage, 64<<20)
	setDefault(&c.RetryStart, 30*time.Second)

	if len(c.Python) == 0 {
		c.Python = pythons
	}

	if c.Layer == nil {
		c.Layer = func() string { return "" }
	}

	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
}

func setDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}
