package nodes

import (
	"errors"
	"fmt"
	"path/filepath"
)

// recoverLeap is added to the version of the table. It is higher than the number of changes that
// the lost nodes may have made.
const recoverLeap = 1000

// Recover changes the table of nodes so that the node called name is its only member: it removes
// all other nodes permanently. It writes only this node's copy of the table, because the earlier
// shared storage is lost. brick is the directory for this node's copy of the data. A running
// supervisor must be reloaded afterwards. Recover may be repeated.
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
