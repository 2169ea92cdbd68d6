package fleet

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"saltern/internal/control"
)

// mergeRestored merges the tables that a restore has put beside that of this node, saves the result, and
// removes them. all reports whether there was one that lacks something which is to be read from the whole history.
// The tables in remade are of no more use when that is done. A table that the disk cannot read stays, and so does
// one that is damaged while the history is still to take restored runs.
func (r *Recorder) mergeRestored() (all bool, remade []string) {
	paths, _ := filepath.Glob(filepath.Join(r.cfg.Dir, control.RestoredHistory+"*-"+tableFile)) // the pattern is good
	if len(paths) == 0 {
		return false, nil
	}

	historyWaits := r.cfg.Store.HasRestored()
	var merged []string
	for _, path := range paths {
		table, hasDays, err := readTable(path)
		if err == nil {
			r.table.merge(table, r.cfg.Now())
		}
		if err == nil && hasDays {
			merged = append(merged, path)
			continue
		}

		all = true
		stays := historyWaits || err != nil && !errors.Is(err, errSaved)
		if !stays {
			remade = append(remade, path)
		}
		r.cfg.Log.Warn("restored table of last runs is made anew from the history", "path", path, "error", err,
			"again_at_next_start", stays)
	}

	r.removeRestored(merged)
	return all, remade
}

// removeRestored saves the table and removes restored ones whose content is in it.
func (r *Recorder) removeRestored(paths []string) {
	if len(paths) == 0 {
		return
	}

	if err := r.save(); err != nil {
		r.cfg.Log.Warn("restored table of last runs is merged again at the next start", "error", err)
		return
	}
	for _, path := range paths {
		if err := os.Remove(path); err != nil {
			r.cfg.Log.Warn("restored table of last runs is merged again at the next start", "path", path, "error", err)
		}
	}
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
