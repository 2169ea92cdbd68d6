package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"saltern/test/load/proctree"
	"saltern/test/load/spread"
)

// report is what a run prints.
type report struct {
	Mode     string          `json:"mode"`
	Minions  int             `json:"minions"`
	AtOnce   int             `json:"concurrency"`
	Requests int             `json:"requests"` // that succeeded
	Failed   int             `json:"failed"`
	Rate     *spread.Summary `json:"rate_per_s,omitempty"` // over the rounds
	Speed    *spread.Summary `json:"mb_per_s,omitempty"`   // over the rounds
	Wall     *spread.Summary `json:"wall_s,omitempty"`     // over the rounds
	Latency  *spread.Summary `json:"latency_ms,omitempty"` // over the requests
	Setup    map[string]any  `json:"setup,omitempty"`
	Jobs     []jobReport     `json:"jobs,omitempty"`
	Extra    map[string]any  `json:"extra,omitempty"`
	Errors   map[string]int  `json:"errors,omitempty"`
	Again    int64           `json:"reauths"`
	Lost     int64           `json:"sub_reconnects"`
	CPU      float64         `json:"swarm_cpu_s"`
	Master   *cost           `json:"master_tree,omitempty"`
}

// cost is what the measured part cost the master.
type cost struct {
	Before proctree.Usage `json:"before"`
	After  proctree.Usage `json:"after"`
	CPU    float64        `json:"cpu_s"`
}

func (r *report) write(w io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		return e.Encode(r)
	}

	fmt.Fprintf(w, "%s: %d minions, %d at once: %d requests, %d failed, %d signed in again, %d subscriptions lost\n",
		r.Mode, r.Minions, r.AtOnce, r.Requests, r.Failed, r.Again, r.Lost)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	for _, row := range []struct {
		name string
		s    *spread.Summary
	}{{"requests a second", r.Rate}, {"MB a second", r.Speed}, {"seconds", r.Wall}, {"answer in ms", r.Latency}} {
		if s := row.s; s != nil {
			fmt.Fprintf(t, "%s\tmin %.3f\tmedian %.3f\tp95 %.3f\tp99 %.3f\tmax %.3f\tof %d\t\n", row.name,
				s.Min, s.Median, s.P95, s.P99, s.Max, s.N)
		}
	}

	if err := t.Flush(); err != nil {
		return err
	}

	for _, j := range r.Jobs {
		fmt.Fprintf(w, "job %s %s: %d of %d returned, %.1f ms from the first publish to the last return\n",
			j.JID, j.Fun, j.Returned, j.Matched, j.Whole)
	}

	for _, m := range []map[string]any{r.Setup, r.Extra} {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			fmt.Fprintf(w, "%s: %v\n", k, m[k])
		}
	}

	if c := r.Master; c != nil {
		fmt.Fprintf(w, "master: %.2f s of CPU; %.1f MiB PSS before, %.1f after; %d processes\n", c.CPU,
			c.Before.PSS, c.After.PSS, c.After.Procs)
	}

	_, err := fmt.Fprintf(w, "swarm: %.2f s of CPU\n", r.CPU)
	return err
}
