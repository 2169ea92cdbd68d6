package summary

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"saltern/master/msgpack"
	"saltern/master/value"
)

// outcomes are what one function of a job may do: its return, return code and success as Salt's minion sends them
// (salt/minion.py _thread_multi_return), and whether it failed.
var outcomes = map[string]struct {
	function      string
	ret           any
	code, success any
	fails         bool
	said          string // what a message names
}{
	"ping":      {function: "test.ping", ret: true, code: int64(0), success: true},
	"text":      {function: "test.version", ret: "3007.15", code: int64(0), success: true},
	"list":      {function: "network.ip_addrs", ret: []any{"192.0.2.1"}, code: int64(0), success: true},
	"command":   {function: "cmd.run", ret: "no such file", code: int64(3), success: false, fails: true, said: "cmd.run: no such file"},
	"killed":    {function: "cmd.shell", ret: "", code: int64(-15), success: false, fails: true, said: "cmd.shell: failed"},
	"exception": {function: "nosuch.fun", ret: "KeyError\n at", success: false, fails: true, said: "nosuch.fun: KeyError"},
	"states":    {function: "state.apply", ret: value.NewMap("test_|-a_|-a_|-nop", state(true)), code: int64(0), success: true},
	"bad states": {
		function: "state.sls",
		ret:      value.NewMap("test_|-bad_|-bad_|-fail_without_changes", state(false)),
		code:     int64(2), success: false, fails: true, said: "bad",
	},
	"no states": {function: "state.highstate", ret: []any{"No matching sls"}, code: int64(1), success: false, fails: true, said: "No matching"},
}

// TestSeveralFunctions: whatever the functions of a job return, in both forms, the run failed if one of them did, and
// each that did is named.
func TestSeveralFunctions(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	names := make([]string, 0, len(outcomes))
	for name := range outcomes {
		names = append(names, name)
	}
	slices.Sort(names)

	for range 2000 {
		random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		chosen := names[:2+random.IntN(3)]
		ordered := random.IntN(2) == 0
		load := severalReturns(chosen, ordered)
		note := fmt.Sprintf("seed %d, %v, ordered %t", seed, chosen, ordered)

		fails, started := false, false
		for _, name := range chosen {
			fails = fails || outcomes[name].fails
			started = started || strings.HasSuffix(name, "states") && name != "no states"
		}
		s := OfReturn(load)
		if got := s.Result >= Failed; got != fails {
			t.Fatalf("%s: %s", note, s.Result)
		}
		if slices.Contains(chosen, "no states") && !started && s.Result != Error {
			t.Fatalf("%s: %s, although no state ran", note, s.Result)
		}
		if got := ResultOf(s.Function, load); got != s.Result {
			t.Fatalf("%s: decoded %s, packed %s", note, got, s.Result)
		}
		success, _ := msgpack.Marshal(load.Value("success"), msgpack.Modern)
		if Succeeded(success) == fails {
			t.Fatalf("%s: success %t", note, !fails)
		}

		told := ""
		for _, line := range s.FailedStates {
			told += line.ID + " " + line.Comment + "\n"
		}
		for _, name := range chosen {
			if !strings.Contains(told, outcomes[name].said) {
				t.Fatalf("%s: %q is not named: %s", note, outcomes[name].said, told)
			}
		}
		if !fails && told != "" {
			t.Fatalf("%s: named: %s", note, told)
		}
	}
}

// severalReturns returns the return of a job with several functions.
func severalReturns(chosen []string, ordered bool) *value.Map {
	byName := map[string]*value.Map{"return": {}, "retcode": {}, "success": {}}
	inOrder := map[string][]any{}
	var functions, arguments []any
	for _, name := range chosen {
		one := outcomes[name]
		functions = append(functions, one.function)
		arguments = append(arguments, []any{})
		for field, v := range map[string]any{"return": one.ret, "retcode": one.code, "success": one.success} {
			inOrder[field] = append(inOrder[field], v)
			if v != nil { // after an exception
				byName[field].Set(one.function, v)
			}
		}
	}

	load := value.NewMap("fun", functions, "fun_args", arguments)
	for field := range byName {
		if ordered {
			load.Set(field, inOrder[field])
		} else {
			load.Set(field, byName[field])
		}
	}
	return load
}

// TestAsManyFunctionsAsAJobMayHave: the last of them fails.
func TestAsManyFunctionsAsAJobMayHave(t *testing.T) {
	t.Parallel()
	const most = 1000 // launch.MaxFunctions
	var functions []any
	codes, success := value.NewMap(), value.NewMap()
	for i := range most {
		name := fmt.Sprintf("cmd.run%d", i)
		functions = append(functions, name)
		codes.Set(name, int64(i/(most-1)))
		success.Set(name, i < most-1)
	}

	for _, load := range []*value.Map{
		value.NewMap("fun", functions, "return", value.NewMap(), "retcode", codes),
		value.NewMap("fun", functions, "return", value.NewMap(), "success", success),
	} {
		if s := OfReturn(load); s.Result != Failed {
			t.Errorf("%v: %s", load.Keys(), s.Result)
		}
	}
}

func TestRetcodeOf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		v    any
		want int64
	}{
		{nil, 0},
		{int64(3), 3},
		{true, 1},
		{"text", 0},
		{[]any{}, 0},
		{[]any{int64(0), nil, int64(4), int64(2)}, 4},
		{[]any{int64(0), int64(-15)}, -15},
		{value.NewMap("a", int64(0), "b", int64(2), "c", int64(7)), 7},
	} {
		if got := RetcodeOf(tt.v); got != tt.want {
			t.Errorf("%s: %d, want %d", value.Repr(tt.v), got, tt.want)
		}
	}
}
