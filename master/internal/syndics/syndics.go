// Package syndics knows which accepted minions are syndics. A syndic is connected to this master like a
// minion, and passes jobs on to a lower master: the minions below it answer, and it does not. So nobody
// may wait for its answer, or count it as absent.
//
//	return or event of a syndic, at any master of the cluster ──> Registry ──> files in cachedir/syndics
//	                                                                       └─> Known
//
// A syndic is known from the first event, or return, that it passes on, until its key is deleted: another minion
// may get the name. Tools, Salt's included, read the files, which are empty (salt/master.py _syndic_return).
package syndics

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"saltern/master/event"
	"saltern/master/keys"
)

// Folder is the folder below cachedir that contains an empty file for each syndic.
const Folder = "syndics"

// Registry knows the syndics. All methods may be called concurrently. A nil Registry knows none: it is
// that of a master without lower masters (order_masters).
type Registry struct {
	dir      string
	accepted func(id string) bool
	log      *slog.Logger

	mu sync.RWMutex
	// known holds the syndics, and is bounded by the accepted minions. unwritten holds those whose file could not be
	// written.
	known     map[string]bool
	unwritten map[string]bool
}

// Open returns the Registry of the syndics in cacheDir. accepted reports whether an id has an accepted
// key.
func Open(cacheDir string, accepted func(id string) bool, log *slog.Logger) *Registry {
	r := &Registry{
		dir:       filepath.Join(cacheDir, Folder),
		accepted:  accepted,
		log:       log,
		known:     map[string]bool{},
		unwritten: map[string]bool{},
	}

	files, err := os.ReadDir(r.dir)
	if err != nil && !os.IsNotExist(err) {
		log.Warn("syndics are known when they send the next return", "path", r.dir, "error", err)
	}
	for _, file := range files {
		if accepted(file.Name()) {
			r.known[file.Name()] = true
		}
	}
	return r
}

// Known reports whether a minion is a syndic.
func (r *Registry) Known(id string) bool {
	if r == nil {
		return false
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.known[id]
}

// isWritten reports whether a syndic is known and has its file.
func (r *Registry) isWritten(id string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.known[id] && !r.unwritten[id]
}

// Note notes that a minion is a syndic. It does nothing for an id without an accepted key. If the file cannot be
// written, the syndic is known all the same, and the next call tries again.
func (r *Registry) Note(id string) {
	if r == nil || r.isWritten(id) || keys.ValidID(id) != nil || !r.accepted(id) {
		return
	}

	r.mu.Lock()
	r.known[id] = true
	toldBefore := r.unwritten[id]
	r.unwritten[id] = true
	r.mu.Unlock()

	err := r.write(id)
	if err != nil && !toldBefore {
		r.log.Warn("a syndic cannot be noted; tools say that it does not answer until a later event of it is noted", "syndic", id,
			"path", r.dir, "error", err)
	}
	if err == nil {
		r.mu.Lock()
		delete(r.unwritten, id)
		r.mu.Unlock()
	}

	if !r.accepted(id) { // its key was deleted meanwhile
		r.Forget(id)
	}
}

// Forget ends that a minion is a syndic. Call it when its key was deleted.
func (r *Registry) Forget(id string) {
	if r == nil || keys.ValidID(id) != nil {
		return
	}

	r.mu.Lock()
	delete(r.known, id)
	delete(r.unwritten, id)
	r.mu.Unlock()

	if err := os.Remove(filepath.Join(r.dir, id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.log.Warn("the file of a syndic whose key was deleted cannot be removed", "syndic", id, "error", err)
	}
}

// write writes the file by which tools recognise a syndic.
func (r *Registry) write(id string) error {
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return fmt.Errorf("make the folder of syndics: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(r.dir, id), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("note a syndic: %w", err)
	}
	return file.Close()
}

// Follow notes the syndics that send events to any master of the cluster, until ctx ends.
func (r *Registry) Follow(ctx context.Context, bus *event.Bus) {
	if r == nil {
		return
	}

	// An event that is lost does no harm: a syndic sends one for each job.
	const depth = 256
	sub := bus.Subscribe("syndics", depth, func(tag string) bool {
		id := event.Syndic(tag)
		return id != "" && !r.isWritten(id)
	})
	defer sub.Close()
	for {
		select {
		case e, open := <-sub.C:
			if !open {
				return
			}
			if event.MayOrder(e, event.SyndicReport) {
				r.Note(event.Syndic(e.Tag))
			}
		case <-ctx.Done():
			return
		}
	}
}
