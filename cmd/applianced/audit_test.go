package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"saltern/internal/audit"
)

// Whoever adds a verb that does its work itself adds it to auditedVerbs, or says here
// that it changes nothing or has the supervisor do it.
func TestVerbsAreAudited(t *testing.T) {
	asks := []string{"config apply", "drain", "git fetch", "join", "join-string", "keys accept",
		"keys delete", "keys reject", "leave", "recover", "reload", "remove",
		"replace", "reset", "restart", "secret rotate", "cluster-key new", "cluster-key take", "setup", "setup back", "setup retry", "setup start", "tokens revoke", "undrain", "backup now", "virtual-address", "console"}
	looks := []string{"audit", "audit verify", "backup list", "backup status", "config", "config check",
		"config schema", "diff", "events", "explain", "git", "history", "keys", "keys list", "lb status", "logs", "man",
		"minions", "minion-config", "nodes", "ping", "python", "python list", "readers", "schedule", "secret",
		"cluster-key", "secrets",
		"secrets encrypt", "secrets list", "secrets public", "setup progress", "setup schema", "status", "storage", "storage plan", "storage status", "tokens", "tokens list", "upgrade check", "upgrade status", "version", "admin", "help"}

	// for systemd
	others := []string{"run", "lb", "backup helper", "storage helper", "pam-helper", "upgrade confirm",
		"firewall", "guards"}
	verbs := auditedVerbs()
	found := map[string]bool{}
	var each func(*cobra.Command)
	each = func(cmd *cobra.Command) {
		v := verbOf(cmd)
		found[v] = true
		n := 0
		for _, list := range [][]string{asks, looks, others} {
			if slices.Contains(list, v) {
				n++
			}
		}

		if verbs[v] != "" {
			n++
		}

		if n != 1 && v != "" {
			t.Errorf("%q is in %d lists", v, n)
		}

		for _, sub := range cmd.Commands() {
			each(sub)
		}
	}

	each(rootCommand())
	for v := range verbs {
		if !found[v] {
			t.Errorf("there is no verb %q", v)
		}
	}
}

func TestWriteAudit(t *testing.T) {
	at := time.Date(2026, 11, 24, 16, 40, 0, 0, time.UTC)
	rec := func(r audit.Record) audit.Record {
		at = at.Add(time.Second)
		r.Time, r.Node = at, "n1"
		return r
	}

	alice := audit.Actor{User: "alice", Proof: audit.Login, As: "root", From: audit.Local}
	var b bytes.Buffer
	if err := writeAudit(&b, []audit.Record{
		rec(audit.Record{Actor: alice, Action: "key.accept", Object: "web1", Result: audit.Asked, Op: "a"}),
		rec(audit.Record{
			Actor:  alice,
			Action: "key.accept",
			Object: "web1",
			Result: audit.OK,
			Op:     "a",
			Detail: "was pending",
		}),
		rec(audit.Record{Actor: alice, Action: "system.upgrade", Result: audit.Asked, Op: "b"}),
		rec(audit.Record{
			Actor:    audit.Actor{User: "bob", Proof: audit.Token, Eauth: "ldap", From: "10.0.0.5", Via: "salt-api"},
			Action:   "job.publish",
			Function: "test.ping",
			Object:   "*",
			Minions:  3,
			JID:      "20261124164003000001",
			Result:   audit.Started,
		}),
		rec(audit.Record{
			Actor:  audit.Actor{User: "e\x1b[2Jve", Proof: audit.Unproven, From: "192.0.2.1"},
			Action: "login",
			Result: audit.Refused,
			Lost:   7,
		}),
	}); err != nil {
		t.Fatal(err)
	}

	want := `TIME                 NODE  USER            FROM                   ACTION          OBJECT                      RESULT
2026-11-24 16:40:02  n1    alice as root   local                  key.accept      web1                        ok: was pending
2026-11-24 16:40:03  n1    alice as root   local                  system.upgrade  -                           asked
2026-11-24 16:40:04  n1    bob (ldap)      10.0.0.5 via salt-api  job.publish     test.ping on * (3 minions)  started 20261124164003000001
2026-11-24 16:40:05  n1    eve (unproven)  192.0.2.1              login           -                           refused (7 before it are missing)
`
	if b.String() != want {
		t.Errorf("%s", &b)
	}
}

// A verb that does its work itself is written down, also when it fails.
func TestRecordedVerb(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("LOUD: only what root does is written down")
	}

	dir := t.TempDir()
	conf := filepath.Join(dir, "appliance.yaml")
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(conf, []byte("node: n7\ndata_dir: "+dir+"/data\nruntime_dir: "+dir+"/run\n"),
		0o600); err != nil {
		t.Fatal(err)
	}

	cmd := rootCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs([]string{"--config", conf, "upgrade", "https://u:hush@127.0.0.1:1/x"})

	if err := cmd.ExecuteContext(t.Context()); err == nil {
		t.Error("it was upgraded")
	}

	p, err := audit.Read(t.Context(), "n7", audit.Query{}, filepath.Join(dir, "data/log/audit"))
	if err != nil || len(p.Records) != 2 {
		t.Fatalf("%+v %v %s", p, err, &out)
	}

	asked, end := p.Records[0], p.Records[1]
	if asked.Action != "system.upgrade" || asked.Result != audit.Asked || end.Result != audit.Failed ||
		end.Op != asked.Op || end.Detail == "" || strings.Contains(asked.Object, "hush") || strings.Contains(end.Detail, "hush") {
		t.Errorf("%+v\n%+v", asked, end)
	}
}
