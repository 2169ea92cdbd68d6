package client

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"saltern/master/internal/batch"
	"saltern/master/msgpack"
	"saltern/master/value"
)

// clock counts in tenths of a second.
func at(tenths int) time.Time {
	return time.Unix(1000, 0).Add(time.Duration(tenths) * 100 * time.Millisecond)
}

func retEvent(jid, id string, v any) (string, *value.Map) {
	return "salt/job/" + jid + "/ret/" + id, value.NewMap("id", id, "jid", jid, "return", v, "retcode", 0)
}

// TestWatch plays scripts of "time action" lines: timeout 1 s, gather 2 s.
func TestWatch(t *testing.T) {
	for _, c := range []struct {
		name, script, want string
	}{
		{"all return", "1 ret a; 2 ret b; 2 step", "a b done"},
		{"twice", "1 ret a; 1 ret a; 2 ret b; 2 step", "a b done"},
		{"wrong job", "1 ret2 a; 1 step", "wait"},
		{"asked, not running", "11 step; 11 asked 9; 12 idle a; 12 idle b; 30 step; 32 step", "ask(a,b) wait done"},
		{"one returned before", "5 ret a; 11 step; 11 asked 9; 32 step", "a ask(b) done"},
		{"running, asked again",
			"11 step; 11 asked 9; 12 busy a; 12 busy b; 30 step; 32 step; 32 asked 8; 33 busy a; 40 ret a; 54 step; 54 asked 7; 75 step",
			"ask(a,b) wait ask(a,b) a ask(b) done"},
		{"late answer extends", "11 step; 11 asked 9; 28 busy a; 30 step; 32 step; 32 asked 8; 53 step",
			"ask(a,b) wait ask(a,b) done"},
		{"cannot tell", "11 step; 11 asked 9; 12 broken a; 12 broken b; 12 step", "ask(a,b) done"},
		{"syndic adds minions", "1 more c; 2 ret a; 2 ret b; 2 step; 3 ret c; 3 step", "a b wait c done"},
		{"missing", "1 gone z; 2 ret a; 2 ret b; 2 step; 2 lost", "a b done lost(z)"},
		{"lost", "2 ret b; 2 lost", "b lost(a)"},
		{"resource", "2 resource r1; 2 ret a; 2 ret b; 2 step", "r1 a b done"},
		{"without order_masters syndics say nothing", "1 below c; 2 ret a; 2 ret b; 2 step", "a b done"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWatch("1", []string{"a", "b"}, time.Second, 2*time.Second, at(0))
			playScript(t, w, c.script, c.want)
		})
	}
}

// TestWatchAwaitsSyndics (F4): with order_masters the watch does not end before syndics have had
// their time, whichever minions the master itself expects: timeout 1 s, gather 2 s, syndic_wait 0.5
// s.
func TestWatchAwaitsSyndics(t *testing.T) {
	for _, c := range []struct {
		name, minions, script, want string
	}{
		{"nobody is expected, one answers", "", "1 step; 3 ret c; 3 step; 6 step", "wait c wait done"},
		{"a syndic names one", "", "1 below c; 6 step; 7 ret c; 7 step", "wait c done"},
		{"it does not answer", "", "1 below c; 6 step; 11 step; 11 asked 9; 30 step; 37 step; 37 lost",
			"wait ask(c) wait done lost(c)"},
		{"it runs", "",
			"1 below c; 11 step; 11 asked 9; 12 busy c; 12 step; 37 step; 37 asked 8; 40 ret c; 40 step",
			"ask(c) wait ask(c) c done"},
		{"nobody at all", "", "1 step; 6 step; 11 step; 30 step; 37 step", "wait wait wait wait done"},
		{"own and lower ones", "a", "1 ret a; 1 step; 2 below c; 6 step; 7 ret c; 7 step", "a wait wait c done"},
		{"another job", "", "1 below2 c; 3 ret d; 6 step", "d done"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWatch("1", strings.Fields(c.minions), time.Second, 2*time.Second, at(0))
			w.awaitSyndics(500*time.Millisecond, at(0))
			playScript(t, w, c.script, c.want)
		})
	}
}

// playScript plays lines of "time action" and compares what comes of them.
func playScript(t *testing.T, w *watch, script, want string) {
	t.Helper()
	var got []string
	ask := ""
	for line := range strings.SplitSeq(script, ";") {
		var when int
		var what, arg string
		fmt.Sscan(line, &when, &what, &arg)
		var tag string
		var data *value.Map
		switch what {
		case "ret":
			tag, data = retEvent("1", arg, true)
		case "ret2":
			tag, data = retEvent("2", arg, true)
		case "resource":
			tag, data = retEvent("1", "a", true)
			data.Set("resource_id", arg)
		case "idle":
			tag, data = retEvent(ask, arg, value.NewMap())
		case "busy":
			tag, data = retEvent(ask, arg, value.NewMap("pid", 1))
		case "broken":
			tag, data = retEvent(ask, arg, "traceback")
			data.Set("retcode", 1)
		case "more":
			tag, data = "salt/job/1/new", value.NewMap("minions", []any{"a", arg, int64(3)})
		case "below":
			tag, data = "syndic/s1/1", value.NewMap("minions", []any{arg})
		case "below2":
			tag, data = "syndic/s1/2", value.NewMap("minions", []any{arg})
		case "gone":
			tag = "salt/job/1/new"
			data = value.NewMap("minions", []any{"a"}, "missing", []any{arg})
		case "asked":
			w.noteQuestion(arg)
			ask = arg
		case "lost":
			got = append(got, "lost("+strings.Join(w.lostMinions(), ",")+")")
		case "step":
			ids, done, wake := w.nextStep(at(when))
			switch {
			case done:
				got = append(got, "done")
			case len(ids) > 0:
				got = append(got, "ask("+strings.Join(ids, ",")+")")
			default:
				got = append(got, "wait")
				if !wake.After(at(when)) {
					t.Errorf("at %d: would spin, wake is %v", when, wake.Sub(at(0)))
				}
			}
		}

		if tag != "" && w.wantsTag(tag) {
			if r, ok := w.takeEvent(tag, data, at(when)); ok {
				got = append(got, r.ID)
			}
		}
	}

	if s := strings.Join(got, " "); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
}

func TestWatchStrict(t *testing.T) {
	w := newWatch("1", []string{"a"}, time.Second, time.Second, at(0))
	w.strict = true
	if _, ok := w.takeEvent("salt/job/1/new", value.NewMap("minions", []any{"b"}), at(0)); ok || len(w.expected) != 1 {
		t.Error("a part of a batch takes in minions of another part")
	}
	tag, data := retEvent("1", "b", true)
	if _, ok := w.takeEvent(tag, data, at(0)); ok {
		t.Error("a part of a batch takes a return of another part")
	}
}

func TestReturnCode(t *testing.T) {
	for _, c := range []struct {
		v    any
		want int64
	}{
		{nil, 0}, {int64(3), 3}, {true, 1}, {false, 0}, {"x", 1},
		{value.NewMap("a", 2, "b", 5), 5}, {value.NewMap(), 0},
	} {
		if got := (Return{Retcode: c.v, HasRetcode: true}).Code(); got != c.want {
			t.Errorf("%v: got %d, want %d", c.v, got, c.want)
		}
	}

	if (Return{}).Code() != 0 {
		t.Error("no return code is not 0")
	}
}

// FuzzWatch: no event from the bus stops the gathering or counts twice.
func FuzzWatch(f *testing.F) {
	for _, kv := range [][2]any{
		{"salt/job/1/ret/a", value.NewMap("id", "a", "return", true)},
		{"salt/job/9/ret/a", value.NewMap("id", "a", "return", value.NewMap("return", value.NewMap()))},
		{"salt/job/1/new", value.NewMap("minions", []any{"a", nil}, "missing", []any{int64(1)})},
	} {
		b, err := msgpack.Marshal(kv[1], msgpack.Modern)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(kv[0].(string), b)
	}

	f.Fuzz(func(t *testing.T, tag string, b []byte) {
		v, err := msgpack.Decode(b, msgpack.Limits{Depth: 8, Nodes: 100})
		data, ok := v.(*value.Map)
		if err != nil || !ok {
			return
		}

		w := newWatch("1", []string{"a", "b"}, time.Second, time.Second, at(0))
		w.noteQuestion("9")
		_, first := w.takeEvent(tag, data, at(1))
		if _, again := w.takeEvent(tag, data, at(1)); first && again {
			t.Errorf("%q counts twice", tag)
		}

		w.nextStep(at(2))
		w.lostMinions()
	})
}

// TestHaltOfABatch: a batch ends by the event of its own halt and by no similar event.
func TestHaltOfABatch(t *testing.T) {
	const jid = "20260102030405678901"
	run := batchRun{state: &batch.State{}, request: BatchRequest{JID: jid}}
	w := run.haltWatch()
	for _, tag := range []string{"salt/batch/x/y/halted", "salt/batch/" + jid + "/x/halted",
		"salt/batch/" + jid + "/haltedx", "salt/batch/halted", "salt/job/" + jid + "/halted"} {
		w.takeEvent(tag, value.NewMap("jid", jid, "reason", "forged"), at(0))
		if run.state.Halted != "" {
			t.Fatalf("%s ends it", tag)
		}
	}

	w.takeEvent("salt/batch/"+jid+"/halted", value.NewMap("jid", jid), at(0))
	if run.state.Halted != "stop" {
		t.Errorf("ended by %q", run.state.Halted)
	}
}
