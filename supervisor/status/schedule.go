package status

import "saltern/internal/control"

// Schedule is the master's option schedule, and when its entries run.
type Schedule struct {
	Schema int `json:"schema"`
	control.Schedule
}
