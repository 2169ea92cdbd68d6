package glusterctl

import (
	"fmt"
	"slices"
	"strings"

	"saltern/glusterctl/mount"
)

func (p *planner) mount() {
	if p.d.Mount == "" || p.obs.Mount == nil {
		return
	}

	h := p.obs.Mount
	switch h.State {
	case mount.OK:
		p.tree(h)
	case mount.Absent:
		p.step(Step{
			ID:   "mount " + p.d.Mount,
			Kind: Mount,
			What: "mount volume " + p.d.Volume + " at " + p.d.Mount,
			Why:  "it is not mounted on this node",
		})

		if p.d.Layout > 0 && p.obs.Volume == nil {
			p.layout("the volume is new")
		} else if p.d.Layout > 0 {
			p.plan.Incomplete = true
		}
	case mount.Foreign:
		p.refuse("storage.mount_foreign", "unmount it", "%s is a mount of something else (%s)", p.d.Mount, h.Text)
	default:
		p.warn("storage.mount_"+string(h.State), "nothing to do here: the mount is watched and made again",
			"%s does not answer: %s", p.d.Mount, h.Text)
	}
}

// tree plans the directories on the volume. Only the forming node begins it.
func (p *planner) tree(h *mount.Health) {
	if p.d.Layout == 0 {
		return
	}

	var missing []string
	for _, m := range p.d.Members {
		if !slices.Contains(h.Nodes, m.Name) {
			missing = append(missing, m.Name)
		}
	}

	switch {
	case h.Layout > p.d.Layout:
		p.refuse("storage.layout_newer", "upgrade this node",
			"the volume has version %d of its tree, this node knows %d", h.Layout, p.d.Layout)
	case h.Layout == 0 && !p.d.Form:
		p.warn("storage.layout_missing", "wait until the forming node has finished",
			"the directories of the volume have not been made yet")
	case h.Layout < p.d.Layout:
		p.layout(fmt.Sprintf("the volume has version %d of them", h.Layout))
	case len(missing) > 0:
		p.layout("there are none for " + strings.Join(missing, ", "))
	}
}

func (p *planner) layout(why string) {
	p.step(Step{
		ID:   fmt.Sprintf("layout %d", p.d.Layout),
		Kind: MakeLayout,
		What: "make the directories of the volume",
		Why:  why,
	})
}
