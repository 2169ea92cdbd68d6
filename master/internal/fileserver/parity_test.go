package fileserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/master/value"
)

// TestParity asks Salt's own file server and this one the same questions.
func TestParity(t *testing.T) {
	python := os.Getenv("SALTERN_PYTHON")
	if python == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python that has the Salt library to compare with Salt")
	}

	top := tree(t, map[string]string{
		"r/a.sls": "A", "r/d/b": "B", "r/d/e/": "", "r/d/e2/f/": "", "r/empty/": "", "r/in": "->a.sls", "r/d/up": "->../a.sls", "r/dl": "->d", "r/out": "->../outside", "r/outd": "->../od", "r/dangling": "->nothing", "r/d/abs": "->/nonexistent/x", "r/.hidden": "h",
		"r/x.bak": "bak", "r/.svn/c": "s", "r/sub/.svn/c": "s", "r/we ird?n": "q", "r/|pipe": "p", "r/ünï": "u", "r/[b]": "br", "r/top.sls": "t",
		"r2/a.sls": "A2", "r2/only": "2", "r2/d": "file where the other has a directory", "outside": "O", "od/o": "o", "dev/a.sls": "DEV", "e/qa/a.sls": "QA", "e/qa/z": "Z",
	})

	j := func(n string) string { return filepath.Join(top, n) }

	// Salt keeps hashes by the asked environment, the name and the time of
	// change: two files of one name that were written in the same tick of the
	// clock would get one hash.
	for i, f := range []string{"r/a.sls", "r2/a.sls", "dev/a.sls", "e/qa/a.sls"} {
		at := time.Now().Add(-time.Duration(i+1) * time.Minute)
		if err := os.Chtimes(j(f), at, at); err != nil {
			t.Fatal(err)
		}
	}

	roots := map[string][]string{
		"base":    {j("r"), j("r2"), j("missing")},
		"dev":     {j("dev")},
		"__env__": {j("e/__env__")},
	}

	var calls [][]any
	for _, env := range []any{"base", "dev", "qa", "nosuch", "__env__", nil, 3} {
		for _, p := range []string{"a.sls", "d/b", "d", "only", "in", "d/up", "dl/b", "out", "outd/o",
			"dangling", "x.bak", ".svn/c", "sub/.svn/c", "we ird?n", "|we ird?n", "||pipe", "|pipe", "ünï",
			"[b]", "nosuch", "../outside", "a.sls?saltenv=dev", "only?saltenv=base",
			"a.sls?index=1", "a.sls?index=9", "a.sls?x", "./a.sls", "d//b", "d/../a.sls", "a.sls/", "/etc/passwd", "", ".", "..", "z"} {
			for _, cmd := range []string{"_file_find", "_file_hash", "_serve_file", "_file_hash_and_stat"} {
				calls = append(calls, []any{cmd, map[string]any{"path": p, "saltenv": env, "loc": 0}})
			}
			calls = append(calls, []any{"_serve_file", map[string]any{"path": p, "saltenv": env, "loc": 1}},
				[]any{"_serve_file", map[string]any{"path": p, "saltenv": env, "loc": 100}})
		}

		for _, prefix := range []string{"", "d", "/d/", "d/e", "nosuch", "."} {
			for _, cmd := range []string{"_file_list", "_file_list_emptydirs", "_dir_list", "_symlink_list"} {
				calls = append(calls, []any{cmd, map[string]any{"saltenv": env, "prefix": prefix}})
			}
		}
	}

	calls = append(calls, []any{"_file_envs", map[string]any{}},
		[]any{"_file_envs", map[string]any{"sources": true}}, []any{"_file_list", map[string]any{}},
		[]any{"_serve_file", map[string]any{"path": "a.sls"}},
		[]any{"_file_find", map[string]any{"path": "a.sls"}})

	for _, follow := range []bool{true, false} {
		for _, ignore := range []bool{true, false} {
			opts := map[string]any{
				"id":                        "m",
				"root_dir":                  top,
				"cachedir":                  t.TempDir(),
				"file_roots":                roots,
				"fileserver_followsymlinks": follow,
				"fileserver_ignoresymlinks": ignore,
				"file_ignore_regex":         []string{`/\.svn($|/)`},
				"file_ignore_glob":          []string{"*.bak"},
				"file_buffer_size":          1048576,
				"extension_modules":         j("ext"),
			}

			in, err := json.Marshal([]any{map[string]any{"opts": opts, "calls": calls}})
			if err != nil {
				t.Fatal(err)
			}

			cmd := exec.Command(python, "testdata/oracle.py")
			cmd.Stdin = bytes.NewReader(in)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			b, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %s", err, &stderr)
			}

			var all [][]map[string]any
			if err := json.Unmarshal(b, &all); err != nil {
				t.Fatal(err)
			}

			want := all[0]
			s := server(t,
				Config{
					Roots:          roots,
					FollowSymlinks: follow,
					IgnoreSymlinks: ignore,
					IgnoreRegex:    []string{`/\.svn($|/)`},
					IgnoreGlob:     []string{"*.bak"},
				})

			differ := 0
			for i, c := range calls {
				load := value.NewMap()
				for k, v := range c[1].(map[string]any) {
					if n, ok := v.(int); ok {
						v = int64(n)
					}
					load.Set(k, v)
				}

				got, err := s.Call(t.Context(), c[0].(string), "m", load)
				if err != nil {
					t.Fatalf("%v: %v", c, err)
				}

				if _, failed := want[i]["error"]; failed {
					continue // what crashes Salt is refused here; other tests say how
				}
				if c[0] == "_serve_file" && strings.Contains(fmt.Sprint(c[1]), "?saltenv=") {
					continue // Salt finds the file in that environment and then sends it as empty
				}

				if envs, ok := want[i]["value"].([]any); ok && c[0] == "_file_envs" { // a set in Salt
					slices.SortFunc(envs, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
				}

				g, w := norm(t, plain(got)), norm(t, want[i]["value"])
				if !reflect.DeepEqual(g, w) && differ < 30 {
					differ++
					t.Errorf("follow %v, ignore %v: %v\n got %v\nwant %v", follow, ignore, c, g, w)
				}
			}
		}
	}
}

// norm brings a result to JSON's types, without the access time.
func norm(t *testing.T, v any) any {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}

	var out any
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}

	var strip func(any)
	strip = func(v any) {
		switch v := v.(type) {
		case []any:
			if _, isNumber := first(v).(float64); isNumber && len(v) == 10 {
				v[7] = 0.0
			}
			for _, x := range v {
				strip(x)
			}
		case map[string]any:
			for _, x := range v {
				strip(x)
			}
		}
	}

	strip(out)
	return fmt.Sprint(out)
}

func first(v []any) any {
	if len(v) == 0 {
		return nil
	}
	return v[0]
}
