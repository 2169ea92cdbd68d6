package mastersvc

import (
	"context"
	"errors"
	"sync"
	"time"

	"saltern/internal/durable"
	"saltern/internal/pause"
	"saltern/supervisor/internal/child"
	"saltern/supervisor/layout"
	"saltern/supervisor/python"
)

// Packages keeps the Python packages of this node equal to those of the cluster.
type Packages struct {
	env child.Env

	mu    sync.Mutex
	fault string
}

// NewPackages returns the Python packages of a node.
func NewPackages(env child.Env) *Packages { return &Packages{env: env} }

// Run watches the list of packages until ctx ends, and renews the layer when the list changes.
func (p *Packages) Run(ctx context.Context) {
	seen, at := "", time.Time{}
	for {
		place, list := layout.Packages(p.env.Settings), python.ListFile(p.env.Settings.PythonDir())
		mark := layout.Signature(list)
		// Once an hour, ask Python whether it is still the same version.
		wait := time.Hour
		if p.Fault() != "" {
			wait = time.Minute
		}

		if mark != seen || p.env.Now().Sub(at) >= wait {
			err := durable.RetryStale(time.Second, func() error { return place.Renew(ctx) })
			if ctx.Err() != nil {
				return
			}

			seen, at = mark, p.env.Now()
			if errors.Is(err, python.ErrIncomplete) {
				seen = "" // the copy may still be arriving, file by file: look again soon
			}

			p.setFault(err)
		}

		// Looking every two seconds is cheap, because the list is a file on this node's disk.
		if pause.About(ctx, 2*time.Second) != nil {
			return
		}
	}
}

func (p *Packages) setFault(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}

	p.mu.Lock()
	before := p.fault
	p.fault = text
	p.mu.Unlock()

	switch {
	case text == before:
	case text == "":
		p.env.Log.Info("the Python packages are in service")
	default:
		p.env.Log.Warn("the Python packages are not in service", "error", err)
	}
}

// Fault returns why the packages are not in use, or "" if they are in use.
func (p *Packages) Fault() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault
}
