package keys

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settle is how long Run waits after the first event before it checks the folders. salt-key
	// removes a key from one folder before it writes it to another; an earlier check would see a
	// minion without a key.
	settle = 40 * time.Millisecond
	// hintEvery is the least pause between two checks for new keys of other masters. After a slow
	// check the pause is hintShare times its duration.
	hintEvery = 250 * time.Millisecond
	hintShare = 4
	// maxNames bounds the names collected between two checks; beyond it Run checks everything.
	maxNames = 4096
	// listShare is how many times longer than a listing of the folders the pause after it is, at
	// least: listing many keys on a volume takes seconds.
	listShare = 19
)

// examinePaths checks the files that inotify named, each in its folder.
func (s *Store) examinePaths(paths map[string]struct{}) {
	byDir := map[string]State{}
	for st := Accepted; st < numStates; st++ {
		byDir[s.stateDir(st)] = st
	}
	found := map[string][]State{}
	for path := range paths {
		dir, id := filepath.Split(path)
		if st, ok := byDir[filepath.Clean(dir)]; ok && ValidID(id) == nil {
			found[id] = append(found[id], st)
		}
	}
	s.examineAll(found)
}

// examineAll checks files of several minions, some of them in parallel.
func (s *Store) examineAll(ids map[string][]State) {
	work := make(chan string)
	var wg sync.WaitGroup
	for range min(readers, len(ids)) {
		wg.Go(func() {
			for id := range work {
				s.examine(id, ids[id]...)
			}
		})
	}

	for id := range ids {
		work <- id
	}

	close(work)
	wg.Wait()
}

// Run follows the changes that others make to the folders until ctx is done,
// and returns ctx's error. A change on this machine is seen within some 50
// ms, one that another machine made on a shared volume after Config.ScanEvery
// (if the folder's entries change) or Config.FullEvery (if only the inside of
// a file does). Call it once. It starts no goroutine that outlives it.
func (s *Store) Run(ctx context.Context) error {
	w := s.watcher()
	if w != nil {
		defer w.Close()
	} else {
		w = &fsnotify.Watcher{} // nil channels: never ready
	}

	tick := time.NewTicker(s.cfg.ScanEvery)
	defer tick.Stop()
	var fullC <-chan time.Time
	if s.cfg.FullEvery > 0 {
		full := time.NewTicker(s.cfg.FullEvery)
		defer full.Stop()
		fullC = full.C
	}

	var freshC <-chan struct{}
	if s.in != nil {
		freshC = s.in.fresh
		var wg sync.WaitGroup
		wg.Go(func() { s.fileLoop(ctx) })
		defer wg.Wait()
	}

	hinted, hintRest := s.hinted, (<-chan time.Time)(nil)
	paths := map[string]struct{}{}
	var look <-chan time.Time
	var rest time.Time // the folders are not listed before this time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case ev, ok := <-w.Events:
			if !ok {
				return errors.New("watch minion keys: watcher closed")
			}

			if len(paths) <= maxNames && !strings.HasPrefix(filepath.Base(ev.Name), ".") {
				paths[ev.Name] = struct{}{}
			}

			if look == nil {
				look = time.After(settle)
			}
		case err := <-w.Errors:
			s.log.Warn("watching minion keys", "error", err)
			s.report(s.scanFolders(true))
		case <-look:
			look = nil
			if len(paths) > maxNames {
				s.report(s.scanFolders(true))
			} else {
				s.examinePaths(paths)
			}
			clear(paths)
		case <-hinted:
			begin := time.Now()
			s.takeHints()
			if s.in != nil { // one check for many hints
				hinted, hintRest = nil, time.After(max(hintEvery, hintShare*time.Since(begin)))
			}
		case <-hintRest:
			hinted = s.hinted
		case <-freshC:
			s.takeIncoming()
		case <-tick.C:
			if time.Now().Before(rest) {
				continue
			}

			begin := time.Now()
			s.pend.forgetIdle()
			s.rewatch(w)
			s.report(s.scanFolders(false))
			rest = time.Now().Add(listShare * time.Since(begin))
		case <-fullC:
			s.report(s.scanFolders(true))
		}
	}
}

func (s *Store) report(err error) {
	if err != nil {
		s.log.Error("reading minion keys; keeping what is known", "error", err)
	}
}

// watcher sets up inotify. It returns nil if only the periodic check is left.
func (s *Store) watcher() *fsnotify.Watcher {
	if s.cfg.NoNotify {
		return nil
	}
	w, err := fsnotify.NewBufferedWatcher(256)
	if err != nil {
		s.log.Warn("watching minion keys: changes are seen by the periodic look only", "error", err)
		return nil
	}
	s.rewatch(w)
	return w
}

// rewatch watches the folders that are not watched, including those that were removed and created
// again.
func (s *Store) rewatch(w *fsnotify.Watcher) {
	if w.Events == nil {
		return
	}

	watched := map[string]bool{}
	for _, d := range w.WatchList() {
		watched[d] = true
	}

	for st := Accepted; st < numStates; st++ {
		if d := s.stateDir(st); !watched[d] {
			if err := w.Add(d); err != nil {
				s.log.Debug("watching minion keys", "path", d, "error", err)
			}
		}
	}
}
