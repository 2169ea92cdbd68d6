package plan

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"saltern/master/value"
)

const (
	maxInterval = 100 * 365 * 24 * time.Hour
	maxEntries  = 10_000
	maxTimes    = 1000 // number of times in one list of an entry
)

// Keys of the settings that apply to all entries. In the option they are at the same level as the
// keys of entries.
const (
	enabledKey = "enabled"
	splayKey   = "splay"
	skipKey    = "skip_during_range"
	skipFunKey = "skip_function"
)

// savedKey is the key for the name of a saved job, which Salt does not have. [SavedRunner] runs it.
const savedKey = "saved"

// SavedRunner is the runner that runs a saved job. Its first argument is the name of the job.
const SavedRunner = "saved.run"

// isSetting reports whether a key of the option is a setting that applies to all entries.
func isSetting(key string) bool {
	return slices.Contains([]string{enabledKey, splayKey, skipKey, skipFunKey}, key)
}

// unitOf is a key that sets an interval, and the unit of its number.
type unitOf struct {
	key  string
	unit time.Duration
}

// units lists all keys that set an interval.
var units = []unitOf{
	{"seconds", time.Second},
	{"minutes", time.Minute},
	{"hours", time.Hour},
	{"days", 24 * time.Hour},
}

// keys maps each key that an entry may have to the function that reads its value.
var keys = map[string]func(*reader, any){
	"name":                 (*reader).readName,
	"function":             nil, // function, func and fun: see readFun
	"func":                 nil,
	"fun":                  nil,
	savedKey:               nil, // see readFun
	"args":                 (*reader).readArgs,
	"kwargs":               (*reader).readKwargs,
	"seconds":              nil, // seconds and the keys below: see readTrigger
	"minutes":              nil,
	"hours":                nil,
	"days":                 nil,
	"when":                 nil,
	"once":                 nil,
	"once_fmt":             nil,
	"cron":                 nil,
	"run_on_start":         nil,
	enabledKey:             func(r *reader, v any) { r.entry.Enabled = r.readFlag(enabledKey, v) },
	"dry_run":              func(r *reader, v any) { r.entry.DryRun = r.readFlag("dry_run", v) },
	"jid_include":          func(r *reader, v any) { r.entry.Unlimited = !r.readFlag("jid_include", v) },
	"maxrunning":           (*reader).readMaxRunning,
	splayKey:               func(r *reader, v any) { r.entry.splay = r.readSplay(v) },
	"range":                (*reader).readRange,
	skipKey:                func(r *reader, v any) { r.entry.skip = r.readSpan(skipKey, v) },
	"run_after_skip_range": func(r *reader, v any) { r.entry.runAfterSkip = r.readFlag("run_after_skip_range", v) },
	"until":                func(r *reader, v any) { r.entry.until = r.readLimit("until", v) },
	"after":                func(r *reader, v any) { r.entry.after = r.readLimit("after", v) },
	"skip_explicit":        func(r *reader, v any) { r.entry.skipAt = r.readTimes("skip_explicit", v) },
	"run_explicit":         func(r *reader, v any) { r.entry.runAt = r.readTimes("run_explicit", v) },
	"return_job":           (*reader).readReturnJob,
	"returner":             (*reader).readReturner,
	"return_config":        func(r *reader, v any) { r.entry.ReturnConfig = v },
	"return_kwargs":        func(r *reader, v any) { r.entry.ReturnKwargs = v },
	"metadata":             (*reader).readMetadata,
}

// keyNames returns the sorted keys that an entry may have.
func keyNames() []string {
	var names []string
	for k := range keys {
		names = append(names, k)
	}
	slices.Sort(names)
	return names
}

// Read parses the option schedule. whens holds the named moments that the option when may refer to;
// nil means none. An entry that Read cannot follow does not run; Read lists it in problems.
func Read(option, whens *value.Map) (p *Plan, problems []Problem) {
	p = &Plan{Enabled: true, option: option, whens: whens}
	if option.Len() > maxEntries {
		return p, []Problem{{Refused: true, Text: fmt.Sprintf("there are more than %d entries", maxEntries)}}
	}

	whole := reader{whens: whens}
	common := whole.readSettings(option, p)
	problems = whole.problems
	broken := slices.ContainsFunc(problems, func(p Problem) bool { return p.Refused })
	for k, v := range option.All() {
		key := keyOf(k, option)
		if isSetting(key) {
			continue
		}

		r := reader{entry: &Entry{}, key: key, whens: whens}
		r.readEntry(v, common)
		if !r.refused && !broken {
			p.Entries = append(p.Entries, r.entry)
		}

		problems = append(problems, r.problems...)
	}

	return p, problems
}

// keyOf returns the key of an entry as text. YAML makes a number of 1, and None of null; the text of
// such a key is marked if the option has an entry with that text as its key as well.
func keyOf(key any, option *value.Map) string {
	text, ok := key.(string)
	if ok {
		return text
	}

	for text = value.Repr(key); ; text += "'" {
		if _, taken := option.Get(text); !taken {
			return text
		}
	}
}

// reader parses one entry, or the settings that apply to all entries.
type reader struct {
	entry    *Entry
	key      string // key of the entry; "" for the settings of all entries
	whens    *value.Map
	problems []Problem
	refused  bool
}

func (r *reader) refuse(key, format string, args ...any) {
	r.refused = true
	r.problems = append(r.problems, Problem{r.key, key, true, fmt.Sprintf(format, args...)})
}

func (r *reader) addWarning(key, format string, args ...any) {
	r.problems = append(r.problems, Problem{r.key, key, false, fmt.Sprintf(format, args...)})
}

// readSettings parses the settings that apply to all entries into p. It returns those settings that
// a single entry may override, as an Entry.
func (r *reader) readSettings(option *value.Map, p *Plan) (common Entry) {
	for _, key := range []string{splayKey, skipKey, skipFunKey} {
		common.Digest += value.Repr(option.Value(key)) + "\n"
	}

	if v, ok := option.Get(enabledKey); ok {
		p.Enabled = r.readFlag(enabledKey, v)
	}

	if v, ok := option.Get(splayKey); ok {
		common.splay = r.readSplay(v)
	}

	if v, ok := option.Get(skipKey); ok && value.Truth(v) {
		common.skip = r.readSpan(skipKey, v)
	}

	if v, ok := option.Get(skipFunKey); ok && value.Truth(v) {
		if common.skipFun, ok = v.(string); !ok {
			r.refuse(skipFunKey, "it is not the name of a function")
		}
	}

	return common
}

// readEntry parses the entry v. common holds the settings of all entries, which the entry may
// override.
func (r *reader) readEntry(v any, common Entry) {
	m, ok := v.(*value.Map)
	if !ok {
		r.refuse("", "an entry is a map with a function and a time; settings of the whole schedule are %s",
			strings.Join([]string{enabledKey, splayKey, skipKey, skipFunKey}, ", "))
		return
	}

	*r.entry = common
	r.entry.Key = r.key
	r.entry.Name = r.key
	r.entry.Digest = fmt.Sprintf("%x", sha256.Sum256([]byte(common.Digest+value.Repr(v))))
	r.entry.Enabled = true
	r.entry.Max = 1

	for k, v := range m.All() {
		key := fmt.Sprint(k)
		read, known := keys[key]
		if !known {
			r.refuseUnknown(key)
		}

		if read != nil {
			read(r, v)
		}
	}

	r.readFun(m)
	r.readTrigger(m)
	r.checkLimits()
}

// refuseUnknown refuses an entry with an unknown key. Without this check an entry with a misspelt
// limit would run too often.
func (r *reader) refuseUnknown(key string) {
	r.refuse(key, "an entry has no such key; there are: %s", strings.Join(keyNames(), ", "))
}

func (r *reader) readName(v any) {
	if name, ok := v.(string); ok && name != "" {
		r.entry.Name = name
		return
	}
	r.refuse("name", "it is not a text")
}

// readFun sets the function of the entry. As in Salt, the function is the value of the first key
// present among function, func and fun. An entry with the key saved has no function of its own.
func (r *reader) readFun(m *value.Map) {
	v, isSaved := m.Get(savedKey)
	if isSaved {
		r.readSaved(m, v)
		return
	}

	for _, key := range []string{"function", "func", "fun"} {
		v, set := m.Get(key)
		if !set {
			continue
		}

		fun, ok := v.(string)
		if !ok || !strings.Contains(fun, ".") {
			r.refuse(key, "it is not the name of a runner function, such as state.orchestrate")
			return
		}

		r.entry.Fun = fun
		return
	}

	r.refuse("", "it has no function")
}

// readSaved makes the entry run a saved job. kwargs are the values of the job's fields.
func (r *reader) readSaved(m *value.Map, v any) {
	name, ok := v.(string)
	if !ok || name == "" {
		r.refuse(savedKey, "it is not the name of a saved job")
	}
	for _, key := range []string{"function", "func", "fun", "args"} {
		if _, set := m.Get(key); set {
			r.refuse(key, "an entry with saved has the function and the target of the saved job; values of its fields are in kwargs")
		}
	}

	r.entry.Saved = name
	r.entry.Fun = SavedRunner
	r.entry.Args = []any{name}
}

func (r *reader) readArgs(v any) {
	list, ok := v.([]any)
	if !ok {
		r.refuse("args", "it is not a list")
	}
	r.entry.Args = list
}

func (r *reader) readKwargs(v any) {
	m, ok := v.(*value.Map)
	if !ok {
		r.refuse("kwargs", "it is not a map")
		return
	}
	r.entry.Kwargs = m
}

// readFlag parses True or False.
func (r *reader) readFlag(key string, v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case nil:
		return false
	case int64:
		if v == 0 || v == 1 {
			return v == 1
		}
	}
	r.refuse(key, "%s is neither True nor False", spellValue(v))
	return false
}

func (r *reader) readMaxRunning(v any) {
	n, ok := v.(int64)
	if !ok {
		r.refuse("maxrunning", "%s is not a whole number", spellValue(v))
		return
	}
	r.entry.Max = int(min(max(n, 1), math.MaxInt32))
	if n < 1 {
		r.addWarning("maxrunning", "%d is read as 1, as Salt does", n)
	}
}

func (r *reader) readReturnJob(v any) {
	if v == "nocache" {
		r.entry.Uncached = true
		return
	}
	r.entry.Silent = !r.readFlag("return_job", v)
}

func (r *reader) readReturner(v any) {
	switch v := v.(type) {
	case nil:
	case string:
		r.entry.Returners = []string{v}
	case []any:
		for _, name := range v {
			text, ok := name.(string)
			if !ok {
				r.refuse("returner", "%s is not the name of a returner", spellValue(name))
				return
			}
			r.entry.Returners = append(r.entry.Returners, text)
		}
	default:
		r.refuse("returner", "it is neither a name nor a list of names")
	}
}

func (r *reader) readMetadata(v any) {
	m, ok := v.(*value.Map)
	if !ok {
		r.addWarning("metadata", "it is not a map and left out, as Salt does")
		return
	}
	r.entry.Metadata = m
}

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

// spellValue returns a short text of a value, for a message.
func spellValue(v any) string {
	const maxBytes = 80 // length of the text, in bytes
	text := value.Repr(v)
	if len(text) > maxBytes {
		text = text[:maxBytes] + "…"
	}
	return text
}
