package control

// Fleet describes the last runs of states of all minions, and all returns since the master's start.
type Fleet struct {
	// LastRuns is the number of minions by the result of their last run: "ok", "changed", "would_change",
	// "failed", "error", or "never".
	LastRuns map[string]int `json:"last_runs"`
	// Ages is the number of minions by the age of their last run: "hour" (at most), "day", "week" or
	// "older".
	Ages      map[string]int  `json:"ages"`
	Drifted   int             `json:"drifted"` // number of minions whose last run found drift
	Functions []FleetFunction `json:"functions,omitempty"`
}

// FleetFunction counts the returns of one function, such as state.apply, since the master's start.
// Every master of a cluster counts all returns. The list is short: the last one, "other", counts
// the returns of all further functions.
type FleetFunction struct {
	Function string            `json:"function"`
	Runs     map[string]uint64 `json:"runs"`             // by result, as in Fleet.LastRuns
	States   map[string]uint64 `json:"states,omitempty"` // by result: "ok", "changed", "would_change" or "failed"
}
