package fleet

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"saltern/master/history"
	"saltern/master/history/summary"
	"saltern/master/jobs"
)

// model counts by itself what the Recorder must show for generated runs.
type model struct {
	results map[string]summary.Result // of the last run, by minion
	states  map[string]int
	drift   []string // "minion jid state cause"
}

// generate makes the runs of minions over a day: every minion runs its states every hour; the files change
// twice; some states fail, some drift.
func generate(b *bench, random *rand.Rand, minions []string) ([]jobs.Archived, *model) {
	m := &model{results: map[string]summary.Result{}, states: map[string]int{"would change": 0}}
	failedBefore := map[string]bool{} // minion and state
	driftedBefore := map[string]bool{}
	var all []jobs.Archived
	for hour := range 24 {
		revision := fmt.Sprint("r", hour/8)
		for _, minion := range minions {
			var texts, tested, drifted []string
			result := summary.OK
			for i := range 8 {
				id := fmt.Sprint("s", i)
				key := minion + id
				word := "ok"
				switch chance := random.IntN(200); {
				case chance == 0:
					word = "failed"
				case chance < 3 || driftedBefore[key] && chance < 60:
					word = "changed"
				}
				texts = append(texts, id+"="+word)
				m.states[word]++
				switch word {
				case "failed":
					result = summary.Failed
				case "changed":
					result = max(result, summary.Changed)
					sameFiles := hour%8 != 0
					if sameFiles && !failedBefore[key] {
						cause := " drift"
						if driftedBefore[key] {
							cause = " recurring"
						}
						drifted = append(drifted, id+cause)
					}
				}
				driftedBefore[key] = len(drifted) > 0 && strings.HasPrefix(drifted[len(drifted)-1], id+" ")
				failedBefore[key] = word == "failed"
				tested = append(tested, id+"="+map[string]string{"changed": "would"}[word])
			}
			if result == summary.Changed && random.IntN(2) == 0 { // a test finds it before
				for i, text := range tested {
					if !strings.HasSuffix(text, "would") {
						tested[i] += "ok"
					}
				}
				m.states["would change"] += strings.Count(strings.Join(tested, " "), "would")
				m.states["ok"] += strings.Count(strings.Join(tested, " "), "=ok")
				all = append(all, b.archived(minion, "state.apply", revision, states(tested...), "test=True"))
			}
			a := b.archived(minion, "state.apply", revision, states(texts...))
			for _, id := range drifted {
				m.drift = append(m.drift, minion+" "+a.JID+" "+id)
			}
			m.results[minion] = result
			all = append(all, a)
		}
	}
	return all, m
}

// mixed returns runs in another order, as another master commits them: those of one minion stay in order.
func mixed(random *rand.Rand, all []jobs.Archived) []jobs.Archived {
	byMinion := map[string][]jobs.Archived{}
	var order []string
	for _, a := range all {
		byMinion[a.Minion] = append(byMinion[a.Minion], a)
		order = append(order, a.Minion)
	}
	random.Shuffle(len(order), func(i, k int) { order[i], order[k] = order[k], order[i] })

	var out []jobs.Archived
	for _, minion := range order {
		out = append(out, byMinion[minion][0])
		byMinion[minion] = byMinion[minion][1:]
	}
	return out
}

// TestNumbersOfTwoMastersEqualAModel: two masters that commit the same returns in another order, one of
// them with a crash in between, show the numbers of a model, and name each drift.
func TestNumbersOfTwoMastersEqualAModel(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var minions accepted
	for i := range 40 {
		minions = append(minions, fmt.Sprintf("web%02d", i))
	}
	slices.Sort(minions)

	one, two := newBench(t), newBench(t)
	all, want := generate(one, random, minions)
	two.now = one.now
	for _, a := range all {
		one.add(a)
	}
	others := mixed(random, all)
	for i, a := range others {
		two.add(a)
		if i == len(others)/2 {
			if err := two.recorder.Sync(); err != nil {
				t.Fatal(err)
			}
		}
		if i == len(others)*3/4 { // the journal repeats what came after Sync
			two.reopen()
			for _, again := range others[len(others)/2 : i+1] {
				two.add(again)
			}
		}
	}

	for name, b := range map[string]*bench{"in order": one, "mixed, with a crash": two} {
		t.Run(name, func(t *testing.T) {
			compareWithModel(t, b, minions, want, len(all))
		})
	}
	if a, b := one.recorder.Table().All(), two.recorder.Table().All(); !reflect.DeepEqual(a, b) {
		t.Error("the masters have different tables")
	}
}

func compareWithModel(t *testing.T, b *bench, minions accepted, want *model, runs int) {
	f := NewFleet(b.recorder, minions, nil, b.clock)
	s, err := f.Summary(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	results := map[summary.Result]int{}
	for _, r := range want.results {
		results[r]++
	}
	if s.Runs != runs || !reflect.DeepEqual(s.Results, results) || !reflect.DeepEqual(s.States, want.states) {
		t.Errorf("%d runs, results %v, states %v; want %d, %v, %v", s.Runs, s.Results, s.States, runs, results, want.states)
	}

	drift, more, err := f.Drift(t.Context(), history.Filter{}, maxLimit)
	if err != nil || more {
		t.Fatal(more, err)
	}
	var got []string
	for _, d := range drift {
		got = append(got, d.Minion+" "+d.JID+" "+d.State.ID+" "+d.State.Cause.String())
		if d.Corrected && d.State.Changes != "-old "+d.State.ID+"\n+new "+d.State.ID {
			t.Errorf("difference %q", d.State.Changes)
		}
	}
	slices.Sort(got)
	slices.Sort(want.drift)
	if !slices.Equal(got, want.drift) || len(got) < 10 {
		t.Errorf("%d drifts:\n%q, want %d:\n%q", len(got), got, len(want.drift), want.drift)
	}
}
