package grubenv

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestRoundTrip(t *testing.T) {
	for _, e := range []Env{
		{},
		{"slot": "a"},
		{"slot": "a", "next": "b", "tries": "2"},
		{"x": `back\slash`, "y": "two\nlines", "z": "a=b#c"},
	} {
		b, err := e.Bytes()
		if err != nil || len(b) != size {
			t.Fatalf("%v: %d bytes, %v", e, len(b), err)
		}

		got, err := parseBlock(b)
		if err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("%v became %v, %v", e, got, err)
		}
	}

	if _, err := (Env{"x": strings.Repeat("y", size)}).Bytes(); !errors.Is(err, errFull) {
		t.Errorf("too much: %v", err)
	}

	if _, err := (Env{"a=b": "c"}).Bytes(); err == nil {
		t.Error("a name with = was taken")
	}
}

func TestParseRefuses(t *testing.T) {
	full := func(s string) []byte {
		return append([]byte(s), bytes.Repeat([]byte{'#'}, max(0, size-len(s)))...)
	}
	for name, b := range map[string][]byte{
		"nothing": nil, "short": []byte(signature), "no signature": full("slot=a\n"), "no =": full(signature + "slot\n"),
		"no end": []byte(signature + strings.Repeat("a", size-len(signature))),
	} {
		if e, err := parseBlock(b); err == nil {
			t.Errorf("%s: %v", name, e)
		}
	}
}

func TestSaveKeepsTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "grubenv")
	b, _ := Env{"slot": "a"}.Bytes()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}

	before, _ := os.Stat(path)
	if err := (Env{"slot": "b"}).Save(path); err != nil {
		t.Fatal(err)
	}

	after, _ := os.Stat(path)
	if !os.SameFile(before, after) || after.Size() != size {
		t.Error("not the same file any more")
	}

	if e, err := Load(path); err != nil || e["slot"] != "b" {
		t.Errorf("%v %v", e, err)
	}

	if tool, err := exec.LookPath("grub-editenv"); err == nil {
		out, err := exec.Command(tool, path, "list").CombinedOutput()
		if err != nil || string(out) != "slot=b\n" {
			t.Errorf("grub-editenv: %q %v", out, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	b, _ := Env{"slot": "a", "next": "b"}.Bytes()
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := parseBlock(b)
		if err != nil {
			return
		}
		if again, err := e.Bytes(); err == nil {
			if e2, err := parseBlock(again); err != nil || !reflect.DeepEqual(e, e2) {
				t.Errorf("%v %v %v", e, e2, err)
			}
		}
	})
}
