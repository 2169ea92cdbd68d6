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

// firewallSync keeps the addresses of all nodes of the table in the sets of the appliance's
// firewall, on an ordinary host. On the image a systemd service does this, because this process may
// not change the firewall there.
type firewallSync struct {
	env    Env
	keeper *nodes.Keeper
	done   atomic.Uint64 // version of the table that the firewall has
	seen   atomic.Bool   // whether the appliance's firewall has existed in this life
	gone   atomic.Bool   // the firewall was present and has been removed
	looked time.Time     // when the last check began; only reconcile uses it
	worker service.Worker
}

// again is the pause after a failed change of the firewall.
const again = 10 * time.Second

// reconcile starts a check if the table is new or the last check is a minute old. Member.Run calls
// it about once a second.
func (w *firewallSync) reconcile(ctx context.Context) {
	filled := w.keeper.Table().Version == w.done.Load()
	// An administrator may have flushed the sets, or loaded the rules again.
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

// syncPeers fills the firewall's sets from a table. It reports whether the sets are complete.
func (w *firewallSync) syncPeers(ctx context.Context, t nodes.Table) bool {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	there := firewall.There(ctx)
	if !there && w.seen.Load() {
		if _, err := firewall.Rules(ctx); !errors.Is(err, firewall.ErrNoTable) {
			return false // nft failed for another reason: the firewall's table may still be there
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

// findings reports that the appliance's firewall was there and has been removed.
func (w *firewallSync) findings() []status.Finding {
	if !w.gone.Load() {
		return nil
	}
	return []status.Finding{{Code: status.FirewallWrong, Cause: firewall.ErrNoTable.Error() + " any more"}}
}
