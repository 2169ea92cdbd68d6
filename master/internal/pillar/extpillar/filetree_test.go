package extpillar

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"saltern/master/value"
)

// makeTree writes files: path → content. A content "->x" is a link to x, "|" a FIFO.
func makeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		full := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, isLink := strings.CutPrefix(text, "->"); isLink {
			err = os.Symlink(to, full)
		} else if text == "|" {
			err = syscall.Mkfifo(full, 0o600)
		} else {
			err = os.WriteFile(full, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func treeEntry(t *testing.T, args ...any) *Entry {
	t.Helper()
	e := Parse("file_tree", value.NewMap(args...))
	if e == nil {
		t.Fatalf("%v is left to Salt", args)
	}
	return e
}

// shown prints a value with the keys of its maps in order.
func shown(v any) string {
	m, ok := v.(*value.Map)
	if !ok {
		return fmt.Sprintf("%q", v)
	}
	parts := map[string]string{}
	for k, x := range m.All() {
		parts[k.(string)] = shown(x)
	}
	return strings.TrimPrefix(fmt.Sprint(parts), "map")
}

var everybody = Minion{
	ID:     "web1",
	Groups: value.NewMap("all", "*", "none", "L@db", "odd", "I@x:y"),
	InGroup: func(definition any) (bool, error) {
		if definition == "I@x:y" {
			return false, errors.New("Salt knows")
		}
		return definition == "*", nil
	},
}

func TestFileTree(t *testing.T) {
	root := makeTree(t, map[string]string{
		"hosts/web1/top.txt":       "own\n",
		"hosts/web1/sub/a.b":       "x\n\n",
		"hosts/web1/sub/bin":       "\x00\xff",
		"hosts/web1/link":          "->sub",
		"hosts/web1/file":          "->sub/a.b",
		"hosts/web1/gone":          "->nowhere",
		"hosts/web1/self":          "->self",
		"hosts/web1/pipe":          "|",
		"hosts/web2/secret":        "of another one",
		"nodegroups/all/top.txt":   "group\n",
		"nodegroups/all/sub/c":     "c",
		"nodegroups/none/other":    "o",
		"nodegroups/unknown/other": "o",
	})
	r := newRunner(t, Config{})
	for _, tt := range []struct {
		args []any
		want string
	}{
		{nil, `[file:"x\n" link:[] sub:[a.b:"x\n" bin:"\x00\xff" c:"c"] top.txt:"own"]`},
		{[]any{"keep_newline", true}, `[file:"x\n\n" link:[] sub:[a.b:"x\n\n" bin:"\x00\xff" c:"c"] top.txt:"own\n"]`},
		{[]any{"keep_newline", []any{"sub/*"}}, `[file:"x\n" link:[] sub:[a.b:"x\n\n" bin:"\x00\xff" c:"c"] top.txt:"own"]`},
		{[]any{"keep_newline", []any{"top*", "./f*"}, "debug", true}, `[file:"x\n\n" link:[] sub:[a.b:"x\n" bin:"\x00\xff" c:"c"] top.txt:"own"]`},
		{[]any{"follow_dir_links", true, "template", false}, `[file:"x\n" link:[a.b:"x\n" bin:"\x00\xff"] sub:[a.b:"x\n" bin:"\x00\xff" c:"c"] top.txt:"own"]`},
	} {
		v, _, err := r.Run(t.Context(), treeEntry(t, append([]any{"root_dir", root}, tt.args...)...), everybody, nil)
		if err != nil || shown(v) != tt.want {
			t.Errorf("%v: %v\n got %s\nwant %s", tt.args, err, shown(v), tt.want)
		}
	}

	other := everybody
	other.ID = "nobody"
	if v, _, err := r.Run(t.Context(), treeEntry(t, "root_dir", root), other, nil); err != nil || shown(v) != `[sub:[c:"c"] top.txt:"group"]` {
		t.Errorf("without files of its own: %s %v", shown(v), err)
	}
	if v, _, err := r.Run(t.Context(), treeEntry(t, "root_dir", root+"/nowhere"), everybody, nil); err != nil || v.Len() != 0 {
		t.Errorf("without a directory: %s %v", shown(v), err)
	}
}

// TestTreesForSalt: what Go cannot do as Salt is left to Salt.
func TestTreesForSalt(t *testing.T) {
	r := newRunner(t, Config{})
	for what, files := range map[string]map[string]string{
		"a name that is no text":              {"hosts/web1/\xff": ""},
		"a group that is matched by a pillar": {"nodegroups/odd/x": ""},
		"a file in place of the groups":       {"nodegroups": ""},
	} {
		if v, _, err := r.Run(t.Context(), treeEntry(t, "root_dir", makeTree(t, files)), everybody, nil); !errors.Is(err, ErrInexact) {
			t.Errorf("%s: %s %v", what, shown(v), err)
		}
	}
}

// TestTreeBounds: loops of links, deep trees and large files end with an error that says what to do.
func TestTreeBounds(t *testing.T) {
	large := strings.Repeat("x", maxTreeBytes)
	for what, tt := range map[string]struct {
		files map[string]string
		want  string // "": there is a pillar
	}{
		"a loop":             {map[string]string{"hosts/web1/a/loop": "->..", "hosts/web1/f": "x"}, ""},
		"branching loops":    {map[string]string{"hosts/web1/a": "->.", "hosts/web1/b": "->.", "hosts/web1/c": "->."}, "files and directories"},
		"a deep tree":        {map[string]string{"hosts/web1/" + strings.Repeat("d/", maxTreeDepth+1) + "f": "x"}, "levels"},
		"large files":        {map[string]string{"hosts/web1/a": large, "hosts/web1/b": "x"}, "MiB"},
		"as large as it can": {map[string]string{"hosts/web1/a": large}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			e := treeEntry(t, "root_dir", makeTree(t, tt.files), "follow_dir_links", true)
			_, _, err := newRunner(t, Config{}).Run(t.Context(), e, everybody, nil)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || Unable(err)) {
				t.Error(err)
			}
		})
	}
}

// TestManyFiles reads 10,000 files of one minion.
func TestManyFiles(t *testing.T) {
	root := makeTree(t, map[string]string{"hosts/web1/f": "x"})
	for i := range 10000 {
		if err := os.Link(root+"/hosts/web1/f", fmt.Sprintf("%s/hosts/web1/f%d", root, i)); err != nil {
			t.Fatal(err)
		}
	}
	v, _, err := newRunner(t, Config{}).Run(t.Context(), treeEntry(t, "root_dir", root), everybody, nil)
	if err != nil || v.Len() != 10001 {
		t.Errorf("%d files, %v", v.Len(), err)
	}
}

// TestVanishingFiles reads a tree while its files come and go.
func TestVanishingFiles(t *testing.T) {
	root := makeTree(t, map[string]string{"hosts/web1/stays": "x"})
	stop := make(chan struct{})
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			dir := fmt.Sprintf("%s/hosts/web1/d%d", root, i%50)
			_ = os.MkdirAll(dir, 0o755)
			_ = os.WriteFile(dir+"/f", []byte("text"), 0o644)
			_ = os.RemoveAll(fmt.Sprintf("%s/hosts/web1/d%d", root, (i+25)%50))
		}
	}()
	defer func() {
		close(stop)
		<-gone
	}()

	r := newRunner(t, Config{})
	e := treeEntry(t, "root_dir", root)
	for range 50 {
		if v, _, err := r.Run(t.Context(), e, everybody, nil); err != nil || v.Value("stays") == nil {
			t.Fatalf("%s %v", shown(v), err)
		}
	}
}

// TestHangingDirectory: a directory that does not answer holds no caller for longer than the limit,
// and neither other entries nor Close.
func TestHangingDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Config{AtOnce: 2})
		answers := make(chan struct{})
		hangs, other := &Entry{Name: "cmd_yaml"}, &Entry{Name: "file_tree"}
		look := func(e *Entry, wait bool) error {
			_, err := r.bounded(t.Context(), e, "/dir", func(context.Context) (*value.Map, error) {
				if wait {
					<-answers
				}
				return nil, nil
			})
			return err
		}

		began := time.Now()
		if err := look(hangs, true); !errors.Is(err, errHangs) || time.Since(began) != defaultLimit {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if err := look(hangs, true); !errors.Is(err, errHangs) || time.Since(began) != defaultLimit {
			t.Errorf("at once: %v after %v", err, time.Since(began))
		}
		if err := look(other, false); err != nil {
			t.Errorf("another entry: %v", err)
		}

		time.Sleep(defaultLimit)
		if err := look(hangs, true); !errors.Is(err, errHangs) { // now both places are taken
			t.Error(err)
		}
		began = time.Now()
		if err := look(other, false); !errors.Is(err, errHangs) || time.Since(began) != defaultLimit {
			t.Errorf("without a place: %v after %v", err, time.Since(began))
		}

		began = time.Now()
		r.Close()
		if took := time.Since(began); took != closeTakes {
			t.Errorf("Close took %v", took)
		}
		close(answers)
		synctest.Wait()
	})
}

// TestOwnModules: a module of the administrator takes the place of Salt's, as soon as it is there.
func TestOwnModules(t *testing.T) {
	dir := t.TempDir()
	r := newRunner(t, Config{Modules: dir})
	minion := everybody
	minion.Groups = value.NewMap("all", "*")
	entries := []*Entry{Parse("cmd_json", "echo {}"), Parse("nodegroups", nil), treeEntry(t, "root_dir", dir)}
	try := func(name string, inexact ...bool) {
		t.Helper()
		if name != "" {
			full := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(full, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(full)
		}
		for i, e := range entries {
			if _, _, err := r.Run(t.Context(), e, minion, nil); errors.Is(err, ErrInexact) != inexact[i] {
				t.Errorf("with %q: %s: %v", name, e.Name, err)
			}
		}
	}

	try("", false, false, false)
	try("pillar/cmd_json.py", true, false, false)
	try("pillar/file_tree.cpython-311.so", false, false, true)
	try("modules/cmdmod.py", true, false, false)
	try("modules/test.py", false, false, false)
}
