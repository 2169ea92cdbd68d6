package vip

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	"github.com/coreos/go-systemd/v22/util"

	"saltern/supervisor/systemd"
)

// unit is the name of systemd's service for keepalived. The service reads the configuration in
// unitDir.
const (
	unit    = "saltern-vip.service"
	unitDir = "/run/saltern/vip"
)

const (
	jobTakes = 30 * time.Second
)

// hasUnit reports whether systemd has the unit and the unit is for this node.
func (d *Daemon) hasUnit(ctx context.Context) bool {
	if d.Dir != unitDir || !util.IsRunningSystemd() {
		return false
	}
	v, err := property(ctx, "LoadState")
	return err == nil && v == "loaded"
}

func property(ctx context.Context, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, jobTakes)
	defer cancel()
	c, err := dbus.NewSystemConnectionContext(ctx)
	if err != nil {
		return "", fmt.Errorf("reach systemd: %w", err)
	}
	defer c.Close()
	p, err := c.GetUnitPropertyContext(ctx, unit, name)
	if err != nil {
		return "", fmt.Errorf("ask systemd for %s: %w", unit, err)
	}
	s, _ := p.Value.Value().(string)
	return s, nil
}

func reloadUnit(ctx context.Context) error {
	return systemd.Job(ctx, jobTakes, "reload "+unit,
		func(ctx context.Context, c *dbus.Conn, r chan<- string) (int, error) {
			return c.ReloadOrRestartUnitContext(ctx, unit, "replace", r)
		})
}

// runUnit starts the unit. If an earlier life has started the unit, runUnit reloads its
// configuration. When ctx ends, runUnit stops the unit.
func (d *Daemon) runUnit(ctx context.Context, started func(pid int)) error {
	d.mu.Lock()
	d.unit = true
	d.mu.Unlock()

	defer func() {
		d.mu.Lock()
		d.unit = false
		d.mu.Unlock()
	}()

	if err := reloadUnit(ctx); err != nil {
		if ctx.Err() != nil {
			return stopUnit(ctx)
		}
		return err
	}

	started(0)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()

	for {
		select {
		case <-ctx.Done():
			return stopUnit(ctx)
		case <-tick.C:
		}

		state, err := property(ctx, "ActiveState")
		if err == nil && (state == "inactive" || state == "failed") {
			return errors.New(unit + " is " + state + "; journalctl -u " + unit)
		}
	}
}

func stopUnit(ctx context.Context) error {
	return systemd.Stop(context.WithoutCancel(ctx), jobTakes, unit)
}
