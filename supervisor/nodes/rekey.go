package nodes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"saltern/internal/versioned"
)

// errNotAlone means that the cluster has nodes besides this one.
var errNotAlone = errors.New("other nodes are in this cluster")

// Alone returns nil if all other nodes of the table were removed. Otherwise it returns an
// [errNotAlone] that names the other nodes.
func (t *Table) Alone(name string) error {
	var others []string
	for _, n := range t.Nodes {
		if n.Name != name && n.State != Removed {
			others = append(others, n.Name)
		}
	}
	if len(others) > 0 {
		return fmt.Errorf("%w: %s", errNotAlone, strings.Join(others, ", "))
	}
	return nil
}

// SetKey sets another key of the same cluster in the table. Nodes that know an earlier key of the
// table still accept the table.
func (t *Table) SetKey(hash string) error {
	if t.KeyHash == hash {
		return nil
	}
	if !slices.Contains(t.Former, t.KeyHash) {
		t.Former = append(t.Former, t.KeyHash)
	}
	t.KeyHash = hash
	return t.Check()
}

// FirstKey returns the hash of the key with which the cluster was formed. It stays the same when
// the key changes.
func (t *Table) FirstKey() string {
	if len(t.Former) > 0 {
		return t.Former[0]
	}
	return t.KeyHash
}

// follows reports whether the table belongs to the cluster that has, or once had, the key with that
// hash.
func (t *Table) follows(hash string) bool {
	return t.KeyHash == hash || slices.Contains(t.Former, hash)
}

// Rekey sets another cluster key in the table, on this node's disk and on the shared storage, after
// the key was restored from a backup. It returns an error if the cluster has nodes besides the one
// called name. A running supervisor must be reloaded afterwards.
func Rekey(ctx context.Context, dir, shared, name, keyHash string) error {
	k, err := OpenKeeper(dir, shared)
	if err != nil {
		return err
	}

	t := k.Table()
	if t.KeyHash == keyHash {
		return nil
	}

	if err := t.Alone(name); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return k.onShared(ctx, func() error {
		t.KeyHash = keyHash
		for {
			_, expect, err := k.readShared()
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}

			t.Version = max(t.Version, expect) + 1
			if err = k.writeShared(ctx, expect, t); err == nil {
				return writeTable(k.path, t)
			}
			if !errors.Is(err, versioned.ErrConflict) {
				return err
			}
		}
	})
}
