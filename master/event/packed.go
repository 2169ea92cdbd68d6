package event

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"saltern/master/msgpack"
	"saltern/master/value"
)

// Packed is an event whose data is not unpacked yet.
type Packed struct {
	Tag  string
	data []byte // the map of the event, in MessagePack
}

// Event unpacks the data. It may be called concurrently.
func (p Packed) Event() (Event, error) {
	v, err := msgpack.Decode(p.data, limits)
	if err != nil {
		return Event{}, fmt.Errorf("%w: %w", errFrame, err)
	}
	data, ok := v.(*value.Map)
	if !ok {
		return Event{}, fmt.Errorf("%w: data is not a map", errFrame)
	}
	return Event{Tag: p.Tag, Data: data, Origin: Socket}, nil
}

// packedOf splits the packed form of an event into tag and data. The result does not share memory
// with body.
func packedOf(body []byte) (Packed, error) {
	tag, rest, ok := bytes.Cut(body, []byte(tagEnd))
	if !ok {
		return Packed{}, fmt.Errorf("%w: no separator", errFrame)
	}
	p := Packed{string(tag), bytes.Clone(rest)}
	return p, CheckTag(p.Tag)
}

// plainBody returns the position and the size in bytes of the body in a frame, if the frame has the
// form that Saltern's masters write. b may hold only the beginning of the frame. ok is false for a
// frame in another form, which the caller must decode completely.
func plainBody(b []byte) (from, size int, ok bool) {
	rest, ok := bytes.CutPrefix(b, []byte(frameHead))
	if !ok || len(rest) < binHead {
		return 0, 0, false
	}

	from = len(frameHead)
	switch rest[0] {
	case 0xc4:
		return from + 2, int(rest[1]), true
	case 0xc5:
		return from + 3, int(binary.BigEndian.Uint16(rest[1:])), true
	case 0xc6:
		return from + 5, int(binary.BigEndian.Uint32(rest[1:])), true
	}

	return 0, 0, false
}
