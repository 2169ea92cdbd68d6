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

	frames := bytes.NewReader(b)
	packed, err := Read(frames, 100)
	m, merr := Map(packed)
	if n, _ := m.Int("a"); err != nil || merr != nil || n != 1 {
		t.Errorf("first: %v %v %v", m, err, merr)
	}

	rest := b[len(b)-frames.Len():]
	packed, err = Read(iotest.OneByteReader(frames), 100)
	if m, merr := Map(packed); err != nil || merr != nil || m.Str("b") != "c" {
		t.Errorf("second: %v %v %v", m, err, merr)
	}

	for n := range len(rest) {
		if _, err := Read(bytes.NewReader(rest[:n]), 100); !errors.Is(err, io.EOF) &&
			!errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}

	if _, err := Read(bytes.NewReader(rest), len(rest)-5); err == nil {
		t.Error("more than the limit was read")
	}

	if _, err := Read(bytes.NewReader(binary.BigEndian.AppendUint32(nil, 1<<32-1)), 100); err == nil {
		t.Error("a length alone is a frame")
	}

	if _, err := Map([]byte{0x90}); err == nil {
		t.Error("a list is a map")
	}
}
