package fleet

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	"saltern/internal/control"
	"saltern/internal/durable"
)

// mergeRestored merges the tables that a restore has put beside that of this node, saves the result, and
// removes them. It reports whether a restored table cannot be read: then the history has what it lacks.
func (r *Recorder) mergeRestored() (unreadable bool) {
	paths, _ := filepath.Glob(filepath.Join(r.cfg.Dir, control.RestoredHistory+"*-"+tableFile)) // the pattern is good
	for _, path := range paths {
		packed, err := durable.Read(path, maxSaved)
		var table *Table
		var hasDays bool
		if err == nil {
			table, hasDays, err = parseTable(packed)
		}
		if err != nil || !hasDays {
			unreadable = true
			r.cfg.Log.Warn("restored table of last runs is made anew from the history", "path", path, "error", err)
		}
		if err == nil {
			r.table.merge(table, r.cfg.Now())
		}
	}
	if len(paths) == 0 {
		return false
	}

	if err := r.save(); err != nil {
		r.cfg.Log.Warn("restored table of last runs is merged again at the next start", "error", err)
		return unreadable
	}
	for _, path := range paths {
		if err := os.Remove(path); err != nil {
			r.cfg.Log.Warn("restored table of last runs is merged again at the next start", "path", path, "error", err)
		}
	}
	return unreadable
}

// merge adds the newer runs of another table. It changes nothing that it has already, so it may be repeated.
// When the table is full, minions that it lacks are left out.
func (t *Table) merge(other *Table, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for minion, theirs := range other.entries {
		switch e := t.entries[minion]; {
		case e != nil:
			e.merge(theirs, now)
		case len(t.entries) < maxMinions:
			t.entries[minion] = theirs
		}
	}
	t.daysFrom = max(t.daysFrom, other.daysFrom)
	t.changed = true
}

// merge takes what is newer in another entry of the minion.
func (e *entry) merge(other *entry, now time.Time) {
	if isNewer(other.answer.order(), e.answer.order(), now) {
		e.answer = other.answer
	}
	if other.run.JID != "" && isNewer(other.run.order(), e.run.order(), now) {
		e.run = other.run
		e.packed = other.packed
		e.drifted = other.drifted
	}
	for _, b := range slices.Backward(other.baselines) { // the newest is kept last
		e.keepBaseline(b, now)
	}
	e.days.merge(&other.days, now)
	e.fit(nil)
}
