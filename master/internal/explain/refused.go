package explain

import (
	"fmt"
	"net/netip"
	"strings"

	"saltern/internal/control"
	"saltern/internal/printable"
	"saltern/master/internal/request"
)

// A minion's requests go to one master of the cluster, and only that one knows what it has refused. The lists
// of minions that nodes exchange have it, so every master can name the cause.

// RefusedOf returns what this master has refused of a minion since the last request that the minion proved. It
// returns nil if there is nothing.
func (s *Service) RefusedOf(id string) *control.Refused {
	f := facts{id: id}
	s.lookAtRequests(&f)
	switch {
	case f.hasSignIn && f.signIn.Refusal != "" && f.signIn.At.After(f.asked):
		return &control.Refused{
			SignIn: true,
			Why:    reason(f.signIn.Refusal),
			At:     f.signIn.At.UTC(),
			From:   f.signIn.From.String(),
			Count:  1,
		}
	case f.refusal != nil:
		return &control.Refused{Why: reason(f.refusal.Why), At: f.refusal.At.UTC(), Count: f.refusal.Count}
	}
	return nil
}

// reason bounds a text about a refusal, which may hold what a stranger has sent.
func reason(text string) string { return printable.Clip(printable.Line(text), control.MaxRefused) }

// lookAtRequests looks at the last sign-in, request and refusal of the minion at this master.
func (s *Service) lookAtRequests(f *facts) {
	c := &s.cfg
	f.signIn, f.hasSignIn = c.SignIns.Last(f.id)
	from, at, ok := c.Presence.LastRequest(f.id)
	if ok {
		f.asked = at
	}
	if !from.IsValid() {
		from, _, _ = c.Presence.LastSignIn(f.id, false)
	}
	if !from.IsValid() {
		from = f.signIn.From
	}
	if from.IsValid() {
		f.refusal = s.refusalFrom(from, f)
	}
}

// refusalFrom returns the last request of the minion that was refused after its last good one, or nil.
func (s *Service) refusalFrom(from netip.Addr, f *facts) *request.Refusal {
	last, ok := s.cfg.Refusals.RefusedFrom(from)
	if !ok || !last.At.After(f.asked) {
		return nil
	}
	if strings.Contains(last.Why, fmt.Sprintf("%.64q", f.id)) || strings.HasPrefix(last.Why, "protocol version") {
		return &last
	}
	return nil
}

// addRefused adds what another master has refused, if that is later than what this one knows.
func (f *facts) addRefused() {
	other := f.places.Refused
	if other == nil {
		return
	}

	switch {
	case other.SignIn && (!f.hasSignIn || other.At.After(f.signIn.At)):
		from, _ := netip.ParseAddr(other.From) // the zero address if it is none
		f.hasSignIn = true
		f.signIn = SignIn{At: other.At, From: from, Refusal: reason(other.Why)}
	case !other.SignIn && (f.refusal == nil || other.At.After(f.refusal.At)):
		f.refusal = &request.Refusal{Why: reason(other.Why), At: other.At, Count: other.Count}
	}
}
