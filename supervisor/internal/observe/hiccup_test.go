package observe

import (
	"errors"
	"testing"
	"time"

	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// TestHiccup: a ping through the front that met a master which has just hung says
// nothing about the minions, and does not begin 'serving since' anew; a front that
// stays silent, or has no master, does.
func TestHiccup(t *testing.T) {
	cfg := settings.Default("n1")
	cfg.RuntimeDir = t.TempDir()
	clock := now
	o := New(Config{Settings: &cfg, Started: now, Board: status.NewBoard(), Now: func() time.Time { return clock }})
	silent := errors.New("timed out")
	steps := []struct {
		after time.Duration
		front error
		up    int // masters that the load balancer uses
		want  time.Duration
	}{
		{0, nil, 2, 0}, {time.Minute, nil, 2, time.Minute},
		{2 * time.Second, silent, 2, time.Minute + 2*time.Second},
		{2 * time.Second, silent, 1, time.Minute + 4*time.Second},
		{2 * time.Second, nil, 1, time.Minute + 6*time.Second},
		{2 * time.Second, silent, 0, -1}, // the last master is gone
		{2 * time.Second, silent, 1, -1}, // it did not serve before
		{2 * time.Second, nil, 1, 0},
		{6 * time.Second, silent, 1, 6 * time.Second},
		{3 * time.Second, silent, 1, -1}, // the load balancer is wrong
	}

	for i, s := range steps {
		clock = clock.Add(s.after)
		f := healthyFacts(&cfg)
		f.now, f.front = clock, s.front
		f.balancer.backends, f.balancer.up = 2, s.up
		got := time.Duration(-1)
		d := o.compose(f)
		if d.ServingSince != nil {
			got = clock.Sub(*d.ServingSince)
		}

		if got != s.want || (d.Health == status.NotServing) != (s.want < 0) {
			t.Errorf("step %d: serving for %s, want %s; %s", i, got, s.want, d.Health)
		}
	}
}
