package functions

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"saltern/master/internal/mastertest"
	"saltern/master/jobs"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// oneState returns the return of a run with one state.
func oneState(changes *value.Map) *value.Map {
	return value.NewMap("file_|-motd_|-/etc/motd_|-managed", value.NewMap("result", true, "changes", changes,
		"comment", "", "duration", 3.5, "__id__", "motd", "__sls__", "base", "__run_num__", 0, "name", "/etc/motd"))
}

// runStates makes a minion return a run of states that has just begun.
func runStates(n *mastertest.Minion, changes *value.Map) {
	n.Ask("_return", "jid", jobs.FromTime(time.Now()), "fun", "state.apply", "fun_args", []any{}, "arg", []any{},
		"return", oneState(changes), "retcode", 0, "success", true, "user", "alice")
}

// lastRun returns what fleet.last says of a minion.
func lastRun(t *testing.T, r *mastertest.Master, minion string) *value.Map {
	t.Helper()
	v, err := r.Parts.Runs.Call(t.Context(), "fleet.last", nil, value.NewMap("minion", minion))
	check.Must(t, err)
	return v.(*value.Map).Map("minions").Map(minion)
}

func awaitCause(t *testing.T, r *mastertest.Master, minion, cause string) {
	t.Helper()
	var got *value.Map
	await.That(t, "cause "+cause+" on "+r.Host, func() bool {
		got = lastRun(t, r, minion)
		states := got.List("changed_states")
		return len(states) == 1 && states[0].(*value.Map).Str("cause") == cause
	})
}

// awaitResult waits until a run without changes is known.
func awaitResult(t *testing.T, r *mastertest.Master, minion, result string) {
	t.Helper()
	await.That(t, "result "+result, func() bool { return lastRun(t, r, minion).Str("result") == result })
}

// TestDriftOnAllMasters: two masters tell drift from change alike, whichever took the returns.
func TestDriftOnAllMasters(t *testing.T) {
	tree := t.TempDir()
	check.Must(t, os.WriteFile(tree+"/base.sls", []byte("one"), 0o600))
	ms := mastertest.StartCluster(t, 2, "file_roots:\n  base: ["+tree+"]\n")
	mastertest.AwaitLinks(t, ms)
	n := ms[0].AcceptedMinion("web1", "min6")
	await.That(t, "key at the other master", func() bool { return len(ms[1].Parts.Keys.Accepted()) == 1 })

	// The masters have looked at the files a moment after their start.
	await.That(t, "revision of the files", func() bool {
		runStates(n, &value.Map{})
		return lastRun(t, ms[0], "web1").Str("revision") != ""
	})
	changes := value.NewMap("diff", "--- \n+++ \n-by hand\n+by salt\n")
	runStates(n, changes)
	for _, r := range ms {
		awaitCause(t, r, "web1", "drift")
	}

	runStates(n, &value.Map{})
	for _, r := range ms {
		awaitResult(t, r, "web1", "ok")
	}
	check.Must(t, os.WriteFile(tree+"/base.sls", []byte("two"), 0o600))
	runStates(n, changes)
	for _, r := range ms {
		awaitCause(t, r, "web1", "new files")
	}

	v, err := ms[1].Parts.Runs.Call(t.Context(), "fleet.drift", nil, nil)
	check.Must(t, err)
	drift := v.(*value.Map).List("drift")
	if len(drift) != 1 {
		t.Fatalf("drift: %s", value.Repr(drift))
	}
	if d := drift[0].(*value.Map); d.Str("minion") != "web1" || d.Str("id") != "motd" || d.Str("changes") != "-by hand\n+by salt" {
		t.Errorf("drift: %s", value.Repr(d))
	}
}

// TestFleetOverHTTP: who may call the runners sees them over HTTP, as JSON and as CSV; others do not.
func TestFleetOverHTTP(t *testing.T) {
	a := mastertest.StartAPI(t, "")
	n := a.AcceptedMinion("web1", "min6")
	runStates(n, value.NewMap("diff", "-by hand\n+by salt\n"))
	awaitResult(t, a.Master, "web1", "changed")
	alice := a.Token("alice")

	code, body, _ := a.Do("GET", "/fleet/runs?minion=web1", "", "X-Auth-Token", alice)
	var answer struct {
		Return []struct {
			Runs []struct{ Minion, Function, Result string }
		}
	}
	check.Must(t, json.Unmarshal([]byte(body), &answer))
	if code != 200 || len(answer.Return[0].Runs) != 1 || answer.Return[0].Runs[0].Result != "changed" {
		t.Errorf("runs: %d %s", code, body)
	}

	code, body, h := a.Do("GET", "/fleet/runs", "", "X-Auth-Token", alice, "Accept", "text/csv")
	if lines := strings.Split(body, "\r\n"); code != 200 || !strings.HasPrefix(h.Get("Content-Type"), "text/csv") ||
		!strings.HasPrefix(lines[0], "minion,time,jid,") || !strings.HasPrefix(lines[1], "web1,") {
		t.Errorf("CSV: %d %s", code, body)
	}

	for _, tt := range []struct {
		path, user, accept string
		want               int
	}{
		{"/fleet", "alice", "", 200},
		{"/fleet/summary", "alice", "", 200},
		{"/fleet/last?result=changed", "alice", "", 200},
		{"/fleet/drift", "alice", "text/csv", 200},
		{"/fleet/search?text=hand", "alice", "", 200},
		{"/fleet/search", "alice", "", 400},
		{"/fleet/runs?limit=0", "alice", "", 400},
		{"/fleet/summary", "alice", "text/csv", 406},
		{"/fleet/runs", "alice", "text/plain", 406},
		{"/fleet/other", "alice", "", 404},
		{"/fleet/runs?nonsense=1", "alice", "", 404},
		{"/fleet/runs", "vera", "", 401},
		{"/fleet/runs", "bob", "", 401},
	} {
		t.Run(tt.user+" "+tt.path+" "+tt.accept, func(t *testing.T) {
			header := []string{"X-Auth-Token", a.Token(tt.user)}
			if tt.accept != "" {
				header = append(header, "Accept", tt.accept)
			}
			if code, body, _ := a.Do("GET", tt.path, "", header...); code != tt.want {
				t.Errorf("%d %s", code, body)
			}
		})
	}
	if code, _, _ := a.Do("GET", "/fleet/runs", ""); code != 401 {
		t.Errorf("without a log-in: %d", code)
	}
}
