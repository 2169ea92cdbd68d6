package member

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"saltern/internal/pause"
	"saltern/supervisor/firewall"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/nodes"
	"saltern/supervisor/status"
)

// firewallSync lets the nodes of the table through a firewall of ours, on a host where this
// process may change it. On the image it may not; a service of systemd does it there.
type firewallSync struct {
	env    Env
	keeper *nodes.Keeper
	done   atomic.Uint64 // the version of the table that it was filled with
	seen   atomic.Bool   // there was a firewall of ours in this life
	gone   atomic.Bool   // and there is none any more
	looked time.Time     // when the last look began; reconcile's alone
	worker service.Worker
}

// again is the pause after the firewall could not be changed.
const again = 10 * time.Second

// reconcile is called again and again, by one goroutine.
func (w *firewallSync) reconcile(ctx context.Context) {
	filled := w.keeper.Table().Version == w.done.Load()
	// Somebody may have flushed the sets, or loaded the rules again.
	if filled && time.Since(w.looked) < time.Minute {
		return
	}
	w.looked = time.Now()
	w.worker.Start(func() {
		if t := w.keeper.Table(); w.syncPeers(ctx, t) {
			w.done.Store(t.Version)
			return
		}
		_ = pause.For(ctx, again)
	})
}

// syncPeers reports whether nothing is left to do for a table.
func (w *firewallSync) syncPeers(ctx context.Context, t nodes.Table) bool {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	there := firewall.There(ctx)
	if !there && w.seen.Load() {
		if _, err := firewall.Rules(ctx); !errors.Is(err, firewall.ErrNoTable) {
			return false // whatever keeps nft from telling: the table may be there
		}
	}

	if ctx.Err() != nil {
		return false
	}

	w.gone.Store(!there && w.seen.Load())
	if !there {
		return true
	}

	w.seen.Store(true)

	peers, err := firewall.Peers(t)
	if err == nil {
		err = firewall.Apply(ctx, peers)
	}

	if err != nil {
		w.env.Log.Error("other nodes may be shut out by the firewall", "error", err)
	}

	return err == nil
}

// findings reports that a firewall of ours was taken away.
func (w *firewallSync) findings() []status.Finding {
	if !w.gone.Load() {
		return nil
	}
	return []status.Finding{{Code: status.FirewallWrong, Cause: firewall.ErrNoTable.Error() + " any more"}}
}
