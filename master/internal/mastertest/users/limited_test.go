package users

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/cache"
	"saltern/master/event"
	"saltern/master/internal/local"
	"saltern/master/internal/mastertest"
	"saltern/master/keys"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
	"saltern/test/slapd"
)

// These are tests of what callers without all rights may send and use up: publisher_acl,
// external_auth, tokens, peer.

// publishLimited publishes for a user of the external system and returns the whole answer.
func publishLimited(r *mastertest.Master, user string, kwargs *value.Map, more ...any) *value.Map {
	r.T.Helper()
	kwargs = kwargs.Clone()
	if _, loggedIn := kwargs.Get("token"); !loggedIn {
		kwargs.Update(value.NewMap("eauth", "sharedsecret", "username", user, "password", "right"))
	}

	load := value.NewMap("tgt", "web1", "fun", "test.ping", "arg", []any{}, "tgt_type", "glob", "ret", "",
		"jid", "", "user", "nobody", "kwargs", kwargs)
	load.Update(value.NewMap(more...))
	fields := []any{}
	for k, v := range load.All() {
		fields = append(fields, k, v)
	}

	v, _ := r.AskInClear("publish", fields...).(*value.Map)
	return v
}

// logInUser returns a token of a user of the external system.
func logInUser(r *mastertest.Master, user string) string {
	r.T.Helper()
	v, _ := r.AskInClear("mk_token", "eauth", "sharedsecret", "username", user, "password", "right").(*value.Map)
	if v.Str("token") == "" {
		r.T.Fatalf("no token for %s", user)
	}
	return v.Str("token")
}

// started is the job id of an answer, "" when there is none.
func started(answer *value.Map) string { return answer.Map("load").Str("jid") }

// sentence is the text of a refusal for people.
func sentence(answer *value.Map) string { return answer.Map("error").Str("message") }

// TestFieldsOfLimitedCallers: a caller without all rights sends the function, its
// arguments and its target, and what changes nothing beyond them. By ret with ret_kwargs
// and metadata a grant of test.ping was root on the minion (finding 2 of the second audit).
func TestFieldsOfLimitedCallers(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, limitedUser)
	web := r.AcceptedMinion("web1", "min8")
	sub := r.Subscribe()
	meta := value.NewMap("x", "$(id >/tmp/owned)")

	for name, c := range map[string]struct {
		kwargs *value.Map
		more   []any
		names  string // in the refusal
	}{
		"a returner":           {value.NewMap(), []any{"ret", "rawfile_json"}, "saltern_user_returners"},
		"several returners":    {value.NewMap(), []any{"ret", ",rawfile_json,"}, "rawfile_json"},
		"a returner as a list": {value.NewMap(), []any{"ret", []any{"rawfile_json"}}, "ret"},
		"the audit's proof": {value.NewMap("ret_kwargs", value.NewMap("filename", "/etc/profile.d/x.sh"), "metadata", meta),
			[]any{"ret", "rawfile_json"}, "ret_kwargs"},
		"ret_config":            {value.NewMap("ret_config", "alternative"), nil, "saltern_user_publish_fields"},
		"ret_kwargs":            {value.NewMap("ret_kwargs", value.NewMap("filename", "/x")), nil, "ret_kwargs"},
		"executors":             {value.NewMap("module_executors", []any{"sudo"}), nil, "module_executors"},
		"options of executors":  {value.NewMap("executor_opts", value.NewMap("user", "root")), nil, "executor_opts"},
		"no record":             {value.NewMap("nocache", true), nil, "nocache"},
		"another's id":          {value.NewMap("id", "web2"), nil, "id"},
		"another master":        {value.NewMap("master_id", "m2"), nil, "master_id"},
		"permissions":           {value.NewMap("auth_list", []any{".*"}), nil, "auth_list"},
		"metadata that is text": {value.NewMap("metadata", "x"), nil, "metadata"},
		"a target type":         {value.NewMap(), []any{"tgt_type", []any{"glob"}}, "tgt_type"},
		"a time-out of text":    {value.NewMap(), []any{"to", "x"}, "to"},
		"arguments by name":     {value.NewMap(), []any{"arg", value.NewMap("a", 1)}, "arg"},
		"an argument's id": {value.NewMap(),
			[]any{"arg", []any{"x", value.NewMap("__kwarg__", true, "__pub_id", "web2")}}, "__pub_id"},
		"an argument of text": {value.NewMap(), []any{"arg", []any{"__pub_id=web2"}}, "__pub_id"},
		"of a compound job": {value.NewMap(),
			[]any{"fun", []any{"test.ping"}, "arg", []any{[]any{value.NewMap("__kwarg__", true, "__pub_id", "web2")}}},
			"__pub_id"},
	} {
		t.Run(name, func(t *testing.T) {
			a := publishLimited(r, "alice", c.kwargs, c.more...)
			if out := sub.Published(); started(a) != "" || len(out) > 0 {
				t.Fatalf("published: %v", a)
			}

			if e := a.Map("error"); e.Str("name") != "SaltInvocationError" ||
				!strings.Contains(e.Str("message"), c.names) {
				t.Errorf("the refusal says %v", a)
			}
		})
	}

	// What clients always send, empty as it is by default, is no reason to refuse.
	a := publishLimited(r, "alice", value.NewMap("ret_config", "", "ret_kwargs", value.NewMap(), "module_executors", nil, "executor_opts", nil, "metadata", meta,
		"start_event", true, "show_timeout", true, "show_jid", false, "timeout", 5, "verbose", true, "gather_job_timeout", 10, "nosuch", meta), "to", 5)
	out := sub.Published()
	if started(a) == "" || len(out) != 1 {
		t.Fatalf("what clients send is refused: %v", a)
	}

	pub := web.OpenPublication(out[0])
	if m := pub.Map("metadata"); m.Str("x") != meta.Str("x") || !pub.Bool("start_event") {
		t.Errorf("metadata and start_event are lost: %v", mastertest.PlainMap(pub))
	}

	kept, err := r.Parts.Jobs.Load(await.Context(t), started(a))
	check.Must(t, err)
	if v := kept.Map("kwargs"); v.Map("metadata").Str("x") != meta.Str("x") || v.Value("nosuch") != nil ||
		kept.Str("user") != "alice" {
		t.Errorf("kept as %v", mastertest.PlainMap(kept))
	}

	// Root may send all of it.
	r.Publish("web1", "test.ping", "ret", "rawfile_json", "kwargs",
		value.NewMap("ret_kwargs", meta, "module_executors", []any{"sudo"}))
	if pub := web.OpenPublication(sub.Published()[0]); pub.Str("ret") != "rawfile_json" ||
		pub.Value("ret_kwargs") == nil || pub.Value("module_executors") == nil {
		t.Errorf("of root's fields are left: %v", mastertest.PlainMap(pub))
	}
}

// TestWordsForWrongLoads: who sends a job id that is none, or a target that nobody can read,
// is told so, and a target as Python writes it.
func TestWordsForWrongLoads(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, limitedUser)
	r.AcceptedMinion("web1", "min8")
	for _, jid := range []string{" 20270101000000000009", "../../x", "1", "2027010100000000000\u0669",
		"20270101000000000009/x"} {
		for who, a := range map[string]*value.Map{
			"alice": publishLimited(r, "alice", value.NewMap(), "jid", jid),
			"root": publishLimited(r, "alice", value.NewMap(), "jid", jid, "user", local.CurrentUser(), "key", r.Key,
				"kwargs", value.NewMap()),
		} {
			if !strings.Contains(sentence(a), "is no job id") {
				t.Errorf("%s, %q: %v", who, jid, a)
			}
		}
	}

	for want, tgt := range map[string]any{
		"['web1', ['x']]": []any{"web1", []any{"x"}},
		"{'web1': 1}":     value.NewMap("web1", 1),
	} {
		a := publishLimited(r, "alice", value.NewMap(), "tgt", tgt, "tgt_type", "list")
		if text := a.Map("load").Str("error"); !strings.HasSuffix(text, "for target "+want) {
			t.Errorf("%s: %q", want, text)
		}
	}

	if strings.Contains(r.Log.String(), "Some exception") {
		t.Error("a wrong job id is an error in the log")
	}
}

// TestFieldsThatASitePermits: an option names what may be sent after all, and the returner
// of all jobs is everybody's.
func TestFieldsThatASitePermits(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t,
		limitedUser+"saltern_user_publish_fields: [ret_kwargs, nosuch]\nsaltern_user_returners: [mysql]\next_job_cache: redis\n")
	web := r.AcceptedMinion("web1", "min8")
	sub := r.Subscribe()
	for ret, may := range map[string]bool{
		"mysql":              true,
		"redis":              true,
		"mysql,redis":        true,
		"":                   true,
		"mysql,rawfile_json": false,
		"MySQL":              false,
		"*":                  false,
	} {
		a := publishLimited(r, "alice", value.NewMap("ret_kwargs", value.NewMap("a", "b")), "ret", ret)
		if out := sub.Published(); may && (len(out) != 1 || web.OpenPublication(out[0]).Str("ret") != ret) ||
			!may && len(out) > 0 {
			t.Errorf("%q: %v, %d published", ret, a, len(out))
		}
	}

	if a := publishLimited(r, "alice", value.NewMap("executor_opts", value.NewMap("a", "b"))); started(a) != "" {
		t.Error("one field permits another")
	}

	if !strings.Contains(r.Log.String(), "field=nosuch") {
		t.Error("a field that cannot be permitted is not named")
	}
}

// TestRandomLoadsOfLimitedCallers: whatever a caller without all rights puts into a load,
// what is published has the fields of a plain job only.
func TestRandomLoadsOfLimitedCallers(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, limitedUser)
	web := r.AcceptedMinion("web1", "min8")
	sub := r.Subscribe()
	rng := rand.New(rand.NewPCG(2, 2026))
	names := []string{"ret", "ret_config", "ret_kwargs", "metadata", "module_executors", "executor_opts",
		"nocache", "start_event", "id", "master_id", "auth_list", "to",
		"delimiter", "key", "user", "token", "jid", "tgt_type", "arg", "only_minions", "account", "chosen_jid", "Minions", "return", "__ignore_process_count_max", "_job_queue_file",
		"resource_target", "resource_job", "resource_targets", "minion_is_target", "schedule", "fun_args", "enc", "serial", "sig_algo", "cmd_run", "é", ""}

	var odd func(depth int) any
	odd = func(depth int) any {
		switch n := rng.IntN(11); {
		case n == 0:
			return nil
		case n == 1:
			return rng.IntN(2) == 0
		case n == 2:
			return rng.Int64() - rng.Int64()
		case n == 3:
			return rng.NormFloat64()
		case n == 4:
			return []byte{0xff, byte(rng.IntN(256))}
		case n < 7 && depth > 0:
			return []any{odd(depth - 1), odd(depth - 1)}
		case n < 9 && depth > 0:
			return value.NewMap(names[rng.IntN(len(names))], odd(depth-1), "__kwarg__", odd(0))
		}

		return []string{"", "rawfile_json", "x", "20261123011500123456", "*", "sudo", ":"}[rng.IntN(7)]
	}

	plain := []any{"fun", "arg", "tgt", "jid", "ret", "tgt_type", "to", "delimiter", "metadata",
		"start_event", "user", "_stamp", "serial"}
	published := 0
	for i := range 150 {
		kwargs, more := value.NewMap(), []any{}
		for range rng.IntN(5) {
			kwargs.Set(names[rng.IntN(len(names))], odd(3))
		}

		for range rng.IntN(4) {
			if n := names[rng.IntN(len(names))]; n != "token" && n != "key" && n != "" {
				more = append(more, n, odd(3))
			}
		}

		kwargs.Delete("token") // then it is another log-in
		a := publishLimited(r, "alice", kwargs, more...)
		out := sub.Published()
		if len(out) == 0 {
			continue
		}

		published++
		pub := web.OpenPublication(out[0])
		for k := range pub.All() {
			if !slices.Contains(plain, k) {
				t.Errorf("%d: %v is sent: %v", i, k, mastertest.PlainMap(pub))
			}
		}

		metadata, given := pub.Get("metadata")
		if _, isMap := metadata.(*value.Map); given && !isMap || pub.Str("ret") != "" ||
			pub.Str("user") != "alice" || pub.Str("tgt_type") != "list" || len(pub.List("tgt")) != 1 {
			t.Errorf("%d: %v was sent as %v", i, a, mastertest.PlainMap(pub))
		}

		kept, err := r.Parts.Jobs.Load(await.Context(t), pub.Str("jid"))
		check.Must(t, err)
		for k := range kept.All() {
			if !slices.Contains(append(plain, "kwargs", "only_minions", "account", "chosen_jid", "Minions",
				event.EauthField),
				k) {
				t.Errorf("%d: %v is kept", i, k)
			}
		}
	}

	if published < 15 {
		t.Errorf("only %d were published", published)
	}
}

// TestPeerNamesNoReturner: what holds for users holds for minions that may publish.
func TestPeerNamesNoReturner(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "peer:\n  web1: [test.ping]\n")
	web := r.AcceptedMinion("web1", "min8")
	sub := r.Subscribe()
	for ret, may := range map[string]bool{"": true, "rawfile_json": false} {
		v, _ := web.Ask("minion_pub", "fun", "test.ping", "arg", []any{}, "tgt", "*", "tgt_type", "glob",
			"ret", ret).(*value.Map)
		if out := sub.Published(); (v.Str("jid") != "") != may || (len(out) == 1) != may {
			t.Errorf("%q: %v, %d published", ret, v, len(out))
		} else if may && web.OpenPublication(out[0]).Str("id") != "web1" {
			t.Error("the job does not say whose it is")
		}
	}
}

// publishAsRoot publishes to all minions with the key of root and returns the whole answer.
func publishAsRoot(r *mastertest.Master, jid, fun string, arg ...any) *value.Map {
	r.T.Helper()
	v, _ := r.AskInClear("publish", "tgt", "*", "fun", fun, "arg", arg, "tgt_type", "glob", "ret", "", "jid", jid,
		"kwargs", value.NewMap(), "user", "root", "key", r.Key).(*value.Map)
	return v
}

// functionOf returns the function by which a job is known.
func functionOf(r *mastertest.Master, jid string) string {
	r.T.Helper()
	kept, err := r.Parts.Jobs.Load(await.Context(r.T), jid)
	check.Must(r.T, err)
	return kept.Str("fun") + " of " + kept.Str("user")
}

// TestJobIDIsNotTaken: a job id that is somebody's job is refused, also to callers with all
// rights, and the record stays as it is; the same caller's batch goes on under its id
// (finding 10 of the second audit).
func TestJobIDIsNotTaken(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, limitedUser)
	r.AcceptedMinion("web1", "min8")
	web2 := "web2"
	check.Must(t, r.Parts.Keys.Put(web2, keys.Accepted, mastertest.PublicPEM(t, mastertest.KeyPair(t, "min7"))))
	sub := r.Subscribe()
	root := r.Publish("*", "cmd.run", "arg", []any{"id"}).Str("jid")
	before := functionOf(r, root)
	sub.Published()
	refused := func(what, jid string, a *value.Map) {
		t.Helper()
		if out := sub.Published(); started(a) != "" || len(out) > 0 ||
			!strings.Contains(sentence(a), "is that of another job") {
			t.Errorf("%s: %v, %d published", what, a, len(out))
		}

		if now := functionOf(r, jid); jid == root && now != before {
			t.Errorf("%s: the record is %s", what, now)
		}
	}

	refused("a limited caller", root, publishLimited(r, "alice", value.NewMap(), "jid", root))
	heard := r.Parts.Bus.Subscribe("test", 100, func(tag string) bool {
		return strings.HasPrefix(tag, "salt/job/"+root) && strings.HasSuffix(tag, "/error")
	})
	defer heard.Close()

	if a := publishLimited(r, "bob", value.NewMap(), "jid", root, "fun", "cmd.run", "minions", []any{"nosuch"}); a.Map("error").Str("name") != "AuthorizationError" || len(heard.C) > 0 {
		t.Errorf("who waits for root's job hears of bob's: %v, %d events", a, len(heard.C))
	}

	// Salt's tools take its events for those of root's
	for _, longer := range []string{root + "_1", root + "_1234567890"} {
		refused("an id that begins with that of a job", root, publishLimited(r, "alice", value.NewMap(), "jid", longer))
		publishLimited(r, "bob", value.NewMap(), "jid", longer, "fun", "cmd.run")
		if len(heard.C) > 0 {
			t.Error("who waits for root's job hears of bob's with a longer id")
		}
	}

	refused("the same function of another caller", root,
		publishLimited(r, "alice", value.NewMap(), "jid", root, "fun", "cmd.run", "arg", []any{"id"}))
	refused("another function of root", root, publishAsRoot(r, root, "test.ping"))
	refused("other arguments of root", root, publishAsRoot(r, root, "cmd.run", "whoami"))

	batch := "20261123011500123456"
	for _, id := range []string{"web1", web2} {
		if a := publishLimited(r, "alice", value.NewMap(), "jid", batch, "tgt", []any{id}, "tgt_type", "list", "fun",
			"cmd.run", "arg", []any{"id", value.NewMap("__kwarg__", true, "cwd", "/")}); started(a) != batch {
			t.Fatalf("a part of a batch is refused: %v", a)
		}
	}

	sub.Published()
	if kept, err := r.Parts.Jobs.Load(await.Context(t), batch); err != nil || len(kept.List("Minions")) != 2 {
		t.Errorf("the batch is kept as %v, %v", kept, err)
	}

	refused("another caller's batch", batch, publishLimited(r, "bob", value.NewMap(), "jid", batch))
	refused("another function of the batch", batch, publishLimited(r, "alice", value.NewMap(), "jid", batch))
	refused("root under alice's batch", batch, publishAsRoot(r, batch, "test.ping"))

	// A return alone has made this one: of a job that a minion has started by itself.
	own := "20261123011500123457"
	web := r.AcceptedMinion("web3", "min6")
	web.Ask("_return", "jid", own, "fun", "state.apply", "fun_args", []any{}, "return", true, "retcode", 0,
		"user", "root")
	refused("a minion's own job", own, publishLimited(r, "alice", value.NewMap(), "jid", own))

	r = r.Restart(limitedUser)
	sub = r.Subscribe()
	refused("after a restart", root, publishLimited(r, "alice", value.NewMap(), "jid", root))
	if a := publishLimited(r, "alice", value.NewMap(), "jid", batch, "tgt", []any{"web1"}, "tgt_type", "list", "fun",
		"cmd.run", "arg", []any{"id", value.NewMap("__kwarg__", true, "cwd", "/")}); started(a) != batch {
		t.Errorf("after a restart a batch cannot go on: %v", a)
	}

	if n := r.Parts.Launch.Stats().Taken; n != 1 {
		t.Errorf("%d counted", n)
	}
}

// TestJobIDOfTwoAtOnce: of callers who choose the same id in the same moment one has it.
func TestJobIDOfTwoAtOnce(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, limitedUser)
	r.AcceptedMinion("web1", "min8")
	for round := range 5 {
		jid := fmt.Sprintf("2026112301150012345%d", round)
		var wg sync.WaitGroup
		answers := make([]*value.Map, 16)
		for i := range answers {
			wg.Go(func() {
				user := []string{"alice", "bob"}[i%2]
				answers[i] = publishLimited(r, user, value.NewMap(), "jid", jid)
			})
		}

		wg.Wait()
		kept, err := r.Parts.Jobs.Load(await.Context(t), jid)
		check.Must(t, err)
		for i, a := range answers {
			if user := []string{"alice", "bob"}[i%2]; (started(a) == jid) != (user == kept.Str("user")) {
				t.Errorf("%s got %v, and the job is %s's", user, a, kept.Str("user"))
			}
		}
	}
}

// TestJobIDOfARunner: the id of a runner that is at work is no job's.
func TestJobIDOfARunner(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, limitedUser)
	r.AcceptedMinion("web1", "min8")
	v, _ := r.AskInClear("runner", "fun", "test.sleep", "arg", []any{"3"}, "user", "root", "key", r.Key).(*value.Map)
	jid := v.Str("jid")
	if jid == "" {
		t.Skipf("no runner that takes time: %v", v)
	}
	await.That(t, "the runner at work", func() bool { return r.Parts.Runs.At(jid) })
	if a := publishLimited(r, "alice", value.NewMap(), "jid", jid); started(a) != "" {
		t.Errorf("the id of a runner is taken: %v", a)
	}
}

// TestJobIDAtOtherMasters: the id of a job that another master has started is refused, and
// where two masters start jobs under one id before they hear of each other, all of them
// keep the same one.
func TestJobIDAtOtherMasters(t *testing.T) {
	t.Parallel()
	ms := mastertest.StartCluster(t, 2, limitedUser)
	mastertest.AwaitLinks(t, ms)
	a, b := ms[0], ms[1]
	a.AcceptedMinion("web1", "min8")
	await.That(t, "web1 at b", func() bool { return len(b.Parts.Keys.Accepted()) == 1 })
	root := a.Publish("*", "cmd.run").Str("jid")
	known := func(r *mastertest.Master, jid string) func() bool {
		return func() bool { kept, err := r.Parts.Jobs.Load(await.Context(t), jid); return err == nil && kept != nil }
	}
	await.That(t, "the job at b", known(b, root))

	if x := publishLimited(b, "alice", value.NewMap(), "jid", root); started(x) != "" ||
		functionOf(b, root) != functionOf(a, root) {
		t.Errorf("alice took %s: %v, now %s", root, x, functionOf(b, root))
	}

	// Both at once, at one master each: a caller with all rights, whose job outranks the
	// other's, unless that is known when he comes.
	for i := range 5 {
		jid := fmt.Sprintf("2026112301150012345%d", i)
		var wg sync.WaitGroup
		var root *value.Map
		wg.Go(func() { root = publishAsRoot(a, jid, "cmd.run") })
		wg.Go(func() { publishLimited(b, "alice", value.NewMap(), "jid", jid) })
		wg.Wait()
		want := "test.ping of alice"
		if started(root) == jid {
			want = "cmd.run of root"
		}

		await.That(t, want+" at both masters", func() bool {
			return known(a, jid)() && known(b, jid)() && functionOf(a, jid) == want && functionOf(b, jid) == want
		})
	}
}

// TestPillarTargetsAreExact: a caller without all rights learns of a pillar's value by a
// target whether it is what he wrote out, and nothing by patterns (finding 15 of the second
// audit: a secret letter by letter).
func TestPillarTargetsAreExact(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, limitedUser+"nodegroups:\n  webs: I@role:web* and not J@role:w.*x\n")
	r.AcceptedMinion("web1", "min8")
	ask := func(secret string, tgt, typ string) string {
		_, err := r.Parts.Cache.Set(cache.Pillar, "web1", value.NewMap("secret", secret, "role", "web"))
		check.Must(t, err)
		a := publishLimited(r, "alice", value.NewMap("delimiter", ":"), "tgt", tgt, "tgt_type", typ)
		return value.Repr(a.Value("error")) + value.Repr(a.Map("load").Value("minions")) +
			value.Repr(a.Map("load").Value("error"))
	}

	for _, c := range []struct{ tgt, typ string }{
		{"secret:h*", "pillar"}, {"secret:hunter?", "pillar"}, {"secret:[a-m]*", "pillar"}, {"secret:h", "pillar_pcre"}, {"h", "pillar_pcre"}, {"*:hunter2*", "pillar"},
		{"web1 and I@secret:h*", "compound"}, {"web1 and not I@secret:h*", "compound"}, {"web1 or I@secret:h*", "compound"}, {"I|@secret|h*", "compound"},
		{"J@secret:h.*", "compound"}, {"J|@secret|h.*", "compound"}, {"( not ( J@secret:h ) ) and web1", "compound"}, {"web1 and I@role:web* and not I@secret:h*", "compound"},
		{"web1\x1cand\x1cI@secret:h*", "compound"}, {"I@secret:h*", "compound_pillar_exact"}, {"secret:*", "pillar_exact"},
	} {
		yes, no := ask("hunter2", c.tgt, c.typ), ask("swordfish", c.tgt, c.typ)
		if yes != no {
			t.Errorf("%s %s tells of the secret: %s, or %s", c.typ, c.tgt, yes, no)
		}
		if !strings.Contains(yes, "is a pattern for values of pillars") {
			t.Errorf("%s %s: %s", c.typ, c.tgt, yes)
		}
	}

	for _, c := range []struct{ tgt, typ string }{
		{"secret:hunter2", "pillar"}, {"web1 and I@secret:hunter2", "compound"},
		{"I@role:web* and not J@role:w.*x", "compound"}, {"web1 and I@role:web*", "compound"}, {"role:web*", "pillar"}, {"N@webs", "compound"},
	} {
		if got := ask("hunter2", c.tgt, c.typ); !strings.Contains(got, "'web1'") {
			t.Errorf("%s %s: %s", c.typ, c.tgt, got)
		}
	}
}

// TestJobsOfAUserAreBounded: a user without all rights puts so much into the job cache and
// no more, others are not concerned, he can follow the jobs that he has, and a restart
// changes nothing (finding 14 of the second audit).
func TestJobsOfAUserAreBounded(t *testing.T) {
	t.Parallel()
	options := limitedUser + "saltern_user_job_quota: 1\nkeep_jobs_seconds: 360000\npeer:\n  web1: [test.ping]\n"
	r := mastertest.Start(t, options)
	web := r.AcceptedMinion("web1", "min8")
	big, session := strings.Repeat("x", 200<<10), value.NewMap("token", logInUser(r, "alice")) // large loads need one
	jobs := 0
	for range 10 {
		a := publishLimited(r, "alice", session, "fun", "cmd.run", "arg", []any{big})
		if started(a) != "" {
			jobs++
			continue
		}

		if text := sentence(a); !strings.Contains(text, "saltern_user_job_quota") || !strings.Contains(text, "wait") {
			t.Errorf("the refusal says %q", text)
		}
	}

	if jobs != 4 {
		t.Fatalf("%d jobs of 200 KiB in a quota of 1 MiB", jobs)
	}

	if a := publishLimited(r, "alice", value.NewMap(), "fun", "saltutil.find_job", "arg",
		[]any{"20261123011500123456"}); started(a) == "" {
		t.Errorf("she cannot follow her jobs: %v", a)
	}

	if a := publishLimited(r, "alice", session, "fun", "saltutil.find_job", "arg", []any{big}); started(a) != "" {
		t.Error("find_job takes any argument")
	}

	if a := publishLimited(r, "bob", value.NewMap()); started(a) == "" {
		t.Errorf("bob is refused: %v", a)
	}

	r.Publish("*", "cmd.run", "arg", []any{big, big, big, big, big})
	for _, c := range []struct {
		arg string
		may bool
	}{{"x", true}, {strings.Repeat(big, 6), false}} {
		var answer *value.Map
		await.That(t, "an answer to a minion's job", func() bool { // a busy machine leaves it out after 3 s
			load := web.Load("minion_pub", "fun", "test.ping", "arg", []any{c.arg}, "no_parse", []any{"arg"},
				"tgt", "*", "tgt_type", "glob", "ret", "")
			b, err := web.Send(web.Payload(load))
			if err != nil {
				return false
			}
			v, _ := web.Open(b, load.Str("nonce"))
			answer, _ = v.(*value.Map)
			return true
		})
		if (answer.Len() > 0) != c.may {
			t.Errorf("a job of a minion with %d bytes: %v", len(c.arg), answer)
		}
	}

	if n := r.Parts.Launch.Stats().OverQuota; n != 8 {
		t.Errorf("%d counted", n)
	}

	r = r.Restart(options)
	if a := publishLimited(r, "alice", session, "fun", "cmd.run", "arg", []any{big}); started(a) != "" {
		t.Error("a restart gives the quota back")
	}
}

// TestTokensOfAUserAreBounded: of more than saltern_user_sessions the oldest end, and nobody
// else's (finding 13 of the second audit).
func TestTokensOfAUserAreBounded(t *testing.T) {
	t.Parallel()
	options := limitedUser + "saltern_user_sessions: 20\n"
	r := mastertest.Start(t, options)
	good := func(token string) bool {
		v, _ := r.AskInClear("get_token", "token", token).(*value.Map)
		return v.Str("name") != ""
	}

	bob := logInUser(r, "bob")
	var tokens []string
	many := func() {
		for range 60 {
			tokens = append(tokens, logInUser(r, "alice"))
		}

		files, err := filepath.Glob(r.Path("cache", "tokens", "*.p"))
		check.Must(t, err)
		if len(files) > 23 {
			t.Errorf("%d files of two users", len(files))
		}

		for i, token := range tokens {
			if newest := i >= len(tokens)-20; newest && !good(token) || i < len(tokens)-22 && good(token) {
				t.Errorf("token %d of %d: good %v", i, len(tokens), !newest)
			}
		}
	}

	many()
	r = r.Restart(options)
	check.Must(t, r.Parts.Callers.Tokens.Clean(time.Now())) // as it is done at the start, and then every few minutes
	many()

	if !good(bob) {
		t.Error("bob is logged out")
	}
}

// TestNameOfTheDirectory: a user of a directory is one and the same to all lists, to jobs and
// to the audit record, however he writes his name (finding 22 of the second audit).
func TestNameOfTheDirectory(t *testing.T) {
	t.Parallel()
	s := slapd.Start(t, slapd.People())
	r := mastertest.Start(t, `auth.ldap.uri: `+s.URI+`
auth.ldap.basedn: `+slapd.Suffix+`
auth.ldap.binddn: uid={{ username }},ou=People,`+slapd.Suffix+`
publisher_acl_blacklist: {users: [bob]}
token_expire_user_override: {ldap: [ann]}
external_auth:
  ldap: {ann: [test.ping], bob: [test.ping]}
`)

	r.AcceptedMinion("web1", "min8")
	for _, wrote := range []string{"ann", "ANN", "Ann"} {
		m, _ := r.AskInClear("mk_token", "eauth", "ldap", "username", wrote, "password", "secret of ann",
			"token_expire", 7).(*value.Map)
		start, _ := m.Value("start").(float64)
		expire, _ := m.Value("expire").(float64)
		if m.Str("name") != "ann" || expire-start != 7 {
			t.Errorf("the token of %s: %v", wrote, mastertest.PlainMap(m))
		}

		for how, kwargs := range map[string]*value.Map{
			"a token":    value.NewMap("token", m.Str("token")),
			"a password": value.NewMap("eauth", "ldap", "username", wrote, "password", "secret of ann"),
		} {
			jid := jobPublishedBy(r, kwargs)
			if jid == "" || functionOf(r, jid) != "test.ping of ann" {
				t.Errorf("%s by %s started %q", wrote, how, jid)
			}
		}
	}

	for _, wrote := range []string{"bob", "BOB", "bOb"} {
		m, _ := r.AskInClear("mk_token", "eauth", "ldap", "username", wrote, "password", "secret of bob").(*value.Map)
		for _, kwargs := range []*value.Map{value.NewMap("token", m.Str("token")),
			value.NewMap("eauth", "ldap", "username", wrote, "password", "secret of bob")} {
			if jid := jobPublishedBy(r, kwargs); jid != "" {
				t.Errorf("%s is on the blacklist and started %s", wrote, jid)
			}
		}
	}

	r.Parts.Audit.Close()
	records, err := os.ReadDir(r.Path("cache", "audit"))
	check.Must(t, err)
	for _, f := range records {
		b, err := os.ReadFile(r.Path("cache", "audit", f.Name()))
		check.Must(t, err)
		if strings.Contains(string(b), `"ANN"`) || strings.Contains(string(b), `"BOB"`) {
			t.Errorf("the audit record knows two users: %s", b)
		}
	}
}

// jobPublishedBy returns the job id of a test.ping on web1 with these credentials, or "".
func jobPublishedBy(r *mastertest.Master, kwargs *value.Map) string {
	r.T.Helper()
	v, _ := r.AskInClear("publish", "tgt", "web1", "fun", "test.ping", "arg", []any{}, "tgt_type", "glob", "ret",
		"", "jid", "", "user", "nobody", "kwargs", kwargs).(*value.Map)
	return started(v)
}
