package returner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/master/internal/pyhost"
	"saltern/master/jobs"
	"saltern/master/pyrunner"
	"saltern/master/value"
	"saltern/test/await"
)

// recorder is an administrator's returner that notes its calls. It is away while the file away is
// there, and refuses the loads of the function test.bad.
const recorder = `
import json, os
def _note(name, *args, **kwargs):
    if os.path.exists(__opts__["root_dir"] + "/away"):
        with open(__opts__["root_dir"] + "/failures", "a") as file:
            print(name, file=file)
        raise OSError("the service is away")
    if name == "save_load" and args[1].get("fun") == "test.bad":
        raise ValueError("it does not take this one")
    with open(__opts__["root_dir"] + "/NAME", "a") as file:
        print(json.dumps([name, args, kwargs], sort_keys=True, default=repr), file=file)
def prep_jid(*args, **kwargs):
    if not os.path.exists(__opts__["root_dir"] + "/away"):  # like others it asks nobody for an id
        _note("prep_jid", *args, **kwargs)
    return kwargs.get("passed_jid") or "20260102030405678901"
def save_load(jid, load, minions=None):
    _note("save_load", jid, load, minions)
def save_minions(*args, **kwargs):
    _note("save_minions", *args, **kwargs)
def returner(load):
    _note("returner", load)
def get_load(jid):
    return {}
def update_endtime(jid, endtime):
    _note("update_endtime", jid)
def clean_old_jobs():
    _note("clean_old_jobs")
`

// theirs makes the calls by Salt's own functions: for each step of standard input one publish,
// return or result of a runner.
const theirs = `
import json, sys, types
import salt.config, salt.master, salt.minion, salt.utils.job
opts = salt.config.master_config(sys.argv[1])
opts.update(json.loads(sys.argv[2]))
minion = salt.minion.MasterMinion(opts, states=False, rend=False)
class Event:
    def fire_event(self, data, tag):
        data["_stamp"] = "now"
    def fire_ret_load(self, load):
        pass
me = types.SimpleNamespace(opts=opts, event=Event(), mminion=minion)
for step in json.load(sys.stdin):
    load = step["load"]
    if step["kind"] == "publish":
        jid = salt.master.ClearFuncs._prep_jid(me, load, load.get("kwargs", {}))
        salt.master.ClearFuncs._prep_pub(me, step["minions"], jid, load, load.get("kwargs", {}), [])
    elif step["kind"] == "minions":
        salt.utils.job.store_minions(opts, load["jid"], step["minions"], minion, step["syndic"])
    elif step["kind"] == "runner":
        me.event.fire_event(load["return"], "ret")
        salt.utils.job.store_job(opts, load, mminion=minion)
    else:
        salt.utils.job.store_job(opts, load, event=me.event, mminion=minion)
`

// step is something that the master keeps.
type step struct {
	Kind    string         `json:"kind"`
	Load    map[string]any `json:"load"`
	Minions []string       `json:"minions"`
	Syndic  string         `json:"syndic"`
}

const testJID = "20260102030405678901"

// newJobSite returns a site with a returner for jobs.
func newJobSite(t *testing.T) *site {
	t.Helper()
	python := os.Getenv("SALTERN_PYTHON")
	if python == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python that has the Salt library to test what only Python can do")
	}

	s := &site{dir: t.TempDir()}
	s.put(t, "master", "root_dir: "+s.dir+"\nid: m1\nextension_modules: "+s.dir+"/ext\n")
	for _, name := range []string{"one", "two", "theirs"} {
		s.put(t, "ext/returners/"+name+".py", strings.ReplaceAll(recorder, "NAME", name))
	}

	host := pyrunner.NewHost(pyrunner.HostConfig{
		Pythons: []string{python},
		Memory:  pyhost.DefaultMemory / 4,
		Log:     slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	t.Cleanup(host.Close)

	caller := pyrunner.New(pyrunner.Config{
		Host:       host,
		ConfigFile: filepath.Join(s.dir, "master"),
		Log:        slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	s.open = func(ctx context.Context) (Worker, error) { return caller.OpenJobReturner(ctx) }
	return s
}

// startJobs opens a job cache with returners, and runs it until stop.
func (s *site) startJobs(t *testing.T, master, external string) (j *Jobs, stop func()) {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	below, err := jobs.Open(jobs.Config{Dir: filepath.Join(s.dir, "jobs")}, log)
	if err != nil {
		t.Fatal(err)
	}

	j, err = OpenJobs(below, JobsConfig{
		Dir:          filepath.Join(s.dir, "spools"),
		Bytes:        1 << 20,
		Master:       master,
		External:     external,
		StoreEndtime: s.ends,
		Open:         s.open,
		Now:          time.Now,
		Log:          log,
		pause:        10 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { j.Run(ctx); close(done) }() // until stop
	stop = func() {
		cancel()
		<-done
		_ = j.Close()
		_ = below.Close(context.Background())
	}
	t.Cleanup(stop)
	return j, stop
}

// keep has the master keep what a step is.
func (s *site) keep(t *testing.T, j *Jobs, next step) {
	t.Helper()
	packed, err := json.Marshal(next.Load)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := value.ParseJSON(packed)
	if err != nil {
		t.Fatal(err)
	}

	load := decoded.(*value.Map)
	jid := load.Str("jid")
	switch next.Kind {
	case "publish":
		load.Delete("cmd") // as launch.Start
		load.Set("saltern_eauth", "")
		load.Set("only_minions", true)
		load.Set("saltern_revision", "abc")
		load.Set("saltern_batch", value.NewMap("minions", int64(9), "size", int64(1)))
		awaitShown, failed := j.Stage(t.Context(), jid, load, next.Minions)
		if err = failed; err == nil {
			awaitShown(t.Context())
		}

	case "minions":
		err = j.AddMinions(t.Context(), jid, next.Minions, next.Syndic)

	case "runner":
		load.Map("return").Set("saltern_eauth", "")
		load.Set("saltern_eauth", "")
		_, err = j.SaveReturn(t.Context(), jobs.ReturnOf(load))

	default:
		if jid == "req" { // as minion.Service
			jid = testJID
			load.Set("arg", load.Value("fun_args"))
			load.Set("tgt_type", "glob")
			load.Set("tgt", load.Str("id"))
			load.Set("jid", jid)
			if err := j.SaveLoad(t.Context(), jid, load.Clone(), []string{load.Str("id")}); err != nil {
				t.Fatal(err)
			}
		}
		_, err = j.SaveReturn(t.Context(), jobs.ReturnOf(load))
		if load.Value("return") == secondReturn { // the cache keeps the first one
			if !errors.Is(err, jobs.ErrOtherReturn) {
				t.Errorf("a second return of %s: %v", jid, err)
			}
			err = nil
		}
	}

	if err != nil {
		t.Fatalf("%s of %s: %v", next.Kind, jid, err)
	}
}

// secondReturn is the content of a return of a minion that has returned something else before.
const secondReturn = "again"

var stamp = regexp.MustCompile(`"_stamp": "[^"]*"`)

// calls are the calls that a returner has noted.
func (s *site) calls(name string) []string {
	return slices.DeleteFunc(s.got(name), func(line string) bool { return line == "" })
}

// TestJobReturnerGetsSaltsCalls: a returner in the place of the job cache gets the calls of Salt's
// master, made by Salt's own functions beside it, with the same arguments in the same order. Only
// the job id of a new job comes from the master.
func TestJobReturnerGetsSaltsCalls(t *testing.T) {
	publish := func(jid string, more map[string]any) step {
		load := map[string]any{
			"cmd": "publish", "tgt": "*", "fun": "test.echo", "arg": []any{"a", 1, 2.5, nil, true, "ä"}, "tgt_type": "glob",
			"ret": "", "jid": jid, "user": "root", "kwargs": map[string]any{"delimiter": ":", "show_jid": false},
		}
		for k, v := range more {
			load[k] = v
		}
		return step{Kind: "publish", Load: load, Minions: []string{"w1", "w2"}}
	}
	back := func(jid, id string, result any) step {
		return step{
			Kind: "return",
			Load: map[string]any{
				"cmd": "_return", "id": id, "jid": jid, "return": result, "retcode": 0, "success": true,
				"fun": "test.echo", "fun_args": []any{"a", map[string]any{"__kwarg__": true, "b": 1}},
			},
		}
	}
	runner := step{
		Kind: "runner",
		Load: map[string]any{
			"id": "m1", "tgt": "m1", "jid": "20260102030405678905", "fun": "runner.test.arg", "user": "root",
			"return": map[string]any{
				"fun": "runner.test.arg", "jid": "20260102030405678905", "user": "root", "fun_args": []any{1},
				"return": map[string]any{"args": []any{1}}, "success": true,
			},
		},
	}

	tests := []struct {
		name             string
		master, external string
		steps            []step
	}{
		{"master_job_cache", "one", "", []step{
			publish("20260102030405678902", nil),
			back("20260102030405678902", "w1", "ä"),
			back("20260102030405678902", "w1", secondReturn),
			publish("20260102030405678903", map[string]any{"kwargs": map[string]any{"nocache": true}}),
			back("20260102030405678903", "w2", map[string]any{"deep": []any{map[string]any{"x": nil}}}),
			back("20260102030405678904", "w2", "of a job that another master has started"),
			runner,
			{Kind: "minions", Load: map[string]any{"jid": "20260102030405678902"}, Minions: []string{"l1"}, Syndic: "s1"},
			back("req", "w1", false),
		}},
		{"ext_job_cache", LocalCache, "one", []step{publish("20260102030405678902", nil)}},
		{"both", "one", "one", []step{publish("20260102030405678902", nil)}},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newJobSite(t)
			s.ends = true
			j, _ := s.startJobs(t, tt.master, tt.external)
			for _, next := range tt.steps {
				s.keep(t, j, next)
			}

			steps, err := json.Marshal(tt.steps)
			if err != nil {
				t.Fatal(err)
			}
			options, err := json.Marshal(map[string]any{
				"master_job_cache":        strings.ReplaceAll(tt.master, "one", "theirs"),
				"ext_job_cache":           strings.ReplaceAll(tt.external, "one", "theirs"),
				"job_cache_store_endtime": true,
			})
			if err != nil {
				t.Fatal(err)
			}

			salt := exec.CommandContext(t.Context(), os.Getenv("SALTERN_PYTHON"), "-c", theirs,
				filepath.Join(s.dir, "master"), string(options))
			salt.Stdin = strings.NewReader(string(steps))
			if out, err := salt.CombinedOutput(); err != nil {
				t.Fatalf("Salt's own functions: %v\n%s", err, out)
			}

			want := s.calls("theirs")
			await.That(t, "all calls", func() bool { return len(s.calls("one")) >= len(want) })
			got := s.calls("one")
			for i := range max(len(got), len(want)) {
				if i >= len(got) || i >= len(want) {
					t.Fatalf("%d calls, want %d:\n%s\nwant:\n%s", len(got), len(want), strings.Join(got, "\n"),
						strings.Join(want, "\n"))
				}
				if ours, salts := plainCall(got[i]), plainCall(want[i]); ours != salts {
					t.Errorf("call %d:\n%s\nwant:\n%s", i, ours, salts)
				}
			}
		})
	}
}

// plainCall leaves out times, and the job id of a job whose id Salt leaves to the returner.
func plainCall(line string) string {
	line = stamp.ReplaceAllString(line, `"_stamp": "now"`)
	if strings.HasPrefix(line, `["prep_jid", [], {"nocache": `) {
		line = strings.Replace(line, `, "passed_jid": "`+testJID+`"`, "", 1)
	}
	return line
}

// TestReturnerOfJobsThatIsAway: what was acknowledged while the returner is away gets to it in its
// order, once, over a stop and a start, and behind what it refuses.
func TestReturnerOfJobsThatIsAway(t *testing.T) {
	s := newJobSite(t)
	j, stop := s.startJobs(t, "one", "")
	s.put(t, "away", "")
	var want []string
	keep := func(n int, fun string) {
		jid := fmt.Sprintf("202601020304056789%02d", n)
		s.keep(t, j, step{
			Kind: "return",
			Load: map[string]any{"id": "w1", "jid": jid, "return": n, "fun": fun, "fun_args": []any{}},
		})
		if fun == "test.good" {
			want = append(want, "save_load "+jid)
		}
		want = append(want, "returner "+jid)
	}

	for n := range 5 {
		keep(n, "test.good")
	}
	await.That(t, "the status says that it is away", func() bool {
		stats := j.Stats()
		return len(stats) == 1 && stats[0].Returner == "one (job cache)" && stats[0].Waiting == 14 &&
			strings.Contains(stats[0].Error, "the service is away")
	})

	failures := len(s.got("failures"))
	await.That(t, "it was tried many times", func() bool { return len(s.got("failures")) > failures+10 })

	stop()
	j, _ = s.startJobs(t, "one", "")
	keep(5, "test.bad")
	keep(6, "test.bad")
	keep(7, "test.good")
	if err := os.Remove(filepath.Join(s.dir, "away")); err != nil {
		t.Fatal(err)
	}

	await.That(t, "all is settled", func() bool { return j.Stats()[0].Waiting == 0 })
	if stats := j.Stats()[0]; stats.Refused != 2 || stats.Lost != 0 || stats.Error != "" {
		t.Errorf("%+v, want two refused", stats)
	}

	calls := regexp.MustCompile(`^\["(\w+)", \[.*?"(\d{20})"`)
	var got []string
	for _, line := range s.calls("one") {
		if m := calls.FindStringSubmatch(line); m != nil && m[1] != "prep_jid" {
			got = append(got, m[1]+" "+m[2])
		}
	}

	// A probe behind a refused call may go before those in between.
	if first := 10; !slices.Equal(got[:first], want[:first]) {
		t.Errorf("the first calls are %v\nwant %v", got[:first], want[:first])
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the calls are %v\nwant %v", got, want)
	}
}

// TestCleaningIsAskedForOnce: a returner that is away finds one call to clean up, not one for each
// time that the master has cleaned its own cache.
func TestCleaningIsAskedForOnce(t *testing.T) {
	s := newJobSite(t)
	s.put(t, "away", "")
	j, _ := s.startJobs(t, "one", "")
	for range 5 {
		if _, err := j.Clean(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
	}

	if err := os.Remove(filepath.Join(s.dir, "away")); err != nil {
		t.Fatal(err)
	}
	await.That(t, "it is done", func() bool { return j.Stats()[0].Waiting == 0 && len(s.calls("one")) > 0 })
	if got := s.calls("one"); len(got) != 1 {
		t.Errorf("calls %v, want one", got)
	}
}

// TestReturnsOfAnyBytes: text that is no UTF-8, and bytes, get to the returner.
func TestReturnsOfAnyBytes(t *testing.T) {
	s := newJobSite(t)
	j, _ := s.startJobs(t, "one", "")
	random := rand.New(rand.NewPCG(43, 6))
	const returns = 40
	for n := range returns {
		junk := make([]byte, random.IntN(64))
		for i := range junk {
			junk[i] = byte(random.Uint32())
		}

		load := value.NewMap("id", "w1", "jid", fmt.Sprintf("202601020304056789%02d", n), "return", string(junk),
			"raw", junk, "fun", "test.echo")
		if _, err := j.SaveReturn(t.Context(), jobs.ReturnOf(load)); err != nil {
			t.Fatal(err)
		}
	}

	await.That(t, "all is settled", func() bool { return j.Stats()[0].Waiting == 0 })
	if stats := j.Stats()[0]; stats.Refused != 0 || stats.Lost != 0 || stats.Done != 3*returns {
		t.Errorf("%+v, want %d calls", stats, 3*returns)
	}
}

// TestReturnWithoutASpool: a return that the spool cannot take is not acknowledged, so that the minion
// sends it again. One that is too large for it is, and counts as lost to the returner.
func TestReturnWithoutASpool(t *testing.T) {
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	dir := t.TempDir()
	below, err := jobs.Open(jobs.Config{Dir: filepath.Join(dir, "jobs")}, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = below.Close(context.Background()) })

	j, err := OpenJobs(below, JobsConfig{
		Dir:      filepath.Join(dir, "spools"),
		Bytes:    2 << 10,
		Master:   "one",
		External: "two",
		Now:      time.Now,
		Log:      log,
	})
	if err != nil {
		t.Fatal(err)
	}

	back := func(jid, result string) error {
		_, err := j.SaveReturn(t.Context(), jobs.ReturnOf(value.NewMap("id", "w1", "jid", jid, "return", result)))
		return err
	}
	if err := back("20260102030405678901", strings.Repeat("x", 2<<10)); err != nil {
		t.Errorf("a return that is too large for the spool: %v", err)
	}
	kept, err := j.Returns(t.Context(), "20260102030405678901")
	if stats := j.Stats(); err != nil || kept.Len() != 1 || len(stats) != 2 || stats[0].Lost != 3 || stats[0].Waiting != 0 {
		t.Errorf("%v, %+v, %v; want it in the cache below, and counted", kept, stats, err)
	}

	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := back("20260102030405678902", "x"); err == nil {
		t.Error("a return was acknowledged without its spool")
	}
	if _, err := j.Stage(t.Context(), "20260102030405678903", value.NewMap("fun", "test.ping"), nil); err == nil {
		t.Error("a job was taken without its spool")
	}
	if load, err := j.Load(t.Context(), "20260102030405678903"); load != nil || err != nil {
		t.Errorf("the cache below shows a job that was refused: %v, %v", load, err)
	}
}

// TestReturnerOfJobsThatHangs: only the first publishes wait for a returner that does not answer.
func TestReturnerOfJobsThatHangs(t *testing.T) {
	s := newJobSite(t)
	s.put(t, "ext/returners/hangs.py", "import os, time\ndef prep_jid(*args, **kwargs):\n"+
		"    while not os.path.exists(__opts__['root_dir'] + '/go'):\n        time.sleep(0.05)\n")
	j, _ := s.startJobs(t, "hangs", "")

	publish := func(n int) (took time.Duration) {
		began := time.Now()
		jid := fmt.Sprintf("202601020304056789%02d", n)
		s.keep(t, j, step{Kind: "publish", Load: map[string]any{"jid": jid, "fun": "test.ping", "tgt": "*"}})
		return time.Since(began)
	}

	await.That(t, "the returner is asked", func() bool {
		publish(1)
		j.master.feed.mu.Lock()
		defer j.master.feed.mu.Unlock()
		return time.Since(j.master.feed.since) > loadWait && !j.master.feed.since.IsZero()
	})
	if took := publish(2); took > loadWait*3/4 {
		t.Errorf("a publish waits for %v", took)
	}
	s.put(t, "go", "")
}

// listingCache is a cache that can list the newest jobs, and nothing else.
type listingCache struct {
	jobs.Cache
	asked []jobs.Query
}

func (c *listingCache) Newest(_ context.Context, q jobs.Query) ([]jobs.Job, error) {
	c.asked = append(c.asked, q)
	return []jobs.Job{{JID: "20260102030405678901"}}, nil
}

// TestNewestJobsWithAReturner: with a returner, too, the newest jobs are listed without reading all of them.
func TestNewestJobsWithAReturner(t *testing.T) {
	below := &listingCache{}
	j, err := OpenJobs(below, JobsConfig{Dir: t.TempDir(), Bytes: 1 << 20, Master: "own", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	got, err := jobs.Find(t.Context(), j, jobs.Query{Last: 5, NoRuns: true})
	if err != nil || len(got) != 1 || len(below.asked) != 1 || below.asked[0].Last != 5 || !below.asked[0].NoRuns {
		t.Errorf("%v, %v, asked %+v", got, err, below.asked)
	}
}
