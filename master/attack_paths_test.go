package master

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
	"saltern/master/keys"
	"saltern/master/value"
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
	r := startMaster(t, "auto_accept: True\nlog_level: debug\n")
	a := r.accepted("min1", "min6")
	must(t, os.MkdirAll(r.path("pki", "minions", "dir"), 0o700))
	before := r.snapshot()
	exists := func(path string) bool { _, err := os.Lstat(path); return err == nil }
	outside := slices.DeleteFunc([]string{filepath.Dir(r.dir) + "/x", "/etc/x"}, exists) // another's
	stranger := r.newMinion("", "min7")
	for _, id := range hostileNames() {
		if keys.ValidID(id) == nil {
			continue // odd, but a file name like any other: looked at below
		}

		stranger.id = id
		load := stranger.signInLoad()
		v := r.rawValue(value.NewMap("enc", "clear", "load", load, "version", 3))
		if m, ok := v.(*value.Map); ok && m.Map("error") == nil {
			if s := stranger.readSignIn(load, v); s.Value("ret") != false {
				t.Errorf("sign-in as %.40q: %v", id, s)
			}
		}

		for _, n := range []*scriptedMinion{a, stranger} {
			for _, cmd := range []string{"_return", "_mine", "_pillar", "_file_recv", "_minion_event", "revoke_auth"} {
				b, err := r.raw(n.sealed(id, a.session, n.load(cmd, append(plausible(cmd, id), "id", id)...)))
				must(t, err)
				if s, _ := unpack(t, b).(string); !strings.HasPrefix(s, "bad load") {
					t.Errorf("%s as %.40q: %v", cmd, id, unpack(t, b))
				}
			}
		}
	}

	for _, id := range []any{nil, int64(1), []any{"min1"}, value.NewMap("min1", 1), true} {
		load := stranger.signInLoad()
		load.Set("id", id)
		if v, ok := r.rawValue(value.NewMap("enc", "clear", "load", load, "version", 3)).(string); !ok ||
			!strings.HasPrefix(v, "bad load") {
			t.Errorf("sign-in with id %v: %v", id, v)
		}
	}

	r.unchanged("bad ids", before)

	// Case twins and look-alikes are others, not the same.
	for _, id := range []string{"MIN1", "m\u0456n1", "min1.pem", "min1\u200b"} {
		if keys.ValidID(id) != nil {
			continue
		}

		stranger.id = id
		if s := stranger.signIn(); s.Str("enc") != "pub" {
			t.Errorf("%q: %v", id, s)
		}

		a.refused("as twin "+id, a.sealed(id, a.session, a.load("_file_envs", "id", id)))
	}

	if e, _ := r.m.keys.Lookup("min1"); e.PEM != pemOf(t, a.key) {
		t.Error("the key of min1 is another one")
	}

	for _, p := range outside {
		if exists(p) {
			t.Errorf("%s appeared", p)
		}
	}

	for line := range strings.Lines(r.log.String()) {
		if !strings.HasPrefix(line, "time=") || strings.ContainsAny(strings.TrimSuffix(line, "\n"), "\x1b\x00\r") {
			t.Fatalf("log line %q", line)
		}
	}
}

func TestAttack14FileRecv(t *testing.T) {
	t.Parallel()
	r := startMaster(t, "file_recv: True\nfile_recv_max_size: 1\n")
	a, b := r.accepted("min1", "min6"), r.accepted("min2", "min7")
	files := func(id string) string { return r.path("cache", "minions", id, "files") }

	if b.ask("_file_recv", "path", []any{"f"}, "loc", 0, "size", 6, "data", "theirs") != true ||
		a.ask("_file_recv", "path", []any{"ok"}, "loc", 0, "size", 2, "data", "ok") != true {
		t.Fatal("an honest file is refused")
	}

	must(t, os.Symlink("../../min2/files/f", filepath.Join(files("min1"), "link")))
	must(t, os.Symlink("/", filepath.Join(files("min1"), "rootlink")))
	must(t, syscall.Mkfifo(filepath.Join(files("min1"), "fifo"), 0o600))
	before := r.snapshot()
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
		if v := a.ask("_file_recv", "path", c.path, "loc", c.loc, "size", 1, "data", c.data, "id", "min1"); v == true && fmt.Sprint(c.path) != `[..\x]` {
			t.Errorf("%.60q at %v: accepted", fmt.Sprint(c.path), c.loc)
		}
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("%.60q took %s", fmt.Sprint(c.path), d)
		}
	}

	for k, v := range r.snapshot() {
		if before[k] != v && !strings.HasPrefix(k, "cache/minions/min1/files") {
			t.Errorf("%s changed", k)
		}
	}

	if a.ask("_file_recv", "path", l("over"), "loc", 0, "size", 1, "data", strings.Repeat("x", 1<<20)) != true || a.ask("_file_recv", "path", l("over"), "loc", 1<<20, "size", 1, "data", "x") != false {
		t.Error("file_recv_max_size")
	}

	off := startMaster(t, "")
	c := off.accepted("min1", "min6")
	if c.ask("_file_recv", "path", l("x"), "loc", 0, "size", 1, "data", "d") != false {
		t.Error("file_recv is off, but a file was taken")
	}
}

func TestAttack15FileServerPaths(t *testing.T) {
	t.Parallel()

	// Links of the administrator lead out of a root unless this is off, as
	// with Salt; names never do.
	r := startMaster(t,
		"fileserver_followsymlinks: False\nfile_roots:\n  base: [%DIR%/roots/base]\n  dev: [%DIR%/roots/dev]\n  __env__: [%DIR%/roots/__env__]\n")
	const canary = "canary-outside-4711"
	for name, text := range map[string]string{
		"roots/base/a.txt": "inside",
		"roots/dev/b.txt":  "dev",
		"secret.txt":       canary,
		"roots/secret.txt": canary,
		"cache/secret.txt": canary,
	} {
		must(t, os.MkdirAll(filepath.Dir(r.path(name)), 0o755))
		must(t, os.WriteFile(r.path(name), []byte(text), 0o644))
	}

	must(t, os.Symlink("../../secret.txt", r.path("roots/base/out")))
	must(t, os.Symlink(r.dir, r.path("roots/base/outdir")))
	a := r.accepted("min1", "min6")
	paths := []string{"out", "outdir/secret.txt", "outdir/cache/secret.txt", "outdir/roots/../secret.txt",
		"../secret.txt", "../../secret.txt", "x/../../secret.txt", "./../secret.txt", "/secret.txt",
		r.path("secret.txt"), "|" + r.path("secret.txt"), "|../../secret.txt", "||../secret.txt",
		"..%2fsecret.txt", "%2e%2e/secret.txt", "..\\secret.txt", "a.txt/../../secret.txt", "../base/../../secret.txt", "secret.txt?saltenv=..", "secret.txt?saltenv=../..", "secret.txt?saltenv=../roots", "?saltenv=base", "../secret.txt?saltenv=base", "a.txt\x00/../../secret.txt",
		"salt://../secret.txt", "file://" +
			r.path("secret.txt"), "....//secret.txt", "..;/secret.txt", "\u2025/secret.txt", "\uff0e\uff0e/secret.txt", "|?saltenv=base", "", ".", "..", "/", strings.Repeat("../", 40) + r.dir[1:] + "/secret.txt", "\xff../secret.txt"}

	envs := []any{"base", "..", "../..", "/", r.dir, ".", "", nil, "__env__", "dev/..", "a/../..", "\x00",
		"*", int64(1), []any{".."}, value.NewMap(), strings.Repeat("a", 5000)}
	before := r.snapshot()
	for _, p := range paths {
		for _, env := range envs {
			for _, cmd := range []string{"_serve_file", "_file_hash", "_file_find", "_file_hash_and_stat"} {
				if env != "base" && cmd != "_serve_file" && cmd != "_file_find" {
					continue
				}

				v := a.ask(cmd, "path", p, "saltenv", env, "loc", 0)
				if s := string(pack(t, v)); strings.Contains(s, canary) || strings.Contains(s, "hsum") ||
					strings.Contains(s, r.dir) {
					t.Errorf("%s %.60q in %.40q: %.200q", cmd, p, fmt.Sprint(env), s)
				}
			}
		}
	}

	for _, env := range envs {
		for _, prefix := range []any{"", "..", "../..", "/", nil, "outdir", []any{".."}} {
			for _, cmd := range []string{"_file_list", "_dir_list", "_symlink_list", "_file_list_emptydirs"} {
				s := string(pack(t, a.ask(cmd, "saltenv", env, "prefix", prefix)))
				if strings.Contains(s, "secret") && cmd != "_symlink_list" || strings.Contains(s, "m1.pem") {
					t.Errorf("%s of %.40q below %q: %.200q", cmd, fmt.Sprint(env), prefix, s)
				}
			}
		}
	}

	for _, loc := range []any{int64(-1), int64(1) << 62, "x", nil, 1.5, []any{}} {
		a.ask("_serve_file", "path", "a.txt", "saltenv", "base", "loc", loc)
	}

	r.unchanged("paths", before)
	if v, ok := a.ask("_serve_file", "path", "a.txt", "saltenv", "base", "loc", 0).(*value.Map); !ok ||
		v.Str("data") != "inside" {
		t.Errorf("a file inside: %v", v)
	}
}

func TestAttack16NamesAsPaths(t *testing.T) {
	t.Parallel()
	r := startMaster(t, "peer:\n  .*: [.*]\n")
	for name, text := range map[string]string{"roots/a.txt": "a", "pillar/top.sls": "base:\n  '*': []\n"} {
		must(t, os.MkdirAll(filepath.Dir(r.path(name)), 0o755))
		must(t, os.WriteFile(r.path(name), []byte(text), 0o644))
	}

	a := r.accepted("min1", "min6")
	a.pillar()
	must(t, syscall.Mkfifo(r.path("roots", "fifo"), 0o644))
	must(t, syscall.Mkfifo(r.path("cache", "publish_auth", attackJID), 0o600))
	must(t, syscall.Mkfifo(r.path("cache", "tokens", strings.Repeat("a", 64)), 0o600))
	must(t, os.MkdirAll(r.path("cache", "mine"), 0o755))
	must(t, syscall.Mkfifo(r.path("cache", "mine", "min1.p"), 0o600))
	quickly := func(what string, f func()) {
		t.Helper()
		start := time.Now()
		f()
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("%s took %s", what, d)
		}
	}

	quickly("serving a pipe", func() {
		if v := a.ask("_serve_file", "path", "fifo", "saltenv", "base", "loc", 0).(*value.Map); v.Str("data") != "" {
			t.Errorf("a pipe was served: %v", v)
		}
		a.ask("_file_hash", "path", "fifo", "saltenv", "base")
		a.ask("_file_find", "path", "fifo", "saltenv", "base")
		a.ask("_file_list", "saltenv", "base", "prefix", "")
	})

	quickly("pub_ret from a pipe", func() {
		if v, ok := a.ask("pub_ret", "jid", attackJID).(*value.Map); !ok || v.Len() != 0 {
			t.Errorf("pub_ret: %v", v)
		}
	})

	quickly("a token that is a pipe", func() { r.clear("get_token", "token", strings.Repeat("a", 64)) })
	quickly("a mine that is a pipe", func() { a.ask("_mine_get", "tgt", "*", "fun", "f", "tgt_type", "glob") })
	before := r.snapshot()
	for _, name := range append(hostileNames(), "../publish_auth/"+attackJID, "../../../../../../etc/passwd",
		"/dev/zero", "20260102030405678901/../x", "20260102030405678901\x00") {
		quickly(name, func() {
			for _, v := range []any{name, []byte(name), []any{name}} {
				if got, ok := a.ask("pub_ret", "jid", v).(*value.Map); !ok || got.Len() != 0 {
					t.Errorf("pub_ret of %.40q: %v", name, got)
				}
				a.ask("_return", "jid", v, "fun", "test.ping", "fun_args", []any{}, "return", true, "retcode", 0)
				r.clear("get_token", "token", v)
			}

			// A job id that the caller chooses.
			v := r.clear("publish", "tgt", "*", "fun", "test.ping", "arg", []any{}, "tgt_type", "glob",
				"ret", "", "jid", name, "user", local.CurrentUser(), "key", r.key)
			if m, ok := v.(*value.Map); ok && name != "" && m.Map("load").Str("jid") == name {
				t.Errorf("published as job %.40q", name)
			}
		})
	}

	after := r.snapshot()
	for k, v := range after {
		if before[k] != v && !strings.HasPrefix(k, "cache/jobs") {
			t.Errorf("%s changed", k)
		}
	}

	rets, err := os.ReadDir(r.path("cache", "jobs"))
	must(t, err)
	for _, e := range rets {
		if len(e.Name()) != 2 {
			t.Errorf("cache/jobs/%s", e.Name())
		}
	}

	for _, env := range append(hostileNames(), "__env__", "../roots", "base/../../pki") {
		quickly("environment "+env, func() {
			p := a.pillar("saltenv", env, "pillarenv", env)
			if s := string(pack(t, p)); strings.Contains(s, "PRIVATE KEY") {
				t.Errorf("pillar of %.40q: %.100q", env, s)
			}
		})
	}

	grains, err := os.ReadDir(r.path("cache", "pillar"))
	must(t, err)
	if names := entryNames(grains); len(names) > 60 ||
		slices.ContainsFunc(names, func(n string) bool { return !strings.HasPrefix(n, "min1") }) {
		t.Errorf("cache/pillar: %.300q", names)
	}

	for k := range r.snapshot() {
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
