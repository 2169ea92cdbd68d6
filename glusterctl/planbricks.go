package glusterctl

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"saltern/glusterctl/cli"
)

// choose returns the members that hold the bricks: first those that have a brick, then those that
// answer, in the order of the configuration. Three data members give three copies. Two data members
// give two copies only with an arbiter or if TwoCopies is set. An existing copy stays even if these
// rules would not create it.
func (p *planner) choose(has func(Member) bool) []Member {
	if has == nil {
		has = func(Member) bool { return false }
	}

	var data, arbiter []Member
	for _, first := range []bool{true, false} {
		for _, m := range p.desired.Members {
			if has(m) != first || !first && !p.present[m.Name] {
				continue
			}

			switch m.Role {
			case Data:
				data = append(data, m)
			case Arbiter:
				arbiter = append(arbiter, m)
			}
		}
	}

	held := len(slices.DeleteFunc(slices.Clone(data), func(m Member) bool { return !has(m) }))
	switch {
	case len(data) >= maxReplica:
		return data[:maxReplica]
	case len(data) == 2 && len(arbiter) > 0:
		return append(data, arbiter[0])
	case len(data) == 2 && p.desired.TwoCopies:
		p.addWarning("storage.two_nodes", "add a third node, or a small one as arbiter",
			"two copies without an arbiter: when %s is lost the volume stops until it is back",
			data[0].Name)
	case len(data) == 2 && held < 2:
		p.addWarning("storage.standby", "add a third node, or a small one as arbiter; or ask for two copies",
			"%s holds the only copy; %s holds none, because two copies cannot tell which of them is right",
			data[0].Name, data[1].Name)
		return data[:1]
	case len(data) == 2:
		p.addWarning("storage.two_nodes", "add a third node, or a small one as arbiter",
			"two copies are left: when %s is lost the volume stops until it is back", data[0].Name)
	}

	return data
}

// bricks plans additions and removals of copies. It orders them so that the number of complete
// copies falls only if that is wanted.
func (p *planner) bricks() {
	add, remove := p.brickChanges()
	if p.plan.Incomplete && (len(add) > 0 || len(remove) > 0) {
		return // the volume must run first
	}

	// Remove arbiters first and add them last: a volume cannot have one copy and an arbiter.
	slices.SortStableFunc(remove, func(a, b cli.Brick) int { return replicaOrder(b.Arbiter) - replicaOrder(a.Arbiter) })
	slices.SortStableFunc(add,
		func(a, b Member) int { return replicaOrder(a.Role == Arbiter) - replicaOrder(b.Role == Arbiter) })

	for len(add) > 0 || len(remove) > 0 {
		b, m := p.pairBrick(remove, add)
		newHost := slices.IndexFunc(add, func(m Member) bool { return !p.hasBrick(m) })
		ok := false
		switch {
		case b >= 0:
			ok = p.replace(remove[b], add[m])
			remove, add = slices.Delete(remove, b, b+1), slices.Delete(add, m, m+1)
		case newHost >= 0 && p.volume.Replica < maxReplica:
			ok = p.addMember(add[newHost])
			add = slices.Delete(add, newHost, newHost+1)
		case len(remove) == 2 && len(add) == 0 && remove[0].Arbiter:
			ok = p.removeBoth(remove[0], remove[1])
			remove = nil
		case len(remove) > 0 && (len(add) == 0 || newHost >= 0):
			ok = p.remove(remove[0])
			remove = remove[1:]
		default:
			p.refuse("storage.last_copy", "add a data member that takes the data over first",
				"%s holds the only copy and cannot move it to another directory of its own", add[0].Name)
		}

		if !ok {
			return
		}
	}

	p.record(false)
}

// brickChanges returns the members that must get a brick, and the bricks that must be removed.
func (p *planner) brickChanges() (add []Member, remove []cli.Brick) {
	kept := map[string]bool{} // members whose present brick stays
	holder := map[string]bool{}
	for _, b := range p.volume.Bricks {
		if m := p.ownerOf(b); m != nil && m.Role != Client && b.Arbiter == (m.Role == Arbiter) {
			holder[m.Name] = true
			_, path, _ := cli.SplitBrick(b.Name)
			kept[m.Name] = path == m.Brick
		}
	}

	target := p.choose(func(m Member) bool { return holder[m.Name] })
	for _, m := range target {
		if !p.present[m.Name] {
			kept[m.Name] = true // the member does not answer, so its brick cannot change now
		}
		if !kept[m.Name] {
			add = append(add, m)
		}
	}

	for _, b := range p.volume.Bricks {
		m := p.ownerOf(b)
		if m == nil || !kept[m.Name] || !slices.ContainsFunc(target, func(t Member) bool { return t.Name == m.Name }) {
			remove = append(remove, b)
		}
	}

	return add, remove
}

// pairBrick returns the index of a brick in remove, and the index in add of a member whose new
// brick can replace it, or -1 and -1.
func (p *planner) pairBrick(remove []cli.Brick, add []Member) (b, m int) {
	for b, old := range remove {
		if m := slices.IndexFunc(add, func(m Member) bool { return p.mayReplace(old, m) }); m >= 0 {
			return b, m
		}
	}
	return -1, -1
}

// hasBrick reports whether m has a brick of the volume.
func (p *planner) hasBrick(m Member) bool {
	return slices.ContainsFunc(p.volume.Bricks, func(b cli.Brick) bool {
		o := p.ownerOf(b)
		return o != nil && o.Name == m.Name
	})
}

func replicaOrder(last bool) int {
	if last {
		return 1
	}
	return 0
}

// mayReplace reports whether a new brick of m should replace b in one command: because the volume
// can have no further copy, because b does not run, or because both are on the same machine.
func (p *planner) mayReplace(b cli.Brick, m Member) bool {
	if p.volume.Replica == 1 || b.Arbiter != (m.Role == Arbiter) {
		return false
	}
	if o := p.ownerOf(b); o != nil && o.Role == m.Role || p.hasBrick(m) {
		return o != nil && o.Name == m.Name
	}
	return p.volume.Replica == maxReplica || p.down[b.Name]
}

func (p *planner) replace(old cli.Brick, m Member) bool {
	proof, ok := p.proofFor(old, "replace")
	if !ok {
		return false
	}

	why := "its node is to leave"
	if o := p.ownerOf(old); o != nil {
		why = o.Name + " has a new brick directory"
	}

	if p.down[old.Name] {
		why += " and the brick does not run"
	}

	p.addStep(Step{
		ID:          "replace-brick " + old.Name + " " + m.BrickName(),
		Kind:        ReplaceBrick,
		What:        "replace " + old.Name + " by " + m.BrickName(),
		Why:         why,
		Command:     []string{"volume", "replace-brick", p.desired.Volume, old.Name, m.BrickName(), "commit", "force"},
		Destructive: true,
		Proof:       proof,
		Targets:     []string{old.Name, m.BrickName()},
	})

	i := slices.IndexFunc(p.volume.Bricks, func(b cli.Brick) bool { return b.Name == old.Name })
	p.volume.Bricks[i] = cli.Brick{Name: m.BrickName(), Arbiter: old.Arbiter}
	delete(p.down, old.Name)
	p.changed()

	return true
}

func (p *planner) addMember(m Member) bool {
	if !p.needAllUp("adding " + m.BrickName()) {
		return false
	}
	if m.Role == Arbiter && p.volume.Replica != 2 {
		p.refuse("storage.no_brick", "add a second data member", "an arbiter needs two data members")
		return false
	}

	p.waitHealed("the new copy is made from complete ones")
	p.record(true)
	n := p.volume.Replica + 1
	cmd := []string{"volume", "add-brick", p.desired.Volume, "replica", fmt.Sprint(n)}
	what := fmt.Sprintf("add %s as copy %d", m.BrickName(), n)
	if m.Role == Arbiter {
		cmd = append(cmd, "arbiter", "1")
		what = "add " + m.BrickName() + " as arbiter"
	}

	p.addStep(Step{
		ID:      "add-brick " + m.BrickName(),
		Kind:    AddBrick,
		What:    what,
		Why:     m.Name + " is to hold a brick and does not",
		Command: append(cmd, m.BrickName()),
		Targets: []string{m.BrickName()},
	})

	p.volume.Bricks = append(p.volume.Bricks, cli.Brick{Name: m.BrickName(), Arbiter: m.Role == Arbiter})
	p.volume.Replica = n
	p.changed()
	return true
}

func (p *planner) remove(b cli.Brick) bool {
	if len(p.volume.Bricks) == 1 {
		p.refuse("storage.last_copy", "add a data member that takes the data over first", "%s is the only copy", b.Name)
		return false
	}
	if p.volume.Arbiters > 0 && !b.Arbiter {
		p.refuse("storage.unsafe_removal", "add a data member that replaces it, or let the arbiter go first",
			"%s cannot go while an arbiter decides between it and the other copy", b.Name)
		return false
	}

	proof, ok := p.proofFor(b, "remove")
	if !ok {
		return false
	}

	n := p.volume.Replica - 1
	why := "its node is to leave and nobody takes its place"
	if b.Arbiter {
		why = "it is not needed any more"
	}

	p.addStep(Step{
		ID:          "remove-brick " + b.Name,
		Kind:        RemoveBrick,
		What:        fmt.Sprintf("give up %s; %s stay", b.Name, copies(n-p.volume.Arbiters+replicaOrder(b.Arbiter), 0)),
		Why:         why,
		Command:     []string{"volume", "remove-brick", p.desired.Volume, "replica", fmt.Sprint(n), b.Name, "force"},
		Destructive: true,
		Proof:       proof,
		Targets:     []string{b.Name},
	})

	p.volume.Bricks = slices.DeleteFunc(p.volume.Bricks, func(x cli.Brick) bool { return x.Name == b.Name })
	p.volume.Replica = n
	if b.Arbiter {
		p.volume.Arbiters = 0
	}

	wasDown := p.down[b.Name]
	delete(p.down, b.Name)
	if wasDown {
		p.changed() // the removal deletes the list of entries that the old brick still lacked
	}

	return true
}

// removeBoth plans the removal of the arbiter and one of two copies in one command. The arbiter
// cannot be removed in an earlier command: a volume of two copies needs its first brick, and
// without the arbiter nothing shows whether the remaining copy is complete. It returns false if
// there is no proof that b may go.
func (p *planner) removeBoth(arbiter, b cli.Brick) bool {
	proof, ok := p.proofFor(b, "remove")
	if !ok {
		return false
	}

	names := []string{b.Name, arbiter.Name}
	p.addStep(Step{
		ID:          "remove-brick " + strings.Join(names, ","),
		Kind:        RemoveBrick,
		What:        "give up " + b.Name + " and the arbiter " + arbiter.Name + "; 1 copy stays",
		Why:         "its node is to leave, and an arbiter needs two copies",
		Command:     []string{"volume", "remove-brick", p.desired.Volume, "replica", "1", names[0], names[1], "force"},
		Destructive: true,
		Proof:       proof,
		Targets:     names,
	})

	p.volume.Bricks = slices.DeleteFunc(p.volume.Bricks,
		func(x cli.Brick) bool { return slices.Contains(names, x.Name) })
	p.volume.Replica = 1
	p.volume.Arbiters = 0
	p.healed = true
	delete(p.down, b.Name)

	return true
}

// changed plans the steps after a change of bricks: to heal the copies, and to record which are
// complete.
func (p *planner) changed() {
	p.healed = false
	p.waitHealed("each copy has to be complete before anything else may be lost")
	p.record(false)
}

// waitHealed plans to wait for healing, except when it is certain that nothing needs healing.
func (p *planner) waitHealed(why string) {
	if p.healed || p.volume.Replica == 1 {
		return
	}
	p.addStep(Step{
		ID:      "wait-heal " + strings.Join(brickNames(p.volume.Bricks), ","),
		Kind:    WaitHeal,
		What:    "wait until all copies are equal",
		Why:     why,
		Targets: brickNames(p.volume.Bricks),
	})
	p.healed = len(p.down) == 0
}

// needAllUp reports whether all bricks run. If they do not, or if that is unknown, it adds a
// refusal.
func (p *planner) needAllUp(change string) bool {
	if !p.bricksKnown {
		p.refuse("storage.status_unknown", "try again when all nodes answer",
			"%s has to wait: it is not known which bricks run (%s)", change, p.observed.StatusError)
		return false
	}
	if len(p.down) > 0 {
		p.refuse("storage.brick_down", "bring the brick back, or let its node go, first",
			"%s has to wait: %s does not run", change, strings.Join(slices.Sorted(maps.Keys(p.down)), ", "))
		return false
	}
	return true
}

// record plans to record that all copies are complete, see proof.go. With a single copy, the record
// is needed only before another copy is added.
func (p *planner) record(growing bool) {
	if p.volume.Replica == 1 && !growing || len(p.down) > 0 {
		return
	}

	now := slices.Sorted(slices.Values(brickNames(p.volume.Bricks)))
	if value := strings.Join(now, ","); p.volume.Options[completeOption] != value {
		if !p.bricksKnown {
			p.plan.Incomplete = true
			return
		}

		p.waitHealed("only then is it known that every copy is complete")
		if !p.healed {
			return
		}

		p.addStep(Step{
			ID:      "record " + value,
			Kind:    Record,
			What:    "remember that " + strings.Join(now, ", ") + " are complete",
			Why:     "when one of them is lost, this proves that the others have everything",
			Command: []string{"volume", "set", p.desired.Volume, completeOption, value},
			Targets: now,
		})

		p.volume.Options[completeOption] = value
	}
}
