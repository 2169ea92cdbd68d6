package glusterctl

import (
	"context"
	"slices"
	"strings"
)

// mostSettled bounds what one call of settle tries.
const mostSettled = 64

// settle has the copies that were complete before a new one was added win where
// the new one has another file by the same name.
//
// That happens while a volume grows: a client learns of the new copy a moment
// after the daemons that heal do. A file that it replaces in between, once the
// one before has been healed, is replaced on the old copies only, and nothing
// notes that. The two differ in their GFIDs then; opening the file gives EIO,
// healing never ends, and no command lists it as split-brain. A copy that is not
// recorded as complete has nothing that the others lack, see proof.go; where all
// are, nothing is done.
func (c *Controller) settle(ctx context.Context, d Desired, bricks []string) {
	o, err := c.ObserveQuick(ctx, d)
	if err != nil {
		return
	}
	complete := o.complete()
	known := func(b string) bool { return slices.Contains(complete, b) }
	source := slices.IndexFunc(bricks, known)
	if source < 0 || !slices.ContainsFunc(bricks, func(b string) bool { return !known(b) }) {
		return
	}
	hs, err := c.client.HealEntries(ctx, d.Volume)
	if err != nil {
		return
	}
	var tried []string
	for _, h := range hs {
		for _, e := range h.Entries {
			if !known(h.Brick) || !strings.HasPrefix(e.Path, "/") || slices.Contains(tried, e.Path) || len(tried) == mostSettled {
				continue
			}
			tried = append(tried, e.Path)
			// Refused for everything that only waits to be healed.
			if err := c.client.Change(ctx, "volume", "heal", d.Volume, "split-brain", "source-brick", bricks[source], e.Path); err == nil {
				c.cfg.Log.Info("a new copy of the volume had another file by this name; the older copies win", "path", e.Path, "brick", bricks[source])
			}
		}
	}
}
