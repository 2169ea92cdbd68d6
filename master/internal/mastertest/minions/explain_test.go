package minions

import (
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/master/internal/mastertest"
	"saltern/master/keys"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// explained is a master whose minion web1 has something that keeps it from answering.
type explained struct {
	*mastertest.Master
	ahead atomic.Int64 // how far the clock of the master is ahead, in nanoseconds
}

// pass lets time pass for the master.
func (r *explained) pass(d time.Duration) { r.ahead.Add(int64(d)) }

// answerBy makes a minion answer questions about what it runs. Each answer is a return.
func (r *explained) answerBy(n *mastertest.Minion, answers ...any) {
	sub := r.Parts.Bus.Subscribe("scripted minion", 100, func(tag string) bool { return strings.HasSuffix(tag, "/new") })
	r.T.Cleanup(sub.Close)
	go func() {
		for e := range sub.C {
			if e.Data.Str("fun") != "saltutil.running" {
				continue
			}
			for _, a := range answers {
				load := n.Load("_return", "jid", e.Data.Str("jid"), "fun", "saltutil.running", "fun_args", []any{},
					"return", a, "retcode", 0, "success", true)
				_, _ = n.Send(n.Payload(load))
			}
		}
	}()
}

// connect makes web1 an accepted minion that is connected.
func (r *explained) connect() *mastertest.Minion {
	r.T.Helper()
	n := r.AcceptedMinion("web1", "min6")
	n.Ask("_mine", "data", value.NewMap())
	r.Subscribe()
	return n
}

// causes returns the codes of what the runner finds.
func (r *explained) causes(named ...any) (codes []string, found *value.Map) {
	r.T.Helper()
	if len(named) == 0 {
		named = []any{"minion", "web1"}
	}
	v, err := r.Parts.Runs.Call(r.T.Context(), "fleet.explain", nil, value.NewMap(named...))
	check.Must(r.T, err)
	found = v.(*value.Map)
	for _, c := range found.List("causes") {
		codes = append(codes, c.(*value.Map).Str("code"))
	}
	return codes, found
}

// plantedCauses are things that keep a minion from answering. Each is found under its name.
var plantedCauses = []struct {
	code    string
	options string
	plant   func(r *explained)
	named   []any // arguments of the runner; nil: the minion only
	also    bool  // another cause comes first
}{
	{code: "no such minion", plant: func(*explained) {}},
	{code: "no such minion", options: "order_masters: True\n", plant: func(*explained) {}},
	{
		code:  "no such minion",
		plant: func(r *explained) { r.connect() },
		named: []any{"minion", "WEB1"},
	},
	{code: "invalid id", plant: func(*explained) {}, named: []any{"minion", "../web1"}},
	{code: "key not accepted", plant: func(r *explained) { r.NewMinion("web1", "min6").SignIn() }},
	{code: "key rejected", plant: func(r *explained) {
		n := r.NewMinion("web1", "min6")
		n.SignIn()
		check.Must(r.T, r.Parts.Keys.Move("web1", keys.Rejected))
	}},
	{code: "key denied", plant: func(r *explained) {
		check.Must(r.T, r.Parts.Keys.Deny("web1", mastertest.PublicPEM(r.T, mastertest.KeyPair(r.T, "min6"))))
	}},
	{code: "two keys", also: true, plant: func(r *explained) {
		r.NewMinion("web1", "min6").SignIn()
		r.NewMinion("web1", "min7").SignIn()
	}},
	{code: "another key", plant: func(r *explained) {
		r.AcceptedMinion("web1", "min6")
		r.NewMinion("web1", "min7").SignIn()
	}},
	{code: "denied key", also: true, plant: func(r *explained) {
		r.answerBy(r.connect(), []any{})
		r.NewMinion("web1", "min7").SignIn()
	}},
	{code: "never seen", plant: func(r *explained) {
		check.Must(r.T, r.Parts.Keys.Put("web1", keys.Accepted, mastertest.PublicPEM(r.T, mastertest.KeyPair(r.T, "min6"))))
	}},
	{code: "not connected", plant: func(r *explained) {
		r.AcceptedMinion("web1", "min6").Ask("_mine", "data", value.NewMap())
		r.pass(time.Hour)
	}},
	{code: "just signed in", plant: func(r *explained) { r.AcceptedMinion("web1", "min6") }},
	{code: "goes no further", plant: func(r *explained) {
		r.AcceptedMinion("web1", "min6")
		r.pass(10 * time.Minute)
	}},
	{code: "does not listen", plant: func(r *explained) {
		r.AcceptedMinion("web1", "min6").Ask("_mine", "data", value.NewMap())
	}},
	{code: "answers", plant: func(r *explained) { r.answerBy(r.connect(), []any{}) }},
	{code: "at work", plant: func(r *explained) {
		r.answerBy(r.connect(), []any{value.NewMap("fun", "state.apply", "jid", "20261129120000000000", "pid", 7)})
	}},
	{code: "blackout", plant: func(r *explained) {
		r.answerBy(r.connect(), "Minion in blackout mode. Set `minion_blackout` to False in pillar or grains to resume operations.")
	}},
	{code: "refuses", plant: func(r *explained) { r.answerBy(r.connect(), "'saltutil.running' is not available.") }},
	{code: "two minions", plant: func(r *explained) { r.answerBy(r.connect(), []any{}, []any{}) }},
	{code: "deaf", plant: func(r *explained) { r.connect() }},
	{code: "deaf", named: []any{"minion", "web1", "ask", false}, plant: func(r *explained) {
		r.connect()
		r.Publish("web1", "test.ping")
		r.Publish("web1", "test.version")
	}},
	{code: "at work or deaf", named: []any{"minion", "web1", "ask", false}, plant: func(r *explained) {
		r.connect()
		r.Publish("web1", "test.ping")
	}},
	{code: "too many minions", options: "max_minions: 1\n", plant: func(r *explained) {
		for _, id := range []string{"db1", "db2"} {
			r.AcceptedMinion(id, "min6").Ask("_mine", "data", value.NewMap())
			r.Subscribe()
		}
		n := r.NewMinion("web1", "min7")
		r.AskValue(value.NewMap("enc", "clear", "load", n.SignInLoad(), "version", 3))
	}, also: true},
	{code: "signing algorithm", also: true, plant: func(r *explained) {
		load := r.NewMinion("web1", "min6").SignInLoad()
		load.Set("sig_algo", "PKCS1v15-MD5")
		r.AskValue(value.NewMap("enc", "clear", "load", load, "version", 3))
	}},
	{code: "malformed sign-in", also: true, plant: func(r *explained) {
		load := r.NewMinion("web1", "min6").SignInLoad()
		load.Set("nonce", strings.Repeat("x", 100))
		r.AskValue(value.NewMap("enc", "clear", "load", load, "version", 3))
	}},
	{code: "clock", options: "request_server_ttl: 60\n", plant: func(r *explained) {
		n := r.AcceptedMinion("web1", "min6")
		_, _ = n.Send(n.Payload(n.Load("_mine", "data", value.NewMap(), "ts", time.Now().Add(-time.Hour).Unix())))
	}},
	{code: "version too old", options: "minimum_auth_version: 3\n", plant: func(r *explained) {
		n := r.AcceptedMinion("web1", "min6")
		r.AskValue(value.NewMap("enc", "clear", "load", n.SignInLoad(), "version", 1))
	}},
	{code: "wrong token", plant: func(r *explained) {
		n := r.AcceptedMinion("web1", "min6")
		_, _ = n.Send(n.Payload(n.Load("_mine", "data", value.NewMap(), "tok", []byte("no token"))))
	}},
	{code: "old session", plant: func(r *explained) {
		n := r.AcceptedMinion("web1", "min6")
		other := r.AcceptedMinion("db1", "min7")
		_, _ = n.Send(n.Sealed("web1", other.Session, n.Load("_mine", "data", value.NewMap())))
	}},
	{code: "master: " + string(control.JobCacheFault), also: true, plant: func(r *explained) {
		r.connect()
		r.Parts.Problems.Set(control.JobCacheFault, os.ErrPermission)
	}, named: []any{"minion", "web1", "ask", false}},
	{code: "pillar", also: true, named: []any{"minion", "web1", "ask", false}, plant: func(r *explained) {
		r.connect()
		r.Parts.Pillars.NoteFault("web1", "Rendering SLS 'secret' failed")
	}},
}

// TestCausesAreNamed plants thirty causes and more, one at a time, and finds each.
func TestCausesAreNamed(t *testing.T) {
	for _, c := range plantedCauses {
		t.Run(c.code, func(t *testing.T) {
			t.Parallel()
			r := &explained{}
			now := func() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) }
			r.Master = mastertest.StartWithClock(t, now, c.options)
			c.plant(r)

			await.That(t, "cause "+c.code, func() bool {
				codes, found := r.causes(c.named...)
				at := 0
				for at < len(codes) && codes[at] != c.code {
					at++
				}
				is := at < len(codes) && (at == 0 || c.also)
				if !is {
					t.Logf("%q: %s", codes, value.Repr(found))
				}
				return is
			})
		})
	}
}

// TestExplanationHasNoSecrets: values of the pillar, arguments and returns are in no explanation.
func TestExplanationHasNoSecrets(t *testing.T) {
	r := &explained{}
	r.Master = mastertest.Start(t, "nodegroups: {webs: 'web*', dbs: 'db*'}\n"+
		"external_auth: {sharedsecret: {alice: ['web*': ['test.*']], bob: ['@runner']}}\nsharedsecret: hush\n")
	r.AddFile("pillar/top.sls", "base:\n  '*': [common]\n  'db*': [db]\n")
	r.AddFile("pillar/common.sls", "nginx: {port: 80}\npassword: TOPSECRET\n")
	r.AddFile("roots/top.sls", "base:\n  'web*': [nginx]\n  'G@os:Windows': [win]\n")
	n := r.connect()
	r.answerBy(n, []any{})
	n.Pillar()
	r.Publish("web1", "cmd.run", "arg", []any{"echo TOPSECRET"})

	await.That(t, "the job is open", func() bool {
		_, found := r.causes()
		return len(found.List("unanswered")) == 1
	})
	_, found := r.causes("minion", "web1", "user", "alice", "fun", "test.ping")
	text := value.Repr(found)
	if strings.Contains(text, "TOPSECRET") || strings.Contains(text, "hush") {
		t.Errorf("a secret is shown: %s", text)
	}
	for _, part := range []string{"'nodegroups': ['webs']", "'target': 'web*'", "G@os:Windows", "common.sls", "'key': 'password'",
		"'allowed': True", "external_auth sharedsecret alice", "'function': 'cmd.run'", "'state': 'accepted'"} {
		if !strings.Contains(text, part) {
			t.Errorf("%s is not in %s", part, text)
		}
	}

	_, found = r.causes("minion", "web1", "key", "nginx:port", "user", "bob", "fun", "test.ping")
	text = value.Repr(found)
	if !strings.Contains(text, "'key': 'nginx:port'") || strings.Contains(text, "'key': 'password'") || strings.Contains(text, "'allowed': True") {
		t.Errorf("one key, and no rights: %s", text)
	}
}

// TestExplanationOfABrokenTopFileHasNoSecrets: an error of a template may name a value of the pillar.
func TestExplanationOfABrokenTopFileHasNoSecrets(t *testing.T) {
	r := &explained{}
	r.Master = mastertest.Start(t, "saltern_renderer_python: "+mastertest.SaltPython(t)+"\nminion_data_cache: True\n")
	r.AddFile("pillar/top.sls", "base:\n  '*': [common]\n")
	r.AddFile("pillar/common.sls", "password: TOPSECRET\n")
	r.AddFile("roots/top.sls", "{{ raise(pillar['password']) }}\nbase: {{ {}[pillar['password']].x }}\n")
	r.answerBy(r.connect(), []any{})
	n := r.NewMinion("web1", "min6")
	n.SignIn()
	n.Pillar()
	_, found := r.causes()
	if text := value.Repr(found); strings.Contains(text, "TOPSECRET") || !strings.Contains(text, "cannot be used: the log") {
		t.Error(text)
	}
}

// TestExplanationRefusesWrongArguments: what cannot be obeyed is refused.
func TestExplanationRefusesWrongArguments(t *testing.T) {
	r := mastertest.Start(t, "")
	for _, named := range [][]any{
		{},
		{"minion", ""},
		{"minion", strings.Repeat("x", 1<<20)},
		{"minion", "web1", "user", "alice"},
		{"minion", "web1", "fun", "test.ping"},
		{"minion", "web1", "limit", 5},
	} {
		if v, err := r.Parts.Runs.Call(t.Context(), "fleet.explain", nil, value.NewMap(named...)); err == nil {
			t.Errorf("%.60v: %v", named, v)
		}
	}
}
