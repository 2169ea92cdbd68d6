//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"saltern/master/value"
	"saltern/test/lab"
	"saltern/test/minion"
)

// The course of TestFleetNumbers: in runs of their own a node is killed and comes back, the files
// change, and states are found changed by hand.
const (
	fleetRuns     = 24
	fleetKill     = 8  // before this run
	fleetNewFiles = 11 // before this run
	fleetBack     = 16 // before this run
	fleetDrifts   = 10
)

// outcome is what a scripted minion returns of a run.
type outcome string

const (
	ranOK      outcome = "ok"
	ranChanged outcome = "changed"
	ranFailed  outcome = "failed"
	ranError   outcome = "error"
)

// fleetPlan says what scripted minions do.
type fleetPlan struct {
	minions int
	drifts  map[[2]int]bool // by minion and run
}

func newFleetPlan(minions int) *fleetPlan {
	p := &fleetPlan{minions: minions, drifts: map[[2]int]bool{}}
	for i := range fleetDrifts {
		// Neither in a run with new files nor in the one after a failure.
		for run := 2 + 2*i%(fleetRuns-3); ; run++ {
			at := (i*191 + 7) % minions
			if run != fleetNewFiles && p.outcome(at, run) == ranOK && p.outcome(at, run-1) == ranOK {
				p.drifts[[2]int{at, run}] = true
				break
			}
		}
	}
	return p
}

func (p *fleetPlan) outcome(at, run int) outcome {
	switch {
	case p.drifts[[2]int{at, run}]:
		return ranChanged
	case (at*7+run*13)%41 == 0:
		return ranFailed
	case (at*5+run*3)%211 == 0:
		return ranError
	case run == fleetNewFiles:
		return ranChanged
	default:
		return ranOK
	}
}

// returned returns what a minion returns of a run, and its retcode.
func (p *fleetPlan) returned(at, run int) (any, int) {
	what := p.outcome(at, run)
	if what == ranError {
		return []any{"Rendering SLS 'base:real' failed: mapping values are not allowed here"}, 1
	}

	changes := value.NewMap()
	if what == ranChanged {
		changes = value.NewMap("diff", fmt.Sprintf("--- \n+++ \n-before run %d\n+by salt\n", run))
	}
	out := value.NewMap(
		"file_|-motd_|-/etc/motd_|-managed", oneStateOf("motd", "/etc/motd", true, changes, 0),
		"pkg_|-web_|-nginx_|-installed", oneStateOf("web", "nginx", true, value.NewMap(), 1),
		"service_|-web-runs_|-nginx_|-running", oneStateOf("web-runs", "nginx", what != ranFailed, value.NewMap(), 2),
	)
	if what == ranFailed {
		return out, 2
	}
	return out, 0
}

func oneStateOf(id, name string, result bool, changes *value.Map, number int) *value.Map {
	return value.NewMap("__id__", id, "__sls__", "real", "__run_num__", number, "name", name, "result", result, "changes",
		changes, "comment", "comment of "+id, "duration", 3.5, "start_time", "10:00:00.000000")
}

// TestFleetNumbers: scripted and real minions run states 24 times, with failures and drift that are
// planted, while one of three nodes is killed and comes back. What fleet.* says on each node equals the
// plan, and what a script of Python counts in the files of the job cache. By HTTP, in pages and as CSV, on
// the console and in the metrics it is the same.
//
// SALTERN_FLEET is the number of scripted minions.
func TestFleetNumbers(t *testing.T) {
	count, err := strconv.Atoi(os.Getenv("SALTERN_FLEET"))
	if err != nil || count < 50 {
		t.Skip("SKIPPED: SALTERN_FLEET=2000 (make e2e-fleet) has so many minions run states 24 times, ten minutes")
	}

	targets := lab.Dir(t)
	c := lab.StartCluster(t, lab.ClusterConfig{
		NoLB: true,
		Options: map[string]any{
			"auto_accept":          true,
			"saltern_history_days": 90,
			"saltern_job_segments": false, // a script of Python counts the returns in the files of the job cache
			"external_auth": map[string]any{
				"sharedsecret": map[string]any{"alice": []any{".*", "@runner", "@wheel", "@jobs"}},
			},
			"sharedsecret": "right",
		},
		States: map[string]string{
			"real.sls": "motd:\n  file.managed:\n    - name: " + targets + "/{{ grains['id'] }}\n    - contents: by salt\n",
			"other":    "first\n",
		},
	})
	s := enroll(t, c, count)
	f := &fleetTest{c: c, s: s, plan: newFleetPlan(count), targets: targets}
	f.signIn(t)
	for i, version := range lab.Versions() {
		id := fmt.Sprintf("real%d", i)
		f.real = append(f.real, id)
		c.StartMinion(t, id, version, c.Members[2].Addr, nil)
	}
	f.realOnes(t)

	for run := range fleetRuns {
		f.run(t, run)
	}
	f.check(t)
}

type fleetTest struct {
	c       *lab.Cluster
	s       *swarm
	plan    *fleetPlan
	real    []string
	targets string // folder with a file of each real minion
	jobs    []string
	again   atomic.Int64 // returns that needed a further try
}

func (f *fleetTest) signIn(t *testing.T) {
	t.Helper()
	f.s.pinMaster(t)
	f.everyMinion(t.Context(), func(ctx context.Context, _ int, m *swarmer) {
		m.turn(0)
		m.signIn(ctx)
	})
	t.Cleanup(func() {
		for _, m := range f.s.minions {
			m.Close()
		}
	})
}

// everyMinion calls do for each scripted minion, 32 at a time.
func (f *fleetTest) everyMinion(ctx context.Context, do func(ctx context.Context, at int, m *swarmer)) {
	var group sync.WaitGroup
	next := make(chan int)
	for range 32 {
		group.Go(func() {
			for at := range next {
				do(ctx, at, f.s.minions[at])
			}
		})
	}
	for at := range f.s.minions {
		next <- at
	}
	close(next)
	group.Wait()
}

// realOnes waits until the real minions answer.
func (f *fleetTest) realOnes(t *testing.T) {
	t.Helper()
	lab.Eventually(t, 3*time.Minute, "the real minions answer", func() error {
		r := f.c.Members[0].Salt(t, "-t", "10", "real*", "test.ping", "--static", "--out", "json")
		var got map[string]any
		if err := json.Unmarshal([]byte(r.Out), &got); err != nil || len(got) != len(f.real) {
			return fmt.Errorf("%s%s", r.Out, r.Err)
		}
		return nil
	})
}

// run has all minions run states once.
func (f *fleetTest) run(t *testing.T, run int) {
	t.Helper()
	switch run {
	case fleetKill:
		m := f.c.Members[1]
		if err := syscall.Kill(m.Master.PID(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		ended(t, m.Master, 20*time.Second)
	case fleetNewFiles:
		lab.WriteTree(t, f.c.Shared+"/srv/salt", map[string]string{"other": "second\n"})
		time.Sleep(time.Second) // the file system's clock
	case fleetBack:
		f.c.Members[1].StartMaster(t)
		f.c.Members[1].WaitReady(t)
		f.c.WaitWhole(t)
	}
	if run%6 == 4 { // somebody changes a file of a real minion
		lab.WriteTree(t, f.targets, map[string]string{f.real[run/6%len(f.real)]: "by hand\n"})
	}

	alive := f.c.Alive()
	from := alive[run%len(alive)]
	jid := start(t, from, "*", "state.apply", "real")
	f.jobs = append(f.jobs, jid)
	f.everyMinion(t.Context(), func(ctx context.Context, at int, m *swarmer) { f.give(ctx, at, m, jid, run) })
	lab.Eventually(t, 3*time.Minute, "real minions have run "+jid, func() error {
		got, err := from.Lookup(t, jid)
		if err != nil {
			return err
		}
		for _, id := range f.real {
			if got[id] == nil {
				return errors.New(id + " has not")
			}
		}
		return nil
	})
}

// give returns a run of one minion until a master has taken it.
func (f *fleetTest) give(ctx context.Context, at int, m *swarmer, jid string, run int) {
	states, code := f.plan.returned(at, run)
	for try := 0; ctx.Err() == nil; try++ {
		if try == 1 {
			f.again.Add(1)
		}
		one, cancel := context.WithTimeout(ctx, 10*time.Second)
		_, err := m.Ask(one, "_return", "jid", jid, "fun", "state.apply", "fun_args", []any{"real"}, "return", states,
			"retcode", code, "success", code == 0)
		cancel()
		switch {
		case err == nil:
			return
		case errors.Is(err, minion.ErrRefused):
			m.signIn(ctx)
		default:
			m.turn(1)
			pause(ctx, 200*time.Millisecond)
		}
	}
}

// fleetRow is a run as the plan, a runner or the script has it.
type fleetRow struct {
	Minion, JID, Result string
}

// check compares what each node says.
func (f *fleetTest) check(t *testing.T) {
	t.Helper()
	planned := map[fleetRow]int{}
	for at, m := range f.s.minions {
		for run, jid := range f.jobs {
			planned[fleetRow{m.ID, jid, string(f.plan.outcome(at, run))}]++
		}
	}

	for _, m := range f.c.Members {
		var counted map[fleetRow]int
		lab.Eventually(t, 3*time.Minute, "all runs at "+m.Addr, func() error {
			counted = f.runsOf(t, m)
			return sameRows("the plan", planned, "fleet.runs of "+m.Addr, f.scripted(counted))
		})
		if err := sameRows("the job cache of "+m.Addr, f.inJobCache(t, m), "fleet.runs", counted); err != nil {
			t.Error(err)
		}
		if err := f.sameLast(t, m, counted); err != nil {
			t.Errorf("fleet.last of %s: %v", m.Addr, err)
		}
		f.checkDrift(t, m)
		f.checkWays(t, m, counted)
	}
	t.Logf("%d scripted and %d real minions, %d runs on each of %d nodes; %d returns needed a further try", len(f.s.minions),
		len(f.real), len(planned)+len(f.real)*fleetRuns, len(f.c.Members), f.again.Load())
}

// scripted leaves out the runs of real minions.
func (f *fleetTest) scripted(rows map[fleetRow]int) map[fleetRow]int {
	out := maps.Clone(rows)
	maps.DeleteFunc(out, func(r fleetRow, _ int) bool { return slices.Contains(f.real, r.Minion) })
	return out
}

// sameRows returns an error with some rows that differ.
func sameRows(nameA string, a map[fleetRow]int, nameB string, b map[fleetRow]int) error {
	var differ []string
	note := func(r fleetRow) {
		if a[r] != b[r] {
			differ = append(differ, fmt.Sprintf("%v: %d and %d", r, a[r], b[r]))
		}
	}
	for r := range a {
		note(r)
	}
	for r := range b {
		if _, both := a[r]; !both {
			note(r)
		}
	}
	if len(differ) == 0 {
		return nil
	}
	return fmt.Errorf("%s has %d rows, %s %d; %d differ, such as %v", nameA, len(a), nameB, len(b), len(differ),
		differ[:min(5, len(differ))])
}

// askRunner calls a runner of a node and reads its answer.
func askRunner[T any](t *testing.T, m *lab.Member, args ...string) (answer T) {
	t.Helper()
	r := m.SaltRun(t, append(args, "--out", "json")...)
	if err := json.Unmarshal([]byte(r.Out), &answer); err != nil {
		t.Fatalf("%v: %v: %.500s %s", args, err, r.Out, r.Err)
	}
	return answer
}

// runsOf pages through all runs of a node.
func (f *fleetTest) runsOf(t *testing.T, m *lab.Member) map[fleetRow]int {
	t.Helper()
	out := map[fleetRow]int{}
	for page := ""; ; {
		args := []string{"fleet.runs", "function=state.apply", "limit=1000"}
		if page != "" {
			args = append(args, "page="+page)
		}
		answer := askRunner[struct {
			Runs []fleetRow
			Next string
		}](t, m, args...)
		for _, r := range answer.Runs {
			out[r]++
		}
		if page = answer.Next; page == "" {
			return out
		}
	}
}

// sameLast compares fleet.last and fleet.trend with the last run of each minion.
func (f *fleetTest) sameLast(t *testing.T, m *lab.Member, rows map[fleetRow]int) error {
	t.Helper()
	want := map[fleetRow]int{}
	results := map[string]int{}
	for r := range rows {
		if r.JID == f.jobs[len(f.jobs)-1] {
			want[r]++
			results[r.Result]++
		}
	}

	got := map[fleetRow]int{}
	last := askRunner[struct{ Minions map[string]fleetRow }](t, m, "fleet.last", "brief=True", "limit=10000")
	for id, r := range last.Minions {
		r.Minion = id
		got[r]++
	}
	trend := askRunner[struct {
		LastRun map[string]int `json:"last_run"`
	}](t, m, "fleet.trend")
	var wrong error
	for _, result := range []outcome{ranOK, ranChanged, ranFailed, ranError} {
		if trend.LastRun[string(result)] != results[string(result)] {
			wrong = errors.Join(wrong, fmt.Errorf("fleet.trend has %d of %s, not %d", trend.LastRun[string(result)], result,
				results[string(result)]))
		}
	}
	return errors.Join(wrong, sameRows("the last job", want, "fleet.last", got))
}

// checkDrift compares fleet.drift with what was planted.
func (f *fleetTest) checkDrift(t *testing.T, m *lab.Member) {
	t.Helper()
	type drift struct{ Minion, JID, ID, Changes string }
	answer := askRunner[struct {
		Drift []drift
		More  bool
	}](t, m, "fleet.drift", "minion=s*", "limit=1000")
	want := map[drift]bool{}
	for at := range f.plan.drifts {
		want[drift{f.s.minions[at[0]].ID, f.jobs[at[1]], "motd", fmt.Sprintf("-before run %d\n+by salt", at[1])}] = true
	}
	for _, d := range answer.Drift {
		if !want[d] {
			t.Errorf("%s tells drift that was not planted: %+v", m.Addr, d)
		}
		delete(want, d)
	}
	for d := range want {
		r := m.SaltRun(t, "fleet.runs", "minion="+d.Minion, "limit=100", "--out", "yaml")
		t.Errorf("%s tells no drift of %+v; its runs:\n%s", m.Addr, d, r.Out)
	}
	if answer.More {
		t.Errorf("%s has more than the drift that was planted", m.Addr)
	}

	real := askRunner[struct{ Drift []drift }](t, m, "fleet.drift", "minion=real*", "limit=1000")
	if len(real.Drift) != fleetRuns/6 {
		t.Errorf("%s tells of %d drifts of real minions, not %d: %+v", m.Addr, len(real.Drift), fleetRuns/6, real.Drift)
	}
}

// fleetCount counts the returns of state.apply in a job cache, in Salt's layout.
const fleetCount = `
import glob, json, os, sys
import salt.payload
def result(ret):
    if not isinstance(ret, dict):
        return "error"
    states = ret.values()
    if any(s["result"] is False for s in states):
        return "failed"
    return "changed" if any(s["changes"] for s in states) else "ok"
rows = []
for jid_file in glob.glob(sys.argv[1] + "/*/*/jid"):
    folder = os.path.dirname(jid_file)
    jid = open(jid_file).read().strip()
    load = folder + "/.load.p"
    if not os.path.exists(load):
        continue
    with open(load, "rb") as file:
        if salt.payload.loads(file.read()).get("fun") != "state.apply":
            continue
    for path in glob.glob(folder + "/*/return.p"):
        with open(path, "rb") as file:
            kept = salt.payload.loads(file.read())
        rows.append({"Minion": os.path.basename(os.path.dirname(path)), "JID": jid, "Result": result(kept["return"])})
json.dump(rows, sys.stdout)
`

func (f *fleetTest) inJobCache(t *testing.T, m *lab.Member) map[fleetRow]int {
	t.Helper()
	python := filepath.Join(lab.Venv(t, lab.Newest), "python3")
	r := lab.Run(t, 5*time.Minute, python, "-c", fleetCount, m.Dir+"/cache/jobs")
	var rows []fleetRow
	if err := json.Unmarshal([]byte(r.Out), &rows); err != nil {
		t.Fatalf("count of the job cache: %v: %.300s %s", err, r.Out, r.Err)
	}
	out := map[fleetRow]int{}
	for _, row := range rows {
		out[row]++
	}
	return out
}
