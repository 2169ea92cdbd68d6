package console

import (
	"fmt"
	"strings"
	"time"

	"saltern/master/jobs"
)

// moment is a time as all pages show it: within an hour how long ago it was, else When, the time of day with
// that; Exact is for whoever points at it. The part "when" of the templates writes it, and the part "ago" writes
// Ago alone, beside another clock. All fields are "" for the zero time.
type moment struct{ ISO, Exact, Ago, When string }

func (c *Console) moment(t time.Time) moment { return momentAt(c.cfg.Now(), t) }

func momentAt(now, t time.Time) moment {
	if t.IsZero() {
		return moment{}
	}
	t = t.UTC()
	return moment{
		ISO:   t.Format(time.RFC3339),
		Exact: clockWord(t),
		Ago:   agoWord(now.Sub(t)),
		When:  whenWord(now, t),
	}
}

// whenWord describes a time in UTC for a reader at now. Within an hour it returns how long ago it was. Then the
// time of day stands before that, of another day with the date, since "2 h ago" may be any time of an hour.
// console.js has the same words. Blanks within the date do not break.
func whenWord(now, t time.Time) string {
	now, t = now.UTC(), t.UTC()
	ago := now.Sub(t)
	if ago.Abs() < time.Hour {
		return agoWord(ago)
	}

	return timeOfDayWord(now, t) + " (" + strings.ReplaceAll(agoWord(ago), " ", "\u00a0") + ")"
}

// timeOfDayWord returns the time of day of t for a reader at now, of another day with the date. Both times are by
// one clock.
func timeOfDayWord(now, t time.Time) string {
	layout := "2006-01-02 15:04"
	switch {
	case t.Format(time.DateOnly) == now.Format(time.DateOnly):
		layout = "15:04"
	case t.Year() == now.Year():
		layout = "2 Jan 15:04"
	}
	return strings.ReplaceAll(t.Format(layout), " ", "\u00a0")
}

// momentOf returns the moment of a time in the answer of a runner (RFC 3339).
func (c *Console) momentOf(text string) moment {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return moment{}
	}
	return c.moment(t)
}

// jidTime returns the time in a job id, or the zero time if the id contains none.
func jidTime(jid string) time.Time {
	t, err := jobs.Time(jid)
	if err != nil {
		return time.Time{}
	}
	return t
}

// agoWord describes how long ago something was, or in how long it will be. console.js has the same words.
func agoWord(ago time.Duration) string {
	switch {
	case ago.Abs() < 10*time.Second:
		return "just now"
	case ago < 0:
		return "in " + spanWord(ago.Abs())
	}
	return spanWord(ago) + " ago"
}

// spanWord returns a span in its largest unit, rounded: 2 h 50 min are "3 h". Days, of which there are two at least,
// are whole ones: a date stands beside them, and from the 22nd at 02:00 to the 24th at 16:00 nobody counts three.
func spanWord(d time.Duration) string {
	const day = 24 * time.Hour
	whole := func(unit time.Duration) time.Duration {
		if d%unit >= unit/2 {
			return d/unit + 1
		}
		return d / unit
	}
	switch {
	case d < time.Minute-time.Second/2:
		return fmt.Sprintf("%d s", whole(time.Second))
	case d < time.Hour-time.Minute/2:
		return fmt.Sprintf("%d min", whole(time.Minute))
	case d < 2*day-time.Hour/2:
		return fmt.Sprintf("%d h", whole(time.Hour))
	}
	return fmt.Sprintf("%d days", max(2, d/day))
}

// hint is the text in the place of an empty list: why it is empty, and a link to the next step. Word may be "": there
// is no link.
type hint struct{ Text, Word, URL string }

// sorter is the head of a column by which a table can be sorted.
type sorter struct {
	Word, URL string
	Dir       string // "ascending" or "descending" if the table is sorted by it, else ""
}
