package glusterctl

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// HasIdentity reports whether glusterd of this node has made up its UUID. An image
// must not contain it: two nodes with the same one cannot meet.
func HasIdentity(state string) (bool, error) {
	_, err := os.Lstat(filepath.Join(state, "glusterd.info"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
