package status

import "saltern/internal/control"

// Schedule describes the schedule in the master's options, and when its entries run.
type Schedule struct {
	Schema int `json:"schema"`
	control.Schedule
}
