package functions

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"saltern/master/event"
	"saltern/master/internal/local"
	"saltern/master/internal/mastertest"
	"saltern/master/jobs"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// who is a runner, and a wheel function, that says on whose behalf it is called.
const who = `
def am_i(*args, **kwargs):
    try:
        __jid_event__.fire_event({"message": "half"}, "progress")
    except NameError:
        pass
    return {"user": __user__, "jid": __jid__, "tag": __tag__, "id": __opts__["id"], "args": list(args)}
def note(what):
    with open(__opts__["cachedir"] + "/notes", "a") as notes:
        notes.write(what + " " + __user__ + "\n")
    return what
`

// jobEvents are the events of a job of the master, by the ends of their tags.
type jobEvents struct {
	tag  string
	ends []string
	data map[string]*value.Map
}

// jobsOf collects the events of runs of a function, in the order of their beginnings.
func jobsOf(events []event.Event, fun string) (out []*jobEvents) {
	byTag := map[string]*jobEvents{}
	for _, e := range events {
		parts := strings.Split(e.Tag, "/")
		if len(parts) != 4 || parts[0] != "salt" || parts[1] != "run" && parts[1] != "wheel" {
			continue
		}

		tag, end := strings.Join(parts[:3], "/"), parts[3]
		j := byTag[tag]
		if j == nil {
			if e.Data.Str("fun") != fun {
				continue
			}
			j = &jobEvents{tag: tag, data: map[string]*value.Map{}}
			byTag[tag] = j
			out = append(out, j)
		}

		j.ends = append(j.ends, end)
		j.data[end] = e.Data
	}

	return out
}

// TestPythonFunctionIsOneJob (B1, M6, m1): what Python runs for somebody is one job, with
// one new, one ret and one kept result, under the job id and the name that the function
// itself sees. The names are those of Salt 3008.3 for the same calls.
func TestPythonFunctionIsOneJob(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "saltern_renderer_python: "+mastertest.SaltPython(t)+"\nextension_modules: %DIR%/ext\n"+
		"external_auth: {auto: {bob: ['@runner', '@wheel']}}\npeer_run: {web1: ['who.*', 'test.*']}\n"+
		"reactor:\n  - 'salt/run/*/ret': [%DIR%/loop.sls]\n  - my/event: [%DIR%/react.sls]\n"+
		"schedule: {s: {function: who.note, seconds: 86400, args: [schedule]}}\n")

	for path, text := range map[string]string{
		"ext/runners/who.py": who,
		"ext/wheel/whow.py":  who,
		"loop.sls":           "x: {runner.who.note: [{args: [{what: reaction}]}]}\n",
		"react.sls":          "x: {wheel.whow.am_i: []}\ny: {wheel.key.list_all: []}\n",
	} {
		check.Must(t, os.MkdirAll(filepath.Dir(r.Path(path)), 0o755))
		check.Must(t, os.WriteFile(r.Path(path), []byte(text), 0o644))
	}

	r.ListenToBus()
	var all []event.Event
	seen := func() []event.Event {
		all = append(all, r.NewEvents()...)
		return all
	}

	account := local.CurrentUser()

	// one waits for the only job of a function by a user and looks at its events.
	one := func(t *testing.T, fun, user string, ends ...string) *value.Map {
		t.Helper()
		var job *jobEvents
		await.That(t, "the job of "+fun+" for "+user, func() bool {
			for _, j := range jobsOf(seen(), fun) {
				if j.data["ret"] != nil && j.data["ret"].Str("user") == user {
					job = j
				}
			}
			return job != nil
		})

		if !slices.Equal(job.ends, ends) {
			t.Errorf("%s: events %v, want %v", fun, job.ends, ends)
		}

		if strings.HasPrefix(fun, "runner.") { // as captured from Salt 3008.3, and one field of ours
			for end, want := range map[string]string{
				"new": "_stamp fun fun_args jid user",
				"ret": "_stamp fun fun_args jid return success user",
			} {
				data := job.data[end].Clone()
				data.Delete(event.EauthField)
				keys := data.Keys()
				slices.Sort(keys)
				if got := strings.Join(keys, " "); got != want {
					t.Errorf("%s of %s has %s, want %s", end, fun, got, want)
				}
			}
		}

		for _, end := range []string{"new", "ret"} {
			if d := job.data[end]; d.Str("user") != user || !strings.HasSuffix(job.tag, "/"+d.Str("jid")) {
				t.Errorf("%s of %s: %s", end, job.tag, mastertest.PlainText(d))
			}
		}

		return job.data["ret"]
	}

	// same compares what the function saw with what the events say.
	same := func(t *testing.T, ret *value.Map, id string) {
		t.Helper()
		saw := ret.Map("return")
		if saw.Str("user") != ret.Str("user") || saw.Str("jid") != ret.Str("jid") ||
			!strings.HasSuffix(saw.Str("tag"), "/"+ret.Str("jid")) || saw.Str("id") != id {
			t.Errorf("the function saw %s, the event says %s", mastertest.PlainText(saw), mastertest.PlainText(ret))
		}

		kept, err := r.Parts.Jobs.Returns(t.Context(), ret.Str("jid"))
		check.Must(t, err)
		if kept.Len() != 1 || kept.Map(id).Map("return").Str("user") != ret.Str("user") {
			t.Errorf("kept: %s", mastertest.PlainText(kept))
		}
	}

	t.Run("a user", func(t *testing.T) {
		r.AskInClear("runner", "fun", "who.am_i", "eauth", "auto", "username", "bob", "password", "x", "arg", []any{"x"})
		same(t, one(t, "runner.who.am_i", "bob", "new", "progress", "ret"), "m1")
	})

	t.Run("a reaction to runs", func(t *testing.T) {
		one(t, "runner.who.note", "Reactor", "new", "ret")
	})
	t.Run("a user's wheel function", func(t *testing.T) {
		r.AskInClear("wheel", "fun", "whow.am_i", "eauth", "auto", "username", "bob", "password", "x")
		same(t, one(t, "wheel.whow.am_i", "bob", "new", "progress", "ret"), "m1")
	})

	t.Run("a reaction by wheel", func(t *testing.T) {
		r.Parts.Fire("my/event", value.NewMap())
		same(t, one(t, "wheel.whow.am_i", "Reactor", "new", "progress", "ret"), "m1")
		one(t, "wheel.key.list_all", "Reactor", "new", "ret")
	})

	t.Run("a minion", func(t *testing.T) {
		web := r.AcceptedMinion("web1", "min8")
		saw := web.Ask("minion_runner", "fun", "who.am_i", "arg", []any{"y"}).(*value.Map)
		ret := one(t, "runner.who.am_i", account, "new", "progress", "ret")
		same(t, ret, "web1")

		if saw.Str("jid") != ret.Str("jid") {
			t.Errorf("the minion got the result of %s, the event is of %s", saw.Str("jid"), ret.Str("jid"))
		}

		web.Ask("minion_runner", "fun", "test.arg", "arg", []any{"z"})
		one(t, "runner.test.arg", account, "new", "ret")
	})

	// By now two runs of bob's and the minion's three have made a reaction each, and none
	// of the reactions another one.
	t.Run("the end", func(t *testing.T) {
		notes := func() []string {
			b, _ := os.ReadFile(r.Path("cache", "notes"))
			lines := strings.Fields(strings.ReplaceAll(strings.TrimSpace(string(b)), " ", "_"))
			slices.Sort(lines)
			return lines
		}

		want := []string{"reaction_Reactor", "reaction_Reactor", "reaction_Reactor", "schedule_" + account}
		await.That(t, "three reactions and the scheduled run", func() bool {
			ended := 0
			for _, j := range jobsOf(seen(), "runner.who.note") {
				if j.data["ret"] != nil {
					ended++
				}
			}
			return ended >= 3 && len(notes()) >= len(want)
		})

		if got := notes(); !slices.Equal(got, want) {
			t.Errorf("notes %v, want %v", got, want)
		}

		for _, j := range jobsOf(seen(), "runner.who.note") {
			if user := j.data["new"].Str("user"); user != "Reactor" {
				t.Errorf("a job of %s's: %v", user, j.ends)
			}
		}

		check.Must(t, r.Parts.Jobs.Each(t.Context(), func(job jobs.Job) error {
			if !slices.ContainsFunc(all,
				func(e event.Event) bool { return strings.HasSuffix(e.Tag, "/"+job.JID+"/ret") }) {
				t.Errorf("%s is kept, and nobody was told of it", job.JID)
			}
			return nil
		}))
	})
}
