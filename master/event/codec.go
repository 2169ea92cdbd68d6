package event

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"saltern/master/msgpack"
	"saltern/master/value"
)

// Errors about events that cannot be on a bus or on a socket.
var (
	// errTag means that a tag is empty, too long, not text, or contains the separator.
	errTag = errors.New("event: bad tag")
	// errFrame means that bytes from a socket are not a frame that contains an event.
	errFrame = errors.New("event: bad frame")
)

const (
	tagEnd = "\n\n"
	// maxTag bounds tags in bytes. Salt has no bound; the longest tags that Salt uses consist of a
	// job id and a minion id.
	maxTag = 4096
	// frameHead is the MessagePack encoding of a frame's map {"head": {}, "body": …} up to the
	// body. The head of the body's bin follows it.
	frameHead = "\x82\xa4head\x80\xa4body"
	// prefixLen is the size of the length prefix, binHead that of the longest head of a bin, both
	// in bytes.
	prefixLen, binHead = 4, 5
)

// limits bounds the values that are decoded from a socket.
var limits = msgpack.Limits{Depth: 64, Nodes: 1 << 20}

// CheckTag returns an error unless a tag may go on the bus: 1 to 4096 bytes of UTF-8 without an
// empty line in it.
func CheckTag(tag string) error {
	switch {
	case tag == "":
		return fmt.Errorf("%w: empty", errTag)
	case len(tag) > maxTag:
		return fmt.Errorf("%w: %d bytes", errTag, len(tag))
	case !utf8.ValidString(tag):
		return fmt.Errorf("%w: not utf-8", errTag)
	case bytes.Contains([]byte(tag), []byte(tagEnd)) || tag[len(tag)-1] == '\n':
		return fmt.Errorf("%w: holds the separator", errTag)
	}
	return nil
}

// packFrame packs an event. It returns length prefix, frame head and body as one slice, and the
// body as a part of that slice. Readers that expect no prefix get frame[prefixLen:].
func packFrame(tag string, data *value.Map, maxSize int) (frame, body []byte, err error) {
	const room = prefixLen + len(frameHead) + binHead
	buf := make([]byte, room, room+len(tag)+256)
	buf = append(buf, tag...)
	buf = append(buf, tagEnd...)
	start := len(buf)
	buf, err = msgpack.Append(buf, orEmpty(data), msgpack.Modern)
	if err != nil {
		return nil, nil, fmt.Errorf("pack event %q: %w", tag, err)
	}

	if maxSize > 0 && len(buf)-start > maxSize {
		buf, err = msgpack.Append(buf[:start], trimToLimit(data, maxSize), msgpack.Modern)
		if err != nil {
			return nil, nil, fmt.Errorf("pack event %q: %w", tag, err)
		}
	}

	return sealFrame(buf, room)
}

// Fits reports whether an event with this data reaches a master unchanged. If the data is larger, a
// [Sender] removes long values.
func Fits(data *value.Map) bool {
	packed, err := msgpack.Marshal(orEmpty(data), msgpack.Modern)
	return err == nil && len(packed) <= defaultMaxSize-maxTag
}

// frameBody returns a frame around a packed body, and the part of the frame that is the body.
func frameBody(body []byte) ([]byte, []byte, error) {
	const room = prefixLen + len(frameHead) + binHead
	buf := make([]byte, room, room+len(body))
	return sealFrame(append(buf, body...), room)
}

// sealFrame writes the length prefix and the heads in front of the body, which starts at index room
// of buf. It returns the frame, and the body as a part of the frame.
func sealFrame(buf []byte, room int) (frame, body []byte, err error) {
	body = buf[room:]
	n := len(body)
	if n > math.MaxInt32 {
		return nil, nil, fmt.Errorf("pack event: %d bytes", n)
	}

	var head []byte
	switch {
	case n <= math.MaxUint8:
		head = []byte{0xc4, byte(n)}
	case n <= math.MaxUint16:
		head = binary.BigEndian.AppendUint16([]byte{0xc5}, uint16(n))
	default:
		head = binary.BigEndian.AppendUint32([]byte{0xc6}, uint32(n))
	}

	at := room - len(head)
	copy(buf[at:], head)
	at -= len(frameHead)
	copy(buf[at:], frameHead)
	at -= prefixLen
	binary.BigEndian.PutUint32(buf[at:], uint32(len(buf)-at-prefixLen))

	return buf[at:], body, nil
}

func orEmpty(m *value.Map) *value.Map {
	if m == nil {
		return &value.Map{}
	}
	return m
}

// parseFrame returns the event in one frame without prefix, and the event's packed body. Neither
// shares memory with b.
func parseFrame(b []byte) (Event, []byte, error) {
	v, err := msgpack.Decode(b, limits)
	if err != nil {
		return Event{}, nil, fmt.Errorf("%w: %w", errFrame, err)
	}
	return eventOf(v)
}

// eventOf returns the event in a decoded frame, and its packed body.
func eventOf(v any) (Event, []byte, error) {
	m, ok := v.(*value.Map)
	if !ok {
		return Event{}, nil, fmt.Errorf("%w: not a map", errFrame)
	}
	body, ok := m.Bytes("body")
	if !ok {
		return Event{}, nil, fmt.Errorf("%w: no body", errFrame)
	}
	e, err := ParseBody(body)
	return e, body, err
}

// ParseBody parses an event in its packed form (tag, "\n\n", packed map), in which peers send
// events (salt/utils/event.py SaltEvent.unpack). The event does not share memory with body.
func ParseBody(body []byte) (Event, error) {
	tag, rest, ok := bytes.Cut(body, []byte(tagEnd))
	if !ok {
		return Event{}, fmt.Errorf("%w: no separator", errFrame)
	}

	t := string(tag)
	if err := CheckTag(t); err != nil {
		return Event{}, err
	}

	v, err := msgpack.Decode(rest, limits)
	if err != nil {
		return Event{}, fmt.Errorf("%w: %w", errFrame, err)
	}

	data, ok := v.(*value.Map)
	if !ok {
		return Event{}, fmt.Errorf("%w: data is not a map", errFrame)
	}

	return Event{Tag: t, Data: data}, nil
}
