package pyrunner

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"time"

	"saltern/master/value"
)

const (
	// listFor is how long it is believed that a function does not exist while
	// the directories are as they were: whether a module loads may depend on
	// more than its file.
	listFor = 10 * time.Minute
	// settled is how old the last change of a directory must be: file times
	// are coarse.
	settled = 2 * time.Second

	maxDirs      = 64
	maxEntries   = 4096
	maxFunctions = 20000
)

// listing says which functions Python has.
type listing struct {
	names map[string]bool
	dirs  []string
	stamp uint64
	sure  bool // nothing changed just before
	at    time.Time
}

// learn keeps the list of functions that the shim gave.
func (c *Caller) learn(m *value.Map) {
	names := m.Texts("functions")
	if len(names) == 0 {
		return
	}
	l := &listing{names: make(map[string]bool, len(names)), at: c.cfg.Now()}
	for _, n := range names[:min(len(names), maxFunctions)] {
		l.names[n] = true
	}
	dirs := m.Texts("dirs")
	l.dirs = dirs[:min(len(dirs), maxDirs)]
	var newest time.Time
	l.stamp, newest = stamp(l.dirs)
	l.sure = time.Since(newest) > settled && len(names) <= maxFunctions
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list, c.why = l, nil
}

// fresh reports whether a function that is not in the list does not exist.
func (l *listing) fresh(now time.Time) bool {
	if !l.sure || now.Sub(l.at) > listFor {
		return false
	}
	s, _ := stamp(l.dirs)
	return s == l.stamp
}

// stamp is another number when files in the directories have changed.
func stamp(dirs []string) (uint64, time.Time) {
	h := fnv.New64a()
	var newest time.Time
	note := func(path string) {
		info, err := os.Stat(path)
		if err != nil {
			fmt.Fprintf(h, "%s\x00gone\x00", path)
			return
		}
		if t := info.ModTime(); t.After(newest) {
			newest = t
		}
		fmt.Fprintf(h, "%s\x00%d\x00%d\x00", path, info.Size(), info.ModTime().UnixNano())
	}
	left := maxEntries
	for _, d := range dirs {
		entries, err := os.ReadDir(d) // its own time changes when Python keeps what it compiles
		if err != nil {
			fmt.Fprintf(h, "%s\x00gone\x00", d)
			continue
		}
		for _, e := range entries {
			if left--; left < 0 {
				break
			}
			if e.Name() == "__pycache__" {
				continue
			}
			path := filepath.Join(d, e.Name())
			if e.IsDir() {
				path = filepath.Join(path, "__init__.py")
			}
			note(path)
		}
	}
	return h.Sum64(), newest
}
