package minions

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/master/conf"
	"saltern/master/crypt"
	"saltern/master/internal/local"
	"saltern/master/internal/mastertest"
	"saltern/master/internal/minion"
	"saltern/master/internal/request"
	"saltern/master/keys"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// The commands that exist. Who adds one lists it here, and gives it a load in
// plausible, so that the attacks below are tried on it.
var (
	minionCommands = []string{
		"_dir_list", "_file_envs", "_file_find", "_file_hash", "_file_hash_and_stat", "_file_list", "_file_list_emptydirs", "_file_recv",
		"_master_opts", "_master_tops", "_mine", "_mine_delete", "_mine_flush", "_mine_get", "_minion_event", "_pillar", "_register_resources",
		"_return", "_serve_file", "_symlink_list", "_syndic_return", "minion_pub", "minion_publish", "minion_runner", "pub_ret", "revoke_auth",
	}
	localCommands = []string{"get_token", "mk_token", "ping", "publish", "runner", "saltern_job_user",
		"saltern_publish_batch", "saltern_runner_result", "wheel"}
)

const attackJID = "20260102030405678901"

// plausible is a load with which a command would have an effect.
func plausible(cmd, id string) []any {
	switch cmd {
	case "_pillar":
		return []any{"grains", value.NewMap("id", id, "x", mastertest.NewNonce()), "saltenv", "base", "pillarenv", nil, "ver", "2"}
	case "_mine":
		return []any{"data", value.NewMap("f", mastertest.NewNonce()), "clear", false}
	case "_mine_delete":
		return []any{"fun", "f"}
	case "_mine_get":
		return []any{"tgt", "*", "fun", "f", "tgt_type", "glob"}
	case "_minion_event":
		return []any{"tag", "attack/event", "data", value.NewMap("a", 1), "pretag", nil}
	case "_return":
		return []any{"jid", attackJID, "fun", "test.ping", "fun_args", []any{}, "return", true, "retcode", 0,
			"success", true}
	case "_syndic_return":
		return []any{"load",
			[]any{value.NewMap("jid", attackJID, "fun", "test.ping", "id", id, "return",
				value.NewMap("ghost", value.NewMap("return", true)))}}
	case "_register_resources":
		return []any{"resources", value.NewMap("ssh", []any{"r1"}), "resource_grains", value.NewMap()}
	case "minion_pub", "minion_publish":
		return []any{"fun", "test.ping", "arg", []any{}, "tgt", "*", "ret", "", "tgt_type", "glob", "tmo", 1}
	case "minion_runner":
		return []any{"fun", "test.arg", "arg", []any{}}
	case "pub_ret":
		return []any{"jid", attackJID}
	case "_file_recv":
		return []any{"path", []any{"a", "b"}, "loc", 0, "size", 1, "data", "x"}
	case "revoke_auth":
		return []any{"preserve_minion_cache", false}
	}

	return []any{"path", "top.sls", "saltenv", "base", "loc", 0, "prefix", "", "opts", value.NewMap()}
}

// loud lets every command have its effect.
const loud = "file_recv: True\npeer:\n  .*: [.*]\npeer_run:\n  .*: [.*]\n"

// named lists the local or the minions' methods.
func named(table request.Table, local bool) (names []string) {
	for n, m := range table {
		if m.Local == local {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names
}

func TestCommandsAreListed(t *testing.T) {
	if got := named(minion.New(minion.Config{Options: &conf.Master{}}).Methods(), false); !slices.Equal(got, minionCommands) {
		t.Errorf("commands of minions: %q", got)
	}
	if got := named(local.New(local.Config{}).Methods(), true); !slices.Equal(got, localCommands) {
		t.Errorf("commands of local clients: %q", got)
	}
}

func TestAttack01UnlistedMethods(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(mastertest.TestData(t, "salt_methods.txt"))
	check.Must(t, err)
	names := strings.Fields(string(b))
	if len(names) < 100 {
		t.Fatalf("only %d names", len(names))
	}

	r := mastertest.Start(t, loud)
	n := r.AcceptedMinion("min1", "min6")
	r.ListenToBus()
	sub := r.Subscribe()
	before := r.Snapshot()
	const secret = "canary-4711"
	names = append(names, "", "Publish", "publish ", "ping\x00", "_auth\x00", "../publish",
		"ClearFuncs.publish", "__init__", "Do", "_AUTH", strings.Repeat("a", 5000), "_auth.__class__")
	args := []any{"path", "x", "jid", attackJID, "data", secret, "fun", "test.ping", "tgt", "*", "arg",
		[]any{}, "key", "x", "ret", "", "tag", "salt/x", "return", secret, "grains",
		value.NewMap("a", secret), "clear", true}
	var cmds []any
	for _, name := range names {
		cmds = append(cmds, name)
	}

	cmds = append(cmds, nil, int64(1), true, []any{"publish"}, value.NewMap("publish", 1), []byte{0xff, 0xfe})
	for _, cmd := range cmds {
		name, _ := cmd.(string)
		if !slices.Contains(localCommands, name) && name != "_auth" {
			for _, fields := range [][]any{args, append([]any{"id", "min1", "tok", n.Token}, args...)} {
				load := value.NewMap(fields...)
				load.Set("cmd", cmd)
				v := r.AskValue(value.NewMap("enc", "clear", "load", load, "version", 3))
				if m, ok := v.(*value.Map); !ok || m.Len() != 0 {
					t.Errorf("%.60q in the clear: %.100v", cmd, v)
				}
			}
		}

		if !slices.Contains(minionCommands, name) {
			l := n.Load("", args...)
			l.Set("cmd", cmd)
			if m, ok := n.AskLoad(l).(*value.Map); !ok || m.Len() != 0 {
				t.Errorf("%.60q encrypted: %v", cmd, m)
			}
		}
	}

	// Without any cmd.
	if v, ok := r.AskValue(value.NewMap("enc", "clear", "load", value.NewMap("a", 1), "version", 3)).(*value.Map); !ok || v.Len() != 0 {
		t.Errorf("no cmd: %v", v)
	}

	r.WantQuiet("unlisted methods")
	if p := sub.Published(); len(p) > 0 {
		t.Errorf("%d publishes", len(p))
	}

	r.WantUnchanged("unlisted methods", before)
	if v := n.Ask("_file_envs"); fmt.Sprint(v) != "[base]" {
		t.Errorf("afterwards: %v", v)
	}
}

func TestAttack02LocalCommandsWithoutKey(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t,
		"sharedsecret: right-password\nexternal_auth:\n  sharedsecret:\n    alice: [.*, '@wheel', '@runner', '@jobs']\npublisher_acl:\n  bob: [test.ping]\nclient_acl_verify: False\n")
	n := r.AcceptedMinion("min1", "min6")
	r.ListenToBus()
	sub := r.Subscribe()
	bobKey, err := os.ReadFile(r.Path("cache", ".bob_key"))
	check.Must(t, err)
	wrong := []byte(r.Key)
	wrong[10] ^= 1
	token := strings.Repeat("a", 64)
	before := r.Snapshot()
	type cred struct {
		name   string
		fields []any
		slow   bool // password logins are delayed on purpose
	}

	creds := []cred{
		{"nothing", nil, false}, {"user only", []any{"user", "root"}, false}, {"empty key", []any{"user", "root", "key", ""}, false},
		{"wrong key", []any{"user", "root", "key", string(wrong)}, false}, {"part of the key", []any{"user", "root", "key", r.Key[:75]}, false},
		{"longer key", []any{"user", "root", "key", r.Key + "A"}, false}, {"key without user", []any{"key", string(wrong)}, false},
		{"session key", []any{"user", "root", "key", n.Session.String()}, false}, {"publish key", []any{"user", "root", "key", n.AES.String()}, false},
		{"nil", []any{"user", "root", "key", nil}, false}, {"list", []any{"user", "root", "key", []any{r.Key}}, false}, {"true", []any{"user", "root", "key", true}, false},
		{"map", []any{"user", "root", "key", value.NewMap("$ne", "")}, false}, {"sudo", []any{"user", "sudo_root", "key", string(wrong)}, false},
		{"unknown user", []any{"user", "mallory", "key", string(wrong)}, false}, {"user as list", []any{"user", []any{"root"}, "key", string(wrong)}, false},
		{"unknown token", []any{"token", token}, false}, {"token path", []any{"token", "../../pki/m1.pem"}, false}, {"token nul", []any{"token", "a\x00"}, false}, {"empty token", []any{"token", ""}, false}, {"token nil", []any{"token", nil}, false},
		{"eauth that is off", []any{"eauth", "auto", "username", "root", "password", "x"}, false}, {"eauth pam", []any{"eauth", "pam", "username", "root", "password", ""}, false}, {"eauth nil", []any{"eauth", nil}, false},
		{"wrong password", []any{"eauth", "sharedsecret", "username", "alice", "password", "wrong"}, true},
	}

	forms := func(cmd string, c cred) []any {
		base := []any{"tgt", "*", "fun", "test.ping", "arg", []any{}, "tgt_type", "glob", "ret", "", "jid", attackJID}
		switch cmd {
		case "wheel":
			base = []any{"fun", "key.delete", "match", "min1"}
		case "runner":
			base = []any{"fun", "test.arg", "kwarg", value.NewMap()}
		case "saltern_runner_result", "saltern_job_user":
			base = []any{"jid", attackJID}
		case "mk_token", "get_token":
			base = nil
		}

		return append(base, c.fields...)
	}

	refused := func(cmd, what string, v any) {
		t.Helper()
		switch m := v.(type) {
		case *value.Map:
			if m.Map("error").Str("name") == "" && (cmd != "get_token" && cmd != "saltern_job_user" || m.Len() != 0) {
				t.Errorf("%s, %s: %v", cmd, what, m)
			}
		case string, bool:
			if v != "" && v != false {
				t.Errorf("%s, %s: %v", cmd, what, v)
			}
		default:
			t.Errorf("%s, %s: %v", cmd, what, v)
		}
	}

	for _, cmd := range []string{"publish", "wheel", "runner", "saltern_runner_result", "saltern_job_user",
		"mk_token", "get_token"} {
		for _, c := range creds {
			if c.slow && cmd != "mk_token" {
				continue
			}

			refused(cmd, c.name, r.AskInClear(cmd, forms(cmd, c)...))
			if cmd == "publish" && len(c.fields) > 0 { // tokens and passwords travel in kwargs
				refused(cmd, c.name+" in kwargs",
					r.AskInClear(cmd, append(forms(cmd, cred{}), "kwargs", value.NewMap(c.fields...))...))
			}
		}
	}

	// Bob's key does not make him somebody else, nor let him do more.
	for _, c := range [][]any{
		{"user", "mallory"},
		{"user", "bob", "fun", "test.arg"},
		{"user", "bob", "fun", "cmd.run"},
	} {
		f := append([]any{"tgt", "*", "fun", "test.ping", "arg", []any{}, "tgt_type", "glob", "ret", "",
			"jid", "", "key", string(bobKey)},
			c...)
		refused("publish", fmt.Sprint("bob's key with ", c), r.AskInClear("publish", f...))
	}

	refused("wheel", "bob",
		r.AskInClear("wheel", "fun", "key.delete", "match", "min1", "user", "bob", "key", string(bobKey)))
	r.WantQuiet("refused callers")
	if p := sub.Published(); len(p) > 0 {
		t.Errorf("%d publishes", len(p))
	}

	r.WantUnchanged("refused callers", before)

	// The right key, password and token do work.
	jid := r.Publish("*", "test.ping").Str("jid")
	p := sub.Published()
	if len(p) != 1 || n.OpenPublication(p[0]).Str("jid") != jid {
		t.Fatalf("%d publishes", len(p))
	}

	if v := r.AskInClear("mk_token", "eauth", "sharedsecret", "username", "alice", "password",
		"right-password"); v.(*value.Map).Str("token") == "" {
		t.Errorf("mk_token: %v", v)
	} else if v := r.AskInClear("wheel", "fun", "key.list_all", "token", v.(*value.Map).Str("token")); !v.(*value.Map).Map("data").Bool("success") {
		t.Errorf("wheel: %v", v)
	}

	for _, secret := range []string{r.Key, string(bobKey), "right-password", n.Session.String(), n.AES.String()} {
		if strings.Contains(r.Log.String(), secret) {
			t.Error("a secret is in the log")
		}
	}
}

// TestAttack03NotProven sends every command with each way of not being who
// the caller says. All must be refused, with the same words and no effect.
func TestAttack03NotProven(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, loud)
	a, b := r.AcceptedMinion("min1", "min6"), r.AcceptedMinion("min2", "min7")

	// A third had another key before.
	old := r.AcceptedMinion("min3", "min8")
	oldSession, oldTok := old.Session, old.Token
	check.Must(t, r.Parts.Keys.Delete("min3"))
	renewed := r.AcceptedMinion("min3", "minsha")
	pending := r.NewMinion("min4", "minsign")
	pending.SignIn()

	// Two more were accepted, and have the sessions and tokens of that time.
	rejected, demoted := r.AcceptedMinion("min5", "mingrain"), r.AcceptedMinion("min6", "minfilt")
	rejected.Ask("_file_envs")
	check.Must(t, r.Parts.Keys.Move("min5", keys.Rejected))
	check.Must(t, r.Parts.Keys.Move("min6", keys.Pending))
	random, err := crypt.NewKey(nil)
	check.Must(t, err)
	b.Ask("_mine", "data", value.NewMap("f", "theirs"))
	r.ListenToBus()
	sub := r.Subscribe()
	before := r.Snapshot()

	for _, cmd := range minionCommands {
		load := func(n *mastertest.Minion, more ...any) *value.Map {
			return n.Load(cmd, append(plausible(cmd, n.ID), more...)...)
		}
		without := func(n *mastertest.Minion, field string) *value.Map {
			l := load(n)
			l.Delete(field)
			return l
		}

		for _, c := range []struct {
			name    string
			payload []byte
		}{
			{"no outer id", a.Sealed(nil, a.Session, load(a))},
			{"outer id is no text", a.Sealed([]any{"min1"}, a.Session, load(a))},
			{"no inner id", a.Sealed("min1", a.Session, without(a, "id"))},
			{"foreign outer id", a.Sealed("min2", a.Session, load(a))},
			{"foreign outer and inner id", a.Sealed("min2", a.Session, load(a, "id", "min2"))},
			{"foreign inner id", a.Sealed("min1", a.Session, load(a, "id", "min2"))},
			{"foreign inner id and token", a.Sealed("min1", a.Session, load(a, "id", "min2", "tok", b.Token))},
			{"foreign session", a.Sealed("min1", b.Session, load(a))},
			{"publish key", a.Sealed("min2", a.AES, load(b))},
			{"random key", a.Sealed("min1", random, load(a))},
			{"no token", a.Sealed("min1", a.Session, without(a, "tok"))},
			{"foreign token", a.Sealed("min1", a.Session, load(a, "tok", b.Token))},
			{"empty token", a.Sealed("min1", a.Session, load(a, "tok", ""))},
			{"nil token", a.Sealed("min1", a.Session, load(a, "tok", nil))},
			{"token as list", a.Sealed("min1", a.Session, load(a, "tok", []any{a.Token}))},
			{"zero token", a.Sealed("min1", a.Session, load(a, "tok", make([]byte, len(a.Token))))},
			{"no nonce", a.Sealed("min1", a.Session, without(a, "nonce"))},
			{"short nonce", a.Sealed("min1", a.Session, load(a, "nonce", "x"))},
			{"session and token of the old key", renewed.Sealed("min3", oldSession, load(renewed, "tok", oldTok))},
			{"session of the old key", renewed.Sealed("min3", oldSession, load(renewed))},
			{"token of the old key", renewed.Sealed("min3", renewed.Session, load(renewed, "tok", oldTok))},
			{"pending minion", pending.Sealed("min4", a.Session, load(pending))},
			{"rejected minion", rejected.Payload(load(rejected))},
			{"minion that waits again", demoted.Payload(load(demoted))},
			{"unknown minion", a.Sealed("nobody", a.Session, load(a, "id", "nobody"))},
			{"damaged", damaged(a.Payload(load(a)))},
		} {
			a.WantRefused(cmd+", "+c.name, c.payload)
		}
	}

	r.WantQuiet("unproven requests")
	if p := sub.Published(); len(p) > 0 {
		t.Errorf("%d publishes", len(p))
	}

	r.WantUnchanged("unproven requests", before)
	if e, ok := r.Parts.Keys.Lookup("min1"); !ok || e.State != keys.Accepted {
		t.Error("min1 lost its key")
	}

	// Proven, all of them are answered.
	for _, cmd := range minionCommands {
		if cmd == "_pillar" || cmd == "revoke_auth" || cmd == "minion_publish" {
			continue
		}
		a.Ask(cmd, plausible(cmd, "min1")...)
	}

	a.Pillar()
	if a.Ask("revoke_auth") != true {
		t.Error("revoke_auth")
	}

	a.WantRefused("after revoke_auth", a.Payload(a.Load("_file_envs")))
	await.That(t, "rotation", func() bool { return slices.Contains(mastertest.TagsOf(r.NewEvents()), "key") })
}

// damaged changes one byte of the sealed part.
func damaged(payload []byte) []byte {
	b := bytes.Clone(payload)
	b[len(b)/3] ^= 1
	return b
}

// The log of a refused request names the source, and does so in one line.
func TestAttack07OldVersions(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "")
	n := r.AcceptedMinion("min1", "min6")
	r.ListenToBus()
	before := r.Snapshot()
	stranger := r.NewMinion("new1", "min7")
	for _, v := range []any{nil, int64(0), int64(1), int64(2), int64(-1), "3", "three", 3.0, true,
		[]any{int64(3)}, value.NewMap()} {
		sealed := mastertest.Unpack(t, n.Payload(n.Load("_return", plausible("_return", "min1")...))).(*value.Map)
		clear := value.NewMap("enc", "clear", "load", stranger.SignInLoad(), "version", int64(3))
		ping := value.NewMap("enc", "clear", "load", value.NewMap("cmd", "ping"), "version", int64(3))
		for name, env := range map[string]*value.Map{"encrypted": sealed, "sign-in": clear, "ping": ping} {
			if v == nil {
				env.Delete("version")
			} else {
				env.Set("version", v)
			}

			start := time.Now()
			if got := r.AskValue(env); got != "bad load" {
				t.Errorf("%s with version %v: %.80v", name, v, got)
			}

			if d := time.Since(start); d > 5*time.Second {
				t.Errorf("%s with version %v took %s", name, v, d)
			}
		}
	}

	r.WantQuiet("old versions")
	r.WantUnchanged("old versions", before)
	if log := r.Log.String(); !strings.Contains(log, "minimum_auth_version") ||
		!strings.Contains(log, "from="+strings.Split(r.Host, ":")[0][:4]) {
		t.Error("refusals are not logged with their source")
	}
}
