package peers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"saltern/master/internal/batch"
	"saltern/test/check"
)

const orderedBatch = "20261129055906639594"

// sharedFolder returns a folder that masters share.
func sharedFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	check.Must(t, os.WriteFile(filepath.Join(dir, clusterKey), nil, 0o600))
	return dir
}

// TestStopOrders: an order reaches the master that it is for, once, and counts when its maker is told so.
func TestStopOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := sharedFolder(t)
		of := func(id string) *StopOrders {
			return NewStopOrders(shared, othersOf(id, newTestBus(), []string{"c1", "c2", "c3"}))
		}
		asked, owner, third := of("c1"), of("c2"), of("c3")
		left := func(o *StopOrders) bool {
			t.Helper()
			is, err := o.Left(t.Context(), orderedBatch, "c2")
			check.Must(t, err)
			return is
		}
		mine := func(o *StopOrders) []string {
			t.Helper()
			jids, err := o.Mine(t.Context())
			check.Must(t, err)
			return jids
		}
		if left(third) || len(mine(owner)) > 0 {
			t.Error("there is an order that nobody left")
		}

		for _, want := range []bool{true, false} {
			began := time.Now()
			isNew, err := asked.Leave(t.Context(), orderedBatch, "c2")
			if took := time.Since(began); isNew != want || err != nil || took < batch.OrdersKnownFor {
				t.Errorf("new %t, %v, after %s", isNew, err, took)
			}
		}
		if !left(third) || !slices.Equal(mine(owner), []string{orderedBatch}) || len(mine(third)) > 0 {
			t.Error("the order is not there, or is another master's")
		}
		for range 2 {
			check.Must(t, owner.Remove(t.Context(), []string{orderedBatch}))
		}
		if left(third) || len(mine(owner)) > 0 {
			t.Error("the order is still there")
		}

		for _, jid := range []string{"", "..", "../../x", "20261129055906639594/x"} {
			if _, err := asked.Leave(t.Context(), jid, "c2"); err == nil {
				t.Errorf("an order for %q", jid)
			}
		}
		if _, err := asked.Leave(t.Context(), orderedBatch, "../../c2"); err != nil { // a name that becomes no path
			t.Error(err)
		}
	})
}

// TestOrderIsObeyedAtOnce: whoever leaves an order for a master that runs does not wait longer than that needs.
func TestOrderIsObeyedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := sharedFolder(t)
		asked := NewStopOrders(shared, othersOf("c1", newTestBus(), nil))
		owner := NewStopOrders(shared, othersOf("c2", newTestBus(), nil))
		go func() {
			time.Sleep(time.Second)
			_ = owner.Remove(t.Context(), []string{orderedBatch})
		}()
		began := time.Now()
		isNew, err := asked.Leave(t.Context(), orderedBatch, "c2")
		if took := time.Since(began); !isNew || err != nil || took > 2*time.Second {
			t.Errorf("%t, %v, after %s", isNew, err, took)
		}
	})
}

// TestOrdersThatCannotBeLeft: a folder that is away, hangs or is full loses no order that was acknowledged.
func TestOrdersThatCannotBeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewStopOrders(t.TempDir(), othersOf("c1", newTestBus(), nil)) // the folder below a volume that is not mounted
		if _, err := o.Mine(t.Context()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a folder that is away: %v", err)
		}
		if isNew, err := o.Leave(t.Context(), orderedBatch, "c2"); isNew || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a folder that is away: %t, %v", isNew, err)
		}

		o = NewStopOrders(sharedFolder(t), othersOf("c1", newTestBus(), nil))
		dir := o.folderOf("c2")
		check.Must(t, os.MkdirAll(dir, 0o700))
		for i := range maxOrders {
			check.Must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("2026112905590663%04d", i)), nil, 0o600))
		}
		if _, err := o.Leave(t.Context(), orderedBatch, "c2"); err == nil {
			t.Error("there is no bound")
		}

		left, leave := context.WithCancel(t.Context())
		leave()
		if isNew, err := o.Leave(left, orderedBatch, "c3"); isNew || err == nil {
			t.Errorf("a caller who has left: %t, %v", isNew, err)
		}

		o.disk <- struct{}{} // the file system hangs
		for what, ask := range map[string]func() error{
			"leave":  func() error { _, err := o.Leave(t.Context(), orderedBatch, "c2"); return err },
			"left":   func() error { _, err := o.Left(t.Context(), orderedBatch, "c2"); return err },
			"mine":   func() error { _, err := o.Mine(t.Context()); return err },
			"remove": func() error { return o.Remove(t.Context(), []string{orderedBatch}) },
		} {
			bound := ordersWait
			if what == "mine" {
				bound = lookWait
			}
			began := time.Now()
			if err := ask(); !errors.Is(err, errOrdersSilent) || time.Since(began) > bound {
				t.Errorf("%s: %v after %s", what, err, time.Since(began))
			}
		}
	})
}

// TestFolderOfOrdersIsThereBeforeThem: a master that looks makes its folder, for which its NFS client then asks again.
func TestFolderOfOrdersIsThereBeforeThem(t *testing.T) {
	o := NewStopOrders(sharedFolder(t), othersOf("c1", newTestBus(), nil))
	if jids, err := o.Mine(t.Context()); len(jids) > 0 || err != nil {
		t.Errorf("%v, %v", jids, err)
	}
	if _, err := os.Stat(o.folderOf("c1")); err != nil {
		t.Error(err)
	}
}

// TestYoungOrderDoesNotCount: a page says that a batch is stopped when its master cannot go on with it any more.
func TestYoungOrderDoesNotCount(t *testing.T) {
	o := NewStopOrders(sharedFolder(t), othersOf("c1", newTestBus(), nil))
	path := filepath.Join(o.folderOf("c2"), orderedBatch)
	_, err := addOrder(path, "")
	check.Must(t, err)
	for age, want := range map[time.Duration]bool{0: false, 2 * orderCountsAfter: true, -time.Hour: true} {
		at := time.Now().Add(-age)
		check.Must(t, os.Chtimes(path, at, at))
		if left, err := o.Left(t.Context(), orderedBatch, "c2"); left != want || err != nil {
			t.Errorf("after %s: %t, %v", age, left, err)
		}
	}
}
