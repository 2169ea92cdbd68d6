package minions

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"saltern/internal/audit"
	"saltern/master/internal/mastertest"
	"saltern/master/internal/source"
	"saltern/master/value"
	"saltern/test/check"
)

// TestAudit: what is done through a master is written down, with who did it and how
// that is known, and without what is secret.
func TestAudit(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "pam")
	helper, err := net.Listen("unix", socket)
	check.Must(t, err)
	defer helper.Close()

	go func() { // a helper that dies at each password
		for c, err := helper.Accept(); err == nil; c, err = helper.Accept() {
			c.Close()
		}
	}()

	pam := "saltern_pam: " + socket + "\n" +
		strings.Replace(mastertest.APIOptions, "external_auth:\n", "external_auth:\n  pam: {ann: [test.ping]}\n", 1)
	r := mastertest.Start(t, pam+"autosign_file: %DIR%/autosign\nautoreject_file: %DIR%/autoreject\n")
	check.Must(t, os.WriteFile(r.Path("autosign"), []byte("auto*\n"), 0o600))
	check.Must(t, os.WriteFile(r.Path("autoreject"), []byte("bad*\n"), 0o600))
	r.AcceptedMinion("min1", "min6")

	// Jobs: by root's key under another name, by a token, and one that may not.
	load := r.Publish("*", "test.arg", "arg",
		[]any{"--password=hush", value.NewMap("__kwarg__", true, "pillar", "hush")}, "user", "sudo_carol",
		audit.LoginField, "dora")
	r.Publish("min*", "saltutil.find_job")
	tok, _ := r.AskInClear("mk_token", "eauth", "sharedsecret", "username", "alice", "password", "right").(*value.Map)
	creds := value.NewMap("token", tok.Str("token"))
	if v, _ := r.AskInClear("publish", "tgt", "min1", "fun", "test.ping", "arg", []any{}, "kwargs", creds).(*value.Map); v.Map("load").Str("jid") == "" {
		t.Fatalf("a job by token: %v", v)
	}

	r.AskInClear("publish", "tgt", "min1", "fun", "cmd.run", "arg", []any{"hush"}, "kwargs",
		value.NewMap("eauth", "sharedsecret", "username", "bob", "password", "right"))
	list := r.AwaitRecords(3, "job.publish")
	if j := list[0]; j.User != "dora" || j.As != "root" && j.As != "carol" || j.Proof != audit.Key ||
		j.Object != "*" || j.Function != "test.arg" || j.Minions != 1 ||
		j.JID != load.Str("jid") || j.Result != audit.Started || j.From != "127.0.0.1" || j.Program != "salt-master" {
		t.Errorf("%+v", j)
	}

	if j := list[1]; j.User != "alice" || j.Proof != audit.Token || j.Eauth != "sharedsecret" ||
		j.Result != audit.Started {
		t.Errorf("%+v", j)
	}

	if j := list[2]; j.User != "bob" || j.Proof != audit.Password || j.Result != audit.Refused || j.JID != "" {
		t.Errorf("%+v", j)
	}

	// What limited users cause, and are refused, stands apart (finding 8 of the second audit).
	for i, book := range []string{"jobs", "users", "refused"} {
		text, err := os.ReadFile(filepath.Join(audit.MasterDir(r.Path("cache")), book+".jsonl"))
		if err != nil || !strings.Contains(string(text), `"user":"`+list[i].User+`"`) || list[i].Limited != (i > 0) {
			t.Errorf("%s in %s: %v", list[i].User, book, err)
		}
	}

	// Log-ins.
	r.AskInClear("mk_token", "eauth", "sharedsecret", "username", "eve", "password", "wrong-hush")
	r.AskInClear("publish", "tgt", "*", "fun", "test.ping", "key", "hush", "user", "root")
	r.AskInClear("wheel", "fun", "key.delete", "match", "*", "key", "hush", "user", "root")
	ann := func() []any { return []any{"eauth", "pam", "username", "ann", "password", "hush"} }
	if v := r.AskInClear("mk_token", ann()...); v != "" {
		t.Errorf("a log-in that nobody looks at: %v", v)
	}

	r.AskInClear("publish", "tgt", "*", "fun", "test.ping", "kwargs", value.NewMap(ann()...))
	r.AskInClear("runner", append(ann(), "fun", "jobs.list_jobs")...)
	logins := r.AwaitRecords(7, "login")
	logins = slices.DeleteFunc(logins, func(l audit.Record) bool {
		if l.User == "ann" && (l.Result != audit.Refused ||
			!strings.Contains(l.Detail,
				"nobody has looked at the password: external_auth pam does not answer: ask the helper")) {
			t.Errorf("a log-in that nobody looked at: %+v", l)
		}

		if l.User != "ann" && l.Detail != "" {
			t.Errorf("a log-in that was refused: %+v", l)
		}

		return l.User == "ann"
	})
	if len(logins) != 4 {
		t.Errorf("%d log-ins of others", len(logins))
	}

	var got []string
	for _, l := range logins {
		got = append(got, strings.Join([]string{l.User, string(l.Proof), l.Function, string(l.Result)}, "|"))
	}

	slices.Sort(got)
	if want := []string{"alice|password||ok", "eve|none|mk_token|refused",
		"root|none|publish test.ping|refused", "root|none|wheel key.delete|refused"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}

	// Keys: by wheel, and by rules.
	r.NewMinion("min2", "min7").SignIn()
	wheel := func(fun string, more ...any) {
		t.Helper()
		r.AskInClear("wheel", append([]any{"fun", fun, "key", r.Key, "user", "root"}, more...)...)
	}

	wheel("key.list_all")
	wheel("key.accept", "match", "min2")
	wheel("config.update_config", "file_name", "x", "yaml_contents", value.NewMap("a", "hush"))
	accept := r.AwaitRecords(2, "key.accept")
	if a, b := accept[0], accept[1]; a.Result != audit.Asked || b.Result != audit.OK || a.Op == "" ||
		a.Op != b.Op || b.Object != "min2" || b.Detail != "min2" || b.JID == "" {
		t.Errorf("%+v", accept)
	}

	if c := r.AwaitRecords(2, "wheel.call"); c[1].Function != "config.update_config" || c[1].Object != "x" {
		t.Errorf("%+v", c)
	}

	r.NewMinion("auto1", "min6").SignIn()
	r.NewMinion("bad1", "min6").SignIn()
	auto := r.AwaitRecords(2, "key.autosign")
	if a, b := auto[0], auto[1]; a.Object != "auto1" || a.Result != audit.OK || b.Object != "bad1" ||
		b.Result != audit.Refused || a.Proof != audit.Autosign {
		t.Errorf("%+v", auto)
	}

	// Runners.
	r.AskInClear("runner", "fun", "test.arg", "kwarg",
		value.NewMap("arg", []any{"hush"}, "kwarg", value.NewMap()), "key", r.Key, "user", "root")
	if c := r.AwaitRecords(1, "runner.call"); c[0].Function != "test.arg" || c[0].JID == "" ||
		c[0].Result != audit.Started {
		t.Errorf("%+v", c)
	}

	files, err := filepath.Glob(filepath.Join(audit.MasterDir(r.Path("cache")), "*"))
	check.Must(t, err)
	for _, f := range files {
		if b, err := os.ReadFile(f); err != nil || strings.Contains(string(b), "hush") ||
			strings.Contains(string(b), tok.Str("token")) || strings.Contains(string(b), r.Key) {
			t.Errorf("a secret in %s: %s %v", f, b, err)
		}
	}
}

// TestAttack45Minions: whatever a minion sends, nothing of it is a record, nor does a
// caller who has proven nothing choose from where he came.
func TestAttack45Minions(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, loud)
	n := r.AcceptedMinion("min1", "min6")
	line := "x\n{\"time\":\"2026-11-24T16:00:00Z\",\"action\":\"key.accept\",\"result\":\"ok\"}\n"
	n.Ask("_minion_event", "tag", "salt/key", "data",
		value.NewMap("act", "accept", "id", line, "result", true), "pretag", nil)

	for _, cmd := range minionCommands { // the last one revokes its key
		load := n.Load(cmd,
			append(slices.Clone(plausible(cmd, "min1")), "user", line, audit.LoginField, line, source.Field,
				"192.0.2.1")...)
		if _, err := n.Send(n.Payload(load)); err != nil {
			t.Errorf("%s: %v", cmd, err)
		}
	}

	r.AskInClear("publish", "tgt", line, "fun", line, "user", line, "key", line, source.Field, line, audit.LoginField, line)
	l := r.AwaitRecords(1, "login")
	if l[0].From != "127.0.0.1" || strings.ContainsAny(l[0].User, "\n") || l[0].Result != audit.Refused {
		t.Errorf("%+v", l[0])
	}

	// The one thing of a minion's that is written down: its own key is gone.
	if k := r.AwaitRecords(1, "key.revoke")[0]; k.User != "min1" || k.Object != "min1" || k.Proof != audit.Minion {
		t.Errorf("%+v", k)
	}

	r.AwaitRecords(2, "*")
}

// A log-in over HTTP is from where its client is, not from the API's host; what the API
// refuses itself, and tokens that are given back, are written down as well.
func TestAuditOfTheAPI(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPI(t, "")
	token := a.Token("alice")
	a.Do("POST", "/login", `{"username": "alice", "password": "wrong", "eauth": "sharedsecret"}`)
	a.Do("GET", "/jobs", "", "X-Auth-Token", strings.Repeat("ab", 32))
	logins := a.AwaitRecords(3, "login")
	for _, l := range logins {
		if l.From != "127.0.0.1" || l.Program == "salt-master" && l.Via != "salt-api" {
			t.Errorf("%+v", l)
		}
	}

	if code, body, _ := a.Do("POST", "/logout", "", "X-Auth-Token", token); code != 200 {
		t.Fatalf("%d %s", code, body)
	}

	if d := a.AwaitRecords(1, "token.delete")[0]; d.User != "alice" || d.Eauth != "sharedsecret" ||
		d.Result != audit.OK || d.Program != "salt-api" {
		t.Errorf("%+v", d)
	}
}
