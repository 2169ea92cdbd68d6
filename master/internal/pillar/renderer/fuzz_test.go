package renderer

import (
	"bytes"
	"encoding/binary"
	"testing"

	"saltern/master/internal/pyframe"
	"saltern/master/msgpack"
	"saltern/master/value"
)

// FuzzReply reads what a worker could write: frames, and in them replies.
func FuzzReply(f *testing.F) {
	for _, m := range []*value.Map{
		value.NewMap("ok", true, "value", value.NewMap("a", []any{int64(1), "x", nil, 1.5}), "errors", []any{"e"}),
		value.NewMap("ok", false, "error", "Jinja variable 'x' is undefined", "kind", "SaltRenderError",
			"trace", "Traceback\n"),
		value.NewMap("ok", true),
	} {
		b, err := msgpack.Marshal(m, msgpack.Modern)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	}

	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x80})
	f.Add([]byte{0, 0, 0, 5, 0xdf, 0xff, 0xff, 0xff, 0xff})
	const limit = 1 << 20
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		for {
			frame, err := pyframe.Read(r, limit)
			if err != nil {
				return
			}
			if len(frame) > len(b) || len(frame) > limit {
				t.Fatalf("a frame of %d bytes out of %d", len(frame), len(b))
			}

			m, err := readReply(frame, 8<<20)
			if (m == nil) == (err == nil) {
				t.Fatalf("%v and %v", m, err)
			}

			if m != nil {
				m.Texts("errors")
				m.Map("value")
			}
		}
	})
}
