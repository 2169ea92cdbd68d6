package minions

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"saltern/master/cluster"
	"saltern/master/event"
	"saltern/master/internal/mastertest"
	"saltern/master/internal/minion"
	"saltern/master/value"
)

const findingJID = "20260102030405678901"

// hostileTags makes tags of pieces that masters act on, of those that Salt
// removes from tags, and of what minions may send.
func hostileTags(id string, n int) []string {
	pieces := []string{"salt", "salt/job", "job", findingJID, findingJID + "x", findingJID + "_12",
		findingJID + "/publish", "prog", "start", id, "0", "17", "x", "new", "publish", "ret",
		"key", "salt/key", "salt/auth", "auth", "cluster/event/saltern-1", "cluster/event/", "cluster", "event", "saltern-1", "rotate_cluster_aes_key", "", " ",
		"PUBLISH", "newton", "return", "web1", "beacon", "state_result", "minion", "schedule", "engines", "proxy", "test", "myco", "salcluster", "t", "sal", "t/job", "t/key",
		"rotate_clcluster", "uster_aes_key", "\u2215publish", "run", "wheel", "salt/test"}

	seps := []string{"/", "/", "/", "/", "", "//", "/ "}
	r := rand.New(rand.NewPCG(1, 2026))
	starts := []string{"", "", "salt/job/" + findingJID + "/prog/" + id + "/",
		"salt/job/" + findingJID + "/start/" + id, "salcluster/event/saltern-1/t/",
		"salt/beacon/" + id + "/", "salt/test/", "salt/job/"}
	out := []string{}
	for range n {
		b := strings.Builder{}
		b.WriteString(starts[r.IntN(len(starts))])
		for range 1 + r.IntN(5) {
			b.WriteString(pieces[r.IntN(len(pieces))])
			b.WriteString(seps[r.IntN(len(seps))])
		}

		tag := b.String()
		if r.IntN(4) > 0 {
			tag = strings.TrimRight(tag, "/ ")
		}

		out = append(out, tag)
	}

	j := "salt/job/" + findingJID
	return append(out, // of the audit, and what comes to mind
		j+"/prog/"+id+"/x/publish", j+"/prog/"+id+
			"/new", j+"/prog/"+id+"/ret/web1", j+"/prog/"+id+
			"/1/publish", j+"/start/"+id+"/publish", j+"x/prog/"+id+"/publish",
		"salcluster/event/saltern-1/t/key", "salcluster/event/saltern-1/t/job/"+findingJID+
			"/publish", "rotate_cluster_aes_key", "rotate_clcluster/event/saltern-1/uster_aes_key",
		"salt/beacon/"+id+"/cluster/event/saltern-1/publish", "cluster/event/saltern-1/salt/job/x/publish", "x/cluster/event/saltern-1/publish", "ROTATE_cluster_aes_key", " rotate_cluster_aes_key",
		"salt/state_result/"+findingJID+"/"+id+
			"/cluster/event/saltern-1/x", "saltcluster/event/saltern-1//job/x/publish", "salt/jobs/new", "salt/keys", "salt/key/x")
}

// TestFinding01EventsOfMinions: no event that a minion can make does anything
// at a master of Salt.
func TestFinding01EventsOfMinions(t *testing.T) {
	type question struct{ Tag, Peer string }
	var asked []question
	passed := map[string]int{}
	for _, id := range []string{"evil", "publish", "new", "newton", "ret", "key"} {
		for _, tag := range hostileTags(id, 1000) {
			if event.CheckTag(tag) != nil {
				continue
			}

			e := event.Event{
				Tag: tag,
				Data: value.NewMap("id", id, "jid", findingJID, "fun", "cmd.run", "tgt", "*", "minions",
					[]any{"web1"}),
				Origin: event.Minion,
				Minion: id,
			}

			_, salt := cluster.MayForward(e)
			if salt { // whatever the filter says: each has to do alone
				asked = append(asked, question{tag, "saltern-1"})
				passed["forward"]++
			}

			if (minion.EventFilter{}).Allowed(id, tag) {
				passed["filter"]++
				if salt {
					passed["both"]++
				}
				if id == "evil" && !salt {
					t.Errorf("%q passes the filter and is only stopped on its way to the peers", tag)
				}
			}
		}
	}

	for _, what := range []string{"filter", "forward", "both"} {
		if passed[what] < 100 {
			t.Errorf("only %d tags pass: %s", passed[what], what)
		}
	}

	// The same questions with tags that must act show that the test can tell.
	control := []question{
		{"salt/job/" + findingJID + "/publish", "saltern-1"},
		{"salcluster/event/saltern-1/t/key", "saltern-1"},
		{"rotate_cluster_aes_key", "saltern-1"},
		{"salt/job/" + findingJID + "/new", "saltern-1"},
		{"salt/job/" + findingJID + "/ret/web1", "saltern-1"},
		{"salt/job/" + findingJID + "/prog/evil/x/publish", "saltern-1"},
	}

	var acts []string
	mastertest.AskSalt(t, mastertest.TestData(t, "findings", "eventmonitor.py"), append(control, asked...), &acts)
	if len(acts) != len(control)+len(asked) {
		t.Fatalf("%d answers to %d questions", len(acts), len(control)+len(asked))
	}

	for i, a := range acts {
		if i < len(control) && a == "" {
			t.Errorf("Salt does nothing at %q: the test shows nothing", control[i].Tag)
		} else if i >= len(control) && a != "" {
			t.Errorf("%q makes a master of Salt %s", asked[i-len(control)].Tag, a)
		}
	}
}

// TestSaltsMastersTakeNoOrders: what runners, hooks and tools fire here does nothing at a
// master of Salt, but that a tool's change of a key and the batch that it drives are known
// there, too (second audit, 1).
func TestSaltsMastersTakeNoOrders(t *testing.T) {
	type question struct{ Tag, Peer, Driver string }
	var asked []question
	var by []event.Origin
	j, b := "salt/job/"+findingJID, "salt/batch/"+findingJID
	orders := []string{j + "/publish", j + "/new", j + "/ret/web1", "salt/key", "salt/auth",
		"rotate_cluster_aes_key", b + "/new", b + "/stop", b + "/recover", b + "/progress", b + "/halted",
		b + "/complete", "salt/batch/x.y/new", "salt/batch/\u2215/stop", "salt/jobs/x/publish", "salt/job//new/", "salt/key/", "salt/batch/" + strings.Repeat("9", 3000) + "/new"}
	for _, from := range []event.Origin{event.Runner, event.Hook, event.Socket} {
		for i, tag := range append(hostileTags("web1", 300), orders...) {
			driver := []string{"", "master", "cli", "other"}[i%4]
			for range 2 { // each of the orders with and without a state
				data := value.NewMap("id", "web1", "act", "accept", "jid", findingJID)
				if driver != "" {
					data.Set("state", value.NewMap("driver", driver))
				}

				if _, salt := cluster.MayForward(event.Event{
					Tag:    tag,
					Data:   data,
					Origin: from,
				}); salt && event.CheckTag(tag) == nil {
					asked = append(asked, question{tag, "saltern-1", driver})
					by = append(by, from)
				}

				driver = "master"
			}
		}
	}

	if len(asked) < 500 {
		t.Errorf("only %d events are passed on", len(asked))
	}

	control := []question{
		{b + "/new", "saltern-1", "master"},
		{b + "/new", "saltern-1", ""},
		{b + "/stop", "saltern-1", ""},
		{b + "/progress", "saltern-1", "cli"},
	}

	var acts []string
	mastertest.AskSalt(t, mastertest.TestData(t, "findings", "eventmonitor.py"), append(control, asked...), &acts)
	if done := acts[:len(control)]; slices.Contains(done, "") {
		t.Fatalf("Salt does nothing where it should: %q", done)
	}

	acts = acts[len(control):]
	kept := 0
	for i, act := range acts {
		ofTool := by[i] == event.Socket &&
			(act == "change a key" && asked[i].Tag == "salt/key" || act == "keep a batch" && asked[i].Driver == "cli")
		if act != "" && !ofTool {
			t.Errorf("%q of a %s (%s) makes a master of Salt %s", asked[i].Tag, by[i], asked[i].Driver, act)
		} else if act != "" {
			kept++
		}
	}

	if kept == 0 {
		t.Error("what a tool has done is not known at a master of Salt")
	}
}

// TestFinding01HonestTags: what minions of Salt send is let through (state.py
// event, minion.py _fire_master, beacons, engines, modules of 3006 to 3008).
func TestFinding01HonestTags(t *testing.T) {
	j := "20261123011500123456"
	for _, id := range []string{"web1", "newton.example.com", "publish", "ret", "cluster"} {
		for _, tag := range []string{
			"minion_start", "minion_ping", "_salt_error", "salt/minion/" + id + "/start", "salt/deltaproxy/start",
			"salt/job/" + j + "/prog/" + id +
				"/0", "salt/job/" + j + "/prog/" + id +
				"/1234", "salt/job/" + j + "_4711/prog/" + id + "/7", "salt/job/" + j + "/start/" + id,
			"salt/state_result/" + j + "/" + id +
				"/install nginx", "salt/state_result/" + j + "/" + id +
				"//etc/new/publish", "salt/state_result/" + j + "/" + id + "/mystate/is/finished",
			"salt/beacon/" + id + "/load/", "salt/beacon/" + id +
				"/inotify//srv/cluster/new", "salt/beacon/" + id +
				"/service/nginx", "salt/beacon/" + id + "/status/2026-11-23T01:15:00",
			"salt/beacon/" + id + "/network_info/eth0", "salt/beacon/" + id +
				"/wtmp/", "salt/proxy/" + id + "/start", "salt/engines/" + id + "/docker", "salt/schedule/" + id + "/x",
			"myco/deploy/done", "newsletter", "myco/newsletter/sent", "myco/published", "backup", "salt/test/x", "state_" + id + "_x",
		} {
			if !(minion.EventFilter{}).Allowed(id, tag) {
				t.Errorf("%s: %q is refused", id, tag)
			}
		}
	}
}

// TestFinding01Origin: the bus knows who made an event.
func TestFinding01Origin(t *testing.T) {
	r := mastertest.Start(t, "")
	n := r.AcceptedMinion("web1", "min8")
	sub := r.Parts.Bus.Subscribe("test", 100, nil)
	defer sub.Close()

	jid := "20261123011500123456"
	n.Ask("_minion_event", "tag", "my/tag", "data", value.NewMap())
	n.Ask("_minion_event", "events", []any{value.NewMap("tag", "my/list", "data", value.NewMap("id", "db1"))})
	n.Ask("_return", "jid", jid, "fun", "state.sls", "retcode", int64(2), "return",
		value.NewMap("x_|-a_|-a_|-run", value.NewMap("result", false)), "fun_args", []any{})
	r.Parts.Fire("last", value.NewMap())
	want := map[string]bool{
		"my/tag":                        true,
		"my/list":                       true,
		"salt/job/" + jid + "/ret/web1": true,
		"x.run":                         true,
		"salt/job/" + jid + "/sub/web1/error/state.sls": true,
	}

	for e := range sub.C {
		if e.Tag == "last" {
			if e.Origin != event.Internal || e.Minion != "" {
				t.Errorf("the master's own event is of %s %q", e.Origin, e.Minion)
			}
			break
		}

		if want[e.Tag] && (e.Origin != event.Minion || e.Minion != "web1") {
			t.Errorf("%s is of %s %q", e.Tag, e.Origin, e.Minion)
		}

		delete(want, e.Tag)
	}

	if len(want) > 0 {
		t.Error(fmt.Sprint("events are missing: ", want))
	}
}
