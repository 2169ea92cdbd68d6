package fileserver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/master/value"
)

// snapshot describes everything below a directory.
func snapshot(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		rel, _ := filepath.Rel(dir, p)
		content := ""
		if d.Type().IsRegular() {
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			content = string(b)
		}

		out[rel] = d.Type().String() + content
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	return out
}

func TestAttack14FileRecv(t *testing.T) {
	top := t.TempDir()
	write(t, top,
		map[string]string{
			"secret":                          "s",
			"cache/minions/other/files/f":     "theirs",
			"cache/minions/min1/files/in":     "->inside",
			"cache/minions/min1/files/esc":    "->../../../../secret",
			"cache/minions/min1/files/escdir": "->../../..",
			"cache/minions/linked":            "->..",
		})

	s := server(t,
		Config{
			Cachedir: filepath.Join(top, "cache"),
			Recv:     RecvConfig{Enabled: true, MaxSize: 100, Quota: 250, MaxFiles: 20},
		})

	push := func(id string, path any, loc any, data any) bool {
		t.Helper()
		v, err := s.Call(t.Context(), "_file_recv", id, value.NewMap("path", path, "loc", loc, "data", data, "id", id))
		if err != nil {
			t.Fatal(err)
		}
		return v.(bool)
	}

	before := snapshot(t, top)
	l := func(p ...any) []any { return p }
	for _, c := range []struct {
		name      string
		id        string
		path      any
		loc, data any
	}{
		{"dots", "min1", l("..", "x"), 0, "d"}, {"dots inside", "min1", l("a", "..", "..", "x"), 0, "d"}, {"dots that end inside", "min1", l("a", "..", "x"), 0, "d"}, {"dots in one part", "min1", l("../x"), 0, "d"}, {"deep dots in one part", "min1", l("a/../../x"), 0, "d"},
		{"absolute", "min1", l("/etc/x"), 0, "d"}, {"absolute by an empty part", "min1", l("", "etc", "x"), 0, "d"}, {"nothing", "min1", l(), 0, "d"}, {"dot", "min1", l("."), 0, "d"}, {"empty", "min1", l(""), 0, "d"},
		{"text instead of a list", "min1", "x", 0, "d"}, {"number in the list", "min1", l(int64(1)), 0, "d"}, {"nul", "min1", l("a\x00b"), 0, "d"}, {"long part", "min1", l(strings.Repeat("a", 300)), 0, "d"},
		{"many parts", "min1", strings64(), 0, "d"}, {"link out", "min1", l("esc"), 0, "d"}, {"link to a directory outside", "min1", l("escdir", "x"), 0, "d"}, {"minion directory is a link out", "linked", l("x"), 0, "d"},
		{"negative offset", "min1", l("x"), -1, "d"}, {"huge offset", "min1", l("x"), int64(1) << 62, "d"}, {"offset as text", "min1", l("x"), "0", "d"}, {"no data", "min1", l("x"), 0, nil}, {"gap", "min1", l("x"), 5, "d"},
		{"too big", "min1", l("x"), 0, strings.Repeat("d", 101)}, {"just over with the offset", "min1", l("x"), 100, "d"},
		{"id with a slash", "a/b", l("x"), 0, "d"}, {"id dots", "..", l("x"), 0, "d"}, {"no id", "", l("x"), 0, "d"}, {"id with nul", "a\x00", l("x"), 0, "d"},
	} {
		if push(c.id, c.path, c.loc, c.data) {
			t.Errorf("%s: accepted", c.name)
		}
	}

	if after := snapshot(t, top); !reflect.DeepEqual(before, after) {
		// Directories of the minion itself may have been made.
		for k, v := range after {
			if before[k] != v && !strings.HasPrefix(k, "cache/minions/min1/files") {
				t.Errorf("changed: %s = %q (was %q)", k, v, before[k])
			}
		}
	}

	// What is allowed, in chunks, with one of them sent twice.
	for i, c := range []string{"aaaa", "bbbb", "bbbb", "cccc"} {
		if !push("min1", l("d", "ok"), []int{0, 4, 4, 8}[i], c) {
			t.Fatalf("chunk %d refused", i)
		}
	}

	if b, _ := os.ReadFile(filepath.Join(top, "cache/minions/min1/files/d/ok")); string(b) != "aaaabbbbcccc" {
		t.Errorf("stored %q", b)
	}

	// Starting again replaces the file, and only once counts for the quota.
	for range 10 {
		if !push("min1", l("d", "ok"), 0, strings.Repeat("x", 90)) {
			t.Fatal("replacing a file was refused")
		}
	}

	if !push("min1", l("two"), 0, strings.Repeat("x", 90)) || push("min1", l("three"), 0, strings.Repeat("x", 90)) {
		t.Error("quota of bytes")
	}

	accepted := 0
	for i := range 40 {
		if push("min2", l("many", fmt.Sprint(i)), 0, "") {
			accepted++
		}
	}

	if accepted == 0 || accepted > 20 {
		t.Errorf("quota of files: %d accepted", accepted)
	}

	if got := snapshot(t, top); got["secret"] != "----------s" ||
		got["cache/minions/other/files/f"] != "----------theirs" {
		t.Error("files outside changed")
	}

	off := server(t, Config{Cachedir: filepath.Join(top, "off")})
	if v, _ := off.Call(t.Context(), "_file_recv", "min1",
		value.NewMap("path", l("x"), "loc", 0, "data", "d")); v != false {
		t.Error("file_recv off: accepted")
	}
}

func strings64() []any {
	out := make([]any, 65)
	for i := range out {
		out[i] = "a"
	}
	return out
}

// hostile names lead to nothing, whatever the request.
var hostile = []string{"../secret", "..", "../", "a/../../secret", "/etc/passwd", "//etc/passwd",
	"|/etc/passwd", "|../secret", "||../secret", "a/../|../secret", "%2e%2e/secret", "..%2fsecret",
	"..\\secret",
	"out", "outdir/secret", "up/secret", "abs", "x?saltenv=../..", "f?saltenv=..", "f?saltenv=/etc", "salt://../secret", "f\x00", "\x00", "f/", "f/..", "f/../../secret", "./../secret", "...", "a/./../../secret",
	"|a/../../secret?saltenv=base", "fifo", "dir", "sock", strings.Repeat("a/", 3000) +
		"f", strings.Repeat("a", 5000), "f\xff"}

func attackTree(t testing.TB) (root string) {
	top := t.TempDir()
	root = filepath.Join(top, "root")
	write(t, top,
		map[string]string{
			"secret":      "SECRET",
			"root/f":      "fine",
			"root/a/b":    "",
			"root/dir/":   "",
			"root/out":    "->../secret",
			"root/outdir": "->..",
			"root/up":     "->..",
			"root/abs":    "->" + top + "/secret",
			"root/in":     "->f",
			"root/absin":  "->" + root + "/f",
		})

	if err := syscall.Mkfifo(filepath.Join(root, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}

	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: filepath.Join(root, "sock")}); err != nil &&
		!errors.Is(err, syscall.EINVAL) {
		t.Fatal(err)
	}

	return root
}

func TestAttack15FileServerPaths(t *testing.T) {
	root := attackTree(t)
	s := server(t, Config{Roots: map[string][]string{"base": {root}, "__env__": {root + "/envs/__env__"}}})
	for _, p := range hostile {
		for _, env := range []any{"base", "../..", "..", "a/../../..", "/", "\x00", nil} {
			if p == "f/" && env == "base" { // Salt cleans the name, and so it is f
				continue
			}

			load := value.NewMap("path", p, "saltenv", env, "loc", 0)
			if v, err := s.Call(t.Context(), "_serve_file", "m", load); err != nil ||
				!reflect.DeepEqual(plain(v), map[string]any{"data": "", "dest": ""}) {
				t.Errorf("serve %q in %q: %v %v", p, env, plain(v), err)
			}

			if v, err := s.Call(t.Context(), "_file_hash", "m", load); err != nil || v != "" {
				t.Errorf("hash %q in %q: %v %v", p, env, v, err)
			}

			if v, err := s.Call(t.Context(), "_file_find", "m", load); err != nil ||
				!reflect.DeepEqual(plain(v), map[string]any{"path": "", "rel": ""}) {
				t.Errorf("find %q in %q: %v %v", p, env, plain(v), err)
			}
		}
	}

	for _, env := range []string{"..", "../..", "a/b", ".", "", ".hidden", "a\\b", "a\x00"} {
		if v := call(t, s, "_file_list", "saltenv", env, "prefix", ""); !reflect.DeepEqual(v, []any{}) {
			t.Errorf("list %q: %v", env, v)
		}
	}

	for _, p := range []string{"f", "in", "absin"} { // links that stay inside are fine
		if v := call(t, s, "_serve_file", "path", p, "saltenv", "base", "loc", 0).(map[string]any); v["data"] != "fine" {
			t.Errorf("%s: %v", p, v)
		}
	}

	// With links followed the administrator's links lead out, names never do.
	s = server(t, Config{Roots: map[string][]string{"base": {root}}, FollowSymlinks: true})
	if v := call(t, s, "_serve_file", "path", "out", "saltenv", "base", "loc", 0).(map[string]any); v["data"] != "SECRET" {
		t.Errorf("followed link: %v", v)
	}

	for _, p := range []string{"../secret", "|../secret", "a/../../secret", "..", "/etc/passwd"} {
		if v := call(t, s, "_serve_file", "path", p, "saltenv", "base", "loc", 0).(map[string]any); v["data"] != "" {
			t.Errorf("%s: %v", p, v)
		}
	}
}

func TestAttack16SpecialFiles(t *testing.T) {
	root := attackTree(t)
	for _, follow := range []bool{true, false} {
		s := server(t, Config{Roots: map[string][]string{"base": {root}}, FollowSymlinks: follow})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for _, cmd := range []string{"_serve_file", "_file_hash", "_file_find", "_file_hash_and_stat"} {
				v, err := s.Call(t.Context(), cmd, "m", value.NewMap("path", "fifo", "saltenv", "base", "loc", 0))
				if err != nil || strings.Contains(fmt.Sprint(plain(v)), "fifo") {
					t.Errorf("%s: %v %v", cmd, plain(v), err)
				}
			}

			if _, err := s.Update(t.Context(), nil); err != nil {
				t.Error(err)
			}
		}()

		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatal("a FIFO blocks the file server")
		}

		if v := fmt.Sprint(call(t, s, "_file_list", "saltenv", "base", "prefix", "")); strings.Contains(v, "fifo") || strings.Contains(v, "sock") {
			t.Errorf("special files are listed: %s", v)
		}
	}
}

func FuzzPath(f *testing.F) {
	root := attackTree(f)
	s := server(f, Config{Roots: map[string][]string{"base": {root}, "__env__": {root + "/envs/__env__"}}})
	for _, p := range hostile {
		f.Add(p, "base")
	}

	f.Add("hello.sls", "../base")
	f.Fuzz(func(t *testing.T, p, env string) {
		v, err := s.Call(t.Context(), "_serve_file", "m", value.NewMap("path", p, "saltenv", env, "loc", 0))
		if err != nil {
			t.Fatalf("%q in %q: %v", p, env, err)
		}
		if b, _ := v.(*value.Map).Bytes("data"); len(b) > 0 && string(b) != "fine" {
			t.Fatalf("%q in %q gives %q", p, env, b)
		}
	})
}

func FuzzPushedName(f *testing.F) {
	f.Add("a", "b/..", "c")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		name, ok := pushedName([]any{a, b, c})
		if ok && (!filepath.IsLocal(name) || strings.Contains(name, "\x00") || strings.Contains("/"+name+"/", "/../")) {
			t.Fatalf("%q %q %q gives %q", a, b, c, name)
		}
	})
}
