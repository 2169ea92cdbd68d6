package msgpack

import (
	"bytes"
	"slices"
	"testing"
)

// Finding 2: Measure counts the real cost of values that take more memory than their size suggests.
func TestFinding02Measured(t *testing.T) {
	if raceBuild {
		t.Skip("the race detector allocates as well")
	}

	big := []byte{0xdf, 0, 1, 0x11, 0x70} // a map of 70,000 numbers
	for i := range 70_000 {
		big = append(big, 0xce, 1, byte(i>>16), byte(i>>8), byte(i), 0xc0)
	}

	keys := []byte{0xdf, 0, 0, 0xc3, 0x50} // a map of 50,000 keys that are bytes
	for i := range 50_000 {
		keys = append(keys, 0xa4, 0xff, byte(i>>16), byte(i>>8), byte(i), 0x90)
	}

	many := []byte{0xdd, 0, 0, 3, 0xe8} // 1,000 maps with an index
	for range 1000 {
		many = append(many, 0xde, 0, 120)
		for k := range 120 {
			many = append(many, byte(k), 0xc0)
		}
	}

	for name, b := range map[string][]byte{
		"numbers below zero": slices.Concat([]byte{0xdd, 0, 1, 0x86, 0xa0}, bytes.Repeat([]byte{0xe0}, 100_000)),
		"a big map":          big,
		"keys of bytes":      keys,
		"maps":               many,
	} {
		size, err := Measure(b, DefaultLimits)
		if err != nil {
			t.Fatal(err)
		}
		if took := allocated(t, b); took > size.Memory+8<<10 {
			t.Errorf("%s: %d bytes allocated, %d measured", name, took, size.Memory)
		}
	}
}
