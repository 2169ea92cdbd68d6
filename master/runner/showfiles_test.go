package runner

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"saltern/master/value"
)

// served is a file server that holds one file.
type served struct {
	Files
	names []any
	data  []byte
	size  int64 // that it tells; -1: none, as of git
	asked *value.Map
}

func (s *served) Call(_ context.Context, cmd string, load *value.Map) (any, error) {
	s.asked = load
	switch cmd {
	case "_file_envs":
		return []any{"base", "dev"}, nil
	case "_file_list":
		return s.names, nil
	case "_file_find":
		stat := []any{int64(0o644)}
		if s.size >= 0 {
			stat = []any{int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), s.size}
		}
		return value.NewMap("path", "/srv/x", "rel", "x", "back", "roots", "stat", stat), nil
	}

	return value.NewMap("data", s.data, "dest", "x"), nil
}

func TestFilesList(t *testing.T) {
	f := &served{names: []any{"top.sls", "web/init.sls", "web/files/a", "web/files/b", "webby", int64(3)}}
	for range 3000 {
		f.names = append(f.names, fmt.Sprintf("many/%d", len(f.names)))
	}

	for _, c := range []struct {
		prefix      string
		dirs, files []string
		of          int64
	}{
		{"", []string{"many", "web"}, []string{"top.sls", "webby"}, 4}, {"web", []string{"files"}, []string{"init.sls"}, 2}, {"/web/files/", nil, []string{"a", "b"}, 2},
		{"we", nil, nil, 0}, {"web/init.sls", nil, nil, 0}, {"../x", nil, nil, 0},
	} {
		got, err := New().Call(t.Context(), &Env{Files: f}, "files.list", []any{"dev"},
			value.NewMap("prefix", c.prefix))
		ok(t, err)
		m := got.(*value.Map)
		if of, _ := m.Int("of"); !slices.Equal(m.Texts("dirs"), c.dirs) ||
			!slices.Equal(m.Texts("files"), c.files) || of != c.of || m.Str("saltenv") != "dev" || len(m.Texts("envs")) != 2 {
			t.Errorf("%q: %s", c.prefix, value.Repr(m))
		}
	}

	got, err := New().Call(t.Context(), &Env{Files: f}, "files.list", nil, value.NewMap("prefix", "many"))
	ok(t, err)
	if m := got.(*value.Map); len(m.List("files")) != maxShownNames || m.Value("of") != int64(3000) {
		t.Errorf("%d names of %v", len(m.List("files")), m.Value("of"))
	}
}

func TestFilesShow(t *testing.T) {
	long := strings.Repeat("é", maxShownFile)
	for _, c := range []struct {
		data      string
		size      int64
		text      string
		cut, told int64
		binary    bool
	}{
		{"a: é\n", 6, "a: é\n", 0, 6, false}, {"", 0, "", 0, 0, false}, {"x", -1, "x", 0, 1, false}, {"x", 100, "x", 99, 100, false},
		{"a" + long, -1, "a" + long[:maxShownFile-2], int64(len(long)) - maxShownFile + 2, int64(len(long)) + 1, false},
		{"a\x00b", 3, "", 0, 3, true}, {"\xff\xfe", 2, "", 0, 2, true},
	} {
		f := &served{data: []byte(c.data), size: c.size}
		got, err := New().Call(t.Context(), &Env{Files: f}, "files.show", []any{"x?saltenv=dev"}, nil)
		ok(t, err)
		m := got.(*value.Map)
		size, _ := m.Int("size")
		left, _ := m.Int("cut")
		if m.Str("text") != c.text || left != c.cut || size != c.told || m.Bool("binary") != c.binary {
			t.Errorf("%.20q: %.100s, cut %d of %d", c.data, m.Str("text"), left, size)
		}

		if f.asked.Str("path") != "|x?saltenv=dev" || f.asked.Str("saltenv") != "base" {
			t.Errorf("asked for %s", value.Repr(f.asked))
		}
	}
}
