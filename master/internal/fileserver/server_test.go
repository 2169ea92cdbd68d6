package fileserver

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"saltern/master/msgpack"
	"saltern/master/value"
)

type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

// tree makes files from path → content; a content that starts with "->" is a
// link, a path that ends in a slash a directory.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	write(t, root, files)
	return root
}

func write(t testing.TB, root string, files map[string]string) {
	t.Helper()
	for p, content := range files {
		full := filepath.Join(root, p)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}

		var err error
		switch {
		case p[len(p)-1] == '/':
			err = os.MkdirAll(full, 0o755)
		case len(content) > 2 && content[:2] == "->":
			err = os.Symlink(content[2:], full)
		default:
			err = os.WriteFile(full, []byte(content), 0o644)
		}

		if err != nil {
			t.Fatal(err)
		}
	}
}

func server(t testing.TB, cfg Config) *Server {
	t.Helper()
	if cfg.Cachedir == "" {
		cfg.Cachedir = t.TempDir()
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func call(t testing.TB, s *Server, cmd string, kv ...any) any {
	t.Helper()
	v, err := s.Call(t.Context(), cmd, "min1", value.NewMap(kv...))
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	return plain(v)
}

// plain turns values into comparable ones; bytes become text.
func plain(v any) any {
	switch v := v.(type) {
	case *value.Map:
		out := map[string]any{}
		for k, x := range v.All() {
			out[k.(string)] = plain(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = plain(x)
		}
		return out
	case []byte:
		return string(v)
	case float64:
		return int64(v)
	}

	return v
}

// TestVectors answers requests of real minions and compares with what a real
// master answered.
func TestVectors(t *testing.T) {
	raw, err := os.ReadFile("../../testdata/wire/index.json")
	if err != nil {
		t.Fatal(err)
	}

	var index struct {
		Vectors []struct {
			File, Request string
			Minion        string
			Expect        any
		}
	}

	if err := json.Unmarshal(raw, &index); err != nil {
		t.Fatal(err)
	}

	expect := map[string]any{}
	for _, v := range index.Vectors {
		expect[v.File] = v.Expect
	}

	hello := expect["serve_file_min8_rep.bin"].(map[string]any)["data"].(string)
	pushed := expect["file_recv_req.bin"].(map[string]any)["data"].(string)
	root := tree(t, map[string]string{"hello.sls": hello, "top.sls": "base: {}\n", "files/hello.txt": pushed,
		"files/big.bin": "x", "files/link.txt": "->hello.txt", "empty/dir/": "", "_modules/": ""})
	s := server(t,
		Config{Roots: map[string][]string{"base": {root}}, FollowSymlinks: true, Recv: RecvConfig{Enabled: true}})
	ran := 0
	for _, v := range index.Vectors {
		req, ok := expect[v.Request].(map[string]any)
		cmd, _ := req["cmd"].(string)
		if !ok {
			continue
		}

		load := value.NewMap()
		for k, x := range req {
			load.Set(k, fromJSON(x))
		}

		got, err := s.Call(t.Context(), cmd, v.Minion, load)
		if errors.Is(err, errUnknownCommand) {
			continue
		}

		ran++
		if err != nil {
			t.Errorf("%s: %v", v.Request, err)
			continue
		}

		want := fromJSON(v.Expect)
		if cmd == "_file_find" { // place, inode and times belong to the captured machine
			w, g := want.(*value.Map), got.(*value.Map)
			w.Set("path", filepath.Join(root, w.Str("rel")))
			ws, gs := w.List("stat"), g.List("stat")
			if len(gs) != 10 {
				t.Fatalf("stat has %d fields", len(gs))
			}

			for _, i := range []int{1, 2, 4, 5, 7, 8, 9} {
				ws[i] = gs[i]
			}
		}

		gb, err := msgpack.Marshal(got, msgpack.Raw)
		if err != nil {
			t.Fatal(err)
		}

		again, _ := msgpack.Decode(gb, msgpack.DefaultLimits)
		if !reflect.DeepEqual(plain(again), plain(want)) {
			t.Errorf("%s:\n got %#v\nwant %#v", v.Request, plain(again), plain(want))
		}
	}

	if ran < 15 {
		t.Errorf("only %d vectors were found", ran)
	}
}

func fromJSON(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if b, ok := v["$b64"].(string); ok {
			raw, _ := base64.StdEncoding.DecodeString(b)
			return raw
		}

		m := value.NewMap()
		for k, x := range v {
			m.Set(k, fromJSON(x))
		}

		return m
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = fromJSON(x)
		}
		return out
	case float64:
		return int64(v)
	}

	return v
}

func TestServeWholeFile(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789\xff"), 500)
	root := tree(t, map[string]string{"a/big": string(content), "a/empty": ""})
	s := server(t, Config{Roots: map[string][]string{"base": {root}}, BufferSize: 1000})
	var got []byte
	for n := 0; ; n++ {
		r, _ := s.Call(t.Context(), "_serve_file", "m",
			value.NewMap("path", "a/big", "saltenv", "base", "loc", len(got)))
		b, _ := r.(*value.Map).Bytes("data")
		if r.(*value.Map).Str("dest") != "a/big" || n > 10 {
			t.Fatalf("chunk %d: %v", n, r)
		}
		if len(b) == 0 {
			break
		}

		got = append(got, b...)
	}

	if !bytes.Equal(got, content) {
		t.Error("the content differs")
	}

	if r := call(t, s, "_serve_file", "path", "a/empty", "saltenv", "base", "loc", 0); !reflect.DeepEqual(r, map[string]any{
		"data": "",
		"dest": "a/empty",
	}) {
		t.Errorf("empty file: %v", r)
	}

	v, _ := s.Call(t.Context(), "_serve_file", "m",
		value.NewMap("path", "a/big", "saltenv", "base", "loc", 5000, "gzip", 5))
	m := v.(*value.Map)
	b, _ := m.Bytes("data")
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}

	un, _ := io.ReadAll(z)
	if lvl, _ := m.Int("gzip"); !bytes.Equal(un, content[5000:]) || lvl != 5 {
		t.Errorf("gzip: %d bytes, level %d", len(un), lvl)
	}
}

func TestPathsAndEnvironments(t *testing.T) {
	base, second, dev := tree(t, map[string]string{
		"f":      "base",
		"|odd?x": "odd",
		"d/g":    "g",
	}), tree(t, map[string]string{"f": "second", "only2": "2"}), tree(t, map[string]string{"f": "dev"})

	dyn := tree(t, map[string]string{"qa/s/f": "qa", "__env__/s/f": "literal"})
	s := server(t,
		Config{
			FollowSymlinks: true,
			Roots: map[string][]string{
				"base":    {base, second},
				"dev":     {dev},
				"__env__": {filepath.Join(dyn, "__env__", "s")},
			},
		})

	for _, c := range []struct {
		path string
		env  any
		want string
	}{
		{"f", "base", "base"}, {"only2", "base", "2"}, {"f", "dev", "dev"}, {"f?saltenv=dev", "base", "dev"}, {"f?index=1", "base", "second"},
		{"f?index=2", "base", ""}, {"f?index=-1", "base", ""}, {"f?index=x", "base", ""}, {"f?nonsense&a=b", "base", "base"},
		{"|f", "base", "base"}, {"|f?saltenv=dev", "base", ""}, {"f", "qa", "qa"}, {"f", "__env__", "literal"}, {"f", "nosuch", ""},
		{"f", nil, ""}, {"f", int64(3), ""}, {"./d//g", "base", "g"}, {"d", "base", ""}, {"", "base", ""}, {"d/g/", "base", "g"},
	} {
		got := call(t, s, "_serve_file", "path", c.path, "saltenv", c.env, "loc", 0).(map[string]any)["data"]
		if got != c.want {
			t.Errorf("%q in %v: %q, want %q", c.path, c.env, got, c.want)
		}
	}

	if e := call(t, s, "_file_envs"); !reflect.DeepEqual(e, []any{"__env__", "base", "dev"}) {
		t.Errorf("envs: %v", e)
	}

	if e := call(t, s, "_file_envs", "sources", true); !reflect.DeepEqual(e,
		map[string]any{"roots": []any{"__env__", "base", "dev"}}) {
		t.Errorf("envs by source: %v", e)
	}

	if e := call(t, s, "_file_envs", "back", "-roots"); !reflect.DeepEqual(e, []any{}) {
		t.Errorf("envs without roots: %v", e)
	}

	if v := call(t, s, "_file_hash_and_stat", "path", "nosuch", "saltenv", "base"); !reflect.DeepEqual(v, []any{"",
		nil}) {
		t.Errorf("hash and stat of nothing: %v", v)
	}

	for _, kv := range [][]any{
		{},
		{"path", "f"},
		{"path", []any{"f"}, "saltenv", "base"},
		{"saltenv", "base", "loc", 0},
		{"path", "f", "saltenv", "base", "loc", "0"},
		{"path", "f", "saltenv", "base", "loc", -1},
	} {
		if v := call(t, s, "_serve_file", kv...); !reflect.DeepEqual(v, map[string]any{"data": "", "dest": ""}) {
			t.Errorf("%v: %v", kv, v)
		}
	}
}

func TestLists(t *testing.T) {
	root := tree(t,
		map[string]string{
			"a/x.sls":    "",
			"a/b/y":      "",
			"z":          "",
			"skip.bak":   "",
			"svn/.svn/e": "",
			"empty/":     "",
			"lf":         "->a/x.sls",
			"ld":         "->a",
			"dangling":   "->nosuch",
			"a/up":       "->../z",
			"loop":       "->.",
			"out":        "->/etc",
			"outf":       "->../../../../../../../etc/hostname",
		})

	for _, c := range []struct {
		name   string
		follow bool
		cmd    string
		prefix string
		want   any
	}{
		{"files", false, "_file_list", "", []any{"a/b/y", "a/up", "a/x.sls", "dangling", "lf", "outf", "z"}},
		{"files below", false, "_file_list", "/a/", []any{"a/b/y", "a/up", "a/x.sls"}},
		{"prefix is text", false, "_file_list", "l", []any{"lf"}},
		{"dirs", false, "_dir_list", "", []any{"a", "a/b", "empty", "ld", "loop", "out", "svn"}},
		{"empty", false, "_file_list_emptydirs", "", []any{"empty"}},
		{"links", false, "_symlink_list", "",
			map[string]any{
				"lf":       "a/x.sls",
				"ld":       "a",
				"dangling": "nosuch",
				"a/up":     "../z",
				"loop":     ".",
				"out":      "/etc",
				"outf":     "../../../../../../../etc/hostname",
			}},
		{"links followed", true, "_symlink_list", "l",
			map[string]any{"lf": "a/x.sls", "ld": "a", "ld/up": "../z", "loop": "."}},
		{"files followed", true, "_file_list", "ld", []any{"ld/b/y", "ld/up", "ld/x.sls"}},
	} {
		if c.follow { // do not walk through /etc
			_ = os.Remove(filepath.Join(root, "out"))
		}

		s := server(t,
			Config{
				Roots:          map[string][]string{"base": {root}},
				FollowSymlinks: c.follow,
				IgnoreRegex:    []string{`/\.svn($|/)`, `(`},
				IgnoreGlob:     []string{"*.bak"},
			})

		if got := call(t, s, c.cmd, "saltenv", "base", "prefix", c.prefix); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %v\nwant %v", c.name, got, c.want)
		}

		for _, kv := range [][]any{{}, {"saltenv", "nosuch"}} {
			if got := call(t, s, "_file_list", kv...); !reflect.DeepEqual(got, []any{}) {
				t.Errorf("%v: %v", kv, got)
			}
		}
	}

	s := server(t, Config{Roots: map[string][]string{"base": {root}}, IgnoreSymlinks: true})
	if got := call(t, s, "_file_list", "saltenv", "base", "prefix", ""); !reflect.DeepEqual(got,
		[]any{"a/b/y", "a/x.sls", "skip.bak", "svn/.svn/e", "z"}) {
		t.Errorf("ignoring links: %v", got)
	}
}

func TestHashFollowsTheFile(t *testing.T) {
	root := tree(t, map[string]string{"f": "one"})
	c := &clock{time.Now().Add(time.Hour)}
	s := server(t, Config{Roots: map[string][]string{"base": {root}}, Now: c.now})
	sum := func() any {
		return call(t, s, "_file_hash", "path", "f", "saltenv", "base").(map[string]any)["hsum"]
	}
	want := func(b string) string { h := sha256.Sum256([]byte(b)); return hex.EncodeToString(h[:]) }
	if first, second := sum(), sum(); first != want("one") || second != first {
		t.Fatal("first content")
	}

	if st := s.Stats(); st.HashHits != 1 || st.HashMisses != 1 {
		t.Errorf("second request was not served from the cache: %+v", st)
	}

	// Same size and mtime: the change time gives it away.
	f := filepath.Join(root, "f")
	fi, _ := os.Stat(f)
	write(t, root, map[string]string{"f": "two"})
	os.Chtimes(f, fi.ModTime(), fi.ModTime())

	if sum() != want("two") {
		t.Error("changed content, same mtime")
	}

	write(t, root, map[string]string{"g": "six"})
	os.Rename(filepath.Join(root, "g"), f)
	if sum() != want("six") {
		t.Error("replaced file")
	}

	c.t = time.Now() // now the change is too young to be kept
	write(t, root, map[string]string{"f": "new"})
	misses := s.Stats().HashMisses
	sum()
	sum()

	if s.Stats().HashMisses != misses+2 {
		t.Error("the hash of a file changed just now was kept")
	}

	if _, err := New(Config{HashType: "crc32"}); err == nil {
		t.Error("unknown hash type accepted")
	}
}

func TestListCacheAndUpdate(t *testing.T) {
	root := tree(t, map[string]string{"a": ""})
	c := &clock{time.Now()}
	s := server(t, Config{Roots: map[string][]string{"base": {root}}, Now: c.now})
	files := func() []string {
		l, err := s.FileList(t.Context(), "base", "")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}

	if ch, err := s.Update(t.Context(), nil); err != nil || ch[0].Changed() {
		t.Fatalf("first update: %v %v", ch, err)
	}

	files()
	write(t, root, map[string]string{"b": ""})
	if got := files(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("young list was not kept: %v", got)
	}

	c.t = c.t.Add(21 * time.Second)
	if got := files(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("old list was kept: %v", got)
	}

	if ch, err := s.Update(t.Context(), nil); err != nil || len(ch) != 1 || len(ch[0].Added) != 1 {
		t.Errorf("update: %v %v", ch, err)
	}

	files()
	os.Remove(filepath.Join(root, "a"))
	os.Chtimes(filepath.Join(root, "b"), c.t, c.t)
	write(t, root, map[string]string{"c": ""})
	ch, err := s.Update(t.Context(), "roots")
	in := func(n string) []string { return []string{filepath.Join(root, n)} }
	if err != nil || !reflect.DeepEqual(ch,
		[]Changes{{Backend: "roots", Added: in("c"), Removed: in("a"), Modified: in("b")}}) {
		t.Errorf("update: %v %v", ch, err)
	}

	if got := files(); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("list after update: %v", got)
	}

	if got := s.ClearFileListCache([]string{"base"}, nil); !reflect.DeepEqual(got,
		map[string][]string{"roots": {"base"}}) {
		t.Errorf("cleared %v", got)
	}

	if got := s.ClearCache("nosuch"); len(got) != 0 {
		t.Errorf("cleared %v", got)
	}
}

func TestBackends(t *testing.T) {
	_, err := New(Config{Backends: []string{"roots", "svnfs", "bogus"}})
	if !errors.Is(err, errUnsupportedBackend) || !bytes.Contains([]byte(err.Error()), []byte("svnfs")) ||
		!bytes.Contains([]byte(err.Error()), []byte("bogus")) {
		t.Errorf("got %v", err)
	}

	s := server(t, Config{})
	if _, err := s.Call(t.Context(), "_pillar", "m", value.NewMap()); !errors.Is(err, errUnknownCommand) {
		t.Errorf("got %v", err)
	}

	s = server(t, Config{MaxConcurrent: 1})
	s.slots <- struct{}{}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()

	if _, err := s.Call(ctx, "_file_find", "m", value.NewMap("path", "x")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a full server answered %v", err)
	}
}

func TestMinionFS(t *testing.T) {
	cache := t.TempDir()
	write(t, cache,
		map[string]string{
			"minions/web1/files/etc/motd": "hi",
			"minions/web1/files/top.sls":  "evil",
			"minions/db1/files/x":         "db",
			"minions/web1/files/link":     "->../../db1/files/x",
			"minions/web1/data.p":         "secret",
		})

	s := server(t, Config{Cachedir: cache, Backends: []string{"minionfs"}, Recv: RecvConfig{Enabled: true},
		MinionFS: MinionFSConfig{Mountpoint: "salt://pushed", Whitelist: []string{"web.*"}}})
	for p, want := range map[string]string{
		"pushed/web1/etc/motd": "hi",
		"pushed/web1/top.sls":  "",
		"pushed/db1/x":         "",
		"web1/etc/motd":        "",
		"pushed/web1/link":     "",
		"pushed/web1":          "",
		"pushed":               "",
	} {
		if got := call(t, s, "_serve_file", "path", p, "saltenv", "base", "loc", 0).(map[string]any)["data"]; got != want {
			t.Errorf("%s: %q", p, got)
		}
	}

	if got := call(t, s, "_file_list", "saltenv", "base"); !reflect.DeepEqual(got,
		[]any{"pushed/web1/etc/motd", "pushed/web1/top.sls"}) {
		t.Errorf("list: %v", got)
	}
}

func TestTree(t *testing.T) {
	a := tree(t, map[string]string{"x/f": "text", "bin": "a\x00b"})
	b := tree(t, map[string]string{"x/f": "other"})
	tr := Tree{map[string][]string{"base": {a, b}}}
	if got := plain(tr.Read("x/f", "base")); !reflect.DeepEqual(got,
		[]any{map[string]any{a + "/x/f": "text"}, map[string]any{b + "/x/f": "other"}}) {
		t.Errorf("read: %v", got)
	}

	if got := plain(tr.Find("bin", "base")); !reflect.DeepEqual(got, []any{map[string]any{a + "/bin": "bin"}}) {
		t.Errorf("find: %v", got)
	}

	for _, c := range []struct {
		path, env string
		index     int
		want      string
	}{
		{"n/new", "base", 1, "Wrote data to file " + b + "/n/new"}, {"../x", "base", 0, "Invalid path: ../x"}, {"", "base", 0, "Invalid path: "},
		{"/etc/x", "base", 0, "The path passed in /etc/x is not relative to the environment base"},
		{"x", "base", 2, "Specified index 2 in environment base is not present"}, {"x", "qa", 0, "Named environment qa is not present"},
	} {
		if got, err := tr.Write(t.Context(), "data", c.path, c.env, c.index); got != c.want || err != nil {
			t.Errorf("%q: %s %v", c.path, got, err)
		}
	}

	if got, _ := os.ReadFile(b + "/n/new"); string(got) != "data" {
		t.Errorf("written: %q", got)
	}

	l, err := tr.ListRoots(t.Context())
	want := map[string]any{"base": []any{map[string]any{
		a: map[string]any{"bin": "f", "x": map[string]any{"f": "f"}},
		b: map[string]any{"n": map[string]any{"new": "f"}, "x": map[string]any{"f": "f"}},
	}}}
	if err != nil || !reflect.DeepEqual(plain(l), want) {
		t.Errorf("list: %v %v", plain(l), err)
	}
}

func BenchmarkSmallFile(b *testing.B) {
	root := tree(b, map[string]string{"a/f": string(bytes.Repeat([]byte("x"), 4096))})
	c := &clock{time.Now().Add(time.Hour)}
	s := server(b, Config{Roots: map[string][]string{"base": {root}}, FollowSymlinks: true, Now: c.now})
	for b.Loop() {
		call := func(cmd string, loc int) {
			v, err := s.Call(b.Context(), cmd, "m", value.NewMap("path", "a/f", "saltenv", "base", "loc", loc))
			if err != nil {
				b.Fatal(err)
			}
			if _, err := msgpack.Marshal(v, msgpack.Raw); err != nil {
				b.Fatal(err)
			}
		}

		call("_file_hash", 0)
		call("_serve_file", 0)
		call("_serve_file", 4096)
	}
}

func BenchmarkBigChunk(b *testing.B) {
	root := tree(b, map[string]string{"f": string(bytes.Repeat([]byte("x"), 8<<20))})
	s := server(b, Config{Roots: map[string][]string{"base": {root}}, FollowSymlinks: true})
	b.SetBytes(1 << 20)
	for b.Loop() {
		if _, err := s.Call(b.Context(), "_serve_file", "m",
			value.NewMap("path", "f", "saltenv", "base", "loc", 1<<20)); err != nil {
			b.Fatal(err)
		}
	}
}

// updating is a backend whose lists do not age.
type updating struct {
	Backend
	version string
	listed  map[string]int
}

func (u *updating) Name() string                         { return "gitfs" }
func (u *updating) Update(context.Context) (bool, error) { return true, nil }
func (u *updating) Version() string                      { return u.version }
func (u *updating) List(_ context.Context, env string) (*Listing, error) {
	u.listed[env]++
	l := NewListing()
	for i := range 100000 {
		l.Files[env+strconv.Itoa(i)] = struct{}{}
	}
	return l, nil
}

// Lists of an Updater stay until it has something new, and are bounded by names.
func TestUpdaterLists(t *testing.T) {
	c := &clock{time.Unix(1e9, 0)}
	u := &updating{version: "1", listed: map[string]int{}}
	s := server(t, Config{Backends: []string{"gitfs"}, Extra: []Backend{u}, Now: c.now})
	ask := func(env string) {
		t.Helper()
		if got, _ := call(t, s, "_file_list", "saltenv", env).([]any); len(got) != 100000 {
			t.Fatalf("%d names", len(got))
		}
		c.t = c.t.Add(time.Minute)
	}

	ask("a")
	ask("a")
	if u.listed["a"] != 1 {
		t.Errorf("listed %d times", u.listed["a"])
	}

	u.version = "2"
	ask("a")
	if u.listed["a"] != 2 {
		t.Errorf("after a change listed %d times", u.listed["a"])
	}

	for _, env := range []string{"b", "c", "d", "a", "e"} {
		ask(env)
	}

	if n := len(s.cached); n != 4 || u.listed["a"] != 2 {
		t.Errorf("%d lists are kept, a was listed %d times", n, u.listed["a"])
	}

	ask("b")
	if u.listed["b"] != 2 {
		t.Errorf("b was used longest ago and is still there")
	}

	ch, err := s.Update(t.Context(), nil)
	if err != nil || len(ch) != 1 || !ch[0].Changed() ||
		fmt.Sprint(ch[0].Event()) != fmt.Sprint(value.NewMap("changed", true, "backend", "gitfs")) {
		t.Errorf("update: %+v %v", ch, err)
	}
}
