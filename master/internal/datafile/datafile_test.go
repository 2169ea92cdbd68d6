package datafile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/master/value"
)

func TestBound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.p")
	b := Bound{Bytes: 100, Nodes: 8}
	for _, raw := range []bool{false, true} {
		if err := b.Write(path, value.NewMap("a", []byte("bytes"), "n", 1), raw); err != nil {
			t.Fatal(err)
		}

		m, err := b.ReadMap(path)
		n, _ := m.Int("n")
		got, _ := m.Bytes("a")
		if err != nil || n != 1 || string(got) != "bytes" {
			t.Errorf("raw %v: %v %v", raw, m, err)
		}
	}

	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v %v", info, err)
	}

	if err := b.Write(path, strings.Repeat("x", 101), false); !errors.Is(err, errTooLarge) ||
		!strings.Contains(err.Error(), path) {
		t.Errorf("too large: %v", err)
	}

	if m, err := b.ReadMap(path); err != nil || m.Len() != 2 {
		t.Errorf("a write that failed lost the old value: %v %v", m, err)
	}

	for name, content := range map[string]string{
		"bytes":  strings.Repeat("\xc0", 101),
		"nodes":  "\x9a" + strings.Repeat("\xc0", 10),
		"short":  "\x92\xc0",
		"no map": "\x90",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if m, err := b.ReadMap(path); err == nil {
			t.Errorf("%s: %v", name, m)
		}
	}

	if _, err := b.Read(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
