package minions

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"saltern/master/cache"
	"saltern/master/crypt"
	"saltern/master/event"
	"saltern/master/internal/mastertest"
	"saltern/master/internal/minion"
	"saltern/master/jobs"
	"saltern/master/keys"
	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/master/zmtp"
	"saltern/test/await"
	"saltern/test/check"
)

func TestAttack04DataOfOthers(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "")
	a, b := r.AcceptedMinion("min1", "min6"), r.AcceptedMinion("min2", "min7")
	b.Ask("_mine", "data", value.NewMap("f", "theirs"))
	b.Pillar("grains", value.NewMap("id", "min2", "role", "db"))
	r.ListenToBus()
	jid := r.Publish("*", "test.ping").Str("jid")
	r.NewEvents()
	ret := func(more ...any) []any {
		return append([]any{"jid", jid, "fun", "test.ping", "fun_args", []any{}, "retcode", 0, "success", true},
			more...)
	}

	lie := value.NewMap("id", "min2", "return", "forged", "jid", jid)
	for _, c := range []struct {
		cmd    string
		fields []any
	}{
		{"_return", ret("return", "forged", "resource_id", "min2")},
		{"_return", ret("return", lie, "load", []any{lie}, "minion_id", "min2", "minion", "min2", "out", "nested")},
		{"_return", ret("load", []any{lie}, "data", lie)},
		{"_syndic_return",
			[]any{"load",
				[]any{value.NewMap("id", "min2", "jid", jid, "fun", "test.ping", "return",
					value.NewMap("min2", value.NewMap("return", "forged")))}}},
		{"_syndic_return",
			[]any{"load",
				[]any{value.NewMap("id", "min2", "jid", jid, "fun", "test.ping", "load",
					value.NewMap("fun", "forged"), "return",
					value.NewMap("ghost", value.NewMap("return", "forged", "id", "min2")))}}},
		{"_syndic_return", ret("return", value.NewMap("ghost", value.NewMap("return", "forged")))},
		{"_mine", []any{"data", value.NewMap("f", "forged", "id", "min2"), "minion", "min2", "clear", true}},
		{"_mine_delete", []any{"fun", "f", "tgt", "min2", "minion", "min2"}},
		{"_mine_flush", []any{"tgt", "min2", "minion", "min2"}},
		{"_register_resources",
			[]any{"resources", value.NewMap("min2", []any{"min2"}, "ssh", []any{"../min2", "min2"}), "minion", "min2"}},
		{"_minion_event",
			[]any{"tag", "custom/a", "data", value.NewMap("id", "min2"), "grains", value.NewMap("id", "min2")}},
		{"_minion_event",
			[]any{"events",
				[]any{value.NewMap("tag", "custom/b", "data", value.NewMap("id", "min2")),
					value.NewMap("tag", "custom/c", "id", "min2")},
				"pretag", nil}},
		{"_minion_event", []any{"tag", "salt/minion/min2/start", "data", "started"}},
		{"_pillar",
			[]any{"grains", value.NewMap("id", "min2", "role", "forged"), "saltenv", nil, "pillarenv", nil,
				"minion", "min2"}},
		{"pub_ret", []any{"jid", jid}},
	} {
		l := a.Load(c.cmd, c.fields...)
		answer, err := a.Send(a.Payload(l))
		check.Must(t, err)
		if v := mastertest.Unpack(t, answer); v == "bad load" {
			t.Errorf("%s: the harness sends what is refused anyway", c.cmd)
		}

		// The same for the other minion outright.
		a.WantRefused(c.cmd, a.Sealed("min1", a.Session, a.Load(c.cmd, append(c.fields, "id", "min2")...)))
	}

	for _, e := range r.NewEvents() {
		if strings.Contains(e.Tag, "min2") || strings.Contains(e.Tag, "ghost") {
			t.Errorf("event %q", e.Tag)
		}
		if id, has := e.Data.Get("id"); has && id != "min1" {
			t.Errorf("event %q in the name of %v", e.Tag, id)
		}
	}

	rets, err := r.Parts.Jobs.Returns(t.Context(), jid)
	check.Must(t, err)
	if got := rets.Keys(); !slices.Equal(got, []string{"min1"}) {
		t.Errorf("returns of %q", got)
	}

	if v, _ := r.Parts.Cache.Get(cache.Mine, "min2"); v.Str("f") != "theirs" {
		t.Errorf("mine of min2: %v", v)
	}

	if v, _ := r.Parts.Cache.Get(cache.Grains, "min2"); v.Str("role") != "db" {
		t.Errorf("grains of min2: %v", v)
	}

	if v, _ := r.Parts.Cache.Get(cache.Grains, "min1"); v.Str("id") != "min1" {
		t.Errorf("grains of min1: %v", v)
	}

	// The other one's own return is still taken.
	b.Ask("_return", ret("return", "mine")...)
	if rets, err = r.Parts.Jobs.Returns(t.Context(), jid); err != nil || rets.Map("min2").Str("return") != "mine" {
		t.Errorf("return of min2: %v, %v", rets.Map("min2"), err)
	}
}

// With order_masters a lower master speaks for its minions, and still not for
// ours.
func TestAttack04Syndics(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "order_masters: True\n")
	a := r.AcceptedMinion("syndic", "min6")
	r.AcceptedMinion("min2", "min7")
	jid := r.Publish("*", "test.ping").Str("jid")
	r.ListenToBus()

	for _, id := range append(hostileNames(), "min2", "far") {
		a.Ask("_syndic_return", "load",
			[]any{value.NewMap("id", "syndic", "jid", jid, "fun", "test.ping", "return",
				value.NewMap(id, value.NewMap("return", "theirs", "id", "min2", "jid", attackJID)))})
	}

	rets, err := r.Parts.Jobs.Returns(t.Context(), jid)
	check.Must(t, err)
	for _, id := range rets.Keys() {
		if keys.ValidID(id) != nil || id == "min2" {
			t.Errorf("a syndic returned for %.40q", id)
		}
	}

	if rets, err = r.Parts.Jobs.Returns(t.Context(), attackJID); err != nil {
		t.Error(err)
	}

	for _, id := range rets.Keys() {
		if keys.ValidID(id) != nil || id == "min2" {
			t.Errorf("a syndic returned for %.40q in another job", id)
		}
	}

	for _, e := range r.NewEvents() {
		if strings.HasSuffix(e.Tag, "/ret/min2") || e.Data.Str("id") == "min2" {
			t.Errorf("event %q", e.Tag)
		}
	}
}

// TestJobBegunBelowASyndic: the load that a syndic sends with the first returns of a job of its own
// master is the job's load here, with the minions below. It never replaces the load of a job of this
// master, and has no marks that only this master makes.
func TestJobBegunBelowASyndic(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "order_masters: True\n")
	syndic := r.AcceptedMinion("syndic", "min6")
	r.AcceptedMinion("min2", "min7")
	tell := func(jid string, load *value.Map) {
		syndic.Ask("_syndic_return", "load", []any{value.NewMap(
			"id", "syndic", "jid", jid, "fun", "test.echo", "arg", nil, "tgt", nil, "tgt_type", nil, "load", load,
			"return", value.NewMap("below", value.NewMap("return", "hi", "retcode", int64(0), "success", true,
				"fun_args", []any{"hi"})))})
	}

	load := func(jid string) *value.Map { // as get_load of Salt's local_cache returns it
		return value.NewMap("cmd", "publish", "tgt", "below*", "fun", "test.echo", "arg", []any{"hi"}, "tgt_type", "glob",
			"jid", jid, "user", "ann", "ret", "", "kwargs", value.NewMap(), "Minions", []any{"below", "below2", "min2", "../x"})
	}

	const begun = "20260102030405678931"
	hostile := load(begun)
	hostile.Update(value.NewMap("key", "secret", "only_minions", true, "account", "ann", "saltern_eauth", "pam",
		"chosen_jid", true, "saltern_batch", value.NewMap("minions", int64(9), "size", int64(1)), "saltern_saved", value.NewMap("job", "x"), "jid", attackJID))
	r.ListenToBus()
	r.NewEvents() // the reader is there
	tell(begun, hostile)
	var users []string
	for _, e := range r.NewEvents() {
		if e.Tag == event.Tag("job", begun, "ret", "below") {
			users = append(users, e.Data.Str("user"))
		}
	}
	if !slices.Equal(users, []string{"ann"}) {
		t.Errorf("the return names the users %q", users)
	}

	got, err := r.Parts.Jobs.Load(t.Context(), begun)
	check.Must(t, err)
	want := load(begun)
	want.Set("Minions", []any{"below", "below2"})
	if value.Repr(got) != value.Repr(want) {
		t.Errorf("load %s\nwant %s", value.Repr(got), value.Repr(want))
	}
	rets, err := r.Parts.Jobs.Returns(t.Context(), begun)
	if err != nil || rets.Map("below").Str("return") != "hi" {
		t.Errorf("returns %v, %v", rets, err)
	}

	// A later load does not replace it, nor does one of a job of this master.
	ours := r.Publish("min2", "test.ping").Str("jid")
	for _, jid := range []string{begun, ours} {
		before, err := r.Parts.Jobs.Load(t.Context(), jid)
		check.Must(t, err)
		forged := load(jid)
		forged.Set("fun", "cmd.run")
		tell(jid, forged)
		after, err := r.Parts.Jobs.Load(t.Context(), jid)
		check.Must(t, err)
		if value.Repr(after) != value.Repr(before) {
			t.Errorf("job %s became %v", jid, after)
		}
	}

	// The load may come after returns without one.
	const late = "20260102030405678932"
	tell(late, value.NewMap())
	tell(late, load(late))
	if got, err := r.Parts.Jobs.Load(t.Context(), late); err != nil || got.Str("tgt") != "below*" {
		t.Errorf("load after the returns: %v, %v", got, err)
	}
	if got, err := r.Parts.Jobs.Load(t.Context(), attackJID); err != nil || got != nil {
		t.Errorf("a load was kept for the job in the load: %v, %v", got, err)
	}
}

// TestReturnMarksNoJob: a return of a job that no master knows becomes its load, without the marks that only masters set.
func TestReturnMarksNoJob(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, loud)
	a := r.AcceptedMinion("min1", "min6")
	const jid = "20260102030405678941"
	a.Ask("_return", "jid", jid, "fun", "test.ping", "fun_args", []any{}, "return", true, "retcode", 0, "account", "ann",
		"saltern_eauth", "pam", "only_minions", true, "chosen_jid", true,
		"saltern_batch", value.NewMap("minions", int64(9), "size", int64(1)), "saltern_saved", value.NewMap("job", "x"),
		"saltern_refused", true)
	load, err := r.Parts.Jobs.Load(t.Context(), jid)
	check.Must(t, err)
	if load.Str("fun") != "test.ping" {
		t.Fatalf("the return is not kept: %s", value.Repr(load))
	}
	for _, mark := range append(jobs.OwnFields(), event.EauthField, event.RefusedField) {
		if v, set := load.Get(mark); set {
			t.Errorf("the minion has set %s to %v", mark, v)
		}
	}
}

// TestMinionsBelowASyndic: a syndic reports to whom it gave a job, in the words of 3007 and of 3008. The
// job lists these minions, and tools get the event of 3007. Minions of this master, unknown jobs and
// the name of another syndic are no business of its.
func TestMinionsBelowASyndic(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "order_masters: True\n")
	a := r.AcceptedMinion("syndic", "min6")
	r.AcceptedMinion("min2", "min7")
	jid := r.Publish("*", "test.ping").Str("jid")
	r.ListenToBus()

	said := func(tag string, ids ...any) {
		a.Ask("_minion_event", "events",
			[]any{value.NewMap("tag", tag, "data", value.NewMap("minions", ids, "fun", "test.ping"))}, "pretag", "syndic/syndic")
	}
	said(jid, "old1", "min2")
	said("salt/job/"+jid+"/new", append([]any{"new1", "old1"}, anyNames(hostileNames())...)...)
	said("salt/job/"+attackJID+"/new", "stranger")
	said("salt/job/"+jid+"/publish", "publish1")
	said("salt/job/"+jid+"/new/ret", "ret1")
	a.Ask("_minion_event", "events", []any{value.NewMap("tag", "salt/job/"+jid+"/new",
		"data", value.NewMap("minions", []any{"elsewhere1"}))}, "pretag", "syndic/another")

	load, err := r.Parts.Jobs.Load(t.Context(), jid)
	check.Must(t, err)
	for _, id := range load.Texts("Minions") {
		if keys.ValidID(id) != nil || slices.Contains([]string{"stranger", "publish1", "ret1", "elsewhere1"}, id) {
			t.Errorf("the job lists %.40q", id)
		}
	}
	for _, id := range []string{"syndic", "min2", "old1", "new1"} {
		if !slices.Contains(load.Texts("Minions"), id) {
			t.Errorf("the job does not list %s: %v", id, load.Texts("Minions"))
		}
	}
	await.That(t, "the job says which of its minions is a syndic", func() bool {
		listed, err := r.Parts.Runs.Call(t.Context(), "jobs.list_job", []any{jid}, nil)
		check.Must(t, err)
		job, _ := listed.(*value.Map)
		return slices.Equal(job.Texts("Syndics"), []string{"syndic"})
	})
	if load, err = r.Parts.Jobs.Load(t.Context(), attackJID); err != nil || load != nil {
		t.Errorf("a job of a syndic's making: %v, %v", load, err)
	}

	var told []string
	for _, e := range r.NewEvents() {
		switch {
		case e.Tag == "syndic/syndic/"+jid:
			told = append(told, e.Data.Texts("minions")...)
		case strings.HasPrefix(e.Tag, "syndic/"):
			t.Errorf("event %q", e.Tag)
		}
	}
	if len(told) < 3 || told[0] != "old1" || told[1] != "new1" || slices.Contains(told, "min2") {
		t.Errorf("tools are told of %v", told)
	}
}

func anyNames(names []string) []any {
	list := make([]any, len(names))
	for i, name := range names {
		list[i] = name
	}
	return list
}

// tags that no minion may fire.
func forbiddenTags() []string {
	j := attackJID
	tags := []string{"salt/key", "salt/auth", "key", "salt/job/" + j + "/new", "salt/job/" + j + "/publish",
		"salt/job/" + j + "/ret/min1", "salt/job/" + j + "/ret/min2",
		"salt/job/" + j + "/prog/min2/1", "salt/job/" + j +
			"/start/min2", "salt/job/" + j + "/error", "salt/job/" + j + "/sub/min1/error/state.sls", j,
		"salt/run/" + j + "/new", "salt/run/" + j +
			"/ret", "salt/run/" + j + "/args", "salt/wheel/" + j +
			"/new", "salt/wheel/" + j + "/ret", "salt/cloud/vm/created",
		"salt/presence/present", "salt/presence/change", "salt/master/m1/start", "salt/minion/min2/start", "salt/beacon/min2/load/", "salt/engines/min2/x",
		"salt/fileserver/roots/update", "salt/fileserver/gitfs/update", "salt/netapi/hook/x", "salt/state_result/min2/x", "syndic/min1", "minion/refresh/min2",
		"resource/refresh/min2", "salt/stats/m1", "salt", "salt/", "master/x", "auth/x"}

	tags = append(tags, clusterTags()...)
	for _, t := range slices.Clone(tags) { // other spellings of the same
		if strings.Contains(t, "/") {
			tags = append(tags, "/"+t, strings.Replace(t, "/", "//", 1), strings.ToUpper(t[:1])+t[1:], " "+t,
				t+"\n\nx", strings.Replace(t, "/", "/./", 1))
		}
	}

	return tags
}

func clusterTags() []string {
	return []string{"cluster/peer", "cluster/peer/m2/join", "cluster/peer/discover", "cluster/peer/m2/aes",
		"cluster/raft/vote", "salt/cluster/peer/m2", "salt/cluster/rotate", "cluster/event",
		"raft/append"}
}

func TestAttack05EventForms(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "")
	a := r.AcceptedMinion("min1", "min6")
	r.ListenToBus()
	data := value.NewMap("id", "min2", "result", true)
	forms := map[string]func(tag string) []any{
		"single": func(tag string) []any { return []any{"tag", tag, "data", data, "pretag", nil} },
		"list": func(tag string) []any {
			return []any{"events", []any{value.NewMap("tag", tag, "data", data)}, "pretag", nil}
		},
		"pretag": func(tag string) []any {
			pre, last, _ := strings.Cut(tag, "/")
			return []any{"events", []any{value.NewMap("tag", last, "data", data)}, "pretag", pre}
		},
		"late pretag": func(tag string) []any {
			i := max(strings.LastIndexByte(tag, '/'), 0)
			return []any{"events",
				[]any{value.NewMap("tag", strings.TrimPrefix(tag[i:], "/"), "data", data)}, "pretag",
				tag[:i]}
		},
		"empty tag": func(tag string) []any {
			return []any{"events", []any{value.NewMap("tag", "", "data", data)}, "pretag", tag}
		},
		"single with pretag": func(tag string) []any { return []any{"tag", "x", "data", data, "pretag", tag} },
		"both": func(tag string) []any {
			return []any{"tag", tag, "data", data, "events", []any{value.NewMap("tag", tag)}}
		},
		"bytes": func(tag string) []any {
			return []any{"events", []any{value.NewMap("tag", []byte(tag+"\xff"), "data", data)}}
		},
	}

	forbidden := forbiddenTags()
	for name, form := range forms {
		for _, tag := range forbidden {
			a.Ask("_minion_event", form(tag)...)
		}

		for _, e := range r.NewEvents() {
			low := strings.ToLower(strings.Trim(e.Tag, "/ "))
			for _, f := range forbidden {
				f = strings.ToLower(strings.Trim(f, "/ "))
				if low == f || strings.HasPrefix(low, f+"/") {
					t.Errorf("%s: %q arrived", name, e.Tag)
				}
			}

			if first, _, _ := strings.Cut(low, "/"); minion.Reserved(first) || e.Data.Str("id") == "min2" {
				t.Errorf("%s: %q arrived with %v", name, e.Tag, e.Data)
			}
		}
	}

	// What a minion may fire arrives, in each form.
	for _, tag := range []string{"salt/minion/min1/start", "salt/job/" + attackJID + "/prog/min1/1",
		"salt/beacon/min1/load/x", "custom/thing"} {
		for _, name := range []string{"single", "list", "pretag", "late pretag"} {
			a.Ask("_minion_event", forms[name](tag)...)
			if got := mastertest.TagsOf(r.NewEvents()); !slices.Contains(got, tag) {
				t.Errorf("%s: %q did not arrive, only %q", name, tag, got)
			}
		}
	}

	// Failed states make events whose tags come from the minion.
	states := value.NewMap()
	for i, tag := range forbidden {
		states.Set(fmt.Sprintf("%s_|-a_|-b_|-ret", tag), value.NewMap("result", false))
		states.Set(fmt.Sprintf("x%d_|-a_|-b_|-y/%s", i, tag), value.NewMap("result", false))
	}

	states.Set("pkg_|-a_|-b_|-installed", value.NewMap("result", false))
	a.Ask("_return", "jid", attackJID, "fun", "state.sls", "fun_args", []any{}, "return", states, "retcode",
		2, "success", false)
	var real bool
	for _, tag := range mastertest.TagsOf(r.NewEvents()) {
		if tag == "pkg.installed" {
			real = true
			continue
		}

		if tag != "salt/job/"+attackJID+"/ret/min1" &&
			tag != "salt/job/"+attackJID+"/sub/min1/error/state.sls" && strings.ContainsAny(tag, "/ \n") {
			t.Errorf("a state caused %q", tag)
		}
	}

	if !real {
		t.Error("no event of the failed state pkg.installed")
	}

	// Job ids of returns become part of a tag.
	for _, jid := range []any{"x/../../key", "20260102030405678901/new", "20260102030405678901\n\n", "", nil,
		int64(1), []any{attackJID}, "../" + attackJID, attackJID + "_x"} {
		a.Ask("_return", "jid", jid, "fun", "test.ping", "fun_args", []any{}, "return", true, "retcode", 0)
	}

	r.WantQuiet("bad job ids")
}

func TestAttack06PeerTags(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "")
	a := r.AcceptedMinion("min1", "min6")
	sub := r.Parts.Bus.Subscribe("test", 1000, event.Prefix("cluster/", "salt/cluster/", "raft/"))
	defer sub.Close()

	for _, tag := range clusterTags() {
		a.Ask("_minion_event", "tag", tag, "data", value.NewMap("x", 1))
		a.Ask("_minion_event", "events", []any{value.NewMap("tag", tag, "data", value.NewMap("x", 1))},
			"pretag", "cluster")
	}

	if n := len(sub.C); n != 0 {
		t.Errorf("%d peer events from a minion", n)
	}

	before := r.Snapshot()

	// A local program may put any tag on the bus; it must never look like our
	// own or a peer's.
	s := event.NewSender(r.Path("run"))
	defer s.Close()
	for _, tag := range clusterTags() {
		check.Must(t, s.Fire(await.Context(t), tag, value.NewMap("__peer_id", "m2", "peer", "m2")))
	}

	for range clusterTags() {
		if e := <-sub.C; e.Origin != event.Socket {
			t.Errorf("%q counts as %s", e.Tag, e.Origin)
		}
	}

	r.WantUnchanged("peer tags", before)
}

func TestAttack08Replay(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, loud)
	a := r.AcceptedMinion("min1", "min6")
	r.ListenToBus()
	sub := r.Subscribe()
	first := r.Publish("*", "test.ping").Str("jid")
	r.NewEvents()

	for _, c := range []struct {
		cmd, tag string
		fields   []any
		want     int
	}{
		{"_return", "salt/job/" + first + "/ret/min1",
			[]any{"jid", first, "fun", "test.ping", "fun_args", []any{}, "return", true, "retcode", 0}, 1},
		{"_return", "", []any{"jid", "req", "fun", "test.ping", "fun_args", []any{}, "return", true, "retcode", 0}, 1},
		{"_minion_event", "custom/x", []any{"tag", "custom/x", "data", value.NewMap("a", 1)}, 1},
		{"minion_pub", "", []any{"fun", "test.ping", "arg", []any{}, "tgt", "*", "ret", "", "tgt_type", "glob"}, 2},
		{"_mine", "", []any{"data", value.NewMap("f", 1)}, 0},
		{"_file_recv", "", []any{"path", []any{"a"}, "loc", 0, "size", 1, "data", "x"}, 0},
	} {
		l := a.Load(c.cmd, c.fields...)
		recorded := a.Payload(l)
		sub.Published()
		original, err := a.Send(recorded)
		check.Must(t, err)
		body, _ := a.Open(original, l.Str("nonce"))
		effects := r.NewEvents()
		if len(effects) != c.want || (c.tag != "" && effects[0].Tag != c.tag) {
			t.Fatalf("%s: %q", c.cmd, mastertest.TagsOf(effects))
		}

		before, pubs := r.Snapshot(), len(sub.Published())

		// Again on the same and on other connections, many at once.
		var wg sync.WaitGroup
		answers := make([][]byte, 20)
		for i := range answers {
			wg.Go(func() { answers[i], _ = r.AskRaw(recorded) })
		}

		wg.Wait()
		again, err := a.Send(recorded)
		check.Must(t, err)
		for _, b := range append(answers, again) {
			if v, ok := a.Open(b, l.Str("nonce")); !ok || fmt.Sprint(shape(v)) != fmt.Sprint(shape(body)) {
				t.Errorf("%s: replay is answered %v, not %v", c.cmd, v, body)
			}
		}

		r.WantQuiet(c.cmd + " replayed")
		if p := sub.Published(); len(p) > 0 {
			t.Errorf("%s: a replay was published (%d before)", c.cmd, pubs)
		}

		r.WantUnchanged(c.cmd+" replayed", before)

		// An answer is good for its own request only.
		blob := mastertest.Unpack(t, original).([]byte)
		if _, err := a.Session.OpenReply(blob, mastertest.NewNonce()); err != crypt.ErrNonce {
			t.Errorf("%s: answer opens with another nonce: %v", c.cmd, err)
		}
	}

	// A sign-in replayed tells the thief nothing and changes nothing.
	load := a.SignInLoad()
	env := mastertest.Pack(t, value.NewMap("enc", "clear", "load", load, "version", 3))
	for range 2 {
		b, err := r.AskRaw(env)
		check.Must(t, err)
		if bytes.Contains(b, []byte(a.Session.String())) || bytes.Contains(b, []byte(a.AES.String())) {
			t.Error("a key travels in the clear")
		}
		a.ReadSignIn(load, mastertest.Unpack(t, b))
	}

	a.Ask("_file_envs")

	// Publishes carry a serial that rises, so that a minion can refuse old ones.
	sub.Published()
	last := int64(0)
	for range 5 {
		r.Publish("*", "test.ping")
	}

	for _, p := range sub.Published() {
		n, ok := a.OpenPublication(p).Int("serial")
		if !ok || n <= last {
			t.Errorf("serial %d after %d", n, last)
		}
		last = n
	}
}

// shape makes an answer comparable.
func shape(v any) any {
	if m, ok := v.(*value.Map); ok {
		return fmt.Sprint(string(mustPack(m)))
	}
	return v
}

func mustPack(v any) []byte { b, _ := msgpack.Marshal(v, msgpack.Raw); return b }

func TestAttack09SameIdentity(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "")
	a, b := r.AcceptedMinion("min1", "min6"), r.AcceptedMinion("min2", "min7")
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			ctx := await.Context(t)
			c, err := zmtp.DialReq(ctx, r.RequestAddress, zmtp.DialConfig{Identity: "the same for all"})
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()

			for j := range 10 {
				mine := fmt.Sprintf("%d/%d", i, j)
				got, err := c.Do(ctx,
					mustPack(value.NewMap("enc", "clear", "load", value.NewMap("cmd", "ping", "x", mine),
						"version", 3)))
				if err != nil {
					t.Error(err)
					return
				}

				if v, _ := msgpack.Decode(got, msgpack.DefaultLimits); v.(*value.Map).Str("x") != mine {
					t.Errorf("%s got %v", mine, v)
				}

				n := []*mastertest.Minion{a, b}[i%2]
				l := n.Load("_mine_get", "tgt", mine, "fun", "f")
				if got, err = c.Do(ctx, n.Payload(l)); err != nil {
					t.Error(err)
					return
				}

				v, _ := msgpack.Decode(got, msgpack.DefaultLimits)
				blob, _ := v.([]byte)
				if _, err := n.Session.OpenReply(blob, l.Str("nonce")); err != nil {
					t.Errorf("%s: %v", mine, err)
				}
			}
		})
	}

	wg.Wait()
}

// Everything that a minion acts upon is signed, whatever it asks for.
func TestAttack10Signatures(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "")
	a := r.AcceptedMinion("min1", "min6")
	pending, rejected := r.NewMinion("min2", "min7"), r.NewMinion("min3", "min8")
	rejected.SignIn()
	check.Must(t, os.Rename(filepath.Join(r.Dir, "pki/minions_pre/min3"), filepath.Join(r.Dir, "pki/minions_rejected/min3")))
	r.Parts.Keys.Refresh("min3")

	// signIn, pillar and openPublish verify signatures.
	if s := pending.SignIn(); s.Bool("ret") != true {
		t.Errorf("pending: %v", s)
	}

	if s := rejected.SignIn(); s.Value("ret") != false {
		t.Errorf("rejected: %v", s)
	}

	a.Pillar()
	sub := r.Subscribe()
	r.Publish("*", "test.ping")
	for _, p := range sub.Published() {
		a.OpenPublication(p)
	}

	for _, algo := range []string{"", "none", "PKCS1v15-MD5", "PSS-SHA256", "PKCS1v15-SHA1\x00"} {
		l := a.SignInLoad()
		l.Set("sig_algo", algo)
		v := r.AskValue(value.NewMap("enc", "clear", "load", l, "version", 3))
		m, ok := v.(*value.Map)
		if !ok || m.Map("load").Str("ret") != "bad sig algo" {
			t.Errorf("sig_algo %q: %v", algo, v)
		}

		env := mastertest.Unpack(t, a.Payload(a.Load("_pillar", "grains", value.NewMap("id", "min1")))).(*value.Map)
		env.Set("sig_algo", algo)
		b, err := a.Send(mastertest.Pack(t, env))
		check.Must(t, err)

		if m, ok := mastertest.Unpack(t, b).(*value.Map); ok && algo != "" && m.Len() > 0 {
			t.Errorf("pillar with sig_algo %q: %v", algo, m)
		}
	}
}
