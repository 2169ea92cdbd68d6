package plan

import (
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
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

// spellValue returns a short text of a value, for a message.
func spellValue(v any) string {
	const maxBytes = 80 // length of the text, in bytes
	text := value.Repr(v)
	if len(text) > maxBytes {
		text = text[:maxBytes] + "…"
	}
	return text
}
