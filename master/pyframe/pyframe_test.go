package pyframe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"saltern/master/value"
)

func TestFrames(t *testing.T) {
	b, err := Append([]byte("x"), value.NewMap("a", 1))
	if err != nil || b[0] != 'x' {
		t.Fatal(b, err)
	}
	b, err = Append(b[1:], value.NewMap("b", "c"))
	if err != nil {
		t.Fatal(err)
	}
	packed, rest, ok := Split(b)
	m, err := Map(packed)
	if n, _ := m.Int("a"); !ok || err != nil || n != 1 {
		t.Errorf("first: %v %v", m, err)
	}
	packed, err = Read(iotest.OneByteReader(bytes.NewReader(rest)), 100)
	if m, merr := Map(packed); err != nil || merr != nil || m.Str("b") != "c" {
		t.Errorf("second: %v %v %v", m, err, merr)
	}
	for n := range len(rest) {
		if _, _, ok := Split(rest[:n]); ok {
			t.Errorf("%d bytes are a frame", n)
		}
		if _, err := Read(bytes.NewReader(rest[:n]), 100); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if _, err := Read(bytes.NewReader(rest), len(rest)-5); err == nil {
		t.Error("more than the limit was read")
	}
	if _, _, ok := Split(binary.BigEndian.AppendUint32(nil, 1<<32-1)); ok {
		t.Error("a length alone is a frame")
	}
	if _, err := Map([]byte{0x90}); err == nil {
		t.Error("a list is a map")
	}
}
