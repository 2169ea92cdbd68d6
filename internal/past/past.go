// Package past parses past times as people write them: "30m", "12h", "7d", "2026-11-21 22:40".
// Every option for such a time accepts the same forms.
package past

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxDays is a hundred years, far below the longest time.Duration.
const maxDays = 36500

// Duration returns the length of a time span before now: whole days such as "7d", or the forms of
// time.ParseDuration. It rejects negative spans.
func Duration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 && n <= maxDays {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	} else if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return d, nil
	}
	return 0, fmt.Errorf(`%.40q is no duration such as "30m", "12h" or "7d"`, text)
}

// Time returns the past time that a text names: a Duration before now, a time of RFC 3339, a date
// with or without a time, or a time of today. A text without a time zone is in the zone of now.
func Time(text string, now time.Time) (time.Time, error) {
	if d, err := Duration(text); err == nil {
		return now.Add(-d), nil
	}

	for _, form := range []string{time.RFC3339Nano, "2006-01-02 15:04:05", "2006-01-02 15:04",
		"2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(form, text, now.Location()); err == nil {
			return t, nil
		}
	}

	for _, form := range []string{"15:04:05", "15:04"} {
		if t, err := time.ParseInLocation(form, text, now.Location()); err == nil {
			y, m, d := now.Date()
			return time.Date(y, m, d, t.Hour(), t.Minute(), t.Second(), 0, now.Location()), nil
		}
	}

	return time.Time{}, fmt.Errorf(`%.40q is neither a duration such as "30m" or "7d" nor a time such as "2026-11-21 22:40"`,
		text)
}
