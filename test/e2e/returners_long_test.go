//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/test/lab"
)

// ownReturner keeps events and jobs in two files that all nodes share. It is away while the file
// away is there.
const ownReturner = `
import json, os
ROOT = "SHARED"
def _note(name, what):
    if os.path.exists(ROOT + "/away"):
        raise OSError("the service is away")
    with open(ROOT + "/" + name, "a") as file:
        file.write(json.dumps(what, default=repr) + "\n")
def _calls():
    with open(ROOT + "/jobs") as file:
        return [json.loads(line) for line in file]
def event_return(events):
    for event in events:
        _note("events", [event["tag"], event["data"].get("n")])
def prep_jid(nocache=False, passed_jid=None):
    return passed_jid
def save_load(jid, load, minions=None):
    _note("jobs", ["save_load", jid, load.get("cmd"), minions])
def returner(load):
    _note("jobs", ["returner", load["jid"], load["id"], load["return"]])
def get_load(jid):
    return next(({"jid": jid, "fun": "test.echo"} for call in _calls() if call[:2] == ["save_load", jid]), {})
def get_jid(jid):
    return {call[2]: {"return": call[3]} for call in _calls() if call[:2] == ["returner", jid]}
`

// sentEvent is an event that a master took.
type sentEvent struct {
	n  int
	by *lab.Member
	at time.Time // when the tool had ended
}

// returnersLoad sends events and jobs to the masters of a cluster, in turn.
type returnersLoad struct {
	mu     sync.Mutex
	events []sentEvent
	jobs   []string
}

func (l *returnersLoad) run(t *testing.T, c *lab.Cluster, stop <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		case <-time.After(300 * time.Millisecond):
		}

		m := c.Members[n%len(c.Members)]
		if !m.Ready() {
			continue
		}

		sent := m.SaltRun(t, "event.send", "my/event", fmt.Sprintf(`{"n": %d}`, n))
		at := time.Now()
		started := m.Salt(t, "--async", "*", "test.echo", strconv.Itoa(n))
		words := strings.Fields(started.Out)

		l.mu.Lock()
		if sent.Code == 0 {
			l.events = append(l.events, sentEvent{n: n, by: m, at: at})
		}
		if started.Code == 0 && len(words) > 0 {
			l.jobs = append(l.jobs, words[len(words)-1])
		}
		l.mu.Unlock()
	}
}

// lines reads a file of JSON values, one a line.
func lines[T any](t *testing.T, path string) (all []T) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		var v T
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Errorf("%s: %q: %v", path, line, err)
			continue
		}
		all = append(all, v)
	}
	return all
}

// TestReturnersOverKills: a cluster of three has a returner of events and jobs that goes away again
// and again, and engines, and its owner is killed while the returner is away. No event and no
// return that a master acknowledged is lost, an event comes twice at most once per kill, and
// engines go on on another node.
//
// SALTERN_RETURNERS=1 runs it. SALTERN_ROUNDS is the number of kills, 5 by default, SALTERN_AWAY how
// many seconds the returner is away each time, 60 by default.
func TestReturnersOverKills(t *testing.T) {
	if os.Getenv("SALTERN_RETURNERS") == "" {
		t.Skip("SKIPPED: SALTERN_RETURNERS=1 (make e2e-returners) kills the owner of a cluster with returners and engines, ten minutes")
	}

	number := func(name string, usual int) int {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
			return n
		}
		return usual
	}
	rounds, away := number("SALTERN_ROUNDS", 5), time.Duration(number("SALTERN_AWAY", 60))*time.Second

	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()

	shared := lab.Dir(t)
	raw := filepath.Join(shared, "rawfile")
	lab.WriteTree(t, shared, map[string]string{
		"ext/returners/own.py": strings.ReplaceAll(ownReturner, "SHARED", shared),
		"thorium/top.sls":      "base: {'*': [heard]}\n",
		"thorium/heard.sls": "heard:\n  reg.set:\n    - add: n\n    - match: my/event\n" +
			"heard.json:\n  file.save:\n    - filter: True\n",
		"script": "#!/bin/sh\necho '{\"tag\": \"my/script\", \"data\": {}}'\n",
	})
	if err := os.Chmod(filepath.Join(shared, "script"), 0o700); err != nil {
		t.Fatal(err)
	}

	c := lab.StartCluster(t, lab.ClusterConfig{
		NoLB: true,
		Options: map[string]any{
			"auto_accept":           true,
			"extension_modules":     shared + "/ext",
			"event_return":          []string{"rawfile_json", "own"},
			"rawfile_json.filename": raw,
			// Events of the webhook engine hold bytes, which rawfile_json cannot write.
			"event_return_whitelist": []string{"my/*"},
			"master_job_cache":       "own",
			"thorium_roots":          map[string][]string{"base": {shared + "/thorium"}},
			"engines": []any{
				map[string]any{"webhook": map[string]any{"address": "127.0.0.1", "port": port}},
				map[string]any{"script": map[string]any{"cmd": shared + "/script", "output": "json", "interval": 3}},
				"thorium",
			},
		},
	})
	for i, m := range c.Members {
		c.StartMinion(t, fmt.Sprintf("w%d", i+1), lab.Newest, m.Addr, nil)
	}
	lab.Eventually(t, 2*time.Minute, "all minions answer", func() error {
		got, err := c.Members[0].JSON(t, "*", "test.ping")
		if err == nil && len(got) != 3 {
			err = fmt.Errorf("%v answer", got)
		}
		return err
	})

	engines := enginesOf{t: t, raw: raw, port: port}
	engines.waitRunning("at the start")

	load := &returnersLoad{}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { load.run(t, c, stop); close(stopped) }() // until stop

	type loss struct {
		m  *lab.Member
		at time.Time
	}
	var kills []loss
	awayFile := filepath.Join(shared, "away")
	for round := range rounds {
		if err := os.WriteFile(awayFile, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(away / 2)

		owner := ownerOf(t, c)
		if err := syscall.Kill(owner.Master.PID(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		kills = append(kills, loss{m: owner, at: time.Now()})
		ended(t, owner.Master, 20*time.Second)

		took := engines.waitRunning(fmt.Sprintf("after kill %d", round+1))
		t.Logf("kill %d: the owner %s; the script engine on another node after %.1f s, webhook after %.1f s", round+1,
			owner.Addr, took[0].Seconds(), took[1].Seconds())
		for _, d := range took {
			strictly(t, "an engine after a kill", d, 15*time.Second)
		}

		owner.StartMaster(t)
		owner.WaitReady(t)
		if rest := away - time.Since(kills[round].at) - away/2; rest > 0 {
			time.Sleep(rest)
		}
		t.Logf("kill %d: %d records wait as the returner comes back", round+1, waitingRecords(t, c))
		if err := os.Remove(awayFile); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
	}

	close(stop)
	<-stopped

	// Thorium works when no event has come for a second.
	lab.Eventually(t, 90*time.Second, "thorium saves its register on a second node", func() error {
		nodes := 0
		for _, m := range c.Members {
			if _, err := os.Stat(filepath.Join(m.Dir, "cache/thorium/saves/heard.json")); err == nil {
				nodes++
			}
		}
		if nodes < 2 {
			return fmt.Errorf("it has on %d", nodes)
		}
		return nil
	})

	// The masters' own cache first: a return that comes later than this is not looked for.
	kept := map[string][]string{}
	for _, jid := range load.jobs {
		r := c.Members[0].SaltRun(t, "jobs.lookup_jid", jid, "ext_source=local_cache", "--out", "json")
		var back map[string]any
		if err := json.Unmarshal([]byte(r.Out), &back); err != nil {
			t.Errorf("job %s: %v\n%s%s", jid, err, r.Out, r.Err)
		}
		kept[jid] = slices.Collect(maps.Keys(back))
	}

	time.Sleep(5 * time.Second) // the status is written every two seconds
	lab.Eventually(t, 3*time.Minute, "all is handed over", func() error {
		if n := waitingRecords(t, c); n > 0 {
			return fmt.Errorf("%d records wait", n)
		}
		return nil
	})

	// Events: those that were not on the disk yet when their master was killed may be lost.
	own, rawfile := map[int]int{}, map[int]int{}
	for _, line := range lines[[]any](t, filepath.Join(shared, "events")) {
		if n, ok := line[1].(float64); ok && line[0] == "my/event" {
			own[int(n)]++
		}
	}
	for _, line := range lines[struct {
		Tag  string
		Data struct{ N *int }
	}](t, raw) {
		if line.Tag == "my/event" && line.Data.N != nil {
			rawfile[*line.Data.N]++
		}
	}

	for name, got := range map[string]map[int]int{"own": own, "rawfile_json": rawfile} {
		lost, young, twice := 0, 0, 0
		for _, e := range load.events {
			twice += max(0, got[e.n]-1)
			if got[e.n] > 0 {
				continue
			}
			last := false
			for _, k := range kills {
				last = last || k.m == e.by && k.at.After(e.at) && k.at.Sub(e.at) < time.Second
			}
			if last {
				young++
			} else {
				lost++
			}
		}
		t.Logf("%s: %d events, %d lost, %d of the last second before a kill lost, %d twice", name, len(load.events), lost,
			young, twice)
		if lost > 0 || twice > len(kills) {
			t.Errorf("%s: %d events are lost, %d came twice; want none, and at most %d", name, lost, twice, len(kills))
		}
	}

	// Jobs: whatever the masters' own cache has must have come to the returner.
	loads, returns := map[string]bool{}, map[string]int{}
	for _, call := range lines[[]any](t, filepath.Join(shared, "jobs")) {
		switch call[0] {
		case "save_load":
			if call[2] == "publish" {
				loads[call[1].(string)] = true
			}
		case "returner":
			returns[call[1].(string)+" "+call[2].(string)]++
		}
	}

	acknowledged, lost, twice, unknown := 0, 0, 0, 0
	for _, jid := range load.jobs {
		if !loads[jid] {
			unknown++
			if unknown <= 5 {
				t.Errorf("the load of job %s has not come to the returner", jid)
			}
		}

		for _, id := range kept[jid] {
			acknowledged++
			n := returns[jid+" "+id]
			twice += max(0, n-1)
			if n > 0 {
				continue
			}

			lost++
			if lost <= 5 {
				t.Errorf("the return of %s for job %s has not come to the returner", id, jid)
			}
		}
	}
	t.Logf("own: %d jobs, %d loads lost; %d returns acknowledged, %d lost, %d twice", len(load.jobs), unknown, acknowledged, lost,
		twice)
	if twice > len(kills) {
		t.Logf("a return that its minion sent again, since its master was killed before it answered, counts as well")
	}

	last := load.jobs[len(load.jobs)-1]
	got, err := c.Members[1].Lookup(t, last)
	if err != nil || len(got) < len(kept[last]) {
		t.Errorf("look-up of job %s by the returner: %v, %v, want %v", last, got, err, kept[last])
	}
}

// ownerOf waits for the one owner of the cluster's work.
func ownerOf(t *testing.T, c *lab.Cluster) (owner *lab.Member) {
	t.Helper()
	lab.Eventually(t, 90*time.Second, "one owner", func() error {
		owner = nil
		owners := 0
		for _, m := range c.Alive() {
			if v, _, err := m.View(); err == nil && v.Owns {
				owner = m
				owners++
			}
		}
		if owners != 1 {
			return fmt.Errorf("%d owners", owners)
		}
		return nil
	})
	return owner
}

// enginesOf looks whether engines work.
type enginesOf struct {
	t    *testing.T
	raw  string
	port int
}

// waitRunning waits until the script engine fires a new event and the webhook takes a request.
func (e enginesOf) waitRunning(when string) (took [2]time.Duration) {
	e.t.Helper()
	began := time.Now()
	count := func() int {
		content, err := os.ReadFile(e.raw)
		if err != nil && !os.IsNotExist(err) {
			e.t.Fatal(err)
		}
		return strings.Count(string(content), "my/script")
	}

	time.Sleep(500 * time.Millisecond) // what was on its way comes
	before := count()
	lab.Eventually(e.t, 90*time.Second, "the script engine fires events "+when, func() error {
		if count() <= before {
			return fmt.Errorf("none since")
		}
		return nil
	})
	took[0] = time.Since(began)

	lab.Eventually(e.t, 90*time.Second, "the webhook takes a request "+when, func() error {
		client := http.Client{Timeout: 5 * time.Second}
		r, err := client.Post(fmt.Sprintf("http://127.0.0.1:%d/x", e.port), "text/plain", strings.NewReader("hello"))
		if err != nil {
			return err
		}
		r.Body.Close()
		if r.StatusCode != http.StatusOK {
			return fmt.Errorf("it answers %s", r.Status)
		}
		return nil
	})
	took[1] = time.Since(began)
	return took
}

// waitingRecords counts the records that wait for returners on all nodes, from their status.
func waitingRecords(t *testing.T, c *lab.Cluster) (records int) {
	t.Helper()
	for _, m := range c.Members {
		content, err := os.ReadFile(filepath.Join(m.Dir, "cache/status.json"))
		if err != nil {
			t.Logf("status of %s: %v", m.Addr, err)
			return 1
		}
		var s control.Status
		if err := json.Unmarshal(content, &s); err != nil {
			t.Fatal(err)
		}
		for _, r := range s.Returners {
			records += int(r.Waiting)
		}
	}
	return records
}
