package fleet

import (
	"encoding/binary"
	"hash/fnv"
	"slices"

	"saltern/master/client"
	"saltern/master/history/summary"
	"saltern/master/value"
)

// job is what the Recorder needs of a job's load.
type job struct {
	function string // several are separated by commas; "" if the job has no load
	user     string
	test     bool   // the job only asks what would change
	byMinion bool   // the minion started it by itself: salt-call, or its schedule
	scope    uint64 // hash of the function and the arguments, without those that change no result
}

// unknownScope is the scope of runs whose arguments are not known.
const unknownScope = 1

// maxJobs bounds the jobs that a jobCache remembers. Overflow policy: all are forgotten, and read again.
const maxJobs = 512

// jobCache remembers the jobs of recent returns.
type jobCache struct{ jobs map[string]job }

func newJobCache() jobCache { return jobCache{map[string]job{}} }

// of returns a job. It calls load for a job that it does not remember.
func (c *jobCache) of(jid string, load func() *value.Map) job {
	if j, ok := c.jobs[jid]; ok {
		return j
	}

	m := load()
	if m == nil {
		return job{scope: unknownScope} // the job may get a load later
	}
	if len(c.jobs) >= maxJobs {
		clear(c.jobs)
	}
	j := jobOf(m)
	c.jobs[jid] = j
	return j
}

// jobOf reads the load of a job. A job with several functions has lists of functions and of arguments
// (salt/minion.py _thread_multi_return).
func jobOf(load *value.Map) job {
	j := job{user: clip(load.Str("user"), 255)}
	j.function = clip(summary.FunctionOf(load), 255)
	_, j.byMinion = load.Get("id") // the load is that of a return

	if _, one := load.Value("fun").(string); !one {
		j.test, j.scope = ofSeveral(load)
		return j
	}
	arguments, named := argumentsOf(load)
	j.test = value.Truth(named.Value("test"))
	j.scope = scopeOf(j.function, arguments, named)
	return j
}

// ofSeveral returns test and scope of a job with several functions, which has a list of arguments for each. Only those
// that run states count, so that the scope of one of them is as if it ran alone.
func ofSeveral(load *value.Map) (test bool, scope uint64) {
	lists := givenTo(load)
	functions := summary.Functions(load)
	hasStates := slices.ContainsFunc(functions, summary.RunsStates)

	test = hasStates
	var scopes []uint64
	for i, function := range functions {
		if hasStates && !summary.RunsStates(function) {
			continue
		}
		var given []any
		if i < len(lists) {
			given, _ = lists[i].([]any)
		}
		arguments, named := readArguments(given, false)
		test = test && value.Truth(named.Value("test"))
		scopes = append(scopes, scopeOf(function, arguments, named))
	}

	if len(scopes) == 1 {
		return test, scopes[0]
	}
	h := fnv.New64a()
	for _, one := range scopes {
		_, _ = h.Write(binary.BigEndian.AppendUint64(nil, one)) // never fails
	}
	return test, max(h.Sum64(), unknownScope+1)
}

// givenTo returns the field of a load with the arguments.
func givenTo(load *value.Map) []any {
	given, ok := load.Value("arg").([]any)
	if !ok { // the load came with a return, because nobody knew the job before
		given, _ = load.Value("fun_args").([]any)
	}
	return given
}

// argumentsOf returns the arguments of a job. Named ones come in a map that has __kwarg__, or as text
// (salt/minion.py load_args_and_kwargs, salt/utils/args.py parse_input). The schedule of a minion sends
// them as the last map, without __kwarg__ (salt/utils/schedule.py handle_func).
func argumentsOf(load *value.Map) (list []any, named *value.Map) {
	_, ofReturn := load.Get("id")
	_, scheduled := load.Get("schedule")
	return readArguments(givenTo(load), ofReturn && scheduled)
}

// readArguments reads the arguments of one function. bySchedule says that the schedule of a minion sent them.
func readArguments(given []any, bySchedule bool) (list []any, named *value.Map) {
	var last *value.Map
	if n := len(given); bySchedule && n > 0 {
		var isMap bool
		if last, isMap = given[n-1].(*value.Map); isMap {
			given = given[:n-1]
		}
	}

	list, named = client.SplitArgs(given, parsed)
	named.Update(last)
	return list, named
}

// maxParsed bounds the bytes of an argument that is read as YAML. A longer one counts as it was typed.
const maxParsed = 4096

// parsed returns the value that the minion reads from the text of an argument.
func parsed(_, text string) any {
	if len(text) > maxParsed {
		return text
	}
	return client.Yamlify(text)
}

// without are named arguments that do not change which states a run has.
var without = map[string]bool{"__kwarg__": true, "test": true, "queue": true, "concurrent": true}

// scopeOf returns the hash of a function and its arguments, in whatever order the named ones come. It counts
// state.apply as state.sls or state.highstate (salt/modules/state.py apply_).
func scopeOf(function string, arguments []any, named *value.Map) uint64 {
	if mods := named.Value("mods"); mods != nil && len(arguments) == 0 {
		arguments = []any{mods}
	}
	if function == "state.apply" {
		function = "state.highstate"
		if len(arguments) > 0 {
			function = "state.sls"
		}
	}

	h := fnv.New64a()
	write := func(v any) { _, _ = h.Write([]byte(value.Repr(v) + "\x00")) } // never fails
	write(function)
	for _, a := range arguments {
		write(a)
	}
	for _, name := range slices.Sorted(slices.Values(named.Keys())) {
		if !without[name] && name != "mods" {
			write(name)
			write(named.Value(name))
		}
	}
	return max(h.Sum64(), unknownScope+1)
}
