package control

import (
	"context"
	"time"

	"saltern/internal/rpc"
)

const (
	// MaxScheduled is how many entries of a schedule are shown.
	MaxScheduled = 1000
	// NextRuns is how many runs to come a master shows of each.
	NextRuns = 5
)

// Schedule is the option schedule of a master, and when its entries run.
type Schedule struct {
	Enabled bool `json:"enabled"`
	// Owner: this master runs it; in a cluster one does.
	Owner   bool              `json:"owner"`
	Entries []ScheduleEntry   `json:"entries"`           // the first [MaxScheduled]
	Refused []ScheduleProblem `json:"refused,omitempty"` // do not run
}

// ScheduleEntry is one entry.
type ScheduleEntry struct {
	Name     string      `json:"name"`
	Function string      `json:"function"`
	Trigger  string      `json:"trigger"` // every 1m0s, cron, when, once
	Enabled  bool        `json:"enabled"`
	DryRun   bool        `json:"dry_run,omitempty"`
	Running  int         `json:"running"` // runs that wait or are at work, on the owner
	Next     []time.Time `json:"next"`    // the next runs; none: it does not run any more
	LastRun  time.Time   `json:"last_run,omitzero"`
	// Skipped is why it did not run when it was due last, in Salt's words (_skip_reason).
	Skipped string `json:"skipped,omitempty"`
}

// ScheduleProblem is why an entry does not run.
type ScheduleProblem struct {
	Entry string `json:"entry"`         // "": all of them
	Key   string `json:"key,omitempty"` // "": the entry as a whole
	Text  string `json:"text"`
}

// Schedule returns the schedule of the master.
func (c *Client) Schedule(ctx context.Context) (Schedule, error) {
	s, err := ask(ctx, &c.rpc, readSchedule, rpc.None{})
	return s.clean(), err
}

// clean bounds what the other side says and makes it fit for one line each.
func (s Schedule) clean() Schedule {
	s.Entries = s.Entries[:min(len(s.Entries), MaxScheduled)]
	s.Refused = s.Refused[:min(len(s.Refused), MaxScheduled)]
	for i := range s.Entries {
		e := &s.Entries[i]
		e.Name = oneLine(e.Name)
		e.Function = oneLine(e.Function)
		e.Trigger = oneLine(e.Trigger)
		e.Skipped = oneLine(e.Skipped)
		e.Next = e.Next[:min(len(e.Next), NextRuns)]
	}

	for i := range s.Refused {
		p := &s.Refused[i]
		p.Entry = oneLine(p.Entry)
		p.Key = oneLine(p.Key)
		p.Text = oneLine(p.Text)
	}

	return s
}
