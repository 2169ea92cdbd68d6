package pyrunner

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/master/internal/pyframe"
	"saltern/master/value"
	"saltern/test/check"
)

func TestOutcome(t *testing.T) {
	m := value.NewMap
	for name, tt := range map[string]struct {
		reply *value.Map
		want  string // part of the error, "" for a result
	}{
		"a result":  {m("return", nil, "success", true), ""},
		"a failure": {m("return", "no luck", "success", false), "no luck"},
		"unknown":   {m("unknown", true), "'a.b' is not available."},
		"an error":  {m("error", "no configuration"), "no configuration"},
		"no result": {m("success", true), "no result"},
		"nothing":   {m(), "no result"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := outcome("a.b", tt.reply)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Error(err)
			}
		})
	}
}

func TestWithoutSalt(t *testing.T) {
	starts := filepath.Join(t.TempDir(), "starts")
	bare := filepath.Join(t.TempDir(), "python3")
	if err := os.WriteFile(bare, []byte("#!/bin/sh\necho x >>"+starts+"\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}

	h := NewHost(HostConfig{Pythons: []string{"/no/such/python", "no-such-python", bare}})
	defer h.Close()
	c := New(Config{Host: h, Log: slog.New(slog.DiscardHandler)})
	for range 3 { // it is remembered for a while
		if _, err := c.Call(t.Context(), "a.b", nil, nil); !errors.Is(err, ErrNoSalt) ||
			!strings.Contains(err.Error(), bare) {
			t.Error(err)
		}
	}

	if b, _ := os.ReadFile(starts); string(b) != "x\n" {
		t.Errorf("starts: %q", b)
	}

	if _, err := c.Call(t.Context(), "nodot", nil, nil); !errors.As(err, new(*UnknownError)) {
		t.Error(err)
	}
}

// What is known decides whether Python is asked, until directories or packages change.
func TestKnownFunctions(t *testing.T) {
	now, dir := time.Now(), t.TempDir()
	old := now.Add(-time.Hour)
	file := filepath.Join(dir, "a.py")
	check.Must(t, os.WriteFile(file, nil, 0o644))
	check.Must(t, os.Chtimes(file, old, old))
	layer := filepath.Join(t.TempDir(), "layer")
	check.Must(t, os.Symlink(t.TempDir(), layer))
	c := New(Config{Layer: layer, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }})
	look := func(what string, ab, ac answer) {
		t.Helper()
		if x, y := c.hasFunction("a.b"), c.hasFunction("a.c"); x != ab || y != ac {
			t.Errorf("%s: %d %d, want %d %d", what, x, y, ab, ac)
		}
	}

	list := value.NewMap("functions", []any{"a.b"}, "dirs", []any{dir})
	look("at first", unsure, unsure)
	c.storeListing(list, now)
	look("a list", yes, no)
	c.forget("a.b")
	look("one that is gone", no, no)
	c.storeListing(list, now)
	now = now.Add(2 * listFor)
	look("an old list", yes, unsure)
	now = old.Add(time.Hour)
	check.Must(t, os.WriteFile(file, []byte("x"), 0o644))
	look("a changed file", yes, unsure)
	c.storeListing(list, now)
	look("a file that changed just now", yes, unsure)
	check.Must(t, os.Chtimes(file, old, old))
	c.storeListing(list, now)
	look("a list of now", yes, no)
	check.Must(t, os.Remove(layer))
	check.Must(t, os.Symlink(t.TempDir(), layer))
	look("other packages", unsure, unsure)
}

// Who waits for the answer to a question is gone when his context is.
func TestOneAsksAtATime(t *testing.T) {
	c := New(Config{Log: slog.New(slog.DiscardHandler)})
	c.unsure <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.exists(ctx, "a.c"); !errors.Is(err, context.Canceled) {
		t.Errorf("the second: %v", err)
	}
	if err := c.exists(ctx, "nodot"); !errors.As(err, new(*UnknownError)) {
		t.Errorf("no function: %v", err)
	}
}

// FuzzReplies reads what a Python could answer.
func FuzzReplies(f *testing.F) {
	for _, m := range []*value.Map{
		value.NewMap("functions", []any{"a.b"}, "dirs", []any{"/"}, "modules", []any{"json"}),
		value.NewMap("return", []any{1, "x"}, "success", true),
		value.NewMap("error", "ValueError: x"),
	} {
		b, err := pyframe.Pack(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}

	f.Add([]byte{0xdd, 0xff, 0xff, 0xff, 0xff})
	c := New(Config{Log: slog.New(slog.DiscardHandler)})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := pyframe.Map(b)
		if err != nil {
			return
		}

		c.storeListing(m, time.Now())
		c.hasFunction("a.b")
		if ret, err := outcome("a.b", m); err != nil && ret != nil {
			t.Errorf("a result %v with the error %v", ret, err)
		}
	})
}
