package past_test

import (
	"testing"
	"time"

	"saltern/internal/past"
)

func TestTime(t *testing.T) {
	berlin := time.FixedZone("CET", 3600)
	now := time.Date(2026, 11, 21, 23, 0, 0, 0, berlin)
	for text, want := range map[string]string{
		"30m": "2026-11-21T21:30:00Z", "7d": "2026-11-14T22:00:00Z", "0d": "2026-11-21T22:00:00Z", "2026-11-21 22:40": "2026-11-21T21:40:00Z", "2026-11-20": "2026-11-19T23:00:00Z",
		"2026-11-21T22:40:00Z": "2026-11-21T22:40:00Z", "08:15": "2026-11-21T07:15:00Z", "08:15:30": "2026-11-21T07:15:30Z",
	} {
		if got, err := past.Time(text, now); err != nil || got.UTC().Format(time.RFC3339) != want {
			t.Errorf("%s: %s, %v", text, got.UTC().Format(time.RFC3339), err)
		}
	}

	for _, text := range []string{"yesterday", "-5m", "-1d", "1.5d", "36501d", "9999999h", "d", "", "25:00"} {
		if got, err := past.Time(text, now); err == nil {
			t.Errorf("%q is %s", text, got)
		}
	}
}

func FuzzDuration(f *testing.F) {
	for _, s := range []string{"30m", "7d", "36500d", "1h30m", "-1d", "99999999999999999999d", "\x00d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := past.Duration(text)
		if d < 0 || err != nil && d != 0 {
			t.Errorf("%q: %s, %v", text, d, err)
		}
	})
}
