package control

import (
	"context"
	"time"

	"saltern/internal/rpc"
)

const (
	// MaxScheduled is how many entries of a schedule are shown.
	MaxScheduled = 1000
	// NextRuns is how many future runs of each entry a master shows.
	NextRuns = 5
)

// Schedule is the content of a master's option schedule, and when its entries run.
type Schedule struct {
	Enabled bool `json:"enabled"`
	// Owner means that this master runs the schedule. In a cluster only one master does.
	Owner   bool              `json:"owner"`
	Entries []ScheduleEntry   `json:"entries"`           // the first [MaxScheduled]
	Refused []ScheduleProblem `json:"refused,omitempty"` // entries with faults, which do not run
}

// ScheduleEntry is one entry of the schedule.
type ScheduleEntry struct {
	Name     string      `json:"name"`
	Function string      `json:"function"`
	Trigger  string      `json:"trigger"` // such as "every 1m0s", "cron", "when" or "once"
	Enabled  bool        `json:"enabled"`
	DryRun   bool        `json:"dry_run,omitempty"`
	Running  int         `json:"running"` // number of runs that wait or are under way; only the owner knows it
	Next     []time.Time `json:"next"`    // times of the next runs; empty: there are no more
	LastRun  time.Time   `json:"last_run,omitzero"`
	// LastJob is the id of the job on minions that the last run has started; "": none is known. Masters that
	// do not own the schedule know it a second later.
	LastJob string `json:"last_job,omitempty"`
	// Skipped is why the entry did not run when it was last due, in Salt's words (_skip_reason), or
	// once_has_passed if it never ran here and is never due.
	Skipped string `json:"skipped,omitempty"`
}

// ScheduleProblem is the reason why an entry does not run.
type ScheduleProblem struct {
	Entry string `json:"entry"`         // name of the entry; "": all entries
	Key   string `json:"key,omitempty"` // faulty key of the entry; "": the entry as a whole
	Text  string `json:"text"`
}

// Schedule returns the schedule of the master.
func (c *Client) Schedule(ctx context.Context) (Schedule, error) {
	s, err := ask(ctx, &c.rpc, readSchedule, rpc.None{})
	return s.clean(), err
}

// clean returns s with its lists cut to their bounds and each text made safe for one line.
func (s Schedule) clean() Schedule {
	s.Entries = s.Entries[:min(len(s.Entries), MaxScheduled)]
	s.Refused = s.Refused[:min(len(s.Refused), MaxScheduled)]
	for i := range s.Entries {
		e := &s.Entries[i]
		e.Name = oneLine(e.Name)
		e.Function = oneLine(e.Function)
		e.Trigger = oneLine(e.Trigger)
		e.Skipped = oneLine(e.Skipped)
		e.LastJob = oneLine(e.LastJob)
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
