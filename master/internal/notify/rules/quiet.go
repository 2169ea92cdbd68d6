package rules

import (
	"fmt"
	"strings"
	"time"
)

// Quiet are the hours of the day in which nothing is sent. The zero value is never quiet.
type Quiet struct{ spans []span }

// span is a part of a day, in minutes since midnight. If it ends before it begins, it ends the next
// day.
type span struct{ begin, end int }

// parseQuiet reads hours in the form "22:00-06:30", several separated by commas.
func parseQuiet(text string) (Quiet, error) {
	var q Quiet
	for part := range strings.SplitSeq(text, ",") {
		begin, end, found := strings.Cut(strings.TrimSpace(part), "-")
		from, fromErr := minuteOf(begin)
		to, toErr := minuteOf(end)
		if !found || fromErr != nil || toErr != nil || from == to {
			return Quiet{}, fmt.Errorf("%.40q are no hours; write them like 22:00-06:30", part)
		}
		q.spans = append(q.spans, span{from, to})
	}
	return q, nil
}

func minuteOf(text string) (int, error) {
	at, err := time.Parse("15:04", strings.TrimSpace(text))
	if err != nil {
		if strings.TrimSpace(text) == "24:00" {
			return 24 * 60, nil
		}
		return 0, err
	}
	return at.Hour()*60 + at.Minute(), nil
}

// Contains reports whether the clock on the wall, in the location of at, is in the quiet hours.
func (q Quiet) Contains(at time.Time) bool {
	minute := at.Hour()*60 + at.Minute()
	for _, s := range q.spans {
		inside := minute >= s.begin && minute < s.end
		if s.end < s.begin {
			inside = minute >= s.begin || minute < s.end
		}
		if inside {
			return true
		}
	}
	return false
}

// String returns the hours in the form in which the option has them.
func (q Quiet) String() string {
	var parts []string
	for _, s := range q.spans {
		parts = append(parts, fmt.Sprintf("%02d:%02d-%02d:%02d", s.begin/60, s.begin%60, s.end/60, s.end%60))
	}
	return strings.Join(parts, ",")
}
