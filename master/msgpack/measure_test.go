package msgpack

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"

	"saltern/master/value"
)

// wild packs a random value.
func wild(r *rand.Rand, depth int) any {
	switch n := r.IntN(12); {
	case n < 2 && depth > 0:
		l := make([]any, r.IntN(40))
		for i := range l {
			l[i] = wild(r, depth-1)
		}
		return l
	case n < 4 && depth > 0:
		m := value.NewMap()
		for range r.IntN(40) {
			m.Set(r.Int64N(1000), wild(r, depth-1))
		}
		return m
	case n < 5:
		return nil
	case n < 6:
		return r.Int64()
	case n < 7:
		return r.Float64()
	case n < 8:
		return bytes.Repeat([]byte{0xff}, r.IntN(300))
	case n < 9:
		return []any{}
	case n < 10:
		return value.NewMap()
	}

	return string(bytes.Repeat([]byte("x"), r.IntN(300)))
}

// allocated is what decoding b allocates.
func allocated(t *testing.T, b []byte) int64 {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	v, err := Decode(b, DefaultLimits)
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	runtime.KeepAlive(v)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// TestMeasure: the measured memory of a value is at least the memory that the decoded value takes.
// (Decoding may allocate a little more.)
func TestMeasure(t *testing.T) {
	long := func(head []byte, one string, n int) []byte { return append(head, bytes.Repeat([]byte(one), n)...) }
	cases := map[string][]byte{
		"empty lists": long([]byte{0xdd, 0, 0x0f, 0x42, 0x40}, "\x90", 1000000),
		"empty maps":  long([]byte{0xdd, 0, 0x0f, 0x42, 0x40}, "\x80", 1000000),
		"numbers":     long([]byte{0xdd, 0, 0x0f, 0x42, 0x40}, "\xcd\xff\xff", 1000000),
		"short texts": long([]byte{0xdd, 0, 0x0f, 0x42, 0x40}, "\xa1x", 1000000),
		"one text":    long([]byte{0xdb, 0, 0x0f, 0x42, 0x40}, "x", 1000000),
		"bytes":       long([]byte{0xc6, 0, 0x0f, 0x42, 0x40}, "\xff", 1000000),
	}

	big := value.NewMap()
	for i := range int64(100000) {
		big.Set(i, i)
	}

	cases["a map"], _ = Marshal(big, Modern)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 200 {
		b, err := Marshal(wild(r, 4), Modern)
		if err != nil {
			t.Fatal(err)
		}
		cases["wild "+string(rune('0'+i%10))+string(rune('a'+i/10))] = b
	}

	for name, b := range cases {
		s, err := Measure(b, DefaultLimits)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		if s.Encoded != len(b) {
			t.Errorf("%s: %d of %d bytes", name, s.Encoded, len(b))
		}

		if raceBuild {
			continue
		}

		if got := allocated(t, b); got > s.Memory*3/2+8192 {
			t.Errorf("%s: %d bytes packed, measured %d, allocated %d", name, len(b), s.Memory, got)
		}
	}

	if n := testing.AllocsPerRun(10, func() { _, _ = Measure(cases["a map"], DefaultLimits) }); n > 0 {
		t.Errorf("measuring allocates %v times", n)
	}
}

func TestFields(t *testing.T) {
	b, err := Marshal(value.NewMap("enc", "aes", "load", []byte{0xff, 1}, "n", int64(3), "list", []any{"a", []any{}}),
		Modern)
	if err != nil {
		t.Fatal(err)
	}

	f, err := Fields(b, DefaultLimits, 4)
	if err != nil || len(f) != 4 || string(f[0].Key) != "enc" {
		t.Fatalf("%v %v", f, err)
	}

	if c, ok := Contents(f[1].Value); !ok || !bytes.Equal(c, []byte{0xff, 1}) {
		t.Errorf("load: %x %v", c, ok)
	}

	if _, ok := Contents(f[2].Value); ok {
		t.Error("a number has contents")
	}

	for name, c := range map[string]struct {
		in   []byte
		want error
	}{
		"too many":   {b, ErrLimit},
		"trailing":   {append(bytes.Clone(b), 0xc0), errTrailing},
		"short":      {b[:len(b)-1], ErrShort},
		"a list":     {[]byte{0x90}, ErrNotMap},
		"nothing":    {nil, ErrShort},
		"huge claim": {[]byte{0xdf, 0xff, 0xff, 0xff, 0xff}, ErrLimit},
	} {
		most := 4
		if name == "too many" {
			most = 3
		}
		if _, err := Fields(c.in, DefaultLimits, most); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}

	if _, err := Fields([]byte{0x81, 0x01, 0x01}, DefaultLimits, 4); err == nil {
		t.Error("a number as a key")
	}
}

// FuzzMeasure: measuring and decoding find the same inputs well-formed, and Fields returns the same
// entries as decoding.
func FuzzMeasure(f *testing.F) {
	for _, b := range [][]byte{
		{0x81, 0xa1, 'a', 0x90},
		{0xdc, 0, 2, 0xc0, 0xc7, 1, 5, 'x'},
		{0x80},
		{0xdf, 0, 0, 0, 1, 0xa0, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0},
	} {
		f.Add(b)
	}

	f.Fuzz(func(t *testing.T, b []byte) {
		s, merr := Measure(b, DefaultLimits)
		v, n, derr := DecodePrefix(b, DefaultLimits)
		if derr == nil && (merr != nil || s.Encoded != n) {
			t.Fatalf("decoded %d bytes, measured %d: %v", n, s.Encoded, merr)
		}

		fields, ferr := Fields(b, DefaultLimits, 1<<20)
		m, isMap := v.(*value.Map)
		if derr != nil || !isMap || n != len(b) || ferr != nil {
			return
		}

		for _, x := range fields {
			if _, ok := m.Get(string(x.Key)); !ok {
				t.Fatalf("no key %q in the decoded map", x.Key)
			}
		}
	})
}
