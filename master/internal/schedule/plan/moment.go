package plan

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// moment is a time as an administrator writes it. Parts of the date that the text lacks are taken
// from the day on which the moment is evaluated.
//
// Salt parses such texts with dateutil.parser.parse. Every text that is accepted here has the same
// meaning in dateutil. Some spellings that dateutil accepts are refused here.
type moment struct {
	year    int // 0: the current year
	month   time.Month
	day     int // 0: the current day, or the next day with this weekday
	weekday time.Weekday
	named   bool // the text contains the name of a weekday
	clock   time.Duration
}

var (
	momentWords   = regexp.MustCompile(`[\s,]+`)
	isoDate       = regexp.MustCompile(`^(\d{4})[-/](\d{1,2})[-/](\d{1,2})$`)
	isoBoth       = regexp.MustCompile(`^(\d{4}-\d{2}-\d{2})t(\d{2}:.*)$`)
	slashDate     = regexp.MustCompile(`^(\d{1,2})[-/](\d{1,2})[-/](\d{4})$`)
	ordinal       = regexp.MustCompile(`^(\d{1,2})(?:st|nd|rd|th)?$`)
	fourDigits    = regexp.MustCompile(`^\d{4}$`)
	clockText     = regexp.MustCompile(`^(\d{1,2})(?::(\d{2}))?(?::(\d{2}))?(am|pm)?$`)
	zonedText     = regexp.MustCompile(`(?i)(\d([+-]\d{2}:?\d{2}|z)|\b(utc|gmt))\s*$`)
	errNotAMoment = errors.New("it is none of: 17:00, 5:00pm, Monday 5pm, 2027-01-31, 2027-01-31 17:00, 2027-01-31T17:00:00, 1/31/2027 5:00pm, January 31, 2027 5pm")
)

var (
	monthNames   = monthsByName()
	weekdayNames = weekdaysByName()
)

func monthsByName() map[string]time.Month {
	names := map[string]time.Month{"sept": time.September}
	for m := time.January; m <= time.December; m++ {
		name := strings.ToLower(m.String())
		names[name] = m
		names[name[:3]] = m
	}
	return names
}

func weekdaysByName() map[string]time.Weekday {
	names := map[string]time.Weekday{}
	for d := time.Sunday; d <= time.Saturday; d++ {
		name := strings.ToLower(d.String())
		names[name] = d
		names[name[:3]] = d
	}
	return names
}

// maxMoment bounds the length of a moment's text, in bytes.
const maxMoment = 200

// parseMoment parses a moment.
func parseMoment(text string) (m moment, err error) {
	if len(text) > maxMoment {
		return m, fmt.Errorf("more than %d bytes", maxMoment)
	}
	if zonedText.MatchString(text) {
		return m, errors.New("a time zone is not possible; times are those of this master's clock")
	}

	lower := strings.ToLower(strings.TrimSpace(text))
	if both := isoBoth.FindStringSubmatch(lower); both != nil {
		lower = both[1] + " " + both[2]
	}

	p := momentParser{words: momentWords.Split(lower, -1)}
	for len(p.words) > 0 && err == nil {
		err = p.readWord()
	}

	if err == nil {
		err = p.finish()
	}

	return p.moment, err
}

// momentParser parses the words from left to right.
type momentParser struct {
	words   []string
	moment  moment
	hasDate bool
	hasTime bool
}

// takeWord removes the first word and returns it, or "" if none is left.
func (p *momentParser) takeWord() string {
	if len(p.words) == 0 {
		return ""
	}
	w := p.words[0]
	p.words = p.words[1:]
	return w
}

func (p *momentParser) peekWord() string {
	if len(p.words) == 0 {
		return ""
	}
	return p.words[0]
}

// readWord parses the weekday, date or time of day that begins with the next word.
func (p *momentParser) readWord() error {
	w := p.takeWord()
	if w == "at" || w == "on" {
		return nil
	}

	if d, ok := weekdayNames[w]; ok && !p.moment.named {
		p.moment.weekday, p.moment.named = d, true
		return nil
	}

	if m, ok := monthNames[w]; ok && !p.hasDate {
		day := ordinal.FindStringSubmatch(p.takeWord())
		if day == nil {
			return errNotAMoment
		}
		return p.setDate(p.yearBehind(), m, day[1])
	}

	if m := isoDate.FindStringSubmatch(w); m != nil && !p.hasDate {
		return p.setDate(m[1], monthOf(m[2]), m[3])
	}

	if m := slashDate.FindStringSubmatch(w); m != nil && !p.hasDate {
		if first, _ := strconv.Atoi(m[1]); first > 12 {
			return p.setDate(m[3], monthOf(m[2]), m[1])
		}
		return p.setDate(m[3], monthOf(m[1]), m[2])
	}

	if month, ok := monthNames[p.peekWord()]; ok && !p.hasDate {
		if day := ordinal.FindStringSubmatch(w); day != nil {
			p.takeWord()
			return p.setDate(p.yearBehind(), month, day[1])
		}
	}

	return p.setClock(w)
}

// yearBehind removes the next word of the text and returns it, if that word is a year. Otherwise it
// returns "".
func (p *momentParser) yearBehind() string {
	if !fourDigits.MatchString(p.peekWord()) {
		return ""
	}
	return p.takeWord()
}

func monthOf(text string) time.Month {
	n, _ := strconv.Atoi(text)
	return time.Month(n)
}

// setDate sets the date. If year is "", the date is in the current year.
func (p *momentParser) setDate(year string, month time.Month, day string) error {
	p.hasDate = true
	d, _ := strconv.Atoi(day)
	y := 2001 // not a leap year, so that February 29 is valid only if the text contains a year
	if year != "" {
		y, _ = strconv.Atoi(year)
		p.moment.year = y
	}
	if month < 1 || month > 12 || d < 1 || y < 1 || d > daysIn(y, month) {
		return errors.New("there is no such day")
	}
	p.moment.month, p.moment.day = month, d
	return nil
}

// setClock sets the time of day.
func (p *momentParser) setClock(w string) error {
	m := clockText.FindStringSubmatch(w)
	if m == nil || p.hasTime {
		return errNotAMoment
	}

	half := m[4]
	if next := p.peekWord(); half == "" && (next == "am" || next == "pm") {
		half = p.takeWord()
	}

	if half == "" && m[2] == "" {
		return errNotAMoment
	}

	hour, _ := strconv.Atoi(m[1])
	minute, _ := strconv.Atoi("0" + m[2])
	second, _ := strconv.Atoi("0" + m[3])
	if half != "" && hour > 12 || hour > 23 || minute > 59 || second > 59 {
		return errors.New("there is no such time of day")
	}

	switch {
	case half == "am" && hour == 12:
		hour = 0
	case half == "pm" && hour < 12:
		hour += 12
	}

	p.hasTime = true
	p.moment.clock = time.Duration(hour*3600+minute*60+second) * time.Second
	return nil
}

func (p *momentParser) finish() error {
	if !p.hasDate && !p.hasTime && !p.moment.named {
		return errNotAMoment
	}
	return nil
}

// isAbsolute reports whether the moment is independent of the day on which it is evaluated.
func (m moment) isAbsolute() bool { return m.year != 0 }

// isTimeOfDay reports whether the moment has no date, but only a time of day.
func (m moment) isTimeOfDay() bool { return m.day == 0 && !m.named }

// onDayOf returns the time of the moment, evaluated on the day of now.
func (m moment) onDayOf(now time.Time) time.Time {
	year, month, day := now.Date()
	if m.day != 0 {
		month, day = m.month, m.day
		if m.year != 0 {
			year = m.year
		}
	} else if m.named {
		day += (int(m.weekday) - int(now.Weekday()) + 7) % 7
	}
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Add(m.clock)
}
