package fleet

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/master/history"
	"saltern/master/history/summary"
)

// hostileName returns a name that somebody may choose for a function or a state.
func hostileName(r *rand.Rand, i int) string {
	switch r.IntN(5) {
	case 0:
		return fmt.Sprintf("long%0200d", i)
	case 1:
		return fmt.Sprintf("bytes\xff%c%d", rune(0x80+r.IntN(0x80)), r.IntN(10)) + string([]byte{byte(r.IntN(256))})
	case 2:
		return []string{"", "other", " ", "\n", "\x00", "\ufffd", "\xfe"}[r.IntN(7)]
	case 3:
		return fmt.Sprintf("\u202ename\"\\%d", i)
	}
	return fmt.Sprintf("name%d", i)
}

// asRead returns figures as the supervisor reads them from the status file.
func asRead[T any](t *testing.T, v T) (read T) {
	t.Helper()
	b, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(b, &read)
	}
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// TestFunctionsThatMinionsChooseTakeFewPlaces: names that minions choose displace no function of a job, and
// no two of them are the same label, for which Prometheus would refuse all metrics of the node.
func TestFunctionsThatMinionsChooseTakeFewPlaces(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	c := counter{functions: map[string]*counts{}}
	for i := range 100_000 {
		name := hostileName(r, i)
		if i < 100 {
			name = "f" + string([]byte{byte(0x80 + i)}) // JSON has one text for all of these
		}
		c.count(&history.Run{Function: name}, true)
	}
	c.count(&history.Run{Function: "state.apply"}, false)
	for i := range 100_000 {
		c.count(&history.Run{Function: hostileName(r, i)}, false)
	}

	names := map[string]bool{}
	runs := uint64(0)
	for _, f := range asRead(t, c.figures()) {
		if names[f.Function] {
			t.Errorf("twice: %q", f.Function)
		}
		names[f.Function] = true
		runs += f.Runs["ok"]
	}
	if len(names) > maxFunctions+1 || !names["state.apply"] || runs != 200_001 {
		t.Errorf("%d functions, state.apply is there: %v, %d runs", len(names), names["state.apply"], runs)
	}
}

// TestFailedStatesAreBounded: among 100,000 chosen ids the worst states are named.
func TestFailedStatesAreBounded(t *testing.T) {
	const minions, each = 20_000, 5
	r := rand.New(rand.NewPCG(3, 4))
	table := newTable()
	var ids []string
	for i := range minions {
		s := summary.Summary{Result: summary.Failed, Failed: each}
		for n := range each {
			s.FailedStates = append(s.FailedStates, summary.State{Function: "f", ID: hostileName(r, i*each+n)})
		}
		if i%100 == 0 {
			s.FailedStates[0] = summary.State{Function: "pkg.installed", ID: "nginx"}
			s.FailedStates[1] = summary.State{Function: "f", ID: string([]byte{byte(0x80 + i/100%2)})}
		}
		id := fmt.Sprintf("minion%05d", i)
		run := history.Run{Minion: id, JID: "20261129120000000000", Time: start, Function: "state.apply", Summary: s}
		table.add(&run, 7, start)
		ids = append(ids, id)
	}

	began := time.Now()
	list := asRead(t, worstOf(table, ids))
	t.Logf("counted in %v", time.Since(began))
	names := map[string]bool{}
	total := 0
	for _, s := range list {
		if names[s.State] {
			t.Errorf("twice: %q", s.State)
		}
		names[s.State] = true
		total += s.Minions
	}
	if len(list) > maxNamed+1 || !names["pkg.installed nginx"] || list[len(list)-1].State != otherStates {
		t.Errorf("%d states: %v", len(list), list)
	}
	if total != minions*each {
		t.Errorf("the counts add up to %d, want %d", total, minions*each)
	}
}

// TestTextsAreNoStates: what a function that runs no states says beside a failed state is no state.
func TestTextsAreNoStates(t *testing.T) {
	failed := summary.State{Function: "test.nop", ID: "a"}
	counts := map[string]int{}
	countFailed(counts, &summary.Summary{FailedStates: []summary.State{failed, {Comment: "nosuch.fun: KeyError"}}})
	if len(counts) != 1 || counts["test.nop a"] != 1 {
		t.Errorf("failed states: %v", counts)
	}
}

func TestFailedStatesAreThoseOfLastRuns(t *testing.T) {
	b := newBench(t)
	for _, texts := range [][]string{{"a=failed", "b=failed"}, {"a=ok", "b=failed"}} {
		for _, minion := range []string{"web1", "web2"} {
			if err := b.recorder.Add(b.archived(minion, "state.apply", "r1", states(texts...))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := b.recorder.Add(b.archived("web3", "state.apply", "r1", states("a=failed"))); err != nil {
		t.Fatal(err)
	}

	minions := accepted{"web1", "web2", "web3"}
	f := NewFleet(b.recorder, minions, nil, b.clock)
	want := []control.FailedState{{State: "file.managed b", Minions: 2}, {State: "other", Minions: 1}}
	if got := f.Figures().FailedStates; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}

	if err := b.recorder.Add(b.archived("web3", "state.apply", "r1", states("a=ok"))); err != nil {
		t.Fatal(err)
	}
	b.now = b.now.Add(countEvery)
	if got := f.Figures().FailedStates; fmt.Sprint(got) != fmt.Sprint(want[:1]) {
		t.Errorf("%v, want %v", got, want[:1])
	}
}
