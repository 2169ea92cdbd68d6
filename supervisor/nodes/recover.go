package nodes

import (
	"errors"
	"fmt"
	"path/filepath"
)

// recoverLeap is more than the number of changes that the lost nodes may have made.
const recoverLeap = 1000

// Recover turns a table into that of a cluster of one node: it removes all others for good. It
// only writes this node's copy, because the former shared storage is lost. brick is where this
// node's copy of the data will be. A running supervisor must be told to start again. Recover may
// be repeated.
func Recover(dir, name, brick string) error {
	k, err := OpenKeeper(dir, filepath.Join(dir, "none"))
	if err != nil {
		return err
	}

	t := k.Table()
	if t.Version == 0 {
		return errors.New("recover: this node has no table of nodes")
	}

	if _, ok := t.Find(name); !ok {
		return fmt.Errorf("recover: %s is not in the table of nodes", name)
	}

	for i := range t.Nodes {
		n := &t.Nodes[i]
		switch {
		case n.Name == name:
			n.State = Member
			n.Brick = brick
			n.Storage = "data"
		case n.State != Removed:
			n.State = Removed
		}
	}

	t.Version += recoverLeap
	_, err = k.Offer(t)
	return err
}
