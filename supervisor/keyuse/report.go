package keyuse

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// Report lists the machines that use one key, and says which of them may act for the node. There is
// a report only if another machine uses the key besides the node's own. Nodes exchange reports.
type Report struct {
	Certificate string `json:"certificate"` // hash of the node's certificate
	// Two reports whether two machines sent alternately, so that both run.
	Two      bool      `json:"two,omitempty"`
	Machines []Machine `json:"machines"`
}

// Machine is a machine that uses a key.
type Machine struct {
	Life string `json:"life,omitempty"` // running start of the supervisor; "": the machine has an older version
	// Source is the address from which the machine sent its request.
	Source string `json:"source"`
	// Held reports whether the machine has the node's address.
	Held bool `json:"held,omitempty"`
	// Likeness says whether the machine's hardware has the known facts of the node.
	Likeness Likeness `json:"likeness"`
	// May reports whether the machine may act for the node.
	May bool `json:"may,omitempty"`
}

// judgeUses decides which machines may act for a node. A machine without the node's address may
// not. If two machines have the address (twoHeld), only the one with the node's known facts may
// act, provided that the facts of the other differ. If that cannot be decided, neither may act: an
// administrator must switch one off. The bool reports whether there is anything to report.
//
// A machine with an older version, which sends no facts, may act while no other machine uses the
// key.
func judgeUses(certificate string, uses []use, two, twoHeld bool, known Facts) (Report, bool) {
	r := Report{Certificate: certificate, Two: two}
	held := map[Likeness]int{}
	for _, u := range uses {
		m := Machine{
			Life:     u.speaker.Life,
			Source:   u.source,
			Held:     u.speaker.Held,
			Likeness: u.speaker.Facts.Compare(known),
		}

		r.Machines = append(r.Machines, m)
		if m.Held {
			held[m.Likeness]++
		}
	}

	decided := held[Same] > 0 && held[Other] > 0 && held[Unknown] == 0
	strange := two
	for i := range r.Machines {
		m := &r.Machines[i]
		switch {
		case m.Held:
			m.May = !twoHeld || decided && m.Likeness == Same
		case m.Life == "":
			m.May = !two
		}

		strange = strange || !m.May
	}

	return r, strange
}

// Of returns the machine with that life. A copy of a machine's memory has the same life; if only
// one of the two has the node's address, held selects between them.
func (r Report) Of(life string, held bool) (found Machine, ok bool) {
	for _, m := range r.Machines {
		if m.Life == life && (!ok || m.Held == held) {
			found = m
			ok = true
		}
	}
	return found, ok
}

// Decided reports whether one of the machines may act for the node.
func (r Report) Decided() bool {
	return slices.ContainsFunc(r.Machines, func(m Machine) bool { return m.May })
}

// Text returns a sentence about the machines that use the key of a node with that address.
func (r Report) Text(node, address string) string {
	held := 0
	var elsewhere []string
	for _, m := range r.Machines {
		switch {
		case m.Held:
			held++
		case !slices.Contains(elsewhere, m.Source):
			elsewhere = append(elsewhere, m.Source)
		}
	}

	slices.Sort(elsewhere)
	places := strings.Join(elsewhere, " and ")

	switch {
	case places == "" && r.Decided():
		return fmt.Sprintf("two machines at %s use the key of %s; one of them has other hardware than %s had",
			address, node, node)
	case places == "":
		return fmt.Sprintf("two machines at %s use the key of %s; "+
			"which one is the copy cannot be told, and neither may change the cluster until one is switched off",
			address, node)
	case held > 0:
		return fmt.Sprintf("two machines use the key of %s: %s and %s", node, address, places)
	}

	text := fmt.Sprintf("a machine at %s uses the key of %s, which has the address %s", places, node, address)
	if len(r.Machines) == 1 && r.Machines[0].Likeness == Same {
		text += fmt.Sprintf("; its hardware is that of %s, which may have got another address", node)
	}

	return text
}

var certificateForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Check returns an error if a report from another node is malformed.
func (r Report) Check() error {
	if !certificateForm.MatchString(r.Certificate) {
		return errors.New("use of a key: no hash of a certificate")
	}
	if len(r.Machines) == 0 || len(r.Machines) > maxUses {
		return fmt.Errorf("use of a key: %d machines, 1 to %d are possible", len(r.Machines), maxUses)
	}

	for _, m := range r.Machines {
		if m.Life != "" && !lifeForm.MatchString(m.Life) {
			return errors.New("use of a key: a start is no id")
		}

		if _, err := netip.ParseAddr(m.Source); err != nil {
			return fmt.Errorf("use of a key: source: %w", err)
		}
		if !slices.Contains([]Likeness{Unknown, Same, Other}, m.Likeness) {
			return fmt.Errorf("use of a key: likeness %.20q is not known", m.Likeness)
		}
	}

	return nil
}
