package glusterctl

import (
	"fmt"
	"slices"
	"strings"

	"saltern/glusterctl/mount"
)

func (p *planner) planMount() {
	if p.desired.Mount == "" || p.observed.Mount == nil {
		return
	}

	h := p.observed.Mount
	switch h.State {
	case mount.OK:
		p.planTree(h)
	case mount.Absent:
		p.addStep(Step{
			ID:   "mount " + p.desired.Mount,
			Kind: Mount,
			What: "mount volume " + p.desired.Volume + " at " + p.desired.Mount,
			Why:  "it is not mounted on this node",
		})

		if p.desired.Layout > 0 && p.observed.Volume == nil {
			p.layout("the volume is new")
		} else if p.desired.Layout > 0 {
			p.plan.Incomplete = true
		}
	case mount.Foreign:
		p.refuse("storage.mount_foreign", "unmount it", "%s is a mount of something else (%s)", p.desired.Mount, h.Text)
	default:
		p.addWarning("storage.mount_"+string(h.State), "nothing to do here: the mount is watched and made again",
			"%s does not answer: %s", p.desired.Mount, h.Text)
	}
}

// planTree plans the directories on the volume. Only the forming node plans a new tree.
func (p *planner) planTree(h *mount.Health) {
	if p.desired.Layout == 0 {
		return
	}

	var missing []string
	for _, m := range p.desired.Members {
		if !slices.Contains(h.Nodes, m.Name) {
			missing = append(missing, m.Name)
		}
	}

	switch {
	case h.Layout > p.desired.Layout:
		p.refuse("storage.layout_newer", "upgrade this node",
			"the volume has version %d of its tree, this node knows %d", h.Layout, p.desired.Layout)
	case h.Layout == 0 && !p.desired.Form:
		p.addWarning("storage.layout_missing", "wait until the forming node has finished",
			"the directories of the volume have not been made yet")
	case h.Layout < p.desired.Layout:
		p.layout(fmt.Sprintf("the volume has version %d of them", h.Layout))
	case len(missing) > 0:
		p.layout("there are none for " + strings.Join(missing, ", "))
	}
}

func (p *planner) layout(why string) {
	p.addStep(Step{
		ID:   fmt.Sprintf("layout %d", p.desired.Layout),
		Kind: MakeLayout,
		What: "make the directories of the volume",
		Why:  why,
	})
}
