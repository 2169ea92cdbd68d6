package schedule

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"saltern/master/value"
)

// TestClockYearAheadAndBack: a clock that is a year or hours ahead, or an hour behind, for seven minutes stops no
// entry for longer and makes none run again and again, also when the owner changes meanwhile or afterwards.
func TestClockYearAheadAndBack(t *testing.T) {
	const wrongFrom, wrongUntil = 5*time.Minute + 10*time.Second, 12*time.Minute + 10*time.Second
	for _, jump := range []time.Duration{365 * 24 * time.Hour, 4 * time.Hour, 2*time.Hour + 17*time.Minute, -time.Hour} {
		for name, takeover := range map[string]time.Duration{
			"alone":           0,
			"takeover during": 9 * time.Minute,
			"takeover after":  15 * time.Minute,
		} {
			t.Run(jump.String()+" "+name, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "schedule")
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t)
					start := func(term uint64, lasts time.Duration) {
						cfg := b.config(value.NewMap(
							"interval", entryOf("a.interval", "minutes", int64(1)),
							"cron", entryOf("a.cron", "cron", "*/2 * * * *"),
							"once", entryOf("a.once", "once", "2000-01-01T00:20:00"),
							"when", entryOf("a.when", "when", "00:21"),
						))
						cfg.Now = func() time.Time {
							now := time.Now().UTC()
							if gone := now.Sub(b.began); gone >= wrongFrom && gone < wrongUntil {
								// The zone shifts the civil time only, as a step of the clock does; Add would shift the monotonic one, too.
								now = now.In(time.FixedZone("wrong", int(jump/time.Second)))
							}
							return now
						}
						cfg.Own = func() (uint64, bool) { return term, true }
						if takeover > 0 {
							cfg.Records = OpenRecords(path)
						}
						b.runFor(New(cfg), lasts)
					}

					const whole = 30 * time.Minute
					if takeover > 0 {
						start(1, takeover)
					}
					start(2, whole-takeover)

					for fun, want := range map[string]struct{ least, most int }{
						"a.interval": {28, 33},
						"a.cron":     {10, 18},
						"a.once":     {1, 1},
						"a.when":     {1, 1},
					} {
						if n := len(b.calls[fun]); n < want.least || n > want.most {
							t.Errorf("%s ran %d times: %v", fun, n, b.calls[fun])
						}
					}
				})
			})
		}
	}
}

// TestSavedWhileClockIsAhead: an entry is saved while the clock is ahead and runs then. It goes on when the clock
// comes back.
func TestSavedWhileClockIsAhead(t *testing.T) {
	const ahead = 2*time.Hour + 17*time.Minute
	const wrongFrom, savedAt, wrongUntil, whole = 5 * time.Minute, 7 * time.Minute, 12 * time.Minute, 20 * time.Minute
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		saved := &savedNow{}
		cfg := b.config(value.NewMap("option", entryOf("a.option", "cron", "*/2 * * * *")))
		cfg.Saved = saved
		cfg.Now = func() time.Time {
			now := time.Now().UTC()
			if gone := now.Sub(b.began); gone >= wrongFrom && gone < wrongUntil {
				now = now.In(time.FixedZone("wrong", int(ahead/time.Second)))
			}
			return now
		}
		time.AfterFunc(savedAt, func() { saved.set(value.NewMap("s", entryOf("a.saved", "cron", "*/2 * * * *"))) })
		b.runFor(New(cfg), whole)

		late := 0
		for _, at := range b.calls["a.saved"] {
			if at > wrongUntil {
				late++
			}
		}
		if late < 3 {
			t.Errorf("the entry ran %d times after the clock came back: %v", late, b.calls["a.saved"])
		}
	})
}
