package metrics

import (
	"maps"
	"slices"

	"saltern/internal/control"
)

// fleet writes the metrics of the runs of states. f may be nil: an older master that keeps no history.
func (p *page) fleet(f *control.Fleet) {
	if f == nil {
		return
	}

	if f.LastRuns != nil { // there is a history
		p.lastRuns(f)
	}
	p.Single("saltern_fleet_deaf_minions", "gauge",
		"Minions that are connected to this node's master and answer nothing.", float64(f.Deaf))

	if len(f.FailedStates) > 0 {
		p.Family("saltern_fleet_failed_state_minions", "gauge",
			"Minions in whose last run a state failed, by function and id of the state: the worst 50 that failed on several.")
		for _, s := range f.FailedStates {
			p.Sample("saltern_fleet_failed_state_minions", float64(s.Minions), "state", s.State)
		}
	}

	p.runs(f.Functions)
	p.history(f.History)
}

// lastRuns writes the metrics of the last runs of all minions.
func (p *page) lastRuns(f *control.Fleet) {

	p.Family("saltern_fleet_minions", "gauge", "Minions by the result of their last run of states.")
	for _, result := range []string{"ok", "changed", "would_change", "failed", "error", "never"} {
		p.Sample("saltern_fleet_minions", float64(f.LastRuns[result]), "result", result)
	}
	p.Family("saltern_fleet_last_run_minions", "gauge",
		"Minions by the age of their last run of states: at most an hour, a day, a week, or older.")
	for _, age := range []string{"hour", "day", "week", "older"} {
		p.Sample("saltern_fleet_last_run_minions", float64(f.Ages[age]), "age", age)
	}
	p.Single("saltern_fleet_drifted_minions", "gauge", "Minions whose last run found drift.", float64(f.Drifted))
}

// runs writes the metrics of all returns.
func (p *page) runs(functions []control.FleetFunction) {
	if len(functions) == 0 {
		return
	}
	p.Family("saltern_fleet_runs_total", "counter", "Returns by function and result, since the master's start.")
	for _, one := range functions {
		for _, result := range slices.Sorted(maps.Keys(one.Runs)) {
			p.Sample("saltern_fleet_runs_total", float64(one.Runs[result]), "function", one.Function, "result", result)
		}
	}
	p.Family("saltern_fleet_states_total", "counter", "States in these returns, by result.")
	for _, one := range functions {
		for _, result := range slices.Sorted(maps.Keys(one.States)) {
			p.Sample("saltern_fleet_states_total", float64(one.States[result]), "function", one.Function, "result", result)
		}
	}
}

// history writes the metrics of the history's files. h may be nil: an older master.
func (p *page) history(h *control.History) {
	if h == nil {
		return
	}

	p.Single("saltern_history_runs", "gauge", "Runs in the history on this node.", float64(h.Runs))
	p.Single("saltern_history_segments", "gauge", "Files of the history.", float64(h.Segments))
	p.Single("saltern_history_bytes", "gauge", "Size of these files.", float64(h.Bytes))
	p.Single("saltern_history_oldest_seconds", "gauge", "Time of the oldest run; 0: there is none.", seconds(h.Oldest))
	p.Single("saltern_history_damaged_total", "counter",
		"Places in the history that could not be read, since the master's start.", float64(h.Damaged))
	p.Single("saltern_history_left_out_total", "counter",
		"Returns that are in no history because of their job ids.", float64(h.LeftOut))
	p.Family("saltern_history_dropped_total", "counter",
		"Runs removed because they were too old, because of the bound in bytes, and because the disk was full.")
	p.Sample("saltern_history_dropped_total", float64(h.DroppedOld), "cause", "age")
	p.Sample("saltern_history_dropped_total", float64(h.DroppedLarge), "cause", "bytes")
	p.Sample("saltern_history_dropped_total", float64(h.DroppedFull), "cause", "disk")
	p.Single("saltern_job_segments_removed_total", "counter",
		"Segments of jobs and returns that made room on a full disk before they were old.", float64(h.JobSegments))
}

// notify writes the metrics of notifications. n may be nil: there are no rules.
func (p *page) notify(n *control.Notify) {
	if n == nil {
		return
	}

	p.Family("saltern_notify_waiting", "gauge", "Alerts that are still to be sent to a destination.")
	for _, d := range n.Destinations {
		p.Sample("saltern_notify_waiting", float64(d.Waiting), "destination", d.Name)
	}
	p.Family("saltern_notify_failing", "gauge", "1 while this node cannot send to a destination.")
	for _, d := range n.Destinations {
		p.Sample("saltern_notify_failing", oneIf(d.Failing), "destination", d.Name)
	}
	p.Family("saltern_notify_alerts_total", "counter",
		"Alerts by what became of them, since the master's start.")
	for _, d := range n.Destinations {
		for _, outcome := range slices.Sorted(maps.Keys(d.Settled)) {
			p.Sample("saltern_notify_alerts_total", float64(d.Settled[outcome]), "destination", d.Name, "outcome", outcome)
		}
	}
	p.Single("saltern_notify_lost_total", "counter", "Alerts and events that found no room, since the master's start.", float64(n.Lost))
}
