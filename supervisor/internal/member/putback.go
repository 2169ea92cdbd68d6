package member

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"saltern/supervisor/marks"
	"saltern/supervisor/nodes"
	"saltern/supervisor/status"
	"saltern/supervisor/storage"
)

// Stages of the repair after a disk was put back to an older state.
const (
	stageAside   = "aside"   // set the copy aside; then the table of nodes must name a new directory
	stageFilling = "filling" // the table names the new directory, and the other nodes fill it
	stageFilled  = "filled"  // the new copy is complete; the old one stays until an administrator deletes it
	stageOnly    = "only"    // no other node has a copy: this node keeps the old one
	stageData    = "data"    // only the data directory is old
)

const (
	// onlyTold and dataTold are how long the status shows a disk that was put back if nobody has to
	// wait for a repair.
	onlyTold = 7 * 24 * time.Hour
	dataTold = 24 * time.Hour
	// undecidedTold is how long a copy may be undecided before the status shows it as undecided.
	undecidedTold = 20 * time.Second
	// twinTold is how long another machine must have answered in place of this one before the
	// status shows that.
	twinTold = 45 * time.Second
)

// putBack records that a disk of this node was put back to an older state, and the stage of the
// repair. The zero value means that no disk was put back.
type putBack struct {
	Stage   string    `json:"stage"`
	From    time.Time `json:"from"`
	Noticed time.Time `json:"noticed"`
	// Brick is the directory that the table of nodes named for the old copy.
	Brick string `json:"brick,omitempty"`
	// Generation is the generation that the marks of the copies get once the old copies are set
	// aside.
	Generation uint64 `json:"generation,omitempty"`
}

// giveUp takes the next step of the repair, if there is one. If a step fails, the next call tries
// it again.
func (w *witness) giveUp(ctx context.Context, volume *storage.Manager) {
	w.mu.Lock()
	p, remembered := w.putBack, w.memory.Of(w.self, marks.Data)
	w.mu.Unlock()

	if p.Stage == "" {
		return
	}

	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()

	next, err := w.nextStage(ctx, volume, p)
	if err == nil && w.disk.markOf(marks.Data).Behind(remembered) {
		err = w.disk.renewData(remembered, w.env.Now())
	}

	if err == nil && next == "" {
		err = w.disk.forgetPutBack()
	} else if err == nil && next != p.Stage {
		p.Stage = next
		err = w.disk.savePutBack(p)
	}

	if err != nil {
		w.env.Log.Warn("a disk that was put back", "stage", p.Stage, "error", err)
		return
	}

	kept := w.keptCopies()
	w.mu.Lock()
	defer w.mu.Unlock()

	w.aside = kept
	if w.putBack.Noticed.Equal(p.Noticed) {
		w.putBack.Stage = next
	}
}

// nextStage does the work of a stage and returns the next stage, or "" after the last one.
func (w *witness) nextStage(ctx context.Context, volume *storage.Manager, p putBack) (string, error) {
	age := w.env.Now().Sub(p.Noticed)
	switch p.Stage {
	case stageAside:
		if err := w.setAside(ctx, volume, p); err != nil {
			return p.Stage, err
		}
		if done, err := w.renewBrick(ctx, volume, p); !done || err != nil {
			return p.Stage, err
		}
		return stageFilling, nil
	case stageFilling:
		if self, ok := w.selfEntry(); !ok || !filled(volumeState(volume), self) {
			return p.Stage, nil
		}
		return stageFilled, nil
	case stageFilled:
		if len(w.keptCopies()) > 0 {
			return p.Stage, nil
		}
	case stageOnly:
		if w.disk.markOf(marks.Bricks).Generation < p.Generation {
			if err := errors.Join(w.disk.savePutBack(p), w.disk.renewBricks(p.Generation, w.env.Now())); err != nil {
				return p.Stage, err
			}
		}

		if age < onlyTold {
			return p.Stage, nil
		}
	case stageData:
		if err := w.disk.savePutBack(p); err != nil || age < dataTold {
			return p.Stage, err
		}
	}

	return "", nil
}

// setAside sets the old copies aside, once. After a crash setAside may be called again.
func (w *witness) setAside(ctx context.Context, volume *storage.Manager, p putBack) error {
	if w.disk.markOf(marks.Bricks).Generation >= p.Generation {
		return nil
	}

	if err := w.disk.savePutBack(p); err != nil {
		return err
	}

	if volume == nil {
		return errors.New("the shared volume is not kept by this node")
	}

	if err := volume.SetAside(ctx, w.env.Now()); err != nil {
		return err
	}

	return w.disk.renewBricks(p.Generation, w.env.Now())
}

// renewBrick writes a new directory for this node's copy into the table of nodes, provided that the
// volume accepts writes through the copies of the other nodes. done reports whether the table names
// a directory other than p.Brick.
func (w *witness) renewBrick(ctx context.Context, volume *storage.Manager, p putBack) (done bool, err error) {
	st := volumeState(volume)
	self, ok := w.selfEntry()
	switch {
	case ok && self.Brick != p.Brick:
		return true, nil
	case !ok, st == nil, !st.Mount.Writable:
		return false, nil
	}

	fresh, err := volume.FreshBrick(p.Brick)
	if err != nil {
		return false, err
	}

	_, err = w.peers.change(ctx, func(t *nodes.Table) error {
		now, ok := t.ByCertificate(w.self)
		if !ok {
			return errors.New("this node is not in the table of nodes any more")
		}

		if now.Brick == p.Brick {
			now.Brick = fresh
			t.Put(now)
		}

		return nil
	})

	return err == nil, err
}

// selfEntry returns this node's entry in the table of nodes, and whether there is one.
func (w *witness) selfEntry() (nodes.Node, bool) {
	t := w.keeper.Table()
	return t.ByCertificate(w.self)
}

// filled reports whether the volume uses the new copy and the copy is complete.
func filled(st *storage.State, self nodes.Node) bool {
	if st == nil || !st.Done || !st.Heal.Known || st.Heal.Pending > 0 {
		return false
	}
	for _, b := range st.Bricks {
		if b.Name == self.Name+":"+self.Brick && b.Up {
			return true
		}
	}
	return !st.Holds(self.Name) // the volume keeps no copy on this node any more
}

// keptCopies returns the old copies that were set aside on this node's disk.
func (w *witness) keptCopies() []string {
	return storage.KeptCopies(w.env.Settings.Storage.Bricks, w.env.Settings.Storage.Volume)
}

// timeText returns a time as text for people.
func timeText(t time.Time) string {
	if t.IsZero() {
		return "an unknown time"
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// findings returns what is wrong with this node's disk.
func (w *witness) findings() []status.Finding {
	w.mu.Lock()
	defer w.mu.Unlock()
	kept := strings.Join(w.aside, " ")
	from := timeText(w.putBack.From)
	finding := func(code status.Code, subject, format string, args ...any) []status.Finding {
		return []status.Finding{{Code: code, Subject: subject, Cause: fmt.Sprintf(format, args...)}}
	}
	now := w.env.Now()
	switch {
	case w.twin && now.Sub(w.undecided) >= twinTold:
		return finding(status.CopyUndecided, "", "another machine answers as this node, and this one's disk is from %s: it is a copy of that machine",
			timeText(w.disk.lastCounted(stageAside)))
	case w.twin: // the answer may be this machine's own, from before its disk was put back
		return nil
	case w.verdict == marks.Hold && w.serving:
		return finding(status.CopyUndecided, "",
			"several nodes were put back to different times; this one began to serve its copy before those that know more were there, and goes on")
	case w.verdict == marks.Hold:
		return finding(status.CopyUndecided, "",
			"several nodes were put back to different times, and too few copies are left that were not")
	case w.verdict == marks.Ask && !w.undecided.IsZero() && now.Sub(w.undecided) >= undecidedTold:
		return finding(status.CopyUndecided, "", "most of the other nodes have not answered yet%s", w.silentNodes())
	}

	switch w.putBack.Stage {
	case stageAside:
		return finding(status.CopyOld, "", "it is from %s; its copy of the shared volume is set aside", from)
	case stageFilling:
		return finding(status.CopyOld, "",
			"it is from %s; its copy of the shared volume was set aside (%s), and is filled from the other nodes",
			from, kept)
	case stageOnly:
		return finding(status.CopyOld, "",
			"it is from %s, and no other node has a copy of the shared volume: what was deleted or rejected since is there again, what was added is lost",
			from)
	case stageFilled:
		return finding(status.CopyKept, kept,
			"this node's disk was put back to %s; its copy has been filled from the other nodes", from)
	case stageData:
		return finding(status.DiskOld, "",
			"its data directory is from %s; what the cluster shares was taken from the other nodes", from)
	}

	return nil
}
