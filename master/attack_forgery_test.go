package master

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
	"saltern/master/internal/minion"
	"saltern/master/keys"
	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/master/zmtp"
)

func TestAttack04DataOfOthers(t *testing.T) {
	t.Parallel()
	r := startMaster(t, "")
	a, b := r.accepted("min1", "min6"), r.accepted("min2", "min7")
	b.ask("_mine", "data", value.NewMap("f", "theirs"))
	b.pillar("grains", value.NewMap("id", "min2", "role", "db"))
	r.listen()
	jid := r.job("*", "test.ping").Str("jid")
	r.seen()
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
		l := a.load(c.cmd, c.fields...)
		answer, err := a.send(a.payload(l))
		must(t, err)
		if v := unpack(t, answer); v == "bad load" {
			t.Errorf("%s: the harness sends what is refused anyway", c.cmd)
		}

		// The same for the other minion outright.
		a.refused(c.cmd, a.sealed("min1", a.session, a.load(c.cmd, append(c.fields, "id", "min2")...)))
	}

	for _, e := range r.seen() {
		if strings.Contains(e.Tag, "min2") || strings.Contains(e.Tag, "ghost") {
			t.Errorf("event %q", e.Tag)
		}
		if id, has := e.Data.Get("id"); has && id != "min1" {
			t.Errorf("event %q in the name of %v", e.Tag, id)
		}
	}

	rets, err := r.m.jobs.Returns(t.Context(), jid)
	must(t, err)
	if got := rets.Keys(); !slices.Equal(got, []string{"min1"}) {
		t.Errorf("returns of %q", got)
	}

	if v, _ := r.m.cache.Get(cache.Mine, "min2"); v.Str("f") != "theirs" {
		t.Errorf("mine of min2: %v", v)
	}

	if v, _ := r.m.cache.Get(cache.Grains, "min2"); v.Str("role") != "db" {
		t.Errorf("grains of min2: %v", v)
	}

	if v, _ := r.m.cache.Get(cache.Grains, "min1"); v.Str("id") != "min1" {
		t.Errorf("grains of min1: %v", v)
	}

	// The other one's own return is still taken.
	b.ask("_return", ret("return", "mine")...)
	if rets, err = r.m.jobs.Returns(t.Context(), jid); err != nil || rets.Map("min2").Str("return") != "mine" {
		t.Errorf("return of min2: %v, %v", rets.Map("min2"), err)
	}
}

// With order_masters a lower master speaks for its minions, and still not for
// ours.
func TestAttack04Syndics(t *testing.T) {
	t.Parallel()
	r := startMaster(t, "order_masters: True\n")
	a := r.accepted("syndic", "min6")
	r.accepted("min2", "min7")
	jid := r.job("*", "test.ping").Str("jid")
	r.listen()

	for _, id := range append(hostileNames(), "min2", "far") {
		a.ask("_syndic_return", "load",
			[]any{value.NewMap("id", "syndic", "jid", jid, "fun", "test.ping", "return",
				value.NewMap(id, value.NewMap("return", "theirs", "id", "min2", "jid", attackJID)))})
	}

	rets, err := r.m.jobs.Returns(t.Context(), jid)
	must(t, err)
	for _, id := range rets.Keys() {
		if keys.ValidID(id) != nil || id == "min2" {
			t.Errorf("a syndic returned for %.40q", id)
		}
	}

	if rets, err = r.m.jobs.Returns(t.Context(), attackJID); err != nil {
		t.Error(err)
	}

	for _, id := range rets.Keys() {
		if keys.ValidID(id) != nil || id == "min2" {
			t.Errorf("a syndic returned for %.40q in another job", id)
		}
	}

	for _, e := range r.seen() {
		if strings.HasSuffix(e.Tag, "/ret/min2") || e.Data.Str("id") == "min2" {
			t.Errorf("event %q", e.Tag)
		}
	}
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
	r := startMaster(t, "")
	a := r.accepted("min1", "min6")
	r.listen()
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
			a.ask("_minion_event", form(tag)...)
		}

		for _, e := range r.seen() {
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
			a.ask("_minion_event", forms[name](tag)...)
			if got := tagsOf(r.seen()); !slices.Contains(got, tag) {
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
	a.ask("_return", "jid", attackJID, "fun", "state.sls", "fun_args", []any{}, "return", states, "retcode",
		2, "success", false)
	var real bool
	for _, tag := range tagsOf(r.seen()) {
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
		a.ask("_return", "jid", jid, "fun", "test.ping", "fun_args", []any{}, "return", true, "retcode", 0)
	}

	r.quiet("bad job ids")
}

func TestAttack06PeerTags(t *testing.T) {
	t.Parallel()
	r := startMaster(t, "")
	a := r.accepted("min1", "min6")
	sub := r.m.bus.Subscribe("test", 1000, event.Prefix("cluster/", "salt/cluster/", "raft/"))
	defer sub.Close()

	for _, tag := range clusterTags() {
		a.ask("_minion_event", "tag", tag, "data", value.NewMap("x", 1))
		a.ask("_minion_event", "events", []any{value.NewMap("tag", tag, "data", value.NewMap("x", 1))},
			"pretag", "cluster")
	}

	if n := len(sub.C); n != 0 {
		t.Errorf("%d peer events from a minion", n)
	}

	before := r.snapshot()

	// A local program may put any tag on the bus; it must never look like our
	// own or a peer's.
	s := event.NewSender(r.path("run"))
	defer s.Close()
	for _, tag := range clusterTags() {
		must(t, s.Fire(within(t), tag, value.NewMap("__peer_id", "m2", "peer", "m2")))
	}

	for range clusterTags() {
		if e := <-sub.C; e.Origin != event.Socket {
			t.Errorf("%q counts as %s", e.Tag, e.Origin)
		}
	}

	r.unchanged("peer tags", before)
}

func TestAttack08Replay(t *testing.T) {
	t.Parallel()
	r := startMaster(t, loud)
	a := r.accepted("min1", "min6")
	r.listen()
	sub := r.subscribe()
	first := r.job("*", "test.ping").Str("jid")
	r.seen()

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
		l := a.load(c.cmd, c.fields...)
		recorded := a.payload(l)
		sub.published()
		original, err := a.send(recorded)
		must(t, err)
		body, _ := a.open(original, l.Str("nonce"))
		effects := r.seen()
		if len(effects) != c.want || (c.tag != "" && effects[0].Tag != c.tag) {
			t.Fatalf("%s: %q", c.cmd, tagsOf(effects))
		}

		before, pubs := r.snapshot(), len(sub.published())

		// Again on the same and on other connections, many at once.
		var wg sync.WaitGroup
		answers := make([][]byte, 20)
		for i := range answers {
			wg.Go(func() { answers[i], _ = r.raw(recorded) })
		}

		wg.Wait()
		again, err := a.send(recorded)
		must(t, err)
		for _, b := range append(answers, again) {
			if v, ok := a.open(b, l.Str("nonce")); !ok || fmt.Sprint(shape(v)) != fmt.Sprint(shape(body)) {
				t.Errorf("%s: replay is answered %v, not %v", c.cmd, v, body)
			}
		}

		r.quiet(c.cmd + " replayed")
		if p := sub.published(); len(p) > 0 {
			t.Errorf("%s: a replay was published (%d before)", c.cmd, pubs)
		}

		r.unchanged(c.cmd+" replayed", before)

		// An answer is good for its own request only.
		blob := unpack(t, original).([]byte)
		if _, err := a.session.OpenReply(blob, newNonce()); err != crypt.ErrNonce {
			t.Errorf("%s: answer opens with another nonce: %v", c.cmd, err)
		}
	}

	// A sign-in replayed tells the thief nothing and changes nothing.
	load := a.signInLoad()
	env := pack(t, value.NewMap("enc", "clear", "load", load, "version", 3))
	for range 2 {
		b, err := r.raw(env)
		must(t, err)
		if bytes.Contains(b, []byte(a.session.String())) || bytes.Contains(b, []byte(a.aes.String())) {
			t.Error("a key travels in the clear")
		}
		a.readSignIn(load, unpack(t, b))
	}

	a.ask("_file_envs")

	// Publishes carry a serial that rises, so that a minion can refuse old ones.
	sub.published()
	last := int64(0)
	for range 5 {
		r.job("*", "test.ping")
	}

	for _, p := range sub.published() {
		n, ok := a.openPublish(p).Int("serial")
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
	r := startMaster(t, "")
	a, b := r.accepted("min1", "min6"), r.accepted("min2", "min7")
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			ctx := within(t)
			c, err := zmtp.DialReq(ctx, r.req, zmtp.DialConfig{Identity: "the same for all"})
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

				n := []*scriptedMinion{a, b}[i%2]
				l := n.load("_mine_get", "tgt", mine, "fun", "f")
				if got, err = c.Do(ctx, n.payload(l)); err != nil {
					t.Error(err)
					return
				}

				v, _ := msgpack.Decode(got, msgpack.DefaultLimits)
				blob, _ := v.([]byte)
				if _, err := n.session.OpenReply(blob, l.Str("nonce")); err != nil {
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
	r := startMaster(t, "")
	a := r.accepted("min1", "min6")
	pending, rejected := r.newMinion("min2", "min7"), r.newMinion("min3", "min8")
	rejected.signIn()
	must(t, os.Rename(filepath.Join(r.dir, "pki/minions_pre/min3"), filepath.Join(r.dir, "pki/minions_rejected/min3")))
	r.m.keys.Refresh("min3")

	// signIn, pillar and openPublish verify signatures.
	if s := pending.signIn(); s.Bool("ret") != true {
		t.Errorf("pending: %v", s)
	}

	if s := rejected.signIn(); s.Value("ret") != false {
		t.Errorf("rejected: %v", s)
	}

	a.pillar()
	sub := r.subscribe()
	r.job("*", "test.ping")
	for _, p := range sub.published() {
		a.openPublish(p)
	}

	for _, algo := range []string{"", "none", "PKCS1v15-MD5", "PSS-SHA256", "PKCS1v15-SHA1\x00"} {
		l := a.signInLoad()
		l.Set("sig_algo", algo)
		v := r.rawValue(value.NewMap("enc", "clear", "load", l, "version", 3))
		m, ok := v.(*value.Map)
		if !ok || m.Map("load").Str("ret") != "bad sig algo" {
			t.Errorf("sig_algo %q: %v", algo, v)
		}

		env := unpack(t, a.payload(a.load("_pillar", "grains", value.NewMap("id", "min1")))).(*value.Map)
		env.Set("sig_algo", algo)
		b, err := a.send(pack(t, env))
		must(t, err)

		if m, ok := unpack(t, b).(*value.Map); ok && algo != "" && m.Len() > 0 {
			t.Errorf("pillar with sig_algo %q: %v", algo, m)
		}
	}
}
