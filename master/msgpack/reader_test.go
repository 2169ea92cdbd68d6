package msgpack

import (
	"errors"
	"testing"

	"saltern/master/value"
)

func TestReaderGoesThroughAValue(t *testing.T) {
	packed, err := Marshal(value.NewMap("a", []any{1, "two"}, "b", value.NewMap("c", nil)), Modern)
	if err != nil {
		t.Fatal(err)
	}

	r := NewReader(packed, DefaultLimits)
	if n, err := r.Map(); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	if key, _ := r.Value(); string(key) != "\xa1a" {
		t.Fatalf("key %q", key)
	}
	if r.AtMap() || !r.AtList() {
		t.Fatal("a list is not seen")
	}
	if n, err := r.List(); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	for _, want := range []string{"\x01", "\xa3two", "\xa1b", "\x81\xa1c\xc0"} {
		if got, err := r.Value(); string(got) != want || err != nil {
			t.Fatalf("%q, %v, want %q", got, err, want)
		}
	}
	if _, err := r.Value(); !errors.Is(err, ErrShort) || r.AtMap() || r.AtList() {
		t.Fatal("at the end:", err)
	}
}

func TestReaderRefusesLengthsBeyondTheInput(t *testing.T) {
	for _, packed := range []string{"\xdf\xff\xff\xff\xff", "\xde\xff\xff\x01", "\x85\x01"} {
		if n, err := NewReader([]byte(packed), DefaultLimits).Map(); !errors.Is(err, ErrShort) {
			t.Errorf("%q: %d entries, %v", packed, n, err)
		}
	}
	for _, packed := range []string{"\xdd\xff\xff\xff\xff", "\xdc\xff\xff\x01", "\x95\x01"} {
		if n, err := NewReader([]byte(packed), DefaultLimits).List(); !errors.Is(err, ErrShort) {
			t.Errorf("%q: %d elements, %v", packed, n, err)
		}
	}
}
