package pyrunner

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/master/msgpack"
	"saltern/master/value"
)

func framed(t testing.TB, values ...any) []byte {
	var out []byte
	for _, v := range values {
		b, err := msgpack.Marshal(v, msgpack.Modern)
		if err != nil {
			t.Fatal(err)
		}
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(b))), b...)
	}
	return out
}

func TestOutcome(t *testing.T) {
	m := value.NewMap
	list := m("functions", []any{"a.b"}, "dirs", []any{})
	for name, tt := range map[string]struct {
		out  []byte
		want string // part of the error, "" for a result
	}{
		"a result":          {framed(t, list, m("return", nil, "success", true)), ""},
		"a failure":         {framed(t, list, m("return", "no luck", "success", false)), "no luck"},
		"unknown":           {framed(t, list, m("unknown", true)), "'a.b' is not available."},
		"an error":          {framed(t, m("error", "no configuration")), "no configuration"},
		"nothing":           {nil, "there is none"},
		"only the list":     {framed(t, list), "no result"},
		"cut short":         {framed(t, list, m("return", 1))[:20], "cut short"},
		"a length and less": {[]byte{0xff, 0xff, 0xff, 0xff, 0x80}, "cut short"},
		"too many":          {framed(t, list, list, m("return", 1, "success", true)), "more after"},
		"no map":            {framed(t, list, []any{1}), "no map"},
		"no MessagePack":    {[]byte{0, 0, 0, 1, 0xc1}, "unpack"},
	} {
		_, err := outcome("a.b", tt.out)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The list is heard before the result is there, however the bytes arrive.
func TestReaderHearsTheListFirst(t *testing.T) {
	list := framed(t, value.NewMap("functions", []any{"a.b"}))
	heard := 0
	r := &reader{first: func(m *value.Map) { heard += len(m.Texts("functions")) }}
	for _, b := range append(list, 1, 2, 3) {
		if n, err := r.Write([]byte{b}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if heard != 1 {
		t.Errorf("heard %d functions", heard)
	}
	endless := &reader{first: func(*value.Map) { t.Error("heard what is no list") }}
	for range 3 * maxList / 4096 {
		n, err := endless.Write(bytes.Repeat([]byte{0xff}, 4096))
		if n != 4096 || err != nil || len(endless.b) > maxList {
			t.Fatal(n, err, len(endless.b))
		}
	}
}

func TestWithoutSalt(t *testing.T) {
	starts := filepath.Join(t.TempDir(), "starts")
	bare := filepath.Join(t.TempDir(), "python3")
	if err := os.WriteFile(bare, []byte("#!/bin/sh\necho x >>"+starts+"\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := New(Config{Pythons: []string{"/no/such/python", bare}, Log: slog.New(slog.DiscardHandler)})
	for range 3 { // it is remembered for a while
		if _, err := c.Call(t.Context(), "a.b", nil, nil); !errors.Is(err, ErrNoSalt) || !strings.Contains(err.Error(), bare) {
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

// While one Python is asked which functions there are, others wait for it; a
// caller that leaves does not.
func TestOneAsksAtATime(t *testing.T) {
	c := New(Config{Log: slog.New(slog.DiscardHandler)})
	leave, err := c.admit(t.Context(), "a.b")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.admit(ctx, "a.c"); !errors.Is(err, context.Canceled) {
		t.Errorf("the second: %v", err)
	}
	c.learn(value.NewMap("functions", []any{"a.b"}, "dirs", []any{t.TempDir()}))
	leave()
	leave()
	if _, err := c.admit(ctx, "a.b"); err != nil {
		t.Errorf("a function that is there: %v", err)
	}
	if _, err := c.admit(ctx, "a.c"); !errors.As(err, new(*UnknownError)) {
		t.Errorf("one that is not: %v", err)
	}
}

// FuzzFrames reads what the shim could write.
func FuzzFrames(f *testing.F) {
	f.Add(framed(f, value.NewMap("functions", []any{"a.b"}, "dirs", []any{"/"}, "salt", "3008.3"), value.NewMap("return", []any{1, "x"}, "success", true)))
	f.Add(framed(f, value.NewMap("error", "ValueError: x")))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0, 5, 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		c := New(Config{Log: slog.New(slog.DiscardHandler)})
		r := &reader{first: func(m *value.Map) { c.learn(m) }}
		for rest := b; len(rest) > 0; {
			n, err := r.Write(rest[:min(len(rest), 7)])
			if err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		ret, err := outcome("a.b", b)
		if err != nil && ret != nil {
			t.Errorf("a result %v with the error %v", ret, err)
		}
	})
}
