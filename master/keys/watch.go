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
	hintShare = 4 // see follower.takeHints
	// maxNames bounds the file names collected between two checks. When there are more, Run checks
	// all files.
	maxNames = 4096
	// After the folders are listed, Run lists none for listShare times the duration of the listing,
	// up to maxRest: on a volume a listing of many keys takes seconds.
	listShare = 19
	// maxRest bounds the pause after a listing. If another machine deletes a key and no master
	// reports that, the key remains in the index for at most maxRest and the time of two listings.
	maxRest = 30 * time.Second
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

// examineAll checks the files of several minions, some of them in parallel.
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

// Until ctx ends, Run updates the index with the changes that other programs make to the folders.
// It returns ctx's error. It sees a change on this machine within about 50 ms. It sees a change
// that another machine made on a shared volume after Config.ScanEvery if the folder's entries have
// changed, or after Config.FullEvery if only the content of a file has changed. Run may be called
// once. When Run returns, all goroutines that it started have ended.
func (s *Store) Run(ctx context.Context) error {
	w := s.watcher()
	if w != nil {
		defer w.Close()
	} else {
		w = &fsnotify.Watcher{} // the watcher's channels are nil, so they are never ready
	}

	tick := time.NewTicker(s.cfg.ScanEvery)
	defer tick.Stop()

	full := &time.Ticker{} // the ticker's channel is nil, so it is never ready
	if s.cfg.FullEvery > 0 {
		full = time.NewTicker(s.cfg.FullEvery)
		defer full.Stop()
	}

	var freshC <-chan struct{}
	if s.incoming != nil {
		freshC = s.incoming.changedSignal
		var wg sync.WaitGroup
		wg.Go(func() { s.fileLoop(ctx) })
		defer wg.Wait()
	}

	f := follower{store: s, watcher: w, paths: map[string]struct{}{}, hinted: s.hinted}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, ok := <-w.Events:
			if !ok {
				return errors.New("watch minion keys: watcher closed")
			}
			f.noteEvent(event)
		case err := <-w.Errors:
			s.log.Warn("watching minion keys", "error", err)
			s.report(s.scanFolders(true))
		case <-f.settled:
			f.examineNoted()
		case <-f.hinted:
			f.takeHints()
		case <-f.hintPause:
			f.hinted = s.hinted
		case <-freshC:
			s.takeIncoming()
		case <-tick.C:
			f.scanChanged()
		case <-full.C:
			s.report(s.scanFolders(true))
		}
	}
}

// follower is the state of Run between two events.
type follower struct {
	store     *Store
	watcher   *fsnotify.Watcher
	paths     map[string]struct{} // files named in events since the last check
	settled   <-chan time.Time    // fires when paths must be checked; nil without paths
	hinted    <-chan struct{}     // Store.hinted; nil during the pause of hintPause
	hintPause <-chan time.Time    // fires at the end of the pause between two checks of hints
	restUntil time.Time           // time before which scanChanged lists no folders
}

// noteEvent records the file of an event for the next check.
func (f *follower) noteEvent(event fsnotify.Event) {
	if len(f.paths) <= maxNames && !strings.HasPrefix(filepath.Base(event.Name), ".") {
		f.paths[event.Name] = struct{}{}
	}
	if f.settled == nil {
		// salt-key removes a key from one folder before it writes the key to another: an earlier
		// check would see a minion without a key.
		f.settled = time.After(40 * time.Millisecond)
	}
}

// examineNoted checks the files that events named, or all files if there are too many.
func (f *follower) examineNoted() {
	f.settled = nil
	if len(f.paths) > maxNames {
		f.store.report(f.store.scanFolders(true))
	} else {
		f.store.examinePaths(f.paths)
	}
	clear(f.paths)
}

// takeHints checks the keys that Hint named. On a volume it pauses afterwards, so that one check
// serves many hints.
func (f *follower) takeHints() {
	begin := time.Now()
	f.store.takeHints()
	if f.store.incoming != nil {
		f.hinted = nil
		f.hintPause = time.After(max(250*time.Millisecond, hintShare*time.Since(begin)))
	}
}

// scanChanged scans the folders that have changed, and reads again the files that could not be read.
// During the pause that follows a long listing it scans nothing.
func (f *follower) scanChanged() {
	failed, many := f.store.failedLooks.take()
	f.store.examineAll(failed)
	if time.Now().Before(f.restUntil) && !many {
		return
	}

	begin := time.Now()
	listings := f.store.scans.Load()
	f.store.pending.forgetIdle()
	f.store.rewatch(f.watcher)
	f.store.report(f.store.scanFolders(many))
	if f.store.scans.Load() != listings { // no pause is needed if only modification times were checked
		f.restUntil = time.Now().Add(min(listShare*time.Since(begin), maxRest))
	}
}

func (s *Store) report(err error) {
	if err != nil {
		s.log.Error("reading minion keys; keeping what is known", "error", err)
	}
}

// watcher returns an inotify watcher of the folders, or nil if only the periodic check is possible.
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

// rewatch adds the folders to w that w does not watch, such as folders that were removed and
// created again.
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
