package minions

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/master/internal/local"
	"saltern/master/internal/mastertest"
	"saltern/master/keys"
	"saltern/master/value"
	"saltern/test/check"
)

// names that must not become part of a path, or match others.
func hostileNames() []string {
	return []string{"..", ".", "", "../x", "../../etc/x", "/etc/x", "a/b", "a\\b", "..\\x", ".hidden",
		"a\x00b", "a\nb", "a\r\nb", "a\x1b[31m", "\x7f", "a\tb",
		strings.Repeat("a", 300), strings.Repeat("a", 4096), "*", "?", "[a]", "min*", "m[i]n1", " min1", "min1 ", "min1\u200b", "m\u0456n1\u202e",
		"..%2fx", "%2e%2e/x", "min1/../min2", "~root", "\xff\xfe", ".key_cache", "a//b", "/", "//", "min1\x00.pem"}
}

func TestAttack13MinionIDs(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "auto_accept: True\nlog_level: debug\n")
	a := r.AcceptedMinion("min1", "min6")
	check.Must(t, os.MkdirAll(r.Path("pki", "minions", "dir"), 0o700))
	before := r.Snapshot()
	exists := func(path string) bool { _, err := os.Lstat(path); return err == nil }
	outside := slices.DeleteFunc([]string{filepath.Dir(r.Dir) + "/x", "/etc/x"}, exists) // another's
	stranger := r.NewMinion("", "min7")
	for _, id := range hostileNames() {
		if keys.ValidID(id) == nil {
			continue // odd, but a file name like any other: looked at below
		}

		stranger.ID = id
		load := stranger.SignInLoad()
		v := r.AskValue(value.NewMap("enc", "clear", "load", load, "version", 3))
		if m, ok := v.(*value.Map); ok && m.Map("error") == nil {
			if s := stranger.ReadSignIn(load, v); s.Value("ret") != false {
				t.Errorf("sign-in as %.40q: %v", id, s)
			}
		}

		for _, n := range []*mastertest.Minion{a, stranger} {
			for _, cmd := range []string{"_return", "_mine", "_pillar", "_file_recv", "_minion_event", "revoke_auth"} {
				b, err := r.AskRaw(n.Sealed(id, a.Session, n.Load(cmd, append(plausible(cmd, id), "id", id)...)))
				check.Must(t, err)
				if s, _ := mastertest.Unpack(t, b).(string); !strings.HasPrefix(s, "bad load") {
					t.Errorf("%s as %.40q: %v", cmd, id, mastertest.Unpack(t, b))
				}
			}
		}
	}

	for _, id := range []any{nil, int64(1), []any{"min1"}, value.NewMap("min1", 1), true} {
		load := stranger.SignInLoad()
		load.Set("id", id)
		if v, ok := r.AskValue(value.NewMap("enc", "clear", "load", load, "version", 3)).(string); !ok ||
			!strings.HasPrefix(v, "bad load") {
			t.Errorf("sign-in with id %v: %v", id, v)
		}
	}

	r.WantUnchanged("bad ids", before)

	// Case twins and look-alikes are others, not the same.
	for _, id := range []string{"MIN1", "m\u0456n1", "min1.pem", "min1\u200b"} {
		if keys.ValidID(id) != nil {
			continue
		}

		stranger.ID = id
		if s := stranger.SignIn(); s.Str("enc") != "pub" {
			t.Errorf("%q: %v", id, s)
		}

		a.WantRefused("as twin "+id, a.Sealed(id, a.Session, a.Load("_file_envs", "id", id)))
	}

	if e, _ := r.Parts.Keys.Lookup("min1"); e.PEM != mastertest.PublicPEM(t, a.Key) {
		t.Error("the key of min1 is another one")
	}

	for _, p := range outside {
		if exists(p) {
			t.Errorf("%s appeared", p)
		}
	}

	for line := range strings.Lines(r.Log.String()) {
		if !strings.HasPrefix(line, "time=") || strings.ContainsAny(strings.TrimSuffix(line, "\n"), "\x1b\x00\r") {
			t.Fatalf("log line %q", line)
		}
	}
}

func TestAttack14FileRecv(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "file_recv: True\nfile_recv_max_size: 1\n")
	a, b := r.AcceptedMinion("min1", "min6"), r.AcceptedMinion("min2", "min7")
	files := func(id string) string { return r.Path("cache", "minions", id, "files") }

	if b.Ask("_file_recv", "path", []any{"f"}, "loc", 0, "size", 6, "data", "theirs") != true ||
		a.Ask("_file_recv", "path", []any{"ok"}, "loc", 0, "size", 2, "data", "ok") != true {
		t.Fatal("an honest file is refused")
	}

	check.Must(t, os.Symlink("../../min2/files/f", filepath.Join(files("min1"), "link")))
	check.Must(t, os.Symlink("/", filepath.Join(files("min1"), "rootlink")))
	check.Must(t, syscall.Mkfifo(filepath.Join(files("min1"), "fifo"), 0o600))
	before := r.Snapshot()
	l := func(p ...any) []any { return p }
	big := strings.Repeat("x", 1<<20+1)
	for _, c := range []struct {
		path, loc, data any
	}{
		{l("..", "x"), 0, "d"}, {l("a", "..", "..", "..", "..", "x"), 0, "d"}, {l("../x"), 0, "d"}, {l("/etc/x"), 0, "d"}, {l("", "etc", "x"), 0, "d"}, {l(), 0, "d"}, {l("."), 0, "d"},
		{"x", 0, "d"}, {nil, 0, "d"}, {l(int64(1)), 0, "d"}, {l("a\x00b"), 0, "d"}, {l(strings.Repeat("a", 300)), 0, "d"}, {l("link"), 0, "d"}, {l("rootlink", "tmp", "x"), 0, "d"}, {l("fifo"), 0, "d"},
		{l("x"), -1, "d"}, {l("x"), int64(1) << 62, "d"}, {l("x"), "0", "d"}, {l("x"), 0, nil}, {l("x"), 5, "d"}, {l("x"), 0, big}, {l("..", "..", "min2", "files", "f"), 0, "d"}, {l("..\\x"), 0, ""},
	} {
		start := time.Now()
		if v := a.Ask("_file_recv", "path", c.path, "loc", c.loc, "size", 1, "data", c.data, "id", "min1"); v == true && fmt.Sprint(c.path) != `[..\x]` {
			t.Errorf("%.60q at %v: accepted", fmt.Sprint(c.path), c.loc)
		}
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("%.60q took %s", fmt.Sprint(c.path), d)
		}
	}

	for k, v := range r.Snapshot() {
		if before[k] != v && !strings.HasPrefix(k, "cache/minions/min1/files") {
			t.Errorf("%s changed", k)
		}
	}

	if a.Ask("_file_recv", "path", l("over"), "loc", 0, "size", 1, "data", strings.Repeat("x", 1<<20)) != true || a.Ask("_file_recv", "path", l("over"), "loc", 1<<20, "size", 1, "data", "x") != false {
		t.Error("file_recv_max_size")
	}

	off := mastertest.Start(t, "")
	c := off.AcceptedMinion("min1", "min6")
	if c.Ask("_file_recv", "path", l("x"), "loc", 0, "size", 1, "data", "d") != false {
		t.Error("file_recv is off, but a file was taken")
	}
}

func TestAttack15FileServerPaths(t *testing.T) {
	t.Parallel()

	// Links of the administrator lead out of a root unless this is off, as
	// with Salt; names never do.
	r := mastertest.Start(t,
		"fileserver_followsymlinks: False\nfile_roots:\n  base: [%DIR%/roots/base]\n  dev: [%DIR%/roots/dev]\n  __env__: [%DIR%/roots/__env__]\n")
	const canary = "canary-outside-4711"
	for name, text := range map[string]string{
		"roots/base/a.txt": "inside",
		"roots/dev/b.txt":  "dev",
		"secret.txt":       canary,
		"roots/secret.txt": canary,
		"cache/secret.txt": canary,
	} {
		check.Must(t, os.MkdirAll(filepath.Dir(r.Path(name)), 0o755))
		check.Must(t, os.WriteFile(r.Path(name), []byte(text), 0o644))
	}

	check.Must(t, os.Symlink("../../secret.txt", r.Path("roots/base/out")))
	check.Must(t, os.Symlink(r.Dir, r.Path("roots/base/outdir")))
	a := r.AcceptedMinion("min1", "min6")
	paths := []string{"out", "outdir/secret.txt", "outdir/cache/secret.txt", "outdir/roots/../secret.txt",
		"../secret.txt", "../../secret.txt", "x/../../secret.txt", "./../secret.txt", "/secret.txt",
		r.Path("secret.txt"), "|" + r.Path("secret.txt"), "|../../secret.txt", "||../secret.txt",
		"..%2fsecret.txt", "%2e%2e/secret.txt", "..\\secret.txt", "a.txt/../../secret.txt", "../base/../../secret.txt", "secret.txt?saltenv=..", "secret.txt?saltenv=../..", "secret.txt?saltenv=../roots", "?saltenv=base", "../secret.txt?saltenv=base", "a.txt\x00/../../secret.txt",
		"salt://../secret.txt", "file://" +
			r.Path("secret.txt"), "....//secret.txt", "..;/secret.txt", "\u2025/secret.txt", "\uff0e\uff0e/secret.txt", "|?saltenv=base", "", ".", "..", "/", strings.Repeat("../", 40) + r.Dir[1:] + "/secret.txt", "\xff../secret.txt"}

	envs := []any{"base", "..", "../..", "/", r.Dir, ".", "", nil, "__env__", "dev/..", "a/../..", "\x00",
		"*", int64(1), []any{".."}, value.NewMap(), strings.Repeat("a", 5000)}
	before := r.Snapshot()
	for _, p := range paths {
		for _, env := range envs {
			for _, cmd := range []string{"_serve_file", "_file_hash", "_file_find", "_file_hash_and_stat"} {
				if env != "base" && cmd != "_serve_file" && cmd != "_file_find" {
					continue
				}

				v := a.Ask(cmd, "path", p, "saltenv", env, "loc", 0)
				if s := string(mastertest.Pack(t, v)); strings.Contains(s, canary) || strings.Contains(s, "hsum") ||
					strings.Contains(s, r.Dir) {
					t.Errorf("%s %.60q in %.40q: %.200q", cmd, p, fmt.Sprint(env), s)
				}
			}
		}
	}

	for _, env := range envs {
		for _, prefix := range []any{"", "..", "../..", "/", nil, "outdir", []any{".."}} {
			for _, cmd := range []string{"_file_list", "_dir_list", "_symlink_list", "_file_list_emptydirs"} {
				s := string(mastertest.Pack(t, a.Ask(cmd, "saltenv", env, "prefix", prefix)))
				if strings.Contains(s, "secret") && cmd != "_symlink_list" || strings.Contains(s, "m1.pem") {
					t.Errorf("%s of %.40q below %q: %.200q", cmd, fmt.Sprint(env), prefix, s)
				}
			}
		}
	}

	for _, loc := range []any{int64(-1), int64(1) << 62, "x", nil, 1.5, []any{}} {
		a.Ask("_serve_file", "path", "a.txt", "saltenv", "base", "loc", loc)
	}

	r.WantUnchanged("paths", before)
	if v, ok := a.Ask("_serve_file", "path", "a.txt", "saltenv", "base", "loc", 0).(*value.Map); !ok ||
		v.Str("data") != "inside" {
		t.Errorf("a file inside: %v", v)
	}
}

func TestAttack16NamesAsPaths(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "peer:\n  .*: [.*]\n")
	for name, text := range map[string]string{"roots/a.txt": "a", "pillar/top.sls": "base:\n  '*': []\n"} {
		check.Must(t, os.MkdirAll(filepath.Dir(r.Path(name)), 0o755))
		check.Must(t, os.WriteFile(r.Path(name), []byte(text), 0o644))
	}

	a := r.AcceptedMinion("min1", "min6")
	a.Pillar()
	check.Must(t, syscall.Mkfifo(r.Path("roots", "fifo"), 0o644))
	check.Must(t, syscall.Mkfifo(r.Path("cache", "publish_auth", attackJID), 0o600))
	check.Must(t, syscall.Mkfifo(r.Path("cache", "tokens", strings.Repeat("a", 64)), 0o600))
	check.Must(t, os.MkdirAll(r.Path("cache", "mine"), 0o755))
	check.Must(t, syscall.Mkfifo(r.Path("cache", "mine", "min1.p"), 0o600))
	quickly := func(what string, f func()) {
		t.Helper()
		start := time.Now()
		f()
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("%s took %s", what, d)
		}
	}

	quickly("serving a pipe", func() {
		if v := a.Ask("_serve_file", "path", "fifo", "saltenv", "base", "loc", 0).(*value.Map); v.Str("data") != "" {
			t.Errorf("a pipe was served: %v", v)
		}
		a.Ask("_file_hash", "path", "fifo", "saltenv", "base")
		a.Ask("_file_find", "path", "fifo", "saltenv", "base")
		a.Ask("_file_list", "saltenv", "base", "prefix", "")
	})

	quickly("pub_ret from a pipe", func() {
		if v, ok := a.Ask("pub_ret", "jid", attackJID).(*value.Map); !ok || v.Len() != 0 {
			t.Errorf("pub_ret: %v", v)
		}
	})

	quickly("a token that is a pipe", func() { r.AskInClear("get_token", "token", strings.Repeat("a", 64)) })
	quickly("a mine that is a pipe", func() { a.Ask("_mine_get", "tgt", "*", "fun", "f", "tgt_type", "glob") })
	before := r.Snapshot()
	for _, name := range append(hostileNames(), "../publish_auth/"+attackJID, "../../../../../../etc/passwd",
		"/dev/zero", "20260102030405678901/../x", "20260102030405678901\x00") {
		quickly(name, func() {
			for _, v := range []any{name, []byte(name), []any{name}} {
				if got, ok := a.Ask("pub_ret", "jid", v).(*value.Map); !ok || got.Len() != 0 {
					t.Errorf("pub_ret of %.40q: %v", name, got)
				}
				a.Ask("_return", "jid", v, "fun", "test.ping", "fun_args", []any{}, "return", true, "retcode", 0)
				r.AskInClear("get_token", "token", v)
			}

			// A job id that the caller chooses.
			v := r.AskInClear("publish", "tgt", "*", "fun", "test.ping", "arg", []any{}, "tgt_type", "glob",
				"ret", "", "jid", name, "user", local.CurrentUser(), "key", r.Key)
			if m, ok := v.(*value.Map); ok && name != "" && m.Map("load").Str("jid") == name {
				t.Errorf("published as job %.40q", name)
			}
		})
	}

	after := r.Snapshot()
	for k, v := range after {
		if before[k] != v && !strings.HasPrefix(k, "cache/jobs") {
			t.Errorf("%s changed", k)
		}
	}

	rets, err := os.ReadDir(r.Path("cache", "jobs"))
	check.Must(t, err)
	for _, e := range rets {
		if len(e.Name()) != 2 {
			t.Errorf("cache/jobs/%s", e.Name())
		}
	}

	for _, env := range append(hostileNames(), "__env__", "../roots", "base/../../pki") {
		quickly("environment "+env, func() {
			p := a.Pillar("saltenv", env, "pillarenv", env)
			if s := string(mastertest.Pack(t, p)); strings.Contains(s, "PRIVATE KEY") {
				t.Errorf("pillar of %.40q: %.100q", env, s)
			}
		})
	}

	grains, err := os.ReadDir(r.Path("cache", "pillar"))
	check.Must(t, err)
	if names := entryNames(grains); len(names) > 60 ||
		slices.ContainsFunc(names, func(n string) bool { return !strings.HasPrefix(n, "min1") }) {
		t.Errorf("cache/pillar: %.300q", names)
	}

	for k := range r.Snapshot() {
		if _, known := after[k]; !known && !strings.HasPrefix(k, "cache/pillar/") &&
			!strings.HasPrefix(k, "cache/grains/") && !strings.HasPrefix(k, "cache/jobs") {
			t.Errorf("%s appeared", k)
		}
	}
}

func entryNames(l []os.DirEntry) []string {
	var out []string
	for _, e := range l {
		out = append(out, e.Name())
	}
	return out
}
