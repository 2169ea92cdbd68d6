package observe

import (
	"testing"

	"saltern/supervisor/status"
)

// TestHeadline: what a healthy node notes is no reason for its health.
func TestHeadline(t *testing.T) {
	for _, c := range []struct {
		health status.Health
		codes  []string
		want   string
	}{
		{status.Healthy, nil, "healthy"},
		{status.Healthy, []string{"SCA-601"}, "healthy; note: SCA-601 it is so"},
		{status.NotServing, []string{"SCA-302", "SCA-601"}, "not serving: SCA-302 it is so"},
	} {
		d := status.Document{Health: c.health}
		for _, code := range c.codes {
			d.Problems = append(d.Problems, status.Problem{Code: status.Code(code), Title: "it is so"})
		}
		if got := headline(d); got != c.want {
			t.Errorf("%s %v: %q, want %q", c.health, c.codes, got, c.want)
		}
	}
}
