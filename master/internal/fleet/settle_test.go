package fleet

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/master/history"
	"saltern/master/jobs"
	"saltern/master/msgpack"
	"saltern/master/value"
)

// arrival is a return, or the load of a job if the return is nil.
type arrival struct {
	jid      string
	load     *value.Map
	ret      *jobs.Archived
	byItself *value.Map // the load that the return makes if the job has none
}

// hearing is a master that hears of loads and returns in an order of its own.
type hearing struct {
	*bench    // its loads are those of the job cache
	sinceSync []arrival
}

func (n *hearing) loadOf(jid string) *value.Map { return n.loads[jid] }

// take does what the job cache does: a load of a master replaces one that was made of a return.
func (n *hearing) take(a arrival) {
	n.Helper()
	if a.ret == nil {
		n.loads[a.jid] = a.load
	} else if n.loads[a.jid] == nil {
		n.loads[a.jid] = a.byItself
	}
	n.sinceSync = append(n.sinceSync, a)
	n.pass(a)
}

// pass passes an arrival to the archive.
func (n *hearing) pass(a arrival) {
	n.Helper()
	if a.ret == nil {
		if err := n.recorder.AddJob(jobs.ArchivedJob{JID: a.jid, Load: a.load, LoadOf: n.loadOf}); err != nil {
			n.Fatal(err)
		}
		return
	}
	r := *a.ret
	r.Load = func() *value.Map { return n.loadOf(r.JID) }
	r.LoadOf = n.loadOf
	n.add(r)
}

// restart restarts the master. After a crash the journal repeats what came after the last Sync.
func (n *hearing) restart(crash bool) {
	n.Helper()
	if !crash {
		if err := n.recorder.Sync(); err != nil {
			n.Fatal(err)
		}
		n.sinceSync = nil
	}
	n.reopen()
	for _, a := range n.sinceSync {
		n.pass(a)
	}
}

// arrivalsOf generates the jobs of a day on a few minions, in order: each load before its returns, these by their
// minions.
func arrivalsOf(t *testing.T, random *rand.Rand, minions []string) (all []arrival) {
	at := start
	for range 30 + random.IntN(30) {
		at = at.Add(time.Duration(1+random.IntN(90)) * time.Second)
		jid := jobs.FromTime(at)
		arg := []any{[]string{"web", "db"}[random.IntN(2)]}
		isTest := random.IntN(4) == 0
		if isTest {
			arg = append(arg, value.NewMap("__kwarg__", true, "test", true))
		}
		fun := "state.apply"
		if random.IntN(6) == 0 {
			fun = "test.ping"
		}
		load := value.NewMap("fun", fun, "arg", arg, "user", []string{"alice", "bob"}[random.IntN(2)])
		all = append(all, arrival{jid: jid, load: load})
		revision := fmt.Sprint("r", at.Sub(start)/(20*time.Minute))

		for _, minion := range minions {
			if random.IntN(4) == 0 {
				continue
			}
			var texts []string
			for i := range 4 {
				word := []string{"ok", "ok", "changed", "failed"}[random.IntN(4)]
				if isTest {
					word = []string{"ok", "would"}[random.IntN(2)]
				}
				texts = append(texts, fmt.Sprint("s", i, "=", word))
			}
			ret := any(states(texts...))
			retcode := 0
			switch {
			case fun == "test.ping":
				ret = true
			case random.IntN(10) == 0:
				ret = []any{"Rendering SLS failed"}
				retcode = 1
			}
			packed, err := msgpack.Marshal(value.NewMap("return", ret, "retcode", retcode, "success", true,
				"saltern_revision", revision), msgpack.Modern)
			if err != nil {
				t.Fatal(err)
			}
			byItself := value.NewMap("id", minion, "jid", jid, "fun_args", arg, "return", ret)
			if random.IntN(8) > 0 {
				byItself.Set("fun", fun)
			}
			took := at.Add(time.Duration(random.IntN(200)) * time.Second) // a later job may be done before
			all = append(all, arrival{jid: jid, byItself: byItself, ret: &jobs.Archived{
				JID: jid, Minion: minion, Time: took, Return: packed,
			}})
		}
	}
	return all
}

// answersOf returns what a master tells of all minions.
func (n *hearing) answers(minions []string) map[string]string {
	n.Helper()
	f := NewFleet(n.recorder, accepted(minions), nil, n.clock)
	out := map[string]string{}
	for from := history.Cursor(""); ; {
		page, err := f.Runs(n.Context(), history.Filter{}, 50, from)
		if err != nil {
			n.Fatal(err)
		}
		for i := range page.Runs {
			run := &page.Runs[i]
			name := fmt.Sprint("run ", run.JID, " ", run.Minion)
			if out[name] != "" {
				n.Errorf("%s is there twice", name)
			}
			out[name] = fmt.Sprintf("%s %s %+v", run.User, run.Function, run.Summary)
		}
		if from = page.Next; from == "" {
			break
		}
	}

	drift, _, err := f.Drift(n.Context(), history.Filter{}, maxLimit)
	if err != nil {
		n.Fatal(err)
	}
	for i := range drift {
		out[fmt.Sprint("drift ", i)] = fmt.Sprintf("%+v", drift[i])
	}
	for _, last := range n.recorder.Table().All() {
		out["last "+last.Minion] = fmt.Sprintf("%+v", last)
	}
	s, err := f.Summary(n.Context(), start)
	if err != nil {
		n.Fatal(err)
	}
	out["summary"] = fmt.Sprintf("%+v", s)
	for _, user := range []string{"alice", "bob"} {
		page, err := f.Runs(n.Context(), history.Filter{User: user}, maxLimit, "")
		if err != nil {
			n.Fatal(err)
		}
		out["runs of "+user] = fmt.Sprint(len(page.Runs))
	}
	return out
}

// TestOrderOfArrivalDoesNotMatter: masters that hear of the same loads and returns in other orders, with restarts and
// crashes between, say the same as one that heard of all in order.
func TestOrderOfArrivalDoesNotMatter(t *testing.T) {
	minions := []string{"db1", "web1", "web2"}
	for range 2 {
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 1))
		all := arrivalsOf(t, random, minions)
		var want map[string]string
		for number, kind := range []string{"in order", "loads late", "a part late", "shuffled"} {
			n := &hearing{bench: newBench(t)}
			n.now = start.Add(3 * time.Hour)
			order := slices.Clone(all)
			switch number {
			case 1:
				slices.SortStableFunc(order, func(a, b arrival) int { return strings.Compare(late(a), late(b)) })
			case 2:
				at := random.IntN(len(all))
				length := random.IntN(len(all) - at)
				order = slices.Concat(all[:at], all[at+length:], all[at:at+length])
			case 3:
				random.Shuffle(len(order), func(i, k int) { order[i], order[k] = order[k], order[i] })
			}

			for _, a := range order {
				n.take(a)
				if number > 0 && random.IntN(50) == 0 {
					n.restart(random.IntN(2) == 0)
				}
			}
			n.restart(number > 0)
			got := n.answers(minions)
			if want == nil {
				want = got
			}
			if reflect.DeepEqual(got, want) {
				continue
			}
			shown := 0
			for name := range want {
				if got[name] != want[name] && shown < 3 {
					t.Errorf("seed %d, %s: %s:\n%s\nin order:\n%s", seed, kind, name, got[name], want[name])
					shown++
				}
			}
			t.FailNow()
		}
	}
}

// late is what the load of a job is sorted by that comes after its returns.
func late(a arrival) string {
	if a.ret == nil {
		return a.jid + "z"
	}
	return a.jid
}
