package web

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"saltern/master/internal/eauth"
	"saltern/master/internal/mastertest"
	"saltern/master/internal/source"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/slapd"
)

// TestAttack39Cluster: who guessed too often at one master is locked out at all of them,
// at his address and nowhere else; the event says so, and no minion can make one.
func TestAttack39Cluster(t *testing.T) {
	t.Parallel()
	ms := mastertest.StartCluster(t, 2,
		"external_auth: {sharedsecret: {ann: ['.*']}}\nsharedsecret: right\nsaltern_login_failures: 2\nsaltern_login_lock: 60\n")
	mastertest.AwaitLinks(t, ms)
	a, b := ms[0], ms[1]
	b.ListenToBus()
	guesser, home := netip.MustParseAddr("192.0.2.66"), netip.MustParseAddr("192.0.2.1")
	n := b.AcceptedMinion("min1", "min6")
	n.Ask("_minion_event", "tag", eauth.LockTag, "data",
		value.NewMap("eauth", "sharedsecret", "user", "ann", "address", home.String(), "until",
			time.Now().Add(time.Hour).Unix()))

	if b.LogInFrom("ann", "right", home) == "" {
		t.Fatal("a minion locks a user out")
	}

	for range 2 {
		if a.LogInFrom("ann", "wrong", guesser) != "" {
			t.Fatal("a wrong password is taken")
		}
	}

	await.That(t, "the event of the lock at the other master", func() bool {
		for _, e := range b.NewEvents() {
			if e.Tag == eauth.LockTag && e.Data.Str("user") == "ann" && e.Data.Str("address") == guesser.String() {
				return true
			}
		}
		return false
	})

	for name, r := range map[string]*mastertest.Master{"a": a, "b": b} {
		if r.LogInFrom("ann", "right", guesser) != "" {
			t.Errorf("master %s: not locked out", name)
		}
		if r.LogInFrom("ann", "right", home) == "" {
			t.Errorf("master %s: locked out at another address", name)
		}
	}

	if s := b.Parts.Callers.Auth.Stats().Lockout; s.Refused != 1 || s.Locked != 1 || s.Locks != 0 {
		t.Errorf("counted at b: %+v", s)
	}
}

// TestAttack39FalseSource: who talks to salt-api, or to the master, cannot say from
// where he comes.
func TestAttack39FalseSource(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPI(t, "")
	victim := netip.MustParseAddr("192.0.2.1")
	for range 2 * eauth.DefaultFailures {
		a.AskInClear("mk_token", "eauth", "sharedsecret", "username", "alice", "password", "wrong", source.Field,
			victim.String()+" "+strings.Repeat("0", 64))
		if s := a.Parts.Callers.Auth.Stats(); s.Wrong >= 3 {
			break // each is slow on purpose
		}
	}

	code, _, _ := a.Do("POST", "/run",
		`[{"client": "local", "tgt": "*", "fun": "test.ping", "username": "alice", "password": "wrong", "eauth": "sharedsecret", "saltern_source": "192.0.2.1 0"}]`)
	if code != 401 {
		t.Errorf("a wrong password: %d", code)
	}

	if s := a.Parts.Callers.Auth.Stats().Lockout; s.Locks != 0 || s.Refused != 0 {
		t.Errorf("%+v", s)
	}

	code, body, _ := a.Do("POST", "/run",
		`[{"client": "local_async", "tgt": "*", "fun": "test.ping", "username": "alice", "password": "right", "eauth": "sharedsecret", "saltern_source": "192.0.2.1 0"}]`)
	if code != 200 || strings.Contains(body, source.Field) {
		t.Errorf("the right password: %d %s", code, body)
	}

	code, body, _ = a.Do("POST", "/run",
		`[{"client": "wheel", "fun": "key.list_all", "username": "alice", "password": "right", "eauth": "sharedsecret"}]`)
	if code != 200 || !strings.Contains(body, `"minions"`) || strings.Contains(body, source.Field) {
		t.Errorf("wheel: %d %s", code, body)
	}
}

// TestDirectory: a whole master lets users of a directory in, with the rights of their
// groups and of the computers that ldap() names, by password and by token.
func TestDirectory(t *testing.T) {
	t.Parallel()
	s := slapd.Start(t, slapd.People())
	r := mastertest.Start(t, `auth.ldap.uri: `+s.URI+`
auth.ldap.basedn: `+slapd.Suffix+`
auth.ldap.binddn: cn=reader,`+slapd.Suffix+`
auth.ldap.bindpw: reader secret
auth.ldap.filter: (uid={{ username }})
auth.ldap.minion_stripdomains: [.example.com]
external_auth:
  ldap:
    devs%: ['@runner']
    ann:
      - 'ldap(ou=Servers,`+slapd.Suffix+`)': [test.ping]
`)

	for _, id := range []string{"web1", "web2", "other"} {
		r.AcceptedMinion(id, map[string]string{"web1": "min8", "web2": "min6", "other": "min7"}[id])
	}

	creds := []any{"eauth", "ldap", "username", "ann", "password", "secret of ann"}
	m, _ := r.AskInClear("mk_token", creds...).(*value.Map)
	if m.Str("token") == "" || strings.Join(m.Texts("groups"), ",") != "all hands,ops" {
		t.Fatalf("token of ann: %v", mastertest.PlainMap(m))
	}

	for _, kwargs := range []*value.Map{value.NewMap(creds...), value.NewMap("token", m.Str("token"))} {
		for tgt, ok := range map[string]bool{"web1": true, "web1,web2": true, "web1,other": false, "other": false} {
			v := r.AskInClear("publish", "tgt", strings.Split(tgt, ","), "fun", "test.ping", "arg", []any{},
				"tgt_type", "list", "ret", "", "jid", "", "kwargs", kwargs.Clone())
			load := v.(*value.Map).Map("load")
			if got := len(load.List("minions")); ok != (load != nil && got == len(strings.Split(tgt, ","))) {
				t.Errorf("a job for %s with %v: %v", tgt, kwargs.Keys(), mastertest.PlainMap(v.(*value.Map)))
			}
		}
	}

	if v := r.AskInClear("runner", "fun", "test.arg", "eauth", "ldap", "username", "bob", "password",
		"secret of bob"); v.(*value.Map).Str("jid") == "" {
		t.Errorf("a group's right: %v", v)
	}

	if v := r.AskInClear("runner", append([]any{"fun", "test.arg"}, creds...)...); v.(*value.Map).Map("error") == nil {
		t.Errorf("a right of a group without the user: %v", v)
	}

	if v := r.AskInClear("mk_token", "eauth", "ldap", "username", "ann", "password", ""); v != "" {
		t.Errorf("no password: %v", v)
	}
}
