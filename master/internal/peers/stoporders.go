package peers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"saltern/internal/durable"
	"saltern/master/internal/batch"
	"saltern/master/jobs"
)

const (
	// ordersDir is the folder of the orders, below the folder that all masters share. It has a folder for
	// each master, in which each file is an order, named by the job id.
	ordersDir = "batch-stops"
	// maxOrders bounds the orders for one master. Overflow policy: a further order is refused.
	maxOrders = 1000
	// ordersWait is how long a caller waits for the shared folder.
	ordersWait = 10 * time.Second
	// lookWait is how long a look for orders waits for it. What a slower look finds is too old to act on: it fails
	// instead, as if the folder hung.
	lookWait = batch.OrdersKnownFor - 2*time.Second
	// orderCountsAfter is how long after it was left an order counts, whatever its master has begun on the strength of
	// an older look.
	orderCountsAfter = batch.OrdersKnownFor + time.Second
	// shownOrderWait is how long a page waits for it.
	shownOrderWait = time.Second
	// orderPoll is how often the maker of an order looks whether it is obeyed.
	orderPoll = 500 * time.Millisecond
	// clusterKey is a file that the shared folder always has: without it the volume is not mounted, and nobody
	// else would see an order.
	clusterKey = "cluster.pem"
)

// errOrdersSilent means that the shared folder has not answered in time.
var errOrdersSilent = errors.New("the shared folder does not answer")

// StopOrders keeps orders to stop batches for masters that do not answer, in the folder that all masters share.
// A master looks for orders while it runs batches ([batch.Orders]). It is safe for concurrent use.
type StopOrders struct {
	dir    string
	others Others
	// disk is taken by the one goroutine that works with the folder. If the file system hangs, it hangs
	// alone, and everybody else gets errOrdersSilent.
	disk chan struct{}
}

// NewStopOrders returns StopOrders in a folder that all masters share. It does not access the disk.
func NewStopOrders(shared string, others Others) *StopOrders {
	return &StopOrders{
		dir:    filepath.Join(shared, ordersDir),
		others: others,
		disk:   make(chan struct{}, 1),
	}
}

// folderOf returns the folder of the orders for a master.
func (o *StopOrders) folderOf(master string) string {
	sum := sha256.Sum256([]byte(master))
	return filepath.Join(o.dir, hex.EncodeToString(sum[:16]))
}

// Leave implements runner.StopOrders.
func (o *StopOrders) Leave(ctx context.Context, jid, master string) (added bool, err error) {
	if !jobs.Valid(jid) {
		return false, fmt.Errorf("%.40q is no job id", jid)
	}

	path := filepath.Join(o.folderOf(master), jid)
	err = o.onDisk(ctx, ordersWait, func() error {
		if err := o.checkShared(); err != nil {
			return err
		}
		added, err := addOrder(path, o.others.ID+" orders "+master+" to stop this batch\n")
		if err == nil && !added {
			err = fs.ErrExist
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return false, fmt.Errorf("leave an order for %s in the shared folder: %w", master, err)
	}

	// What the master has begun on the strength of an older look ends meanwhile.
	if waitErr := o.awaitObeyed(ctx, path); waitErr != nil {
		return false, waitErr
	}
	return err == nil, nil
}

// checkShared returns an error unless the folder that all masters share is there.
func (o *StopOrders) checkShared() error {
	_, err := os.Stat(filepath.Join(filepath.Dir(o.dir), clusterKey))
	return err
}

// addOrder writes an order unless it is there. It returns when the order is durable.
func addOrder(path, text string) (added bool, err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, err
	}
	if _, err := os.Lstat(path); err == nil {
		return false, nil
	}

	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	if len(entries) >= maxOrders {
		return false, fmt.Errorf("%d orders wait for it: start it, or remove the files in %s if it will never run again",
			len(entries), dir)
	}

	orders := filepath.Dir(dir)
	return true, errors.Join(
		durable.Replace(path, []byte(text), 0o600),
		durable.SyncDir(orders),
		durable.SyncDir(filepath.Dir(orders)),
	)
}

// awaitObeyed waits until a master that runs has seen the order: until it has removed it, or for as long as the
// master acts on what it saw before.
func (o *StopOrders) awaitObeyed(ctx context.Context, path string) error {
	until := time.NewTimer(orderCountsAfter)
	defer until.Stop()
	poll := time.NewTicker(orderPoll)
	defer poll.Stop()
	for {
		select {
		case <-until.C:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("wait until the order to stop a batch counts; it is kept: %w", ctx.Err())
		case <-poll.C:
		}

		err := o.onDisk(ctx, shownOrderWait, func() error {
			_, err := os.Lstat(path)
			return err
		})
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
}

// Left implements runner.StopOrders.
func (o *StopOrders) Left(ctx context.Context, jid, master string) (bool, error) {
	if !jobs.Valid(jid) {
		return false, nil
	}

	var leftAt time.Time
	err := o.onDisk(ctx, shownOrderWait, func() error {
		info, err := os.Lstat(filepath.Join(o.folderOf(master), jid))
		if err == nil {
			leftAt = info.ModTime()
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}

	// The clock of the file server may differ.
	age := time.Since(leftAt)
	isYoung := age < orderCountsAfter && age > -orderCountsAfter
	return !isYoung, nil
}

// Mine implements batch.Orders.
func (o *StopOrders) Mine(ctx context.Context) (jids []string, err error) {
	var found []string
	err = o.onDisk(ctx, lookWait, func() error {
		folder := o.folderOf(o.others.ID)
		entries, err := os.ReadDir(folder)
		for _, entry := range entries {
			if jobs.Valid(entry.Name()) { // others are being written
				found = append(found, entry.Name())
			}
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}

		// An NFS client may remember for a minute that the folder is not there: let it be there before the first order.
		if err := o.checkShared(); err != nil {
			return err
		}
		return os.MkdirAll(folder, 0o700)
	})
	if err != nil {
		return nil, fmt.Errorf("look for orders to stop batches: %w", err)
	}
	return found, nil
}

// Remove implements batch.Orders.
func (o *StopOrders) Remove(ctx context.Context, jids []string) error {
	return o.onDisk(ctx, ordersWait, func() error {
		var errs []error
		for _, jid := range jids {
			if err := os.Remove(filepath.Join(o.folderOf(o.others.ID), jid)); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	})
}

// Reachable implements batch.Orders.
func (o *StopOrders) Reachable() bool {
	for _, connected := range o.others.Peers() {
		if !connected {
			return false
		}
	}
	return true
}

// onDisk calls do, which works with the folder, and waits for it for a bounded time.
func (o *StopOrders) onDisk(ctx context.Context, bound time.Duration, do func() error) error {
	return durable.InTurn(ctx, o.disk, bound, errOrdersSilent, do)
}
