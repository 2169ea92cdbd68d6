package nodes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"saltern/internal/durable"
	"saltern/internal/versioned"
	"saltern/supervisor/layout"
)

// File is the name of the table in a node's data directory and on the shared
// storage.
const File = "nodes.json"

// ChangedFile is a file in a node's data directory. It exists if the table there has changed since
// the last [Seen]. Programs outside of this process use it to follow the table. They cannot watch
// File itself: a path unit of systemd misses changes that happen while the service that the unit
// started still runs.
const ChangedFile = "nodes.changed"

// Mark creates ChangedFile.
func Mark(dir string) {
	// Ignore an error: this process does not depend on the file.
	_ = os.WriteFile(filepath.Join(dir, ChangedFile), nil, 0o600)
}

// Seen removes ChangedFile. The caller must read the table after that.
func Seen(dir string) error {
	if err := os.Remove(filepath.Join(dir, ChangedFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("table of nodes: %w", err)
	}
	return nil
}

// ErrShared means that the shared storage could not be used in time.
var ErrShared = errors.New("the shared storage does not answer")

// Keeper holds this node's copy of the table. The table on the shared storage is the authoritative
// one: a node bases its change on the newest version of that table, and raises the version (without
// a lock, see package versioned). A Keeper is safe for concurrent use.
type Keeper struct {
	path   string // path of this node's copy
	shared string // directory on the shared storage

	// accepting is held while this node's copy is written, so that disk and memory agree. A
	// goroutine that holds accepting may read table without mu. Lock accepting before mu.
	accepting sync.Mutex

	mu      sync.Mutex // not held while the disk may hang: everybody reads the table
	table   Table
	changed chan struct{} // closed at the next change

	busy chan struct{} // held by the one goroutine that touches the shared storage
}

// OpenKeeper reads this node's copy from dir, where it may be missing. shared is the directory on
// the shared storage, which OpenKeeper does not touch.
func OpenKeeper(dir, shared string) (*Keeper, error) {
	k := &Keeper{
		path:    filepath.Join(dir, File),
		shared:  shared,
		changed: make(chan struct{}),
		busy:    make(chan struct{}, 1),
	}

	b, err := readSmall(k.path)
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err != nil {
		return nil, fmt.Errorf("table of nodes: %w", err)
	}

	if k.table, err = Parse(b); err != nil {
		return nil, fmt.Errorf("%s: %w", k.path, err)
	}

	return k, nil
}

// Table returns a copy of the table. Its Version is 0 while there is no table.
func (k *Keeper) Table() Table {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.table.Clone()
}

// Changed returns a channel that is closed at the next change of the table.
func (k *Keeper) Changed() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changed
}

// Offer accepts a table if it is newer, belongs to the same cluster, and does not bring a removed
// node back. It reports whether it accepted the table; if so, the table is on this node's disk.
func (k *Keeper) Offer(t Table) (bool, error) {
	if err := t.Check(); err != nil {
		return false, err
	}
	k.accepting.Lock()
	defer k.accepting.Unlock()
	if t.Version <= k.table.Version {
		return false, nil
	}
	return k.acceptTable(t)
}

// settle replaces this node's table by the table on the shared storage if both have the same
// version. Two different tables with the same version exist only in a cluster whose machines were
// restored to states of different times. The bool reports whether settle replaced the table.
func (k *Keeper) settle(t Table) (bool, error) {
	if err := t.Check(); err != nil {
		return false, err
	}

	k.accepting.Lock()
	defer k.accepting.Unlock()
	if t.Version != k.table.Version {
		return false, nil
	}

	shared, err := encode(t)
	own, err2 := encode(k.table)
	if err := errors.Join(err, err2); err != nil || bytes.Equal(shared, own) {
		return false, err
	}

	return k.acceptTable(t)
}

// acceptTable replaces the table by t if t may follow it, and reports whether it did. The caller
// holds accepting.
func (k *Keeper) acceptTable(t Table) (bool, error) {
	if k.table.Version > 0 && (t.Cluster != k.table.Cluster || !t.follows(k.table.KeyHash)) {
		return false, fmt.Errorf("table of nodes: that of cluster %s (%.8s) is not ours, %s (%.8s)",
			t.Cluster, t.KeyHash, k.table.Cluster, k.table.KeyHash)
	}

	if k.table.Version > 0 {
		if t.Version-k.table.Version > maxLeap {
			return false, fmt.Errorf("table of nodes: version %d cannot be true, this node has %d",
				t.Version, k.table.Version)
		}
		if err := t.keepsRemoved(k.table); err != nil {
			return false, err
		}
	}

	if err := writeTable(k.path, t); err != nil {
		return false, err
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	k.table = t.Clone()
	close(k.changed)
	k.changed = make(chan struct{})
	return true, nil
}

// Change changes the table on the shared storage and accepts the result. It calls change with the
// newest table, and returns an error of change. If another node changes the table first, Change
// calls change again with the newer table. If the shared storage does not answer until ctx ends,
// the error is [ErrShared], and the change may still happen; the next Look shows whether it did.
func (k *Keeper) Change(ctx context.Context, change func(*Table) error) (Table, error) {
	own := k.Table()
	var next Table
	err := k.onShared(ctx, func() error {
		for {
			if ctx.Err() != nil {
				return ctx.Err() // the caller does not wait any longer
			}

			t, expect, err := k.readShared()
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}

			if expect < own.Version { // the shared storage has no table, or an older one: change ours instead
				t = own.Clone()
			}

			if own.KeyHash != "" && !t.follows(own.KeyHash) {
				return fmt.Errorf("the shared storage holds the table of another cluster (%s)", t.Cluster)
			}

			if err := change(&t); err != nil {
				return err
			}

			t.Version++
			if next, err = t, k.writeShared(ctx, expect, t); !errors.Is(err, versioned.ErrConflict) {
				return err
			}
		}
	})
	if err != nil {
		return Table{}, err
	}

	_, err = k.Offer(next)
	return next, err
}

// Look accepts the table of the shared storage if it is newer, or if it differs from ours at the
// same version.
func (k *Keeper) Look(ctx context.Context) error {
	var t Table
	err := k.onShared(ctx, func() (err error) {
		t, _, err = k.readShared()
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}

	taken, err := k.Offer(t)
	if err == nil && !taken {
		_, err = k.settle(t)
	}

	return err
}

// sharedFile returns the table's file on the shared storage.
func (k *Keeper) sharedFile() versioned.File {
	return versioned.File{
		Path:  filepath.Join(k.shared, File),
		Mode:  0o600,
		Limit: MaxTable,
		Version: func(b []byte) (uint64, error) {
			t, err := Parse(b)
			return t.Version, err
		},
	}
}

// readShared returns the table of the shared storage and its version, or version 0 and
// [fs.ErrNotExist] if there is none.
func (k *Keeper) readShared() (Table, uint64, error) {
	b, v, err := k.sharedFile().Read()
	if err != nil {
		return Table{}, 0, err
	}
	t, err := Parse(b)
	return t, v, err
}

// writeShared writes a table that replaces the one with the version expect.
func (k *Keeper) writeShared(ctx context.Context, expect uint64, t Table) error {
	if err := t.Check(); err != nil {
		return err
	}
	b, err := encode(t)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return k.sharedFile().Write(expect, b)
}

// onShared calls f in another goroutine, because f may hang in the kernel for ever. Only one call
// of f runs at a time.
func (k *Keeper) onShared(ctx context.Context, f func() error) error {
	select {
	case k.busy <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w (%s)", ErrShared, k.shared)
	}

	done := make(chan error, 1)
	go func() {
		defer func() { <-k.busy }()
		done <- f()
	}()

	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w (%s)", ErrShared, k.shared)
	}
}

func encode(t Table) ([]byte, error) {
	b, err := json.MarshalIndent(t, "", " ")
	return append(b, '\n'), err
}

func writeTable(path string, t Table) error {
	b, err := encode(t)
	if err != nil {
		return err
	}
	if _, err = layout.WriteFile(path, b, 0o600); err != nil {
		return err
	}
	Mark(filepath.Dir(path))
	return nil
}

func readSmall(path string) ([]byte, error) { return durable.Read(path, MaxTable) }
