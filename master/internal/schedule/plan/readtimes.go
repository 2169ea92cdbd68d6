package plan

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"saltern/master/value"
)

// readSplay parses SECONDS, or {start: SECONDS, end: SECONDS}.
func (r *reader) readSplay(v any) (s splay) {
	if !value.Truth(v) {
		return s
	}

	s.low = 1
	high, ok := v.(int64)
	if m, isMap := v.(*value.Map); isMap {
		var low bool
		s.low, low = m.Int("start")
		high, ok = m.Int("end")
		ok = ok && low
	}

	s.high = high
	if !ok {
		r.refuse(splayKey, "%s is neither a whole number of seconds nor {start: SECONDS, end: SECONDS}", spellValue(v))
		return splay{}
	}
	if s.low < 0 || s.high < s.low || s.high > int64(maxInterval/time.Second) {
		r.refuse(splayKey, "%s is no span of seconds", spellValue(v))
		return splay{}
	}

	return s
}

func (r *reader) readRange(v any) {
	r.entry.within = r.readSpan("range", v)
	m, _ := v.(*value.Map)
	if invert, ok := m.Get("invert"); ok {
		r.entry.invert = r.readFlag("range", invert)
	}
}

// readSpan parses {start: TIME, end: TIME}. It returns nil if the value is invalid.
func (r *reader) readSpan(key string, v any) *span {
	m, ok := v.(*value.Map)
	if !ok {
		r.refuse(key, "it is not a map of start and end")
		return nil
	}

	for k := range m.All() {
		if !slices.Contains([]string{"start", "end", "invert"}, fmt.Sprint(k)) || k == "invert" && key != "range" {
			r.refuse(key, "it has no key %v", k)
		}
	}

	var s span
	for _, part := range []struct {
		name string
		at   *moment
	}{{"start", &s.start}, {"end", &s.end}} {
		at, err := readMoment(m.Value(part.name))
		if err != nil {
			r.refuse(key, "%s: %v", part.name, err)
			return nil
		}
		*part.at = at
	}

	comparable := s.start.isAbsolute() && s.end.isAbsolute() || s.start.isTimeOfDay() && s.end.isTimeOfDay()
	if _, _, ok := s.onDayOf(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)); comparable && !ok {
		r.refuse(key,
			"the end is not after the start; a range over midnight is the inverted one of the day: {start: END, end: START, invert: True}")
		return nil
	}

	return &s
}

func (r *reader) readLimit(key string, v any) *moment {
	at, err := readMoment(v)
	if err != nil {
		r.refuse(key, "%v", err)
		return nil
	}
	return &at
}

// readMoment parses a moment from the value that the YAML parser returned.
func readMoment(v any) (moment, error) {
	switch v := v.(type) {
	case string:
		m, err := parseMoment(v)
		if err != nil {
			return m, fmt.Errorf("%q: %w", v, err)
		}
		return m, nil
	case nil:
		return moment{}, errors.New("it is missing")
	case int64:
		return moment{}, fmt.Errorf("YAML makes the number %d of it; put it into quotes", v)
	}
	return moment{}, fmt.Errorf("%s is not a time", spellValue(v))
}

// readTimes parses a list of {time: TEXT, time_fmt: FORMAT}.
func (r *reader) readTimes(key string, v any) (out []time.Time) {
	list, ok := v.([]any)
	if !ok || len(list) > maxTimes {
		r.refuse(key, "it is not a list of at most %d times", maxTimes)
		return nil
	}

	for _, item := range list {
		m, _ := item.(*value.Map)
		at, err := strptime(m.Str("time"), m.Str("time_fmt"))
		if err != nil || m.Str("time_fmt") == "" {
			r.refuse(key, "%s is not {time: TIME, time_fmt: FORMAT}", spellValue(item))
			return nil
		}
		out = append(out, at)
	}

	return out
}

// readTrigger parses the keys that determine when the entry is due.
func (r *reader) readTrigger(m *value.Map) {
	has := func(key string) bool { _, ok := m.Get(key); return ok }
	byInterval := slices.ContainsFunc(units, func(u unitOf) bool { return has(u.key) })
	var others []string
	for _, key := range []string{"once", "when", "cron"} {
		if has(key) {
			others = append(others, key)
		}
	}

	r.entry.runOnStart = byInterval
	if v, ok := m.Get("run_on_start"); ok {
		r.entry.runOnStart = r.readFlag("run_on_start", v)
	}

	switch {
	case len(others) > 1:
		r.refuse(others[1], "%s do not go together", strings.Join(others, " and "))
	case byInterval:
		r.readInterval(m)
		if len(others) == 1 {
			r.refuse(others[0], "it does not go with seconds, minutes, hours or days")
		}
	case len(others) == 0:
		r.refuse("", "it has no time: none of seconds, minutes, hours, days, cron, when, once")
	case others[0] == "once":
		r.readOnce(m)
	case others[0] == "when":
		r.readWhen(m.Value("when"))
	default:
		r.readCron(m.Value("cron"))
	}

	if has("once_fmt") && !has("once") {
		r.addWarning("once_fmt", "it has no effect without once")
	}
}

func (r *reader) readInterval(m *value.Map) {
	var sum time.Duration
	for _, u := range units {
		v, set := m.Get(u.key)
		if !set {
			continue
		}

		n, err := wholeNumber(v)
		if err != nil || n < 0 || n > int64(maxInterval/u.unit) {
			r.refuse(u.key, "%s is not a whole number that is possible", spellValue(v))
			return
		}

		if f, ok := v.(float64); ok && f != math.Trunc(f) {
			r.addWarning(u.key, "%s is read as %d, as Salt does", spellValue(v), n)
		}

		sum += time.Duration(n) * u.unit
	}

	if sum < time.Second || sum > maxInterval {
		r.refuse("", "an interval is at least a second and at most 100 years")
		return
	}

	r.entry.interval = sum
}

// wholeNumber converts v to an integer as Python's int() does.
func wholeNumber(v any) (int64, error) {
	switch v := v.(type) {
	case int64:
		return v, nil
	case float64:
		if math.IsNaN(v) || math.Abs(v) > math.MaxInt32*1000 {
			return 0, errors.New("too large")
		}
		return int64(v), nil
	case string:
		return strconv.ParseInt(strings.TrimSpace(v), 10, 64)
	}
	return 0, errors.New("not a number")
}

func (r *reader) readOnce(m *value.Map) {
	format := onceFormat
	if v, ok := m.Get("once_fmt"); ok {
		format, _ = v.(string)
	}

	text, ok := m.Value("once").(string)
	if !ok {
		r.refuse("once", "%s is not a time", spellValue(m.Value("once")))
		return
	}

	at, err := strptime(text, format)
	if err != nil {
		r.refuse("once", "%v", err)
		return
	}

	r.entry.once = at
	if r.entry.splay != (splay{}) {
		r.addWarning(splayKey, "once runs without a delay, as in Salt")
	}
}

func (r *reader) readWhen(v any) {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}

	if len(list) == 0 || len(list) > maxTimes {
		r.refuse("when", "it names no time, or more than %d", maxTimes)
		return
	}

	r.entry.byWhen = true
	for _, item := range list {
		if named, ok := r.whens.GetAny(item); ok {
			item = named
		}

		at, err := readMoment(item)
		if err != nil {
			r.refuse("when", "%v", err)
			return
		}

		r.entry.when = append(r.entry.when, at)
	}
}

func (r *reader) readCron(v any) {
	text, ok := v.(string)
	if !ok {
		r.refuse("cron", "%s is not a text of five, six or seven fields", spellValue(v))
		return
	}

	c, err := parseCron(text)
	if err != nil {
		r.refuse("cron", "%q: %v", text, err)
		return
	}

	if _, ok := c.nextAfter(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)); !ok {
		r.refuse("cron", "%q: there is no such time in the next %d years", text, cronSearch)
		return
	}

	r.entry.cron = c
}

// checkLimits warns about limits that have no effect. Salt checks all limits in sequence, and the
// result of each limit replaces the result of the limit before.
func (r *reader) checkLimits() {
	limits := []struct {
		key  string
		here bool
	}{
		{"range", r.entry.within != nil},
		{skipKey, r.entry.skip != nil},
		{"skip_explicit", len(r.entry.skipAt) > 0},
		{"until", r.entry.until != nil},
		{"after", r.entry.after != nil},
	}

	last := -1
	for i, l := range limits {
		if !l.here {
			continue
		}
		if last >= 0 {
			r.addWarning(limits[last].key, "it has no effect beside %s, as in Salt; put them into two entries", l.key)
		}
		last = i
	}

	if r.entry.runAfterSkip && r.entry.skip == nil {
		r.addWarning("run_after_skip_range", "it has no effect without skip_during_range")
	}
}
