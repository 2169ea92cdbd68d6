package renderer

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"saltern/master/internal/gitpillar"
	"saltern/master/internal/pyfork"
	"saltern/master/value"
)

//go:embed worker.py
var workerScript string

//go:embed reads.py
var readsScript string

//go:embed jinjacode.py
var jinjaCodeScript string

//go:embed yamltext.py
var yamlTextScript string

//go:embed quicksalt.py
var quickSaltScript string

//go:embed confine.py
var confineScript string

//go:embed reactions.py
var reactionsScript string

// nursery is a running Python process that forks workers.
type nursery struct {
	*pyfork.Parent
	layer    string // directory of packages that the nursery uses
	workers  atomic.Int64
	lastUsed atomic.Int64
}

// startNursery starts the given Python and waits until it has imported Salt.
func startNursery(ctx context.Context, cfg *Config, python string) (*nursery, error) {
	layer := cfg.Layer()
	env := cfg.Env
	if env == nil {
		env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "LANG=C.UTF-8", "LC_ALL=C.UTF-8"}
	}

	p, err := pyfork.Start(ctx, pyfork.Config{
		Python:  python,
		Program: pyfork.Prelude + readsScript + jinjaCodeScript + yamlTextScript + quickSaltScript + confineScript + reactionsScript + gitpillar.Python + workerScript,
		Settings: value.NewMap("config_file", cfg.ConfigFile, "overrides", cfg.Overrides.Clone(),
			"layer", layer, "memory_limit", cfg.MemoryLimit, "max_frame", cfg.MaxMessage, "log_level", 30,
			"confined", cfg.Confined),
		Env:          env,
		StartTimeout: cfg.StartTimeout,
		Nice:         cfg.Nice,
		Name:         "renderer",
		Log:          cfg.Log,
	})
	if errors.Is(err, pyfork.ErrCut) {
		err = fmt.Errorf("%w: %w", errStart, err)
	}

	if err != nil {
		return nil, err
	}

	n := &nursery{Parent: p, layer: layer}
	n.lastUsed.Store(time.Now().UnixNano())
	return n, nil
}

// sendOrder sends the nursery an order about a worker. file is the worker's socket. It may be nil:
// the order passes no socket.
func (n *nursery) sendOrder(op string, worker int64, file *os.File) error {
	if err := n.Order(value.NewMap("op", op, "worker", worker), file); err != nil {
		return fmt.Errorf("%s a renderer: %w", op, err)
	}
	return nil
}
