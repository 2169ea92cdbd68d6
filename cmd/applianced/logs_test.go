package main

import (
	"testing"
	"time"
)

func TestParseSince(t *testing.T) {
	berlin := time.FixedZone("CET", 3600)
	now := time.Date(2026, 11, 21, 23, 0, 0, 0, berlin)
	for text, want := range map[string]string{
		"30m": "2026-11-21T21:30:00Z", "2026-11-21 22:40": "2026-11-21T21:40:00Z", "2026-11-20": "2026-11-19T23:00:00Z",
		"2026-11-21T22:40:00Z": "2026-11-21T22:40:00Z", "08:15": "2026-11-21T07:15:00Z",
	} {
		if got, err := parseSince(text, now); err != nil || got.UTC().Format(time.RFC3339) != want {
			t.Errorf("%s: %s, %v", text, got.UTC().Format(time.RFC3339), err)
		}
	}
	for _, text := range []string{"yesterday", "-5m", "", "25:00"} {
		if got, err := parseSince(text, now); err == nil {
			t.Errorf("%q is %s", text, got)
		}
	}
}
