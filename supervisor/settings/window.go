package settings

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Upgrade says where this node looks for newer versions of its system, and when it installs them
// without an administrator.
type Upgrade struct {
	// URL is the address of the newest upgrade. {flavour} in the URL stands for the node's kernel.
	// URL may be empty: the node does not look for upgrades.
	URL string `yaml:"url"`
	// Window is the time, in UTC, at which the node installs a newer version by itself. It may be
	// empty: never.
	Window string `yaml:"window"`
	// Delay is how old a version must be, since its build, before the node installs it by itself.
	Delay time.Duration `yaml:"delay"`
}

// Bounds of an upgrade window.
const (
	minWindow = 30 * time.Minute // long enough for the last node to restart
	maxDelay  = 90 * day
	day       = 24 * time.Hour
)

// Window is a period that opens on some days of the week, in UTC.
type Window struct {
	days   [7]bool       // days on which the window opens, by [time.Weekday]
	from   time.Duration // when the window opens: the time since midnight, UTC
	length time.Duration // how long the window stays open; at most a day
}

var (
	windowText = regexp.MustCompile(`^(?:([A-Za-z.,]+) )?([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])$`)
	weekdays   = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}
)

// Opens parses Window.
func (u Upgrade) Opens() (w Window, err error) {
	m := windowText.FindStringSubmatch(u.Window)
	if m == nil {
		return w, fmt.Errorf(`%.70q is not a window: [DAYS] HH:MM-HH:MM in UTC, such as "Sun 02:00-04:00", `+
			`"Mon..Fri 22:00-01:00" or "Tue,Thu 03:30-05:00"; without days it opens on each`,
			u.Window)
	}

	at := func(hours, minutes string) time.Duration {
		h, _ := strconv.Atoi(hours) // the pattern permits only digits
		min, _ := strconv.Atoi(minutes)
		return time.Duration(h)*time.Hour + time.Duration(min)*time.Minute
	}

	w.from = at(m[2], m[3])
	w.length = (at(m[4], m[5]) - w.from + day) % day
	if w.length < minWindow {
		return w, fmt.Errorf("%q is open for %s: the nodes restart one after another, "+
			"and each takes some minutes; give it %s or more",
			u.Window, w.length, minWindow)
	}

	if m[1] == "" {
		m[1] = "Mon..Sun"
	}

	for part := range strings.SplitSeq(m[1], ",") {
		first, last, span := strings.Cut(part, "..")
		if !span {
			last = first
		}

		i := slices.Index(weekdays, strings.ToLower(first))
		j := slices.Index(weekdays, strings.ToLower(last))
		if i < 0 || j < 0 {
			return w, fmt.Errorf("%.70q: %q is no day, nor days: Mon, Tue, Wed, Thu, Fri, Sat, Sun; Mon..Fri; Sat,Sun",
				u.Window, part)
		}

		for ; ; i = (i + 1) % 7 {
			w.days[i] = true
			if i == j {
				break
			}
		}
	}

	return w, nil
}

// At reports whether the window is open at the time at. until is when an open window closes, or
// when a closed window opens next. The zero value never opens.
func (w Window) At(at time.Time) (open bool, until time.Time) {
	midnight := at.UTC().Truncate(day)
	for i := range 9 { // from yesterday to a week from today
		opens := midnight.AddDate(0, 0, i-1).Add(w.from)
		switch {
		case !w.days[opens.Weekday()] || !at.Before(opens.Add(w.length)):
		case at.Before(opens):
			return false, opens
		default:
			return true, opens.Add(w.length)
		}
	}
	return false, time.Time{}
}

// upgradeFaults returns the faults of the keys below upgrade.
func (s *Settings) upgradeFaults() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	u := s.Upgrade
	if a, err := url.Parse(u.URL); u.URL != "" &&
		(err != nil || a.Scheme != "https" || a.Host == "" || len(u.URL) > maxURL) {
		bad("upgrade.url: %.70q is no address of https://, without which whoever sits on the way could keep an "+
			"old version coming",
			u.URL)
	}

	if u.Delay < 0 || u.Delay > maxDelay {
		bad("upgrade.delay: %s is not between 0 and %dh (90 days)", u.Delay, int(maxDelay.Hours()))
	}

	if u.Window == "" {
		if u.Delay != 0 {
			bad("upgrade.delay: is for an upgrade.window: without one nothing is installed by itself")
		}
		return errs
	}

	if u.URL == "" {
		bad("upgrade.window: needs upgrade.url, the address that gives the newest upgrade")
	}

	if _, err := u.Opens(); err != nil {
		bad("upgrade.window: %w", err)
	}

	return errs
}
