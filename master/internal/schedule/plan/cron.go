package plan

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// cron is a parsed cron expression. It is evaluated with the rules of croniter 7.0, the library
// that Salt uses (salt/utils/schedule.py _handle_cron). The fields of an expression are minute,
// hour, day, month and day of the week, and optionally second and year.
type cron struct {
	fields  []cronField // fields of the expression, in the order of cronBounds
	nth     map[int][]int
	nearest []int // day of the month whose nearest weekday is meant ("w"); empty: none
}

// cronField is the set of values that one field allows.
type cronField struct {
	all     bool
	lastDay bool // "l" as a day of the month: the last day
	values  []int
}

const (
	cronMinute = iota
	cronHour
	cronDay
	cronMonth
	cronWeekday
	cronSecond
	cronYear
)

// lastOf is the entry in cron.nth for "l": the last such weekday in a month, as in "fri#l" for the
// last Friday.
const lastOf = 6

const cronSearch = 50 // how many years ahead croniter searches for a match

var cronBounds = [...]struct{ low, high, count int }{
	cronMinute:  {0, 59, 60},
	cronHour:    {0, 23, 24},
	cronDay:     {1, 31, 31},
	cronMonth:   {1, 12, 12},
	cronWeekday: {0, 6, 7},
	cronSecond:  {0, 59, 60},
	cronYear:    {1970, 2099, 130},
}

var cronAliases = map[string]string{
	"@midnight": "0 0 * * *",
	"@hourly":   "0 * * * *",
	"@daily":    "0 0 * * *",
	"@weekly":   "0 0 * * 0",
	"@monthly":  "0 0 1 * *",
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
}

var cronNames = map[int]map[string]int{
	cronMonth: {
		"jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6,
		"jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12,
	},
	cronWeekday: {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6},
}

var (
	cronHash    = regexp.MustCompile(`^[hr](\(\d+-\d+\))?(/\d+)?$`)
	cronNumber  = regexp.MustCompile(`^\d+$`)
	cronRange   = regexp.MustCompile(`^([^-]+)-([^-/]+)(?:/(\d+))?$`)
	cronStep    = regexp.MustCompile(`^(.+)/(.+)$`)
	cronNearest = regexp.MustCompile(`^(?:(\d+)w|w(\d+))$`)
	cronNth     = regexp.MustCompile(`^(?:((?:(?:sun|mon|tue|wed|thu|fri|sat)(?:-(?:sun|mon|tue|wed|thu|fri|sat))?)|\w+)#|(l))(\d+)$`)
)

// maxCron bounds the length of an expression, in bytes.
const maxCron = 1000

// parseCron parses an expression.
func parseCron(text string) (*cron, error) {
	if len(text) > maxCron {
		return nil, fmt.Errorf("the expression has more than %d bytes", maxCron)
	}

	text = strings.ToLower(text)
	if alias, ok := cronAliases[text]; ok {
		text = alias
	}

	fields := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\n\r\f\v", r) })
	if len(fields) < 5 || len(fields) > 7 {
		return nil, fmt.Errorf("%d fields, not 5, 6 or 7", len(fields))
	}

	c := &cron{nth: map[int][]int{}}
	for i, field := range fields {
		f, err := c.parseField(i, field)
		if err != nil {
			return nil, fmt.Errorf("field %d, %q: %w", i+1, field, err)
		}
		c.fields = append(c.fields, f)
	}

	for _, i := range []int{cronDay, cronWeekday} {
		other := fields[cronDay+cronWeekday-i]
		if len(c.fields[i].values) == cronBounds[i].count && strings.Contains(other, "*") {
			c.fields[i].all = true
		}
	}

	return c, c.checkNth()
}

// checkNth returns an error if an expression combines plain weekdays with numbered weekdays (such
// as "mon#2"). croniter refuses such expressions, too.
func (c *cron) checkNth() error {
	days := c.fields[cronWeekday].values
	if len(c.nth) == 0 || len(days) == cronBounds[cronWeekday].count {
		return nil
	}
	for _, day := range days {
		if c.nth[day] == nil {
			return errors.New("weekdays beside occurrences of weekdays (#) are not possible")
		}
	}
	return nil
}

// parseField parses the text of the field with this index, such as cronHour.
func (c *cron) parseField(index int, text string) (f cronField, err error) {
	switch {
	case cronHash.MatchString(text):
		return f, errors.New("h and r (hashed and random values) are not possible")
	case text == "?" && (index == cronDay || index == cronWeekday):
		return cronField{all: true}, nil
	case strings.Contains(text, "?"):
		return f, errors.New("? stands alone, for any day of the month or of the week")
	}

	parts := strings.Split(text, ",")
	for _, part := range parts {
		if m := cronNearest.FindStringSubmatch(part); m != nil && index == cronDay {
			if err := c.addNearest(m[1]+m[2], len(parts)); err != nil {
				return f, err
			}
			f.values = append(f.values, c.nearest[0])
			continue
		}

		if err := c.parsePart(index, part, &f); err != nil {
			return f, err
		}
	}

	slices.Sort(f.values)
	f.values = slices.Compact(f.values)
	day := index == cronDay || index == cronWeekday
	if !day && len(f.values) == cronBounds[index].count {
		f.all = true
	}

	return f, nil
}

func (c *cron) addNearest(text string, parts int) error {
	day, err := strconv.Atoi(text)
	if err != nil || day < 1 || day > 31 {
		return errors.New("w wants a day from 1 to 31")
	}
	if parts > 1 {
		return errors.New("w stands with a single day only")
	}
	c.nearest = []int{day}
	return nil
}

// parsePart parses one value or range of a field and adds its values to f.
func (c *cron) parsePart(index int, text string, f *cronField) error {
	nth := 0
	if m := cronNth.FindStringSubmatch(text); m != nil && index == cronWeekday {
		switch {
		case m[2] == "l":
			text, nth = m[3], lastOf
		default:
			n, err := strconv.Atoi(m[3])
			if err != nil || n < 1 || n > 5 {
				return errors.New("# wants a number from 1 to 5")
			}
			text, nth = m[1], n
		}
	}

	values, err := cronValues(index, text, f)
	if err != nil {
		return err
	}

	for _, v := range values {
		if v < cronBounds[index].low || v > cronBounds[index].high {
			return fmt.Errorf("%d is not from %d to %d", v, cronBounds[index].low, cronBounds[index].high)
		}
		f.values = append(f.values, v)
		if nth > 0 {
			c.nth[v] = append(c.nth[v], nth)
		}
	}

	return nil
}

// cronValues returns the values of a part of a field. For "*" and "l" it returns no values, but
// sets f.all or f.lastDay.
func cronValues(index int, text string, f *cronField) ([]int, error) {
	bounds := cronBounds[index]
	spelled := text
	if rest, ok := strings.CutPrefix(text, "*/"); ok && rest != "" {
		spelled = fmt.Sprintf("%d-%d/%s", bounds.low, bounds.high, rest)
	}

	m := cronRange.FindStringSubmatch(spelled)
	fromStart := false // the part has the form START/STEP, without an end
	if m == nil {
		if s := cronStep.FindStringSubmatch(text); s != nil {
			m = cronRange.FindStringSubmatch(fmt.Sprintf("%s-%d/%s", s[1], bounds.high, s[2]))
			fromStart = m != nil
		}
	}

	if m != nil {
		return cronSpan(index, m[1], m[2], m[3], fromStart)
	}

	switch {
	case text == "*":
		f.all = true
		return nil, nil
	case text == "l" && index == cronDay:
		f.lastDay = true
		return nil, nil
	}

	v, err := cronValue(index, text)
	if err != nil {
		return nil, err
	}

	return []int{v}, nil
}

func cronValue(index int, text string) (int, error) {
	if v, ok := cronNames[index][text]; ok {
		return v, nil
	}
	if !cronNumber.MatchString(text) {
		return 0, fmt.Errorf("%q is not a value", text)
	}

	v, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("%s is too large", text)
	}

	if index == cronWeekday && v == 7 {
		v = 0
	}

	return v, nil
}

// cronSpan returns the values of a range. If the end of the range is before its start, the range
// continues at the lowest value of the field. If the end equals the start, the range covers the
// complete field.
func cronSpan(index int, from, to, every string, fromStart bool) ([]int, error) {
	bounds := cronBounds[index]
	if index == cronDay && to == "l" {
		to = "31"
	}

	low, err := cronValue(index, from)
	if err != nil {
		return nil, err
	}

	high, err := cronValue(index, to)
	if err != nil {
		return nil, err
	}

	step := 1
	if every != "" {
		if step, err = strconv.Atoi(every); err != nil || step == 0 {
			return nil, fmt.Errorf("the step %s is not possible", every)
		}
	}

	if max(low, high) > bounds.high {
		return nil, fmt.Errorf("%d is above %d", max(low, high), bounds.high)
	}

	switch {
	case low == high && fromStart:
		return []int{low}, nil
	case low == high:
		low, high = bounds.low, bounds.high
	}

	if low <= high {
		return rangeSteps(low, high, step), nil
	}

	out := rangeSteps(low, bounds.high, step)
	skip := 0
	last := out[len(out)-1]
	if left := bounds.high - last; last-bounds.low+step > bounds.high-bounds.low+1 && left < step {
		skip = step - left
	}

	return append(out, rangeSteps(bounds.low+skip, high, step)...), nil
}

func rangeSteps(low, high, step int) (out []int) {
	for v := low; v <= high; v += step {
		out = append(out, v)
	}
	return out
}

// nextAfter returns the first matching time after now. ok is false if no time in the next
// cronSearch years matches.
func (c *cron) nextAfter(now time.Time) (time.Time, bool) {
	start := now.Truncate(time.Minute).Add(time.Minute)
	if len(c.fields) > 5 {
		start = now.Truncate(time.Second).Add(time.Second)
	}

	day, weekday := c.fields[cronDay], c.fields[cronWeekday]
	if day.all || weekday.all {
		return c.searchFrom(start, day, weekday)
	}

	// If both day fields are restricted, one of them must match. Numbered and nearest weekdays
	// belong to neither field: they also restrict both searches (croniter _calc_next).
	anyDay := cronField{all: true}
	byDay, ok1 := c.searchFrom(start, day, anyDay)
	byWeekday, ok2 := c.searchFrom(start, anyDay, weekday)
	restricted := len(c.nth) > 0 || len(c.nearest) > 0
	switch {
	case restricted && !(ok1 && ok2):
		return time.Time{}, false
	case !ok1:
		return byWeekday, ok2
	case !ok2 || byDay.Before(byWeekday):
		return byDay, true
	}

	return byWeekday, true
}

// searchFrom returns the first matching time at or after start. It returns false if there is none
// within cronSearch years.
func (c *cron) searchFrom(start time.Time, day, weekday cronField) (time.Time, bool) {
	date := time.Date(start.Year(), start.Month(), start.Day(), 0, 0, 0, 0, time.UTC)
	for at := start; date.Year() <= start.Year()+cronSearch; at = date {
		switch {
		case len(c.fields) > cronYear && !c.fields[cronYear].contains(date.Year()):
			date = time.Date(date.Year()+1, 1, 1, 0, 0, 0, 0, time.UTC)
			continue
		case !c.fields[cronMonth].contains(int(date.Month())):
			date = time.Date(date.Year(), date.Month()+1, 1, 0, 0, 0, 0, time.UTC)
			continue
		case c.matchesDate(date, day, weekday):
			if t, ok := c.firstOnDate(at); ok {
				return t, true
			}
		}

		date = date.AddDate(0, 0, 1)
	}

	return time.Time{}, false
}

// matchesDate reports whether both day and weekday allow a date.
func (c *cron) matchesDate(date time.Time, day, weekday cronField) bool {
	days := daysIn(date.Year(), date.Month())
	switch {
	case len(c.nearest) > 0:
		if date.Day() != nearestWeekday(date, min(c.nearest[0], days)) {
			return false
		}
	case day.lastDay && date.Day() == days:
	case !day.contains(date.Day()):
		return false
	}

	if len(c.nth) == 0 {
		return weekday.contains(int(date.Weekday()))
	}

	return slices.ContainsFunc(c.nth[int(date.Weekday())], func(n int) bool {
		if n == lastOf {
			return date.Day()+7 > days
		}
		return (date.Day()+6)/7 == n
	})
}

// firstOnDate returns the first matching time on the date of start that is not before start. It
// returns false if there is none.
func (c *cron) firstOnDate(start time.Time) (time.Time, bool) {
	second := cronField{values: []int{0}}
	if len(c.fields) > cronSecond {
		second = c.fields[cronSecond]
	}

	date := time.Date(start.Year(), start.Month(), start.Day(), 0, 0, 0, 0, time.UTC)
	for h := start.Hour(); h < 24; h++ {
		if !c.fields[cronHour].contains(h) {
			continue
		}

		for m := range 60 {
			if !c.fields[cronMinute].contains(m) {
				continue
			}

			for s := range 60 {
				if !second.contains(s) {
					continue
				}
				if t := date.Add(time.Duration(h*3600+m*60+s) * time.Second); !t.Before(start) {
					return t, true
				}
			}
		}
	}

	return time.Time{}, false
}

func (f cronField) contains(v int) bool {
	if f.all {
		return true
	}
	_, found := slices.BinarySearch(f.values, v)
	return found
}

func daysIn(year int, month time.Month) int {
	return time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

// nearestWeekday returns the day of the month, Monday to Friday, that is nearest to the given day
// in the month of date.
func nearestWeekday(date time.Time, day int) int {
	first := day == 1
	last := day == daysIn(date.Year(), date.Month())
	switch weekday := time.Date(date.Year(), date.Month(), day, 0, 0, 0, 0, time.UTC).Weekday(); {
	case weekday == time.Saturday && first:
		return day + 2
	case weekday == time.Saturday:
		return day - 1
	case weekday == time.Sunday && last:
		return day - 2
	case weekday == time.Sunday:
		return day + 1
	}
	return day
}
