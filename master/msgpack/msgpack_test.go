package msgpack

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	vm "github.com/vmihailenco/msgpack/v5"

	"saltern/master/value"
)

// captures returns every captured frame by file name.
func captures(tb testing.TB) map[string][]byte {
	files, err := filepath.Glob("../testdata/wire/*.bin")
	if err != nil || len(files) < 200 {
		tb.Fatalf("captured vectors: %d files, %v", len(files), err)
	}
	out := make(map[string][]byte, len(files))
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			tb.Fatal(err)
		}
		out[filepath.Base(f)] = b
	}
	return out
}

// TestCapturesSurvive decodes every frame that Python packed and packs it
// again: the bytes must be the same, in the dialect the frame was sent in.
func TestCapturesSurvive(t *testing.T) {
	n := 0
	for name, b := range captures(t) {
		mode := Raw
		switch {
		case strings.HasPrefix(name, "zmtp_"), strings.HasPrefix(name, "event_") &&
			!strings.HasSuffix(name, "_req.bin") && !strings.HasSuffix(name, "_rep.bin"),
			name == "jobcache_jid.bin":
			continue // not one msgpack value
		case strings.HasPrefix(name, "tcp_"), strings.HasPrefix(name, "jobcache_"), strings.HasPrefix(name, "cache_"):
			mode = Modern
		}

		v, err := Decode(b, DefaultLimits)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}

		got, err := Marshal(v, mode)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}

		if !bytes.Equal(got, b) {
			t.Errorf("%s: packed again it differs\n got %s\nwant %s", name, hex.EncodeToString(got),
				hex.EncodeToString(b))
		}

		n++
	}

	if n < 170 {
		t.Errorf("only %d frames compared", n)
	}
}

func TestRoundTrip(t *testing.T) {
	long := strings.Repeat("x", 40)
	tests := []struct {
		name string
		in   any
		want any    // nil means the same as in
		raw  string // hex of the Raw dialect, "" to skip
	}{
		{"nil", nil, nil, "c0"},
		{"true", true, nil, "c3"},
		{"small", int64(5), nil, "05"},
		{"minus 1", int64(-1), nil, "ff"},
		{"minus 33", int64(-33), nil, "d0df"},
		{"minus 129", int64(-129), nil, "d1ff7f"},
		{"min", int64(math.MinInt64), nil, "d38000000000000000"},
		{"128", int64(128), nil, "cc80"},
		{"65536", int64(65536), nil, "ce00010000"},
		{"2^63", uint64(1 << 63), nil, "cf8000000000000000"},
		{"2^64", new(big.Int).Lsh(big.NewInt(1), 64), "18446744073709551616", ""},
		{"float", 1.5, nil, "cb3ff8000000000000"},
		{"text of 40 has no str8", long, nil, "da0028" + hex.EncodeToString([]byte(long))},
		{"bytes", []byte{0xff, 0xfe}, nil, "a2fffe"},
		{"ext 78", value.Ext{Type: 78, Data: []byte("20260102T03:04:05.000006")}, nil, ""},
		{"ext of 4", value.Ext{Type: 5, Data: []byte{1, 2, 3, 4}}, nil, "d60501020304"},
		{"list", []any{int64(1), "a", nil}, nil, "9301a161c0"},
		{"order", value.NewMap("z", int64(1), "a", int64(2)), nil, "82a17a01a16102"},
		{"odd keys", value.NewMap(int64(1), "a", true, "b", nil, "c", 1.5, "d"), nil, ""},
		{"sorted", map[string]any{"b": 1, "a": 2}, value.NewMap("a", int64(2), "b", int64(1)), "82a16102a16201"},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := tt.want
			if want == nil {
				want = tt.in
			}

			for _, mode := range []Mode{Raw, Modern} {
				b, err := Marshal(tt.in, mode)
				if err != nil {
					t.Fatal(err)
				}

				if mode == Raw && tt.raw != "" && hex.EncodeToString(b) != tt.raw {
					t.Errorf("packed as %x, want %s", b, tt.raw)
				}

				got, err := Decode(b, DefaultLimits)
				if err != nil {
					t.Fatal(err)
				}

				if !reflect.DeepEqual(got, want) {
					t.Errorf("mode %d: got %#v, want %#v", mode, got, want)
				}

				for i := range b {
					if _, err := Decode(b[:i], DefaultLimits); err == nil {
						t.Errorf("cut to %d bytes it still decodes", i)
					}
				}
			}
		})
	}
}

// TestModernAgainstOracle compares with an independent implementation.
func TestModernAgainstOracle(t *testing.T) {
	in := map[string]any{
		"text":  strings.Repeat("ä", 200),
		"bytes": []byte{0, 255},
		"n":     int64(-70000),
		"list":  []any{"a", 1.25, nil, true},
	}

	want, err := vm.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}

	v, err := Decode(want, DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}

	m := v.(*value.Map)
	if m.Str("text") != in["text"] || !reflect.DeepEqual(m.List("list"), in["list"]) {
		t.Errorf("decoded %v", v)
	}

	ours, err := Marshal(v, Modern)
	if err != nil {
		t.Fatal(err)
	}

	var back map[string]any
	if err := vm.Unmarshal(ours, &back); err != nil {
		t.Fatal(err)
	}

	if !bytes.Equal(back["bytes"].([]byte), in["bytes"].([]byte)) || back["text"] != in["text"] {
		t.Errorf("the oracle read %v", back)
	}
}

func TestAttack19MsgpackLengths(t *testing.T) {
	tests := map[string]struct {
		in   []byte
		want error
	}{
		"empty":                   {nil, ErrShort},
		"array32 of 2^32-1":       {[]byte{0xdd, 0xff, 0xff, 0xff, 0xff}, ErrShort},
		"map32 of 2^32-1":         {[]byte{0xdf, 0xff, 0xff, 0xff, 0xff}, ErrShort},
		"map32 of 2^31":           {[]byte{0xdf, 0x80, 0, 0, 0}, ErrShort},
		"bin32 of 4 GiB":          {[]byte{0xc6, 0xff, 0xff, 0xff, 0xff}, ErrShort},
		"raw32 of 4 GiB":          {[]byte{0xdb, 0xff, 0xff, 0xff, 0xff}, ErrShort},
		"ext32 of 4 GiB":          {[]byte{0xc9, 0xff, 0xff, 0xff, 0xff, 1}, ErrShort},
		"trailing":                {[]byte{0xc0, 0xc0}, errTrailing},
		"a million nested arrays": {bytes.Repeat([]byte{0x91}, 1_000_000), ErrLimit},
		"a million nested maps":   {bytes.Repeat([]byte{0x81, 0x01}, 500_000), ErrLimit},
		"three million nils": {append([]byte{0xdd, 0, 0x2d, 0xc6, 0xc0}, bytes.Repeat([]byte{0xc0}, 3_000_000)...),
			ErrLimit},
	}

	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := Decode(tt.in, DefaultLimits); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}

	for name, in := range map[string][]byte{
		"reserved byte": {0xc1}, "list as key": {0x81, 0x90, 0x01}, "map as key": {0x81, 0x80, 0x01},
		"NaN as key": {0x81, 0xcb, 0x7f, 0xf8, 0, 0, 0, 0, 0, 1, 0x01},
	} {
		if v, err := Decode(in, DefaultLimits); err == nil {
			t.Errorf("%s: decoded as %v", name, v)
		}
	}

	if v, err := Decode([]byte{0x82, 0xa1, 'a', 1, 0xa1, 'a', 2}, DefaultLimits); err != nil || v.(*value.Map).Len() != 1 || func() bool { n, _ := v.(*value.Map).Int("a"); return n != 2 }() {
		t.Errorf("repeated key: %v, %v; the last one should count", v, err)
	}
}

// TestDecodeMemory holds that memory stays in proportion to the message.
func TestDecodeMemory(t *testing.T) {
	in := append([]byte{0xdd, 0, 0x0f, 0x42, 0x40}, bytes.Repeat([]byte{0x90}, 1_000_000)...)
	r := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			_, _ = Decode(in[:len(in)/2], DefaultLimits) // half is missing
		}
	})
	if per := r.AllocedBytesPerOp(); per > 100<<20 {
		t.Errorf("%d bytes allocated for a message of %d", per, len(in)/2)
	}
}

func FuzzDecode(f *testing.F) {
	for _, b := range captures(f) {
		f.Add(b)
	}

	f.Fuzz(func(t *testing.T, b []byte) {
		v, n, err := DecodePrefix(b, Limits{Depth: 64, Nodes: 100_000})
		if err != nil {
			return
		}
		if n > len(b) {
			t.Fatalf("took %d of %d bytes", n, len(b))
		}

		for _, mode := range []Mode{Raw, Modern} {
			p, err := Marshal(v, mode)
			if err != nil {
				t.Fatalf("what was decoded cannot be packed: %v", err)
			}

			again, err := Decode(p, DefaultLimits)
			if err != nil {
				t.Fatalf("what was packed cannot be decoded: %v", err)
			}

			q, err := Marshal(again, mode)
			if err != nil || !bytes.Equal(p, q) {
				t.Fatalf("not stable: %x then %x", p, q)
			}
		}
	})
}

func BenchmarkDecodeReturn(b *testing.B) {
	in := captures(b)["jobcache_load_p.bin"]
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(in, DefaultLimits); err != nil {
			b.Fatal(err)
		}
	}
}
