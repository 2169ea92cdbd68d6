package msgpack

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"saltern/master/value"
)

const jsonRoom = 1 << 20

func TestAppendJSON(t *testing.T) {
	for _, c := range []struct {
		name    string
		v       any
		want    string
		changes Adaptations
	}{
		{name: "plain", v: value.NewMap("a", []any{nil, true, int64(-5), "x\n\"\\ü"}), want: `{"a":[null,true,-5,"x\n\"\\ü"]}`},
		{name: "numbers", v: []any{uint64(math.MaxUint64), 1.0, 1.5e300}, want: `[18446744073709551615,1.0,1.5e+300]`},
		{name: "control", v: "\x01\x7f", want: "\"\\u0001\x7f\""},
		{name: "NUL", v: "a\x00b", want: `"a␀b"`, changes: AdaptedNUL},
		{name: "bytes", v: []byte("\xff\xfeok"), want: `"\\xff\\xfeok"`, changes: AdaptedBytes},
		{name: "surrogate", v: []byte("\xed\xa0\x80"), want: `"\\xed\\xa0\\x80"`, changes: AdaptedBytes},
		{name: "not finite", v: []any{math.NaN(), math.Inf(1), math.Inf(-1)},
			want: `["NaN","Infinity","-Infinity"]`, changes: AdaptedNumber},
		{name: "keys", v: value.NewMap("5", "text", int64(5), "number", nil, 1, true, 2),
			want: `{"5":"text","5 #1":"number","null":1,"true":2}`, changes: AdaptedKey},
		{name: "large key", v: value.NewMap(uint64(math.MaxUint64), 1), want: `{"18446744073709551615":1}`,
			changes: AdaptedKey},
		{name: "keys with NUL", v: value.NewMap("a\x00", 1, "a␀", 2), want: `{"a␀":1,"a␀ #1":2}`,
			changes: AdaptedNUL | AdaptedKey},
		{name: "time", v: value.Ext{Type: 78, Data: []byte("20261129T08:00:00.000000")},
			want: `"20261129T08:00:00.000000"`, changes: AdaptedExt},
	} {
		t.Run(c.name, func(t *testing.T) {
			packed, err := Marshal(c.v, Modern)
			if err != nil {
				t.Fatal(err)
			}
			got, changes, err := AppendJSON([]byte("before "), packed, DefaultLimits, jsonRoom)
			if err != nil || string(got) != "before "+c.want || changes != c.changes {
				t.Errorf("%s %v %v, not %s %v", got, changes.Words(), err, c.want, c.changes.Words())
			}
		})
	}
}

func TestAppendJSONIsBounded(t *testing.T) {
	packed, err := Marshal(value.List([]string{strings.Repeat("\x00", 1000), strings.Repeat("\x01", 1000)}), Modern)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := AppendJSON(nil, packed, DefaultLimits, 2000); !errors.Is(err, ErrLimit) {
		t.Errorf("longer than allowed: %v", err)
	}
	deep := []byte(strings.Repeat("\x91", 100) + "\xc0")
	if _, _, err := AppendJSON(nil, deep, DefaultLimits, jsonRoom); !errors.Is(err, ErrLimit) {
		t.Errorf("too deep: %v", err)
	}
	if _, _, err := AppendJSON(nil, packed[:len(packed)-1], DefaultLimits, jsonRoom); !errors.Is(err, ErrShort) {
		t.Errorf("cut: %v", err)
	}
}

// Every value counts, lists and maps too.
func TestAppendJSONCountsContainers(t *testing.T) {
	limits := Limits{Nodes: 3, Depth: 8}
	for _, packed := range []string{"\x92\x91\xc0\x90", "\x92\x91\xc0\x80", "\x92\x91\xc0\x92\x90\x81\x90\x80"} {
		if _, err := Decode([]byte(packed), limits); !errors.Is(err, ErrLimit) {
			t.Errorf("%q is decoded: %v", packed, err)
		}
		if _, _, err := AppendJSON(nil, []byte(packed), limits, jsonRoom); !errors.Is(err, ErrLimit) {
			t.Errorf("%q: %v", packed, err)
		}
	}
}

// FuzzAppendJSON: what Decode takes becomes JSON that Go's parser takes, with as many keys and without
// what jsonb refuses; what Decode refuses is refused.
func FuzzAppendJSON(f *testing.F) {
	for _, v := range []any{nil, "a\x00", []byte{0xff}, math.NaN(), value.NewMap("1", 1, int64(1), "b"),
		[]any{value.NewMap("a", value.NewMap(false, []any{}))}} {
		packed, err := Marshal(v, Modern)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packed)
	}
	f.Add([]byte("\x83\x01\xc0\x01\xc0\xa4\x31 #1\xc0")) // a key twice, and the number that it would get

	f.Fuzz(func(t *testing.T, packed []byte) {
		v, decodeErr := Decode(packed, DefaultLimits)
		got, changes, err := AppendJSON(nil, packed, DefaultLimits, jsonRoom)
		if decodeErr != nil != (err != nil) && !errors.Is(err, ErrLimit) {
			t.Fatalf("Decode: %v, AppendJSON: %v", decodeErr, err)
		}
		if err != nil {
			return
		}
		if !json.Valid(got) || !utf8.Valid(got) || strings.Contains(string(got), `\u0000`) &&
			!strings.Contains(string(got), `\\u0000`) {
			t.Fatalf("not for jsonb: %q", got)
		}
		if m, ok := v.(*value.Map); ok {
			var parsed map[string]json.RawMessage
			if err := json.Unmarshal(got, &parsed); err != nil || len(parsed) < min(m.Len(), 8) {
				t.Fatalf("%d keys of %d: %v", len(parsed), m.Len(), err)
			}
		}
		if slices.Contains(changes.Words(), "") {
			t.Fatal(changes)
		}
	})
}
