package users

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"saltern/internal/audit"
	"saltern/master/event"
	"saltern/master/internal/local"
	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// savedUsers grants alice and carol a ping only; dave may call saved.run, which is not enough to run a
// job; eve may do everything.
const savedUsers = `external_auth:
  sharedsecret:
    alice: [test.ping]
    bob: [test.ping]
    carol: [{'N@web': [test.arg]}]
    dave: [{'@runner': [saved.run, saved.jobs, saved.show]}]
    eve: ['.*', '@runner', '@wheel']
sharedsecret: right
saltern_audit: true
publisher_acl_blacklist: {modules: [cmd.run]}
`

// caller calls runners and waits for their results.
type caller struct {
	r   *mastertest.Master
	sub *event.Subscription
}

func newCaller(r *mastertest.Master) *caller {
	c := &caller{r, r.Parts.Bus.Subscribe("test", 10_000, event.Prefix("salt/run/"))}
	r.T.Cleanup(c.sub.Close)
	return c
}

// call calls a runner as a user of the external system, or as root. admitted is false if the master
// does not let him call it at all.
func (c *caller) call(user, fun string, args []any, named *value.Map) (result any, success, admitted bool) {
	c.r.T.Helper()
	fields := []any{"fun", fun, "kwarg", value.NewMap("arg", args, "kwarg", named)}
	if user == "root" {
		fields = append(fields, "user", local.CurrentUser(), "key", c.r.Key)
	} else {
		fields = append(fields, "eauth", "sharedsecret", "username", user, "password", "right")
	}
	answer, _ := c.r.AskInClear("runner", fields...).(*value.Map)
	tag := answer.Str("tag")
	if tag == "" {
		return sentence(answer), false, false
	}
	for {
		select {
		case e := <-c.sub.C:
			if e.Tag == tag+"/ret" {
				return e.Data.Value("return"), e.Data.Bool("success"), true
			}
		case <-await.Context(c.r.T).Done():
			c.r.T.Fatalf("no result of %s", fun)
		}
	}
}

// must calls a runner as root and returns its result.
func (c *caller) must(fun string, named ...any) *value.Map {
	c.r.T.Helper()
	result, success, _ := c.call("root", fun, []any{}, value.NewMap(named...))
	m, ok := result.(*value.Map)
	if !success || !ok {
		c.r.T.Fatalf("%s: %s", fun, value.Str(result))
	}
	return m
}

func startSaved(t *testing.T) (*mastertest.Master, *caller) {
	r := mastertest.Start(t, savedUsers)
	c := newCaller(r)
	c.must("saved.set_target", "name", "web", "expression", "web*")
	job := func(name string, more ...any) {
		c.must("saved.set_job", append([]any{"name", name, "target", "web", "function", "test.arg"}, more...)...)
	}
	field := []any{value.NewMap("name", "what")}
	mayRun := value.NewMap("sharedsecret", []any{"alice"})
	job("positional", "args", []any{"first", "{what}"}, "fields", field, "may_run", mayRun)
	job("named", "kwargs", value.NewMap("what", "{what}"), "fields", field, "may_run", mayRun)
	job("others", "kwargs", value.NewMap("what", "{what}"), "fields", field)
	c.must("saved.set_job", "name", "blocked", "target", "web", "function", "cmd.run", "args", []any{"id"}, "may_run", mayRun)
	return r, c
}

// TestSavedJobGivesExactlyItsRight: whom a saved job names runs its function with its arguments on its
// target, whatever he fills in, and nothing else (200 generated calls, and some chosen ones).
func TestSavedJobGivesExactlyItsRight(t *testing.T) {
	r, c := startSaved(t)
	web := r.AcceptedMinion("web1", "min8")
	r.AcceptedMinion("db1", "min7")
	sub := r.Subscribe()

	pieces := []string{"*", "db1", "a b", "kwarg=", "test=True", "tgt=*", "fun=cmd.run", "{a: b}", "[x, y]", "- x\n", "\n", "ä",
		"日本", "'", "\"", "{what}", "__pub_user=root", "__kwarg__=True", "; id", "$(id)", "{{ 7 }}", "null", "True", "007", "1.10"}
	random := rand.New(rand.NewPCG(8, 44))
	ran := 0
	for i := range 200 {
		var text strings.Builder
		for range 1 + random.IntN(3) {
			text.WriteString(pieces[random.IntN(len(pieces))])
		}
		var what any = text.String()
		nested := i%10 == 9
		if nested {
			what = []any{value.NewMap("__kwarg__", true, "tgt", "*"), []any{text.String()}}[random.IntN(2)]
		}

		job := []string{"positional", "named"}[i%2]
		named := value.NewMap("name", job, "what", what)
		if i%5 == 4 { // what has no meaning for saved.run, or only for others
			named.Set([]string{"target", "tgt", "function", "fun", "user", "tgt_type", "batch", "kwarg", "args"}[random.IntN(9)], "*")
		}
		result, success, admitted := c.call("alice", "saved.run", []any{}, named)
		out := sub.Published()
		if !admitted {
			t.Fatalf("%s: %v", value.Repr(named), result)
		}
		if len(out) == 0 {
			if success {
				t.Errorf("%s: nothing was sent, and the result is %s", value.Repr(named), value.Str(result))
			}
			continue
		}

		ran++
		pub := web.OpenPublication(out[0])
		want := fmt.Sprintf("%q", []any{"first", what})
		got := fmt.Sprintf("%q", pub.List("arg"))
		if job == "named" {
			want = fmt.Sprintf("%q", what)
			got = fmt.Sprintf("%q", pub.List("arg")[0].(*value.Map).Value("what"))
			if n := pub.List("arg")[0].(*value.Map).Len(); n != 2 || len(pub.List("arg")) != 1 {
				t.Errorf("%s: arguments %s", value.Repr(named), value.Repr(pub.List("arg")))
			}
		}
		exact := pub.Str("fun") == "test.arg" && value.Repr(pub.Value("tgt")) == "['web1']" && pub.Str("tgt_type") == "list" &&
			pub.Str("user") == "alice" && pub.Value("ret") == any("") && got == want && len(out) == 1
		if !exact || nested || i%5 == 4 {
			t.Errorf("%s: sent %s", value.Repr(named), value.Repr(pub))
		}
	}
	if ran < 90 {
		t.Errorf("only %d of 200 ran", ran)
	}

	for _, x := range []struct {
		user, fun string
		named     *value.Map
	}{
		{"alice", "saved.run", value.NewMap("name", "others", "what", "x")},
		{"alice", "saved.run", value.NewMap("name", "blocked")},
		{"alice", "saved.run", value.NewMap("name", "nothing")},
		{"alice", "saved.run", value.NewMap("name", "named", "what", "x", "test", true)},
		{"alice", "saved.set_job", value.NewMap("name", "mine", "target", "*", "target_type", "glob", "function", "test.arg")},
		{"alice", "saved.set_target", value.NewMap("name", "web", "expression", "*")},
		{"alice", "saved.delete", value.NewMap("kind", "target", "name", "web")},
		{"alice", "saved.import", value.NewMap("text", "{}")},
		{"alice", "saved.export", value.NewMap()},
		{"alice", "saved.show", value.NewMap("kind", "job", "name", "named")},
		{"alice", "saved.targets", value.NewMap()},
		{"alice", "saved.run.x", value.NewMap("name", "named", "what", "x")},
		{"alice", "jobs.list_jobs", value.NewMap()},
		{"bob", "saved.run", value.NewMap("name", "named", "what", "x")},
		{"dave", "saved.run", value.NewMap("name", "named", "what", "x")},
	} {
		result, success, _ := c.call(x.user, x.fun, []any{}, x.named)
		if out := sub.Published(); len(out) > 0 || success {
			t.Errorf("%s calls %s %s: %s", x.user, x.fun, value.Repr(x.named), value.Str(result))
		}
	}

	// Nobody has changed anything.
	if m := c.must("saved.show", "kind", "target", "name", "web"); m.Str("expression") != "web*" {
		t.Errorf("the target: %s", value.Repr(m))
	}

	// Alice sees what she may run, and not who else may.
	jobs, _, _ := c.call("alice", "saved.jobs", []any{}, value.NewMap())
	list, _ := jobs.(*value.Map)
	if got := strings.Join(list.Keys(), " "); got != "blocked named positional" || list.Map("named").Value("may_run") != nil {
		t.Errorf("jobs of alice: %s", value.Repr(list))
	}
	if got := value.Repr(list.Map("named").Value("withheld")); got != "['may_run']" {
		t.Errorf("alice is not told what she does not see: %s", got)
	}
	// Whom no job names sees an empty list.
	none, success, _ := c.call("bob", "saved.jobs", []any{}, value.NewMap())
	if empty, isMap := none.(*value.Map); !success || !isMap || empty.Len() > 0 {
		t.Errorf("jobs of bob: %s", value.Str(none))
	}
	if _, success, _ := c.call("eve", "saved.run", []any{"others"}, value.NewMap("what", "x")); !success {
		t.Error("eve has all permissions and cannot run a job")
	}
}

// TestOutcomeIsOfOwnJobs: whom a saved job names sees the job that he has started by it, and no other one: of
// nobody else, of no user of his name in another system, and by no id that somebody made up.
func TestOutcomeIsOfOwnJobs(t *testing.T) {
	r, c := startSaved(t)
	r.AcceptedMinion("web1", "min8")
	c.must("saved.set_job", "name", "bobs", "target", "web", "function", "test.ping", "may_run", value.NewMap("sharedsecret", []any{"bob"}))
	run := func(user, job string, named ...any) string {
		t.Helper()
		result, success, _ := c.call(user, "saved.run", []any{job}, value.NewMap(named...))
		m, _ := result.(*value.Map)
		if !success || m.Str("jid") == "" {
			t.Fatalf("%s runs %s: %s", user, job, value.Str(result))
		}
		return m.Str("jid")
	}

	jid := run("alice", "named", "what", "x")
	ofRoot := r.Publish("web1", "test.ping").Str("jid")
	twin := "20261124155900000001"
	load := value.NewMap("jid", twin, "fun", "test.ping", "tgt", "*", "tgt_type", "glob", "user", "alice", event.EauthField, "ldap")
	if err := r.Parts.Jobs.SaveLoad(await.Context(t), twin, load, []string{"web1"}); err != nil {
		t.Fatal(err)
	}
	plain := "20261124155900000002"
	load = value.NewMap("jid", plain, "fun", "test.ping", "tgt", "*", "tgt_type", "glob", "user", "alice")
	if err := r.Parts.Jobs.SaveLoad(await.Context(t), plain, load, []string{"web1"}); err != nil {
		t.Fatal(err)
	}

	for _, x := range []struct {
		user           string
		jid            any
		sees, admitted bool
	}{
		{"alice", jid, true, true},
		{"alice", run("alice", "named", "what", "y"), true, true},
		{"bob", run("bob", "bobs"), true, true},
		{"eve", jid, true, true},
		{"root", jid, true, true},
		{"bob", jid, false, true},
		{"alice", ofRoot, false, true},
		{"alice", twin, false, true},
		{"alice", plain, false, true},
		{"alice", "20261124155900000003", false, true},
		{"carol", jid, false, false}, // no saved job names her
		{"dave", jid, false, false},
		{"dave", ofRoot, false, false},
	} {
		result, success, admitted := c.call(x.user, "saved.outcome", []any{x.jid}, value.NewMap())
		if success != x.sees || admitted != x.admitted {
			t.Errorf("%s and %v: sees %t, admitted %t: %s", x.user, x.jid, success, admitted, value.Str(result))
		}
	}

	for _, hostile := range []any{"", "../" + jid, jid + "/..", "*", nil, int64(7), []any{jid}, value.NewMap("jid", jid), strings.Repeat("1", 1<<20)} {
		// What an ArgumentError says is a result, as in Salt: nobody gets a job by it.
		result, _, _ := c.call("alice", "saved.outcome", []any{hostile}, value.NewMap())
		if m, ok := result.(*value.Map); ok {
			t.Errorf("%.40v: %s", hostile, value.Repr(m))
		}
	}
	if _, _, admitted := c.call("alice", "saved.outcome.x", []any{jid}, value.NewMap()); admitted {
		t.Error("saved.outcome.x is admitted")
	}
}

// TestSavedTargetIsANodegroup: in targets, in permissions, and for minions, which get its words.
func TestSavedTargetIsANodegroup(t *testing.T) {
	r, c := startSaved(t)
	web := r.AcceptedMinion("web1", "min8")
	r.AcceptedMinion("db1", "min7")
	sub := r.Subscribe()

	for tgt, want := range map[string]string{
		"N@web":                "( web* )",
		"N@web and not web7":   "( web* ) and not web7",
		"not N@web":            "not ( web* )",
		"web* and ( N@web )":   "web* and ( ( web* ) )",
		"E@db.* or ( N@web  )": "E@db.* or ( ( web* ) )",
	} {
		answer := r.Publish(tgt, "test.ping", "tgt_type", "compound")
		minions := value.Repr(answer.Value("minions"))
		pub := web.OpenPublication(sub.Published()[0])
		if pub.Str("tgt") != want || pub.Str("tgt_type") != "compound" {
			t.Errorf("%s: sent to %q (%s), selects %s", tgt, pub.Str("tgt"), pub.Str("tgt_type"), minions)
		}
	}
	if m := r.Publish("web", "test.ping", "tgt_type", "nodegroup"); value.Repr(m.Value("minions")) != "['web1']" {
		t.Errorf("type nodegroup: %s", value.Repr(m))
	}
	sub.Published()

	answer := publishLimited(r, "carol", value.NewMap(), "fun", "test.arg", "tgt", "N@web", "tgt_type", "compound")
	if started(answer) == "" {
		t.Errorf("a permission by saved target: %v", answer)
	}
	answer = publishLimited(r, "carol", value.NewMap(), "fun", "test.arg", "tgt", "db1")
	if started(answer) != "" {
		t.Error("the permission goes beyond the saved target")
	}
	answer = publishLimited(r, "carol", value.NewMap(), "fun", "test.arg", "tgt", "N@nosuch", "tgt_type", "compound")
	if text := sentence(answer); !strings.Contains(text, "Node group") || !strings.Contains(text, "nosuch") {
		t.Errorf("a group that is not there: %v", answer)
	}

	// The pillar values of minions cannot be guessed by a target of one's own, and can be selected by
	// an administrator's.
	c.must("saved.set_target", "name", "role", "expression", "role:w*", "type", "pillar")
	answer = publishLimited(r, "alice", value.NewMap(), "tgt", "N@role", "tgt_type", "compound")
	if text := sentence(answer); strings.Contains(text, "pillar") {
		t.Errorf("a saved target with a pillar: %v", answer)
	}
	answer = publishLimited(r, "alice", value.NewMap(), "tgt", "I@role:x*", "tgt_type", "compound")
	if text := sentence(answer); !strings.Contains(text, "pillar") {
		t.Errorf("a pattern for pillars: %v", answer)
	}
}

// TestSavedObjectsAreAudited: each change and run has a record with its author, refused ones too.
func TestSavedObjectsAreAudited(t *testing.T) {
	r, c := startSaved(t)
	r.AcceptedMinion("web1", "min8")
	c.call("alice", "saved.run", []any{"named"}, value.NewMap("what", "TOPSECRET"))
	c.call("dave", "saved.run", []any{"named"}, value.NewMap("what", "TOPSECRET"))
	c.call("alice", "saved.run", []any{"positional"}, value.NewMap("what", "x=TOPSECRET"))
	c.call("root", "saved.delete", []any{"target", "web"}, value.NewMap())

	var got []string
	await.That(t, "records", func() bool {
		page, err := audit.Read(t.Context(), "", audit.Query{Action: "saved.*", Last: 100}, r.Parts.Options.Audit("salt-master", nil).Dir)
		check.Must(t, err)
		got = nil
		for _, one := range page.Records {
			got = append(got, fmt.Sprintf("%s %s %s %s %s %d %s", one.User, one.Action, one.Object, one.Function, one.Result, one.Minions, one.Detail))
			if strings.Contains(fmt.Sprint(one), "TOPSECRET") {
				t.Errorf("a value is in the record %v", one)
			}
		}
		return len(got) >= 9
	})
	text := strings.Join(got, "\n")
	for _, want := range []string{
		"saved.set target web  ok 0",
		"saved.set job named  ok 0",
		"alice saved.run named test.arg started 1 on web*",
		"dave saved.run named  refused 0",
		"alice saved.run positional test.arg refused 0",
		"saved.delete target web  refused 0",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no record %q in\n%s", want, text)
		}
	}
}
