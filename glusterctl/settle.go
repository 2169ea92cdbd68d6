package glusterctl

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// mostSettled bounds how many entries one call of settle resolves.
	mostSettled = 64
)

// settle replaces the file of a new copy if the complete copies hold another file of the same name.
//
// That happens while a volume grows. The self-heal daemons learn about the new copy a moment
// earlier than a client does. If they have already copied a file, and the client then replaces the
// file before it learns about the new copy, the client replaces it on the old copies only. The
// GFIDs of the two files differ then, and opening the file fails with EIO. If the folder was being
// healed at that moment, healing never ends. If the folder had been healed before, nothing records
// the difference: it is in no list of entries to heal, and healing everything does not find it
// either (seen with GlusterFS 10.3). No command lists it as split-brain. So settle looks for such
// files among the entries to heal, and settleNames looks up every name before a copy is recorded as
// complete.
//
// A copy that is not recorded as complete has no data that the other copies lack, see proof.go. So
// its file may be discarded. If all copies are recorded as complete, settle does nothing.
func (c *Controller) settle(ctx context.Context, d Desired, bricks []string) {
	source, known := c.source(ctx, d, bricks)
	if source == "" {
		return
	}

	hs, err := c.client.HealEntries(ctx, d.Volume)
	if err != nil {
		return
	}

	var tried []string
	for _, h := range hs {
		for _, e := range h.Entries {
			if slices.Contains(known, h.Brick) && strings.HasPrefix(e.Path, "/") &&
				!slices.Contains(tried, e.Path) && len(tried) < mostSettled {
				tried = append(tried, e.Path)
				c.takeCopy(ctx, d, source, e.Path)
			}
		}
	}
}

// source returns a copy that is recorded as complete, and the list of all such copies. If every
// brick in bricks is recorded as complete, the first result is "".
func (c *Controller) source(ctx context.Context, d Desired, bricks []string) (string, []string) {
	o, err := c.ObserveQuick(ctx, d)
	if err != nil {
		return "", nil
	}
	complete := o.complete()
	known := func(b string) bool { return slices.Contains(complete, b) }
	i := slices.IndexFunc(bricks, known)
	if i < 0 || !slices.ContainsFunc(bricks, func(b string) bool { return !known(b) }) {
		return "", nil
	}
	return bricks[i], complete
}

// takeCopy replaces a file on all copies by the file of the brick source. glusterd refuses that for
// entries that only wait to be healed.
func (c *Controller) takeCopy(ctx context.Context, d Desired, source, path string) {
	if err := c.client.TakeFrom(ctx, d.Volume, source, path); err == nil {
		c.cfg.Log.Info("a new copy of the volume had another file by this name; the older copies win",
			"path", path, "brick", source)
	}
}

// settleNames looks up every name before new copies are recorded as complete. If a new copy holds
// another file of the same name, settleNames replaces that file and returns a temporary error, so
// that the step runs again.
func (c *Controller) settleNames(ctx context.Context, d Desired, s Step, progress func(Event)) error {
	source, _ := c.source(ctx, d, s.Targets)
	if source == "" {
		return nil
	}

	progress(Event{s, "wait", "every name is looked up on all copies"})
	// Give clients time to start using the new copy.
	if err := c.cfg.Clock.Sleep(ctx, 3*time.Second); err != nil {
		return err
	}

	torn, err := c.tornNames(ctx, d)
	if err != nil {
		return waiting{err}
	}
	if len(torn) == 0 {
		return nil
	}

	for _, path := range torn {
		c.takeCopy(ctx, d, source, path)
	}

	return waiting{fmt.Errorf("the copies hold different files by the name of %s", shellQuote(torn[0]))}
}
