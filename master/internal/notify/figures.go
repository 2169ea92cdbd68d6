package notify

import "saltern/internal/control"

// Figures returns the numbers for the master's status. s may be nil: there are no rules.
func (s *Service) Figures() *control.Notify {
	if s == nil {
		return nil
	}
	out := &control.Notify{
		Destinations: []control.Destination{},
		Lost:         s.outbox.lostSinceStart() + s.unheard.Load(),
	}
	for _, d := range s.senders {
		out.Destinations = append(out.Destinations, d.figures())
	}
	return out
}

func (d *sender) figures() control.Destination {
	waiting, _ := d.service.outbox.counts(d.to.ID)
	counts := d.service.outbox.sinceStart(d.to.ID)
	out := control.Destination{
		Name:    d.to.Name,
		By:      d.to.Kind(),
		Waiting: waiting,
		Settled: map[string]uint64{},
	}
	for _, outcome := range []Outcome{Sent, Repeated, Silenced, Unselected, Refused, Expired} {
		out.Settled[string(outcome)] = counts[outcome]
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	out.Failing = d.lastErr != ""
	return out
}
