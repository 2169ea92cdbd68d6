package master

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"saltern/master/event"
	"saltern/master/history/summary"
	"saltern/master/internal/newest"
	"saltern/master/runner"
	"saltern/master/value"
)

// openNewest creates the service that brings the files of this node up to date.
func (m *Master) openNewest() {
	cfg := newest.Config{Fire: m.fire, Node: cmp.Or(m.cfg.Node, m.cfg.ID), Now: time.Now, Log: m.log}
	if m.cfg.Door != "" {
		cfg.Ask = machines(m.cfg).Newest
	}
	m.newest = newest.New(cfg)
}

// publish sends a job of this master or of a peer to the minions that subscribe here.
func (m *Master) publish(ctx context.Context, load *value.Map, minions []string) error {
	fun := summary.FunctionOf(load)
	m.newest.JobBegan(fun)
	if m.revisions != nil && summary.RunsStates(fun) {
		m.revisions.Started()
	}
	return m.publisher.Publish(ctx, load, minions)
}

// newestForRunners brings the files of this node up to date for a runner or a wheel function. For a
// call by a person it updates the files to their state now, for a call by a minion to their state
// at the start of the minion's job. For reactions and the schedule, which may call functions very
// often, the files may be a little older. If the files cannot be updated, the function uses the old
// files, and the log and an event of the runner report that.
func (m *Master) newestForRunners(ctx context.Context) {
	order := runner.OrderOf(ctx)
	since := m.newest.Since(order.Minion)
	if order.JID != "" && order.Minion == "" && !order.Person {
		since = m.newest.Lately()
	}

	old := m.newest.Await(ctx, since)
	if old != nil && order.JID != "" {
		m.fire(event.Tag("run", order.JID, event.OldFilesOfRun), m.newest.Data(old, order.Minion))
	}
}

// newestEverywhere brings the files of all nodes up to date (for fileserver.update).
func (m *Master) newestEverywhere(ctx context.Context) error {
	if m.cfg.Door == "" {
		return nil
	}

	n, err := machines(m.cfg).NewestEverywhere(ctx)
	if err != nil {
		return fmt.Errorf("ask for the newest files: %w", err)
	}

	var old []string
	if why := cmp.Or(n.Why, n.Except); why != "" {
		old = append(old, "this node: "+why)
	}

	for _, node := range slices.Sorted(maps.Keys(n.Others)) {
		old = append(old, node+": "+n.Others[node])
	}

	if len(old) > 0 {
		return errors.New("minions may be served files of before, because not every node could copy what is new: " + strings.Join(old, "; "))
	}

	return nil
}
