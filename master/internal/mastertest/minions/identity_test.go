package minions

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"saltern/master/cache"
	"saltern/master/event"
	"saltern/master/health"
	"saltern/master/internal/local"
	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// Grains are what a minion says of itself, and are not to be trusted; the id
// is proven, and nothing a minion sends may bend it.
func TestAttack17PillarOfOthers(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "")
	const theirs, mine = "canary-of-min2", "canary-of-min1"
	r.AddFile("pillar/top.sls",
		"base:\n  'min1':\n    - own\n  'min2':\n    - other\n  'G@id:min2':\n    - match: compound\n    - byid\n  'id:min2':\n    - match: grain\n    - byid\n  'E@min2':\n    - match: compound\n    - other\n  'L@min2,min9':\n    - match: compound\n    - other\n")
	r.AddFile("pillar/own.sls", "secret: "+mine+"\n")
	r.AddFile("pillar/other.sls", "secret: "+theirs+"\n")
	r.AddFile("pillar/byid.sls", "byid: "+theirs+"\n")
	r.AddFile("exec.sls", "x: "+theirs+"\n")
	a, b := r.AcceptedMinion("min1", "min6"), r.AcceptedMinion("min2", "min7")
	if p := b.Pillar(); p.Str("secret") != theirs {
		t.Fatalf("pillar of min2: %v", p)
	}

	ext := []any{value.NewMap("cmd_yaml", "echo secret: "+theirs),
		value.NewMap("git", []any{value.NewMap("x", "ext::sh -c touch% "+r.Path("pwned"))}),
		value.NewMap("file_tree", value.NewMap("root_dir", r.Dir))}
	for _, fields := range [][]any{
		nil,
		{"grains", value.NewMap("id", "min2")},
		{"grains", value.NewMap("id", []any{"min2", "min1"})},
		{"grains", value.NewMap("id", value.NewMap("min2", 1))},
		{"grains", value.NewMap("ID", "min2", "id ", "min2", "nodename", "min2", "host", "min2")},
		{"extra_minion_data", value.NewMap("id", "min2", "minion_id", "min2", "grains", value.NewMap("id", "min2"))},
		{"pillar_override", value.NewMap("id", "min2")},
		{"minion_id", "min2", "opts", value.NewMap("id", "min2"), "minion", "min2"},
		{"ext", ext}, {"ext", value.NewMap("cmd_yaml", "cat "+r.Path("exec.sls"))}, {"ext", "cmd_yaml"},
		{"pillarenv", "min2", "saltenv", "min2"},
		{"clean_cache", true},
	} {
		p := a.Pillar(fields...)
		if s := string(mastertest.Pack(t, p)); strings.Contains(s, theirs) {
			t.Errorf("with %v: %.300q", fields, s)
		}
		if len(fields) == 0 && p.Str("secret") != mine {
			t.Errorf("own pillar: %v", p)
		}
	}

	if _, err := os.Stat(r.Path("pwned")); err == nil {
		t.Error("ext ran a command")
	}

	if g, _ := r.Parts.Cache.Get(cache.Grains, "min1"); g.Str("id") != "min1" {
		t.Errorf("grains of min1 are kept with id %v", g.Value("id"))
	}

	if g, _ := r.Parts.Cache.Get(cache.Pillar, "min2"); g.Str("secret") != theirs {
		t.Errorf("pillar of min2 in the cache: %v", g)
	}

	b.WantRefused("foreign pillar", a.Sealed("min1", a.Session, b.Load("_pillar", "grains", value.NewMap("id", "min2"))))
}

// Targets must not tell a minion what is in the pillars of others, by letting
// it guess at patterns.
func TestAttack17PillarGuessing(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "peer:\n  .*: [.*]\nnodegroups:\n  guess: 'I@secret:tr*'\n")
	r.AddFile("pillar/top.sls", "base:\n  'min2': [s]\n")
	r.AddFile("pillar/s.sls", "secret: tree-frog\n")
	a, b := r.AcceptedMinion("min1", "min6"), r.AcceptedMinion("min2", "min7")
	b.Pillar()
	b.Ask("_mine", "data", value.NewMap("f", "value"))
	r.ListenToBus()

	for _, c := range [][2]string{
		{"pillar", "secret:tr*"}, {"pillar", "secret:*"}, {"PILLAR", "secret:tr*"}, {"pillar_pcre", "secret:tr.*"}, {"Pillar_PCRE", "secret:^t"}, {"compound", "I@secret:tr*"}, {"compound", "J@secret:tr.*"},
		{"COMPOUND", "I@secret:tr*"}, {"compound", "* and I@secret:t*"}, {"compound", "not I@secret:x* and J@secret:t.*"}, {"compound", "( J@secret:t.* )"}, {"compound", "min2 and J@secret:^tr"},
	} {
		got, _ := a.Ask("_mine_get", "tgt", c[1], "fun", "f", "tgt_type", c[0]).(*value.Map)
		if got.Len() != 0 {
			t.Errorf("mine of %s %q: %v", c[0], c[1], got)
		}

		if got, _ = a.Ask("_mine_get", "tgt", c[1], "fun", "f", "expr_form", c[0]).(*value.Map); got.Len() != 0 {
			t.Errorf("mine of old form %s %q: %v", c[0], c[1], got)
		}

		if got, _ = a.Ask("minion_pub", "tgt", c[1], "fun", "test.ping", "arg", []any{}, "ret", "",
			"tgt_type", c[0]).(*value.Map); got.Len() != 0 {
			t.Errorf("publish to %s %q: %v", c[0], c[1], got)
		}
	}

	r.WantQuiet("guesses")
	if got, _ := a.Ask("_mine_get", "tgt", "secret:tree-frog", "fun", "f", "tgt_type", "pillar").(*value.Map); got.Str("min2") != "value" {
		t.Errorf("who knows the value finds it: %v", got)
	}
}

// publicPEM makes a public key of any numbers.
func publicPEM(n *big.Int, e int) string {
	return string(pem.EncodeToMemory(&pem.Block{
		Type:  "RSA PUBLIC KEY",
		Bytes: x509.MarshalPKCS1PublicKey(&rsa.PublicKey{N: n, E: e}),
	}))
}

func modulus(bits int) *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), uint(bits-1)))
	if err != nil {
		panic(err)
	}
	return n.SetBit(n.SetBit(n, bits-1, 1), 0, 1)
}

func TestAttack18KeysAtSignIn(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "auto_accept: True\n")
	good := r.AcceptedMinion("good", "min6")

	// Meanwhile a second client must not feel anything of it.
	ctx, stop := context.WithCancel(context.Background())
	worst := make(chan time.Duration, 1)
	var asked atomic.Int64
	go func() {
		var max time.Duration
		for ctx.Err() == nil {
			start := time.Now()
			l := good.Load("_mine_get", "tgt", "x", "fun", "f")
			if _, err := good.Send(good.Payload(l)); err != nil {
				t.Error(err)
			}

			if d := time.Since(start); d > max {
				max = d
			}

			asked.Add(1)
			time.Sleep(time.Millisecond)
		}

		worst <- max
	}()

	before := r.Snapshot()
	ok := mastertest.PublicPEM(t, mastertest.KeyPair(t, "min7"))
	even := modulus(2048)
	even.SetBit(even, 0, 0)
	priv, err := os.ReadFile(mastertest.TestData(t, "wire", "keys", "min7_TESTONLY.pem"))
	check.Must(t, err)
	ec := "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEXIuDQrL8YoYxIjvGgDYLwAJYRkWz\nKgMKNyxVfVYeqH4TI2fxjxrGgTkrvgmbqFoZyiF3vjN2hIFbqsXIflhgwg==\n-----END PUBLIC KEY-----"
	stranger := r.NewMinion("stranger", "min7")
	for name, pub := range map[string]any{
		"512": publicPEM(modulus(512), 65537), "1024": publicPEM(modulus(1024), 65537), "2047": publicPEM(modulus(2047), 65537), "8192": publicPEM(modulus(8192), 65537), "16384": publicPEM(modulus(16384), 65537), "32768": publicPEM(modulus(32768), 65537),
		"even modulus": publicPEM(even, 65537), "exponent 1": publicPEM(modulus(2048), 1), "exponent 2": publicPEM(modulus(2048), 2), "even exponent": publicPEM(modulus(2048), 65536),
		"truncated": ok[:len(ok)/2], "cut line": strings.Replace(ok, "\n", "", 2), "empty": "", "spaces": "   \n", "nul": ok + "\x00", "two keys": ok + "\n" + ok, "private key": string(priv), "other kind": ec,
		"text": "ssh-rsa AAAAB3NzaC1yc2E x@y", "long": ok +
			strings.Repeat("\n", 1<<20), "nil": nil, "number": int64(7), "list": []any{ok}, "map": value.NewMap("a", ok), "not UTF-8": []byte("\xff\xfe"),
	} {
		load := stranger.SignInLoad()
		if pub == nil {
			load.Delete("pub")
		} else {
			load.Set("pub", pub)
		}

		start := time.Now()
		v := r.AskValue(value.NewMap("enc", "clear", "load", load, "version", 3))
		if d := time.Since(start); d > 3*time.Second {
			t.Errorf("%s took %s", name, d)
		}

		if m, isMap := v.(*value.Map); isMap {
			if s := stranger.ReadSignIn(load, m); s.Value("ret") != false || s.Str("enc") != "" {
				t.Errorf("%s: %v", name, s)
			}
		}

		if _, known := r.Parts.Keys.Lookup("stranger"); known {
			t.Fatalf("%s was stored", name)
		}
	}

	r.WantUnchanged("bad keys", before)
	if s := stranger.SignIn(); s.Str("enc") != "pub" {
		t.Errorf("a good key: %v", s)
	}

	await.That(t, "ten requests of the other client", func() bool { return asked.Load() >= 10 })
	stop()
	if d := <-worst; d > time.Second || asked.Load() < 10 {
		t.Errorf("the other client waited for up to %s (%d requests)", d, asked.Load())
	}
}

func TestAttack29Expiry(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t,
		"publish_session: 1\ntoken_expire: 1\nexternal_auth:\n  auto:\n    alice: [.*, '@wheel', '@jobs']\n")
	a := r.AcceptedMinion("min1", "min6")
	v, _ := r.AskInClear("mk_token", "eauth", "auto", "username", "alice", "password", "x").(*value.Map)
	token := v.Str("token")
	list := func() bool {
		v, _ := r.AskInClear("wheel", "fun", "key.list_all", "token", token).(*value.Map)
		return v.Map("data").Bool("success")
	}
	if token == "" || !list() {
		t.Fatalf("token: %v", v)
	}

	request := a.Payload(a.Load("_file_envs"))
	if v, err := a.Send(request); err != nil || string(v) == string(mastertest.Pack(t, "bad load")) {
		t.Fatal("fresh session", err)
	}

	await.That(t, "the token's end", func() bool { return !list() })
	await.That(t, "the session's end",
		func() bool {
			v, err := a.Send(request)
			return err == nil && string(v) == string(mastertest.Pack(t, "bad load"))
		})
	if v, _ := r.AskInClear("get_token", "token", token).(*value.Map); v.Len() != 0 {
		t.Errorf("get_token of an expired one: %v", v)
	}

	if v, _ := r.AskInClear("publish", "tgt", "*", "fun", "test.ping", "arg", []any{}, "tgt_type", "glob", "ret",
		"", "jid", "", "kwargs", value.NewMap("token", token)).(*value.Map); v.Map("error") == nil {
		t.Errorf("publish with an expired token: %v", v)
	}

	a.WantRefused("expired session, recorded", request)
	a.WantRefused("expired session", a.Payload(a.Load("_file_envs")))
	a.SignIn()
	a.Ask("_file_envs")
}

func TestAttack30NewKeyForOldID(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "file_recv: True\npeer:\n  .*: [.*]\n")
	const secret = "canary-of-the-old"
	r.AddFile("pillar/top.sls", "base:\n  '*': [all]\n")
	r.AddFile("pillar/all.sls", "a: 1\n")

	for _, how := range []string{"wheel", "file", "revoke", "other node"} {
		t.Run(how, func(t *testing.T) {
			id := "min-" + strings.ReplaceAll(how, " ", "-")
			a, witness := r.AcceptedMinion(id, "min6"), r.AcceptedMinion("witness", "min8")
			a.Pillar("grains", value.NewMap("id", id, "serial", secret), "pillar_override", value.NewMap("x", secret))
			a.Ask("_mine", "data", value.NewMap("f", secret))
			pub, _ := a.Ask("minion_pub", "fun", "test.ping", "arg", []any{}, "tgt", "*", "ret", "",
				"tgt_type", "glob").(*value.Map)
			jid := pub.Str("jid")
			witness.Ask("_return", "jid", jid, "fun", "test.ping", "fun_args", []any{}, "return", secret, "retcode", 0)

			if v, _ := a.Ask("pub_ret", "jid", jid).(*value.Map); v.Len() == 0 {
				t.Fatalf("pub_ret for the owner: %v", v)
			}

			recorded := a.Payload(a.Load("_mine_get", "tgt", id, "fun", "f"))
			event := a.Payload(a.Load("_minion_event", "tag", "custom/x", "data", value.NewMap("a", 1)))
			switch how {
			case "wheel":
				v, _ := r.AskInClear("wheel", "fun", "key.delete", "match", id, "user", local.CurrentUser(),
					"key", r.Key).(*value.Map)
				if !v.Map("data").Bool("success") {
					t.Fatalf("key.delete: %v", v)
				}
			case "revoke":
				a.Ask("revoke_auth", "preserve_minion_cache", true)
			default: // salt-key, or another node, takes the file away
				check.Must(t, os.Remove(r.Path("pki", "minions", id)))
				if how == "file" {
					r.Parts.Keys.Refresh(id)
				}
				await.That(t, "deletion seen", func() bool { _, ok := r.Parts.Keys.Lookup(id); return !ok })
			}

			a.WantRefused("recorded request", recorded)
			a.WantRefused("new request", a.Payload(a.Load("_file_envs")))
			if s := a.SignIn(); s.Value("ret") != true || s.Str("enc") != "" {
				t.Errorf("the old key signs in: %v", s)
			}

			check.Must(t, r.Parts.Keys.Delete(id))
			b := r.AcceptedMinion(id, "min7")
			if b.Session.String() == a.Session.String() {
				t.Error("the new key has the session key of the old one")
			}

			b.WantRefused("old session", a.Payload(a.Load("_file_envs")))
			b.WantRefused("old event", event)
			b.WantRefused("old session with the new token", b.Sealed(id, a.Session, b.Load("_file_envs")))
			for _, n := range []*mastertest.Minion{b, witness} {
				if s := string(mastertest.Pack(t, n.Ask("_mine_get", "tgt", "*", "fun", "f", "tgt_type", "glob"))); strings.Contains(s, secret) {
					t.Errorf("mine: %q", s)
				}
			}

			if v, _ := b.Ask("pub_ret", "jid", jid).(*value.Map); v.Len() != 0 {
				t.Errorf("returns of a job of the old one: %v", v)
			}

			// Nothing is left on disk or in memory but the history of jobs.
			await.That(t, "cache cleared", func() bool {
				for name, text := range r.Snapshot() {
					if strings.Contains(text, secret) && !strings.HasPrefix(name, "cache/jobs") {
						return false
					}
				}
				return true
			})

			for _, bank := range []cache.Bank{cache.Grains, cache.Pillar, cache.Mine} {
				if v, ok := r.Parts.Cache.Get(bank, id); ok {
					t.Errorf("%s: %v", bank, v)
				}
			}

			minions, _, err := r.Parts.Targets.Resolve(nil, "serial:"+secret, "grain", ":")
			if err != nil || len(minions) != 0 {
				t.Errorf("grain target finds %q, %v", minions, err)
			}
		})
	}
}

func TestAttack31OpenDoors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		options    string
		open, auto bool
	}{{"", false, false}, {"open_mode: True\n", true, false}, {"auto_accept: True\n", false, true}} {
		r := mastertest.Start(t, c.options)
		n := r.NewMinion("stranger", "min6")
		if got := n.SignIn().Str("enc") == "pub"; got != (c.open || c.auto) {
			t.Errorf("%q: a stranger is accepted: %v", c.options, got)
		}

		// Another key for the same id.
		n.Key = mastertest.KeyPair(t, "min7")
		if got := n.SignIn().Str("enc") == "pub"; got != c.open {
			t.Errorf("%q: another key is accepted: %v", c.options, got)
		}

		var s health.Status
		await.That(t, "status", func() bool {
			b, err := os.ReadFile(r.Path("cache", "status.json"))
			return err == nil && json.Unmarshal(b, &s) == nil
		})

		if s.OpenMode != c.open || s.AutoAccept != c.auto {
			t.Errorf("%q: status %+v", c.options, s)
		}

		if got := strings.Contains(r.Log.String(), "_mode is on") ||
			strings.Contains(r.Log.String(), "_accept is on"); got != (c.open || c.auto) {
			t.Errorf("%q: warning in the log: %v", c.options, got)
		}

		r.Stop()
	}
}

func TestAttack32LocalUsers(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "")
	a := r.AcceptedMinion("min1", "min6")
	a.Pillar()
	r.ListenToBus()

	for name, want := range map[string]os.FileMode{
		"run/master_event_pull.ipc": 0o600, "run/master_event_ack.ipc": 0o600, "run/master_event_pub.ipc": 0o660, "run/publish_pull.ipc": 0o600, "run/workers.ipc": 0o600,
		"cache/." + local.CurrentUser() +
			"_key": 0o600, "pki": 0o700, "pki/m1.pem": 0o400, "pki/minions": 0o700, "pki/minions/min1": 0o600,
		"cache/sessions": 0o700, "cache/publish_auth": 0o700,
	} {
		info, err := os.Lstat(r.Path(name))
		if err != nil {
			t.Error(err)
			continue
		}

		if got := info.Mode().Perm(); got&^want != 0 {
			t.Errorf("%s has mode %o, more than %o", name, got, want)
		}
	}

	// No file with a secret is open to others.
	for name, text := range r.Snapshot() {
		info, err := os.Lstat(r.Path(name))
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o007 == 0 {
			continue
		}

		for _, s := range []string{r.Key, a.AES.String(), a.Session.String(), "PRIVATE KEY"} {
			if strings.Contains(text, s) {
				t.Errorf("%s with mode %o holds a secret", name, info.Mode().Perm())
			}
		}
	}

	if os.Getuid() != 0 {
		t.Log("not root: what another user can reach is not tried")
		return
	}

	// Another user, also when an administrator has opened the folders.
	for _, name := range []string{".", "run", "cache"} {
		check.Must(t, os.Chmod(r.Path(name), 0o755))
	}

	check.Must(t, os.Chmod(r.Path("run/master_event_pull.ipc"), 0o666))
	check.Must(t, os.Chmod(r.Path("run/master_event_ack.ipc"), 0o666))
	exe := r.Path("other")
	b, err := os.ReadFile(os.Args[0])
	check.Must(t, err)
	check.Must(t, os.WriteFile(exe, b, 0o755))
	cmd := exec.Command(exe, "-test.run=^TestOtherUser$", "-test.v")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "SALTERN_TEST_DIR="+r.Dir, "SALTERN_TEST_USER="+local.CurrentUser())
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestOtherUser") {
		t.Errorf("as another user: %v\n%s", err, out)
	}

	r.WantQuiet("another user")
}

// TestOtherUser is the other user of TestAttack32LocalUsers; alone it does
// nothing.
func TestOtherUser(t *testing.T) {
	dir := os.Getenv("SALTERN_TEST_DIR")
	if dir == "" {
		return
	}
	if os.Getuid() != 65534 {
		t.Fatal("not another user")
	}

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if l, err := event.DialPub(ctx, filepath.Join(dir, "run")); err == nil {
		l.Close()
		t.Error("the event socket is open to others")
	}

	// Both sockets are opened by their mode: the master must ask the kernel who it is.
	s := event.NewSender(filepath.Join(dir, "run"))
	defer s.Close()
	if err := s.Fire(ctx, "salt/key", value.NewMap("act", "accept")); err == nil {
		t.Error("the master takes events of others")
	}

	pull, err := net.Dial("unix", filepath.Join(dir, "run", "master_event_pull.ipc"))
	if err != nil {
		t.Errorf("connect to the pull socket: %v", err)
	} else {
		_, _ = pull.Write(mastertest.SaltFrame(t, "salt/key", value.NewMap("act", "accept")))
		pull.Close()
	}

	for _, name := range []string{"cache/." + os.Getenv("SALTERN_TEST_USER") + "_key", "pki/m1.pem",
		"cache/.publish_key", "cache/.session_seed", "cache/publish_auth", "pki/minions"} {
		if f, err := os.Open(filepath.Join(dir, name)); err == nil {
			f.Close()
			t.Errorf("%s can be read", name)
		}
	}

	if c, err := net.Dial("unix", filepath.Join(dir, "run", "workers.ipc")); err == nil {
		c.Close()
		t.Error("workers.ipc answers")
	}

	fmt.Println("done")
}
