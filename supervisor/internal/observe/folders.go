package observe

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"saltern/internal/writable"
	"saltern/supervisor/settings"
)

const (
	// tryFolders is the interval between test writes to a file system. tryShared is the interval if
	// all nodes of the cluster use the file system.
	tryFolders = 5 * time.Second
	tryShared  = 15 * time.Second
)

// folders groups the folders on one file system to which the supervisor writes. The master itself,
// with its own account, tries the folders to which it and salt-api write. The storage manager
// watches the shared volume.
type folders struct {
	writable.Watch
	paths  []string // findings name only the first path
	file   string   // name of the test file; it has the node's name, because other nodes may write there too
	turn   int      // number of the present try; only tryWrites uses this field and failed
	failed map[string]bool
}

// newFolders groups the folders of a node by file system. It touches no file system, because that
// might hang.
func newFolders(cfg *settings.Settings) []*folders {
	file := ".try-applianced-" + cfg.Node
	node := newWatch(tryFolders, file, cfg.DataDir, cfg.NodeDir(), cfg.LogDir(), cfg.AuditDir())
	list := []*folders{node, newWatch(tryFolders, file, cfg.RuntimeDir)}

	other, every := cfg.SharedNodesDir(), tryShared
	if cfg.OnVolume() {
		other, every = cfg.Storage.Bricks, tryFolders
	}

	if strings.HasPrefix(other, cfg.DataDir+"/") {
		node.paths = append(node.paths, other)
	} else {
		list = append(list, newWatch(every, file, other))
	}

	return list
}

func newWatch(every time.Duration, file string, paths ...string) *folders {
	f := &folders{paths: paths, file: file, failed: map[string]bool{}}
	f.Every = every
	// A disk that takes longer counts as hung.
	f.Takes = 4 * time.Second
	f.Try = f.tryWrites
	return f
}

// tryWrites writes to one of the folders, each time to the next one, and also to the folders in
// which the last write failed. One failing folder suffices to report a failing disk. tryWrites
// skips missing folders.
func (f *folders) tryWrites() error {
	f.turn++
	var faults []error
	for i, path := range f.paths {
		if i != f.turn%len(f.paths) && !f.failed[path] {
			continue
		}

		err := writable.Try(filepath.Join(path, f.file))
		f.failed[path] = err != nil && !ofThisProcess(err)
		if f.failed[path] {
			faults = append(faults, err)
		}
	}

	if len(faults) == 0 {
		return nil
	}

	return faults[0]
}

// ofThisProcess reports whether err says nothing about the disk: the folder was never created, or
// this process has reached a limit.
func ofThisProcess(err error) bool {
	for _, target := range []error{fs.ErrNotExist, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM,
		syscall.EINTR, syscall.EAGAIN} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// runFolders runs the watches until ctx ends, and waits for them.
func runFolders(ctx context.Context, list []*folders) {
	var wg sync.WaitGroup
	for _, f := range list {
		wg.Go(func() { f.Run(ctx) })
	}
	wg.Wait()
}

// unwritable returns the errors of the watches, by the first path of each.
func unwritable(list []*folders) map[string]error {
	found := map[string]error{}
	for _, f := range list {
		if err := f.Err(); err != nil {
			found[f.paths[0]] = err
		}
	}
	return found
}
