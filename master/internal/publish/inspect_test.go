package publish

import "time"

// Stats returns the counters.
func (p *Publisher) Stats() Stats {
	return Stats{Published: p.published.Load(), Resent: p.resent.Load(), Failed: p.failed.Load(),
		Kept: len(p.history.recentSince(time.Time{}, p.cfg.Now()))}
}
