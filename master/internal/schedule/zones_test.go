package schedule

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata"

	"saltern/master/value"
)

// TestScheduleOverSummerTime: where the clock goes forward or back, an entry with a time of day runs once,
// also at an hour that is left out or comes twice, and an interval goes on.
func TestScheduleOverSummerTime(t *testing.T) {
	for _, c := range []struct {
		zone string
		from time.Time // UTC, an hour before the change or somewhat more
		due  string    // the time of day that is left out, or comes twice
	}{
		{"Europe/Berlin", time.Date(2027, 3, 28, 0, 0, 0, 0, time.UTC), "02:30"},
		{"Europe/Berlin", time.Date(2027, 10, 30, 23, 30, 0, 0, time.UTC), "02:30"},
		{"America/New_York", time.Date(2027, 11, 7, 4, 30, 0, 0, time.UTC), "01:10"},
		{"Australia/Lord_Howe", time.Date(2027, 4, 3, 14, 0, 0, 0, time.UTC), "01:45"}, // by half an hour
	} {
		t.Run(fmt.Sprint(c.zone, " ", c.from.Format(time.DateOnly)), func(t *testing.T) {
			zone, err := time.LoadLocation(c.zone)
			if err != nil {
				t.Fatal(err)
			}

			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				cfg := b.config(value.NewMap(
					"cron", entryOf("a.cron", "cron", c.due[3:]+" "+c.due[:2]+" * * *"),
					"when", entryOf("a.when", "when", c.due),
					"interval", entryOf("a.interval", "minutes", int64(20), "run_on_start", false),
				))
				shift := time.Until(c.from)
				cfg.Now = func() time.Time { return time.Now().Add(shift).In(zone) }
				b.runFor(New(cfg), 4*time.Hour)
				for _, fun := range []string{"a.cron", "a.when"} {
					if n := len(b.calls[fun]); n != 1 {
						t.Errorf("%s ran %d times: %v", fun, n, b.calls[fun])
					}
				}
				if n := len(b.calls["a.interval"]); n < 11 || n > 12 {
					t.Errorf("an interval of 20 minutes ran %d times in four hours: %v", n, b.calls["a.interval"])
				}
			})
		})
	}
}
