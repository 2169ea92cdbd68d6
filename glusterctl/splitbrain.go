package glusterctl

import (
	"context"
	"slices"
	"strings"
)

// SplitBrain is an entry on which the copies disagree, with the commands that settle it.
type SplitBrain struct {
	Path   string   `json:"path"`
	GFID   string   `json:"gfid"`
	Bricks []string `json:"bricks"`
	// Resolve lists alternative commands. The first chooses the copy that was written last. Each of
	// the others chooses the copy of one brick.
	Resolve []string `json:"resolve"`
}

// SplitBrains returns the entries in split-brain.
func (c *Controller) SplitBrains(ctx context.Context, volume string) ([]SplitBrain, error) {
	hs, err := c.client.SplitBrain(ctx, volume)
	if err != nil {
		return nil, err
	}

	byGFID := map[string]*SplitBrain{}
	var out []*SplitBrain
	for _, h := range hs {
		for _, e := range h.Entries {
			s := byGFID[e.GFID]
			if s == nil {
				s = &SplitBrain{Path: e.Path, GFID: e.GFID}
				byGFID[e.GFID] = s
				out = append(out, s)
			}

			if !slices.Contains(s.Bricks, h.Brick) {
				s.Bricks = append(s.Bricks, h.Brick)
			}

			if strings.HasPrefix(s.Path, "<gfid:") && !strings.HasPrefix(e.Path, "<gfid:") {
				s.Path = e.Path
			}
		}
	}

	list := make([]SplitBrain, 0, len(out))
	for _, s := range out {
		what := shellQuote(s.Path)
		if strings.HasPrefix(s.Path, "<gfid:") {
			what = "gfid:" + s.GFID
		}

		s.Resolve = append(s.Resolve, "gluster volume heal "+volume+" split-brain latest-mtime "+what)
		for _, b := range s.Bricks {
			s.Resolve = append(s.Resolve, "gluster volume heal "+volume+" split-brain source-brick "+b+" "+what)
		}

		list = append(list, *s)
	}

	return list, nil
}
