package glusterctl

import (
	"slices"

	"saltern/glusterctl/cli"
)

// These are the conditions for the removal of a copy:
//
// A brick that runs: when all bricks run and nothing needs healing. Then each single brick holds
// everything.
//
// A brick that does not run cannot be compared with the others, so the proof must come from the past.
// Whenever all bricks run and nothing needs healing, Apply writes their names into the volume's
// configuration (completeOption), which every member keeps. From then on the quorum rule
// (cluster.quorum-type auto, always set) protects the data:
//
//   - three copies: a write is answered only when two have it. So the two that
//     remain, which both run now, hold everything between them.
//   - two copies: a write is answered only when the *first* brick has it. The
//     second may go, the first may not.
//   - two copies and an arbiter: the arbiter may go. A copy may go only when
//     the arbiter has nothing pending for the other copy: when both list the
//     same pending entries, which are then all caused by the lost copy.
//
// A brick that was added or replaced enters the list only after it has been healed and every name
// has been looked up (settle.go). So a new, empty brick is never taken for a copy. The removed
// brick itself need not be in the list; the remaining bricks must be.
//
// An operator can overrule this brick by brick, see Desired.AcceptLoss.

// proofFor returns the proof that x may be removed. If the proof needs a healed volume, proofFor
// first plans to wait until the volume is healed. If there is no proof, it adds a refusal and
// returns false.
func (p *planner) proofFor(x cli.Brick, verb string) (string, bool) {
	unsafe := func(next, format string, args ...any) (string, bool) {
		if slices.Contains(p.desired.AcceptLoss, x.Name) {
			p.addWarning("storage.accepted_loss", "none: this was accepted",
				"to "+verb+" "+x.Name+" may lose data: "+format, args...)
			return "NONE: the loss of " + x.Name + " was accepted by name", true
		}
		p.refuse("storage.unsafe_removal", next, "to "+verb+" "+x.Name+" may lose data: "+format, args...)
		return "", false
	}

	if !p.bricksKnown {
		return unsafe("try again when all nodes answer", "it is not known which bricks run (%s)",
			p.observed.StatusError)
	}

	var rest []cli.Brick
	for _, b := range p.volume.Bricks {
		if b.Name == x.Name {
			continue
		}
		rest = append(rest, b)
		if p.down[b.Name] {
			return unsafe("bring "+b.Name+" back first", "%s does not run either", b.Name)
		}
	}

	if len(rest) == 0 {
		return unsafe("add a data member that takes the data over first", "it is the only copy")
	}

	if s := p.observed.HealState(); s.SplitBrain.N > 0 {
		return unsafe("resolve the split-brain first", "%d entries are in split-brain", s.SplitBrain.N)
	}
	if !p.down[x.Name] {
		p.waitHealed(x.Name + " is to go")
		return "all copies are equal before it goes", true
	}

	known := p.observed.complete()
	for _, b := range rest {
		if !slices.Contains(known, b.Name) {
			return unsafe("bring "+x.Name+" back and wait until all copies are equal",
				"it was never recorded that %s is complete", b.Name)
		}
	}

	if q := p.observed.Volume.Options["cluster.quorum-type"]; p.volume.Replica > 1 && q != "auto" {
		return unsafe("bring it back", "cluster.quorum-type was %q, so that one copy alone could be written", q)
	}

	switch {
	case p.volume.Replica == 3 && p.volume.Arbiters == 0:
		return "the other two were recorded as complete, both run, and no write was answered by one copy alone", true
	case p.volume.Replica == 3 && x.Arbiter:
		return "it holds no data, and both copies run", true
	case p.volume.Replica == 3:
		if !p.observed.SameEntries {
			return unsafe("wait a minute and try again",
				"the arbiter and the remaining copy do not list the same pending entries")
		}
		return "the remaining copy was recorded as complete and the arbiter blames it for nothing", true
	case p.volume.Bricks[0].Name != x.Name:
		return p.volume.Bricks[0].Name + " is the first brick: no write was answered without it", true
	}

	return unsafe("bring it back; or accept the loss by name",
		"it is the first brick of two: the other one may lack writes")
}
