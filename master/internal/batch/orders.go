package batch

import (
	"context"
	"maps"
	"slices"
	"time"
)

// Orders are orders to stop batches that other masters have left for this one while it did not answer.
type Orders interface {
	// Mine returns the job ids of the batches that this master must stop. The error says that they are not known.
	Mine(ctx context.Context) (jids []string, err error)
	// Remove removes orders that are obeyed.
	Remove(ctx context.Context, jids []string) error
	// Reachable reports whether all other masters are connected, so that they can ask this one to stop a batch.
	Reachable() bool
}

const (
	// lookForOrders is how often the Manager looks for orders.
	lookForOrders = 2 * time.Second
	// OrdersKnownFor is how long the Manager acts on what it saw at a look. Whoever has left an order may rely on
	// it after this time.
	OrdersKnownFor = 5 * time.Second
	// failedLookFor is how long a look that failed counts as one that fails: each may take a while.
	failedLookFor = 30 * time.Second
	// obeyAgainAfter is how long an order waits that could not be obeyed.
	obeyAgainAfter = time.Minute
)

// orderLook holds the orders that a look has found.
type orderLook struct {
	began  time.Time
	jids   []string
	err    error
	obeyed chan []string // the orders that may be removed
}

// followOrders looks for orders until ctx ends.
func (m *Manager) followOrders(ctx context.Context) {
	tick := time.NewTicker(lookForOrders)
	defer tick.Stop()
	logged := "" // why orders could not be removed
	for {
		look := orderLook{began: m.cfg.Now(), obeyed: make(chan []string, 1)}
		look.jids, look.err = m.cfg.Orders.Mine(ctx)
		select {
		case m.looks <- look:
		case <-ctx.Done():
			return
		}

		if obeyed := <-look.obeyed; len(obeyed) > 0 { // Run has taken the look, and always answers
			if err := m.cfg.Orders.Remove(ctx, obeyed); err != nil && err.Error() != logged {
				logged = err.Error()
				m.cfg.Log.Warn("orders to stop batches are obeyed and stay in the shared folder", "jids", obeyed, "error", err)
			}
		}

		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// obey stops the batches that other masters have ordered to stop, and lets the others go on. It returns the orders
// that may be removed.
func (m *Manager) obey(ctx context.Context, look orderLook) (obeyed []string) {
	if look.err != nil {
		m.failedLook = look.began
		return nil
	}

	maps.DeleteFunc(m.disobeyed, func(jid string, _ time.Time) bool { return !slices.Contains(look.jids, jid) })
	for _, jid := range look.jids {
		isUnderWay := m.batches[jid] != nil
		if !isUnderWay && isSince(m.cfg.Now(), m.disobeyed[jid], obeyAgainAfter) {
			continue
		}

		result := m.stopNow(ctx, jid)
		if result.err != nil {
			m.disobeyed[jid] = m.cfg.Now()
			m.cfg.Log.Error("a batch is not stopped as another master has ordered", "jid", jid, "error", result.err)
			continue
		}
		if result.stopped {
			m.cfg.Log.Info("a batch is stopped as another master has ordered", "jid", jid)
		}
		delete(m.disobeyed, jid)
		obeyed = append(obeyed, jid)
	}

	m.goodLook = look.began
	if m.heldBack {
		m.heldBack = false
		m.cfg.Log.Info("batches go on: orders to stop them are known")
	}
	return obeyed
}

// mayGoOn reports whether no order to stop a batch of a user can be unknown: the last look for orders is not older than
// OrdersKnownFor. If the shared folder does not answer, orders come from the other masters alone, which must all be
// connected then.
func (m *Manager) mayGoOn(b *driven) bool {
	if m.cfg.Orders == nil || !b.kept.Bool(ownKey) || b.callerWaits {
		return true
	}

	now := m.cfg.Now()
	if isSince(now, m.goodLook, OrdersKnownFor) {
		return true
	}
	isSilent := m.failedLook.After(m.goodLook) && isSince(now, m.failedLook, failedLookFor)
	if isSilent && m.cfg.Orders.Reachable() {
		return true
	}
	isStart := m.goodLook.IsZero() && m.failedLook.IsZero() // the first look is on its way
	if !m.heldBack && !isStart {
		m.heldBack = true
		m.cfg.Log.Warn("batches wait: another master may have ordered to stop them, but the shared folder has not been read")
	}
	return false
}

// isSince reports whether less than span has passed since a time, by the clock of the wall and by that which nobody
// sets. The one stands still while the machine sleeps, the other one may be set.
func isSince(now, since time.Time, span time.Duration) bool {
	if since.IsZero() {
		return false
	}
	byWall := now.Round(0).Sub(since.Round(0))
	return now.Sub(since) < span && byWall > -span && byWall < span
}
