package main

import (
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/supervisor/status"
)

// TestWriteSchedule: each entry with its next run, and what does not run with the reason.
func TestWriteSchedule(t *testing.T) {
	at := time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC)
	list := status.Schedule{Schema: status.Schema, Schedule: control.Schedule{
		Enabled: true,
		Entries: []control.ScheduleEntry{
			{
				Name:     "nightly",
				Function: "state.orchestrate",
				Trigger:  "cron",
				Enabled:  true,
				Next:     []time.Time{at},
				LastRun:  at.AddDate(0, 0, -1),
			},
			{Name: "off\x1b[2J", Function: "test.sleep", Trigger: "once", Skipped: "disabled"},
		},
		Refused: []control.ScheduleProblem{{Entry: "typo", Key: "untill", Text: "an entry has no such key"}},
	}}

	var out strings.Builder
	if err := writeSchedule(&out, list); err != nil {
		t.Fatal(err)
	}

	if text := out.String(); !strings.Contains(text, "cron  2026-11-29 03:00:00  2026-11-30 03:00:00  -\n") ||
		strings.Contains(text, "\x1b") ||
		!strings.Contains(text, "does not run: typo: untill: an entry has no such key\n") || !strings.Contains(text, "disabled") {
		t.Errorf("%s", text)
	}
}
