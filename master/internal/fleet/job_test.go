package fleet

import (
	"math/rand/v2"
	"strings"
	"testing"

	"saltern/master/client"
	"saltern/master/value"
)

// TestOneScopeByAllWays checks that the same states have the same scope, and a test is known as one, whether a master
// starts the run, salt-call, or the schedule of the minion.
func TestOneScopeByAllWays(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	positional := []string{"web", "web,db", "1.10", "0777", "[a, b]", "ümlaut", "a b", "a==b", "{x: 1}", "", "None", "#"}
	named := []string{"saltenv=base", "pillar={a: 1, b: [2]}", "exclude=x", "test=True", "test=yes", "test=1",
		"test=False", "test=None", "queue=True", "state_events=no", "n=1.10", "text=a # b", "empty=", "__x=1"}

	for range 2000 {
		words := pick(random, positional, 2)
		names := pick(random, named, 4)
		all := append(words[:len(words):len(words)], names...)

		parsed := client.ParseArgs(all, nil)
		byMaster := value.NewMap("fun", "state.apply", "arg", parsed)

		typed := make([]any, len(all))
		for i, w := range all {
			typed[i] = w
		}
		bySaltCall := value.NewMap("id", "web1", "fun", "state.apply", "fun_args", typed)

		// The schedule has the named arguments in an order of its own.
		kwargs := value.NewMap()
		random.Shuffle(len(names), func(i, j int) {
			if nameOf(names[i]) != nameOf(names[j]) { // of two with one name the last one counts
				names[i], names[j] = names[j], names[i]
			}
		})
		args := []any{}
		for _, a := range parsed {
			if m, ok := a.(*value.Map); ok && m.Bool("__kwarg__") {
				for _, n := range names {
					kwargs.Set(nameOf(n), m.Value(nameOf(n)))
				}
				continue
			}
			args = append(args, a)
		}
		bySchedule := value.NewMap("id", "web1", "fun", "state.apply", "schedule", "nightly", "arg", append(args, kwargs))

		want := jobOf(byMaster)
		for way, load := range map[string]*value.Map{"salt-call": bySaltCall, "schedule": bySchedule} {
			if got := jobOf(load); got.scope != want.scope || got.test != want.test {
				t.Errorf("seed %d: %q by %s: %+v, by a master %+v", seed, all, way, got, want)
			}
		}
	}
}

// TestMapOfAnotherCallerIsNoNames checks that only the schedule's last map has names: a list of arguments may end
// with a map.
func TestMapOfAnotherCallerIsNoNames(t *testing.T) {
	args := []any{"web", value.NewMap("test", true)}
	for name, load := range map[string]*value.Map{
		"a job of a master":              value.NewMap("fun", "state.apply", "arg", args),
		"a job that names a schedule":    value.NewMap("fun", "state.apply", "arg", args, "schedule", "nightly"),
		"a return of salt-call":          value.NewMap("fun", "state.apply", "arg", args, "id", "web1"),
		"a schedule, the map not at end": value.NewMap("fun", "state.apply", "arg", []any{args[1], "web"}, "id", "web1", "schedule", "x"),
	} {
		if jobOf(load).test {
			t.Errorf("%s counts as a test", name)
		}
	}
}

func nameOf(word string) string {
	name, _, _ := strings.Cut(word, "=")
	return name
}

// pick returns up to most of the words, each at most once.
func pick(random *rand.Rand, words []string, most int) (out []string) {
	for _, i := range random.Perm(len(words))[:random.IntN(most+1)] {
		out = append(out, words[i])
	}
	return out
}

func BenchmarkJobOf(b *testing.B) {
	load := value.NewMap("id", "web1", "fun", "state.apply", "fun_args", []any{"web", "test=True", "pillar={a: 1}"})
	for b.Loop() {
		jobOf(load)
	}
}

// TestScopeOfSeveralFunctions checks that a run of states beside other functions has the scope of the states alone, and
// is known as a test.
func TestScopeOfSeveralFunctions(t *testing.T) {
	kwargs := func(test bool) *value.Map { return value.NewMap("__kwarg__", true, "saltenv", "base", "test", test) }
	for _, test := range []bool{true, false} {
		alone := jobOf(value.NewMap("fun", "state.apply", "arg", []any{"web", kwargs(test)}))
		for _, field := range []string{"arg", "fun_args"} {
			several := jobOf(value.NewMap("fun", []any{"test.ping", "state.apply"},
				field, []any{[]any{}, []any{"web", kwargs(test)}}))
			if several.scope != alone.scope || several.test != test {
				t.Errorf("%s with test=%t: %+v, alone %+v", field, test, several, alone)
			}
		}
	}

	two := func(second string) job {
		return jobOf(value.NewMap("fun", []any{"state.sls", "state.sls"}, "arg", []any{[]any{"web"}, []any{second}}))
	}
	if two("db").scope == two("web").scope {
		t.Error("the scope of two runs of states depends on the first alone")
	}
	if got := jobOf(value.NewMap("fun", []any{"test.ping", "state.apply"}, "arg", []any{int64(1)})); got.test {
		t.Errorf("without lists of arguments: %+v", got)
	}
}
