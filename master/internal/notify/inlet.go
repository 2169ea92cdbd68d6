package notify

import (
	"sync"
	"time"

	"saltern/master/history"
	"saltern/master/internal/notify/alert"
	"saltern/master/internal/notify/rules"
)

const (
	// recentFor is the age from which no message is sent about a run. A node that was away adds old
	// runs to its history, and the other nodes have sent messages about them long ago.
	recentFor = time.Hour
	maxEarly  = 1000 // runs that wait for the Service
)

// Inlet passes the runs that the history of this node takes to the Service. It keeps runs that come
// before the Service is open. The history of every node takes each run, so no alert is lost when
// the master that had the event dies, or crashes before it records the alert. It is safe for
// concurrent use.
type Inlet struct {
	mu      sync.Mutex
	service *Service
	open    bool
	early   []history.Run
}

// Open sets the Service, which may be nil: there are no rules.
func (i *Inlet) Open(s *Service) {
	i.mu.Lock()
	i.service = s
	i.open = true
	early := i.early
	i.early = nil
	i.mu.Unlock()
	for n := range early {
		s.ran(&early[n])
	}
}

// Ran takes a run. Before Open it keeps the first runs, at most maxEarly of them.
func (i *Inlet) Ran(run *history.Run) {
	i.mu.Lock()
	service, open := i.service, i.open
	if !open && len(i.early) < maxEarly {
		early := *run
		early.Return = nil
		i.early = append(i.early, early)
	}
	i.mu.Unlock()
	if open {
		service.ran(run)
	}
}

// ran records the alerts of a run: that it failed, and that it found the minion changed although its
// files had not.
func (s *Service) ran(run *history.Run) {
	if s == nil || s.cfg.Now().Sub(run.Time) > recentFor {
		return
	}

	known := alert.Run{
		Minion:  run.Minion,
		JID:     run.JID,
		User:    run.User,
		Time:    run.Time,
		Summary: run.Summary,
	}
	var alerts []alert.Alert
	if a, failed := alert.OfRun(known); failed {
		alerts = append(alerts, a)
	}
	if drifted := run.Summary.Drifted(); len(drifted) > 0 && s.cfg.Rules.Has(rules.Drift) {
		alerts = append(alerts, alert.OfDrift(known, drifted))
	}
	for _, a := range alerts {
		if s.cfg.Rules.Matches(a.Subject()) && !s.outbox.Has(a.ID) {
			s.record(false, a) // the histories of the others take the run as well
		}
	}
}
