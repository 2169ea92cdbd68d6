package pyrunner

import (
	_ "embed"
	"log/slog"
	"time"

	"saltern/master/internal/gitpillar"
	"saltern/master/internal/pyhost"
)

//go:embed functions.py
var functions string

//go:embed lean.py
var lean string

//go:embed services.py
var services string

// HostConfig configures the Python processes. If a field is zero, the default of [pyhost.Config]
// applies.
type HostConfig struct {
	Pythons    []string // interpreters in the order in which to try them: paths, or names in PATH
	Layer      string   // link to a folder of packages, see [Layer]; "" for none
	MaxWorkers int
	// MaxComputing is how many workers may compute at once.
	MaxComputing int
	Memory       int64
	Idle         time.Duration
	Log          *slog.Logger
}

// NewHost returns the host that runs the functions of Callers. It starts no Python before the first
// call. The caller must call Close when it no longer needs the host.
func NewHost(cfg HostConfig) *pyhost.Host {
	return pyhost.New(pyhost.Config{
		Pythons:      cfg.Pythons,
		Program:      gitpillar.Python + functions + lean + services,
		Layer:        func() string { return Layer(cfg.Layer) },
		MaxWorkers:   cfg.MaxWorkers,
		MaxComputing: cfg.MaxComputing,
		Memory:       cfg.Memory,
		Idle:         cfg.Idle,
		Log:          cfg.Log,
	})
}
