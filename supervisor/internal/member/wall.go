package member

import (
	"context"
	"sync/atomic"
	"time"

	"saltern/pause"
	"saltern/supervisor/firewall"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/nodes"
)

// wall lets the nodes of the table through a firewall of ours, on a host where this
// process may change it. On the image it may not; a service of systemd does it there.
type wall struct {
	cfg    Config
	keeper *nodes.Keeper
	done   atomic.Uint64 // the version of the table that it was filled with
	worker service.Worker
}

// again is the pause after the firewall could not be changed.
const again = 10 * time.Second

// reconcile is called again and again, by one goroutine.
func (w *wall) reconcile(ctx context.Context) {
	if w.keeper.Table().Version == w.done.Load() {
		return
	}
	w.worker.Start(func() {
		if t := w.keeper.Table(); w.fill(ctx, t) {
			w.done.Store(t.Version)
			return
		}
		_ = pause.For(ctx, again)
	})
}

// fill reports whether nothing is left to do for a table.
func (w *wall) fill(ctx context.Context, t nodes.Table) bool {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if !firewall.There(ctx) {
		return ctx.Err() == nil
	}
	peers, err := firewall.Peers(t)
	if err == nil {
		err = firewall.Apply(ctx, peers)
	}
	if err != nil {
		w.cfg.Log.Error("other nodes may be shut out by the firewall", "error", err)
	}
	return err == nil
}
