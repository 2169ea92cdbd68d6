package fleet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"saltern/master/pattern"
	"saltern/master/value"
)

// TestGlobsOfRuns: pages of random globs have what a look at all runs selects, in the same order, and the
// other runners take the same globs.
func TestGlobsOfRuns(t *testing.T) {
	b := newBench(t)
	minions := accepted{"db1", "db2", "web-1", "web[1]", "web1", "web2", "x"}
	functions := []string{"state.apply", "state.highstate", "test.ping"}
	random := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		minion := minions[random.IntN(len(minions))]
		b.add(b.archived(minion, functions[random.IntN(len(functions))], "r1", states("a=changed")))
	}
	all := b.mustCall(minions, "fleet.runs", "limit", 1000).List("runs")

	globs := []string{"", "*", "web*", "web?", "*1", "db[12]", "[!w]*", "x", "web[1]", "nothing*"}
	for _, minion := range globs {
		for _, function := range []string{"", "state.*", "test.ping", "*i*"} {
			for _, limit := range []int{3, 1000} {
				t.Run(fmt.Sprint(minion, " ", function, " ", limit), func(t *testing.T) {
					want := slices.DeleteFunc(slices.Clone(all), func(run any) bool {
						m := run.(*value.Map)
						return minion != "" && !pattern.Glob(minion, m.Str("minion")) ||
							function != "" && !pattern.Glob(function, m.Str("function"))
					})

					var got []any
					for page, first := "", true; first || page != ""; first = false {
						answer := b.mustCall(minions, "fleet.runs", "minion", minion, "function", function, "limit", limit, "page", page)
						if n := len(answer.List("runs")); n > limit {
							t.Fatalf("a page of %d runs", n)
						}
						got = append(got, answer.List("runs")...)
						page = answer.Str("next")
					}
					if value.Repr(got) != value.Repr(want) {
						t.Errorf("%d runs, want %d", len(got), len(want))
					}
				})
			}
		}
	}

	for _, runner := range []string{"fleet.drift", "fleet.search"} {
		kv := []any{"minion", "db?", "limit", 1000}
		if runner == "fleet.search" {
			kv = append(kv, "text", "a")
		}
		answer := b.mustCall(minions, runner, kv...)
		for _, row := range append(answer.List("drift"), answer.List("runs")...) {
			if id := row.(*value.Map).Str("minion"); !pattern.Glob("db?", id) {
				t.Errorf("%s tells of %s", runner, id)
			}
		}
	}
}
