package glusterctl

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// mostSettled bounds what one call of settle tries.
	mostSettled = 64
	// graphRest is how long clients are given to take up a new copy.
	graphRest = 3 * time.Second
)

// settle has the copies that were complete before a new one was added win where
// the new one has another file by the same name.
//
// That happens while a volume grows: a client learns of the new copy a moment
// after the daemons that heal do. A file that it replaces in between, once the
// one before has been healed, is replaced on the old copies only. The two differ
// in their GFIDs then, and opening the file gives EIO. When the folder was being
// healed at that moment, healing never ends; when it had been, nothing notes it:
// no list of what is to be healed has it, nor does healing everything see it
// (10.3). No command lists it as split-brain. So it is looked for among what
// waits to be healed, and every name is looked up before a copy is recorded as
// complete (agree).
//
// A copy that is not recorded as complete has nothing that the others lack, see
// proof.go; where all are, nothing is done.
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

// source gives a copy that is recorded as complete, and all of them, when
// another of bricks is not; else "".
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

// takeCopy has the copy of one brick win. It is refused for everything that only
// waits to be healed.
func (c *Controller) takeCopy(ctx context.Context, d Desired, source, path string) {
	if err := c.client.TakeFrom(ctx, d.Volume, source, path); err == nil {
		c.cfg.Log.Info("a new copy of the volume had another file by this name; the older copies win",
			"path", path, "brick", source)
	}
}

// settleNames looks every name up before new copies are recorded as complete. It
// settles those of which they hold another file; the error says that this was
// needed, and passes.
func (c *Controller) settleNames(ctx context.Context, d Desired, s Step, progress func(Event)) error {
	source, _ := c.source(ctx, d, s.Targets)
	if source == "" {
		return nil
	}

	progress(Event{s, "wait", "every name is looked up on all copies"})
	if err := c.cfg.Sleep(ctx, graphRest); err != nil {
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
