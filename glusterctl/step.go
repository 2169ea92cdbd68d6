package glusterctl

import (
	"fmt"
	"io"
	"strings"
)

// Kind is the kind of a step.
type Kind string

// Kinds of steps.
const (
	StartDaemon  Kind = "start-daemon"  // start the local glusterd
	WaitPool     Kind = "wait-pool"     // wait until the list of peers is settled
	Probe        Kind = "probe"         // add a machine to the pool
	WaitPeers    Kind = "wait-peers"    // wait until all members count each other as full members
	Create       Kind = "create"        // create the volume
	SetOption    Kind = "set-option"    // set one option
	StartVolume  Kind = "start-volume"  // start the volume
	StartBricks  Kind = "start-bricks"  // start bricks that do not run
	AddBrick     Kind = "add-brick"     // add one copy
	ReplaceBrick Kind = "replace-brick" // move one copy
	RemoveBrick  Kind = "remove-brick"  // remove one copy
	WaitHeal     Kind = "wait-heal"     // wait until all copies are equal
	Record       Kind = "record"        // record that all copies are complete
	Mount        Kind = "mount"         // mount on this node
	MakeLayout   Kind = "make-layout"   // create the first directories on the volume
	Detach       Kind = "detach"        // remove a machine from the pool
)

// Step is one action of a plan.
type Step struct {
	// ID is the same in every plan that contains this step.
	ID   string `json:"id"`
	Kind Kind   `json:"kind"`
	What string `json:"what"`
	Why  string `json:"why"`
	// Command is the gluster command without its general options. It is empty for steps without a
	// gluster command.
	Command []string `json:"command,omitempty"`
	// Destructive marks a step that removes a copy or a machine. Such a step runs only if the
	// approved plan contains it.
	Destructive bool `json:"destructive,omitempty"`
	// Proof is the reason why a destructive step loses no data.
	Proof string `json:"proof,omitempty"`

	// Targets are the members or bricks that the step changes.
	Targets []string `json:"targets,omitempty"`
}

// Finding is a fact that prevents a complete plan, or that an administrator should know.
type Finding struct {
	Code string `json:"code"` // stable, e.g. storage.member_unreachable
	What string `json:"what"`
	Next string `json:"next"` // advice for the administrator
	// Subject is the member or brick concerned, if there is one.
	Subject string `json:"subject,omitempty"`
}

// Plan is an ordered list of steps that lead from the observed to the desired state.
type Plan struct {
	Desired Desired `json:"desired"`
	Steps   []Step  `json:"steps"`
	// Refused lists wanted steps that are not safe, and faults that stop the plan. Steps that
	// depend on these are not in Steps.
	Refused  []Finding `json:"refused,omitempty"`
	Warnings []Finding `json:"warnings,omitempty"`
	// Incomplete means that more steps follow, which can be planned only after the last of Steps.
	// If Steps is empty, the next step depends on which bricks run, and that is not known yet.
	Incomplete bool `json:"incomplete,omitempty"`
}

// Done reports whether the pool is in the desired state.
func (p Plan) Done() bool { return len(p.Steps) == 0 && len(p.Refused) == 0 && !p.Incomplete }

// Text writes the plan to w as text for people.
func (p Plan) Text(w io.Writer) error {
	var b strings.Builder
	switch {
	case p.Done():
		fmt.Fprintf(&b, "Volume %s is as it should be: nothing to do.\n", p.Desired.Volume)
	case p.Incomplete && len(p.Steps) == 0:
		fmt.Fprintf(&b,
			"Volume %s: it is not known yet which bricks run, and so not whether every copy is complete.\n",
			p.Desired.Volume)
	default:
		fmt.Fprintf(&b, "Volume %s: %d step(s).\n", p.Desired.Volume, len(p.Steps))
	}

	for i, s := range p.Steps {
		mark := ""
		if s.Destructive {
			mark = " [takes something away]"
		}

		fmt.Fprintf(&b, "%3d. %s%s\n     why:  %s\n", i+1, s.What, mark, s.Why)
		if s.Proof != "" {
			fmt.Fprintf(&b, "     safe: %s\n", s.Proof)
		}

		if len(s.Command) > 0 {
			fmt.Fprintf(&b, "     run:  gluster %s\n", strings.Join(s.Command, " "))
		}
	}

	if p.Incomplete && len(p.Steps) > 0 {
		b.WriteString("     …    more will be known then\n")
	}

	for _, l := range []struct {
		head string
		list []Finding
	}{{"NOT DONE", p.Refused}, {"warning", p.Warnings}} {
		for _, f := range l.list {
			fmt.Fprintf(&b, "%s (%s): %s\n     next: %s\n", l.head, f.Code, f.What, f.Next)
		}
	}

	_, err := io.WriteString(w, b.String())
	return err
}
