package life

import (
	"strings"
	"testing"
	"time"

	"saltern/supervisor/status"
)

// TestServingWaits: a master that has just been started is no fault that an administrator
// should look at; one that stays silent is, and so is any other fault.
func TestServingWaits(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	silent := func(ago time.Duration) status.Problem {
		return status.Problem{Code: status.MasterSilent, Severity: status.Fatal, Title: "salt-master does not answer",
			Cause: "connection refused", Next: "applianced logs master", Since: now.Add(-ago)}
	}

	full := status.Problem{Code: status.DiskFull, Severity: status.Fatal, Title: "the disk is full", Since: now}
	for name, c := range map[string]struct {
		problems []status.Problem
		want     string
	}{
		"just started": {[]status.Problem{silent(5 * time.Second)}, "salt-master, which is starting, to answer"},
		"silent": {[]status.Problem{silent(2 * time.Minute)},
			"SCA-203 to clear: salt-master does not answer (connection refused); next: applianced logs master"},
		"disk first": {[]status.Problem{full, silent(5 * time.Second)}, string(status.DiskFull)},
		"nothing":    {nil, "an answer through the front"},
	} {
		t.Run(name, func(t *testing.T) {
			got := servingWaits(status.Document{Time: now, Problems: c.problems})
			if !strings.HasPrefix(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
