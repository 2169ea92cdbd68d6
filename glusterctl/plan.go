package glusterctl

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"saltern/glusterctl/cli"
	"saltern/glusterctl/mount"
)

// NewPlan returns the steps from the observed to the desired state, in order. It is a pure
// function: the same arguments give the same plan.
//
// Each step assumes that the previous steps had their effect. Apply makes a new plan after each
// step, so nothing depends on that assumption.
func NewPlan(obs *Observation, d Desired) Plan {
	p := &planner{observed: obs, desired: d, plan: Plan{Desired: d}}
	p.planAll()
	return p.plan
}

// planner holds a model of the pool, which each planned step changes.
type planner struct {
	observed *Observation
	desired  Desired
	plan     Plan

	joined      map[string]bool // members that are in the pool, or will be after the steps planned so far
	present     map[string]bool // members that answer and are in the pool, or will be after the steps planned so far
	volume      *cli.Volume     // a copy that the steps change
	down        map[string]bool // bricks that do not run
	bricksKnown bool            // whether down is complete
	healed      bool            // all bricks run and there is nothing to heal
}

func (p *planner) addStep(s Step) { p.plan.Steps = append(p.plan.Steps, s) }

func (p *planner) refuse(code, next, format string, args ...any) {
	p.plan.Refused = append(p.plan.Refused, Finding{Code: code, What: fmt.Sprintf(format, args...), Next: next})
}

func (p *planner) addWarning(code, next, format string, args ...any) {
	p.plan.Warnings = append(p.plan.Warnings, Finding{Code: code, What: fmt.Sprintf(format, args...), Next: next})
}

func (p *planner) planAll() {
	if err := p.desired.Validate(); err != nil {
		p.refuse("storage.invalid", "correct the configuration", "the desired state is not valid: %s",
			strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}

	if !p.daemon() || !p.planPool() {
		return
	}
	if p.observed.VolumeError != "" {
		p.refuse("storage.volume_unknown", "look at the log of glusterd, then try again",
			"the configuration of volume %s cannot be read: %s", p.desired.Volume, p.observed.VolumeError)
		return
	}

	if p.observed.Volume == nil {
		if !p.planVolume() {
			return
		}
	} else if !p.adoptVolume() {
		return
	}

	if !p.quorum() {
		return
	}

	p.options()
	p.planStart()

	// Give new members their directories before the data is copied. Copying may take long, and
	// meanwhile the members can use the mounted volume.
	mounted := p.observed.Mount != nil && p.observed.Mount.State == mount.OK
	if mounted {
		p.planMount()
	}

	p.bricks()
	p.options()
	if !mounted {
		p.planMount()
	}

	p.detach()
}

func (p *planner) daemon() bool {
	if p.observed.Daemon == "" {
		return true
	}
	p.addStep(Step{
		ID:      "start-daemon",
		Kind:    StartDaemon,
		What:    "start glusterd on this node",
		Why:     "it does not answer: " + p.observed.Daemon,
		Targets: []string{p.desired.Self},
	})
	p.plan.Incomplete = true
	return false
}

// planVolume plans a new volume, and returns false if that is not possible. The volume gets as many
// copies as there are answering data members, within the rules of [planner.choose].
func (p *planner) planVolume() bool {
	if !p.desired.Form {
		p.refuse("storage.no_volume", "join this node to its cluster again, or form a new one",
			"volume %s does not exist on this node", p.desired.Volume)
		return false
	}

	var bricks []cli.Brick
	arbiters := 0
	for _, m := range p.choose(nil) {
		if m.Role == Arbiter {
			arbiters = 1
		}
		bricks = append(bricks, cli.Brick{Name: m.BrickName(), Arbiter: m.Role == Arbiter})
	}

	if len(bricks) == 0 {
		p.refuse("storage.no_brick", "give at least one member the role data", "no member can hold the data")
		return false
	}

	args := []string{"volume", "create", p.desired.Volume}
	if len(bricks) > 1 {
		args = append(args, "replica", fmt.Sprint(len(bricks)))
	}

	if arbiters > 0 {
		args = append(args, "arbiter", "1")
	}

	args = append(args, "transport", "tcp")
	names := brickNames(bricks)
	p.addStep(Step{
		ID:      "create " + p.desired.Volume,
		Kind:    Create,
		What:    fmt.Sprintf("create volume %s with %s", p.desired.Volume, copies(len(bricks)-arbiters, arbiters)),
		Why:     "it does not exist yet",
		Command: append(args, names...),
		Targets: names,
	})

	p.volume = &cli.Volume{
		Name:     p.desired.Volume,
		State:    cli.Created,
		Dist:     1,
		Replica:  len(bricks),
		Arbiters: arbiters,
		Bricks:   bricks,
		Options:  map[string]string{},
	}

	if len(bricks) > 1 {
		p.volume.Options[granularOption] = "on"
	}

	p.down = map[string]bool{}
	p.bricksKnown = true
	p.healed = true
	return true
}

// adoptVolume copies the existing volume into the model of the planner. It returns false if the
// volume has a form that the planner does not change.
func (p *planner) adoptVolume() bool {
	v := *p.observed.Volume
	v.Options, v.Bricks = maps.Clone(v.Options), slices.Clone(v.Bricks)
	if v.Options == nil {
		v.Options = map[string]string{}
	}

	p.volume = &v
	plain := v.Type == "Distribute" && len(v.Bricks) == 1
	replicated := v.Type == "Replicate" && v.Dist == 1 && v.Replica == len(v.Bricks) && v.Replica <= maxReplica
	if !plain && !replicated {
		p.refuse("storage.foreign_volume",
			"this volume was not made by the appliance; nothing is changed on it",
			"volume %s is %s with %d bricks (replica %d)", v.Name, v.Type, len(v.Bricks), v.Replica)
		return false
	}

	p.down = map[string]bool{}
	p.bricksKnown = v.State == cli.Started
	for _, b := range v.Bricks {
		up, known := p.observed.brickState(b)
		if !known {
			p.bricksKnown = false
		} else if !up {
			p.down[b.Name] = true
		}
	}

	p.healed = p.bricksKnown && len(p.down) == 0 && p.observed.HealState().Pending.Zero() &&
		p.observed.HealState().SplitBrain.Zero()
	return true
}

func brickNames(bs []cli.Brick) []string {
	out := make([]string, len(bs))
	for i, b := range bs {
		out[i] = b.Name
	}
	return out
}

func copies(data, arbiters int) string {
	s := fmt.Sprintf("%d copies", data)
	if data == 1 {
		s = "1 copy"
	}
	if arbiters > 0 {
		s += " and an arbiter"
	}
	return s
}
