package batch

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"saltern/master/value"
	"saltern/test/check"
)

// fakeOrders are the orders for one master.
type fakeOrders struct {
	jids    []string
	err     error
	cut     bool // another master is not connected
	removed []string
}

func (o *fakeOrders) Mine(context.Context) ([]string, error) { return slices.Clone(o.jids), o.err }
func (o *fakeOrders) Reachable() bool                        { return !o.cut }
func (o *fakeOrders) Remove(_ context.Context, jids []string) error {
	o.removed = append(o.removed, jids...)
	o.jids = nil
	return nil
}

// ofUser begins a batch of a user, one minion at a time. The first one has returned when ofUser returns.
func (w *world) ofUser() {
	w.t.Helper()
	own := Own{
		JID:     jid,
		User:    "ann",
		Fun:     "test.arg",
		Arg:     []any{"x", value.NewMap("__kwarg__", true, "k", "v")},
		Timeout: time.Hour,
	}
	check.Must(w.t, w.m.begin(w.ctx, beginning{own: own, state: New([]string{"a", "b", "c"}, 1)}))
	w.ret("a", 0)
}

// look is one look for orders.
func (w *world) look(o *fakeOrders) {
	jids, err := o.Mine(w.ctx)
	_ = o.Remove(w.ctx, w.m.obey(w.ctx, orderLook{began: w.m.cfg.Now(), jids: jids, err: err}))
}

// TestBatchesWaitForOrders: a batch goes on only while its master knows what others have ordered. The first minion
// of a new batch waits for nothing.
func TestBatchesWaitForOrders(t *testing.T) {
	broken := errors.New("the volume is away")
	for _, c := range []struct {
		name   string
		orders *fakeOrders // nil: there are no other masters
		looks  bool
		later  time.Duration // how long after that a minion returns
		freeze bool          // the master freezes when it has written that the next minion gets the job
		want   string        // further minions that get the job
	}{
		{name: "no other masters", want: "b"},
		{name: "no look", orders: &fakeOrders{}},
		{name: "no order", orders: &fakeOrders{}, looks: true, later: OrdersKnownFor - time.Second, want: "b"},
		{name: "an order for another batch", orders: &fakeOrders{jids: []string{"20261123000000000009"}}, looks: true, want: "b"},
		{name: "an old look", orders: &fakeOrders{}, looks: true, later: OrdersKnownFor},
		{name: "a freeze before the next minion", orders: &fakeOrders{}, looks: true, freeze: true},
		{name: "a clock that was set back", orders: &fakeOrders{}, looks: true, later: -time.Hour},
		{name: "a folder that is away", orders: &fakeOrders{err: broken}, looks: true, want: "b"},
		{name: "a folder and a master that are away", orders: &fakeOrders{err: broken, cut: true}, looks: true},
		{name: "a folder that was away long ago", orders: &fakeOrders{err: broken}, looks: true, later: time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			if c.orders != nil {
				w.m.cfg.Orders = c.orders
			}
			if c.looks {
				w.look(c.orders)
			}
			w.now = w.now.Add(c.later)
			w.m.cfg.Now = func() time.Time {
				kept, err := w.m.readState(jid)
				if c.freeze && err == nil && kept.Map("active").Value("b") != nil {
					return w.now.Add(OrdersKnownFor)
				}
				return w.now
			}
			w.ofUser()
			if got := strings.Join(w.published, " "); got != strings.TrimSpace("a "+c.want) {
				t.Errorf("published to %s, want a %s", got, c.want)
			}
		})
	}
}

// TestBatchesWaitAfterGoodLook: a look that failed says nothing once a later one has succeeded.
func TestBatchesWaitAfterGoodLook(t *testing.T) {
	orders := &fakeOrders{err: errors.New("the volume is away")}
	w := newWorld(t)
	w.m.cfg.Orders = orders
	w.look(orders)
	orders.err = nil
	w.now = w.now.Add(lookForOrders)
	w.look(orders)
	w.now = w.now.Add(2 * OrdersKnownFor)
	w.ofUser()
	w.want("a", "progress progress")
}

// TestOrdersAreObeyed: an order that was left stops the batch before its next minion, also after a restart. It is
// removed when the batch stays stopped, and a repeat changes nothing.
func TestOrdersAreObeyed(t *testing.T) {
	orders := &fakeOrders{}
	w := newWorld(t)
	w.m.cfg.Orders = orders
	w.ofUser()
	w.want("a", "progress progress")

	w.again() // the master was killed
	w.m.cfg.Orders = orders
	check.Must(t, w.m.adoptBatch(t.Context(), jid, true))
	w.m.giveUpLate(t.Context())
	w.want("", "")

	for _, fired := range []string{"halted", ""} {
		orders.jids = []string{jid}
		orders.removed = nil
		w.look(orders)
		if !slices.Equal(orders.removed, []string{jid}) {
			t.Errorf("removed %v", orders.removed)
		}
		w.want("", fired)
	}
	if kept, err := w.m.readState(jid); err != nil || kept.Str("halted_reason") != "stop" {
		t.Errorf("%v, %v", kept, err)
	}
}

// TestOrderThatCannotBeObeyed: an order stays until the batch stays stopped.
func TestOrderThatCannotBeObeyed(t *testing.T) {
	orders := &fakeOrders{jids: []string{jid}}
	w := newWorld(t)
	w.m.cfg.Orders = orders
	w.ofUser()
	w.m.cfg.HashType = "none that is known" // as if the disk took nothing
	w.look(orders)
	if len(orders.removed) > 0 {
		t.Errorf("removed %v", orders.removed)
	}
	w.want("a", "progress progress halted")

	tries := w.m.disobeyed[jid]
	orders.jids = []string{jid}
	w.now = w.now.Add(lookForOrders)
	w.look(orders)
	if !w.m.disobeyed[jid].Equal(tries) {
		t.Error("the order was tried again at once")
	}
	w.now = w.now.Add(obeyAgainAfter)
	orders.jids = []string{jid}
	w.look(orders)
	if w.m.disobeyed[jid].Equal(tries) {
		t.Error("the order was not tried again")
	}
}

// TestManagerLooksForOrders: the Manager looks by itself, and ends while it does.
func TestManagerLooksForOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		orders := &fakeOrders{jids: []string{jid}}
		w := newWorld(t)
		w.m.cfg.Orders = orders
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { w.m.Run(ctx, nil); close(ended) }()
		time.Sleep(lookForOrders)
		synctest.Wait()
		if !slices.Equal(orders.removed, []string{jid}) {
			t.Errorf("removed %v", orders.removed)
		}
		stop()
		<-ended
	})
}
