// Package pyframe implements the protocol between the master and our Python programs. A frame is a
// length of four bytes, most significant byte first, followed by a packed value.
package pyframe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"saltern/master/msgpack"
	"saltern/master/value"
)

// head is the number of bytes of the length at the beginning of a frame.
const head = 4

// limits bounds the value in one frame.
var limits = msgpack.Limits{Depth: 128, Nodes: 8 << 20}

// Pack returns a packed value without the length.
func Pack(v any) ([]byte, error) { return msgpack.Marshal(v, msgpack.Modern) }

// Append appends a frame with the value v to dst.
func Append(dst []byte, v any) ([]byte, error) {
	at := len(dst)
	dst, err := msgpack.Append(append(dst, make([]byte, head)...), v, msgpack.Modern)
	if err == nil {
		binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-head))
	}
	return dst, err
}

// Map decodes packed data. It returns an error if the data are not a map.
func Map(packed []byte) (*value.Map, error) { return MapWithin(packed, limits.Nodes) }

// MapWithin decodes packed data like Map, with at most so many values.
func MapWithin(packed []byte, values int) (*value.Map, error) {
	v, err := msgpack.Decode(packed, msgpack.Limits{Depth: limits.Depth, Nodes: values})
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	m, ok := v.(*value.Map)
	if !ok {
		return nil, errors.New("it is no map")
	}
	return m, nil
}

// Read reads a frame of at most limit bytes and returns its packed data.
func Read(r io.Reader, limit int) ([]byte, error) {
	var length [head]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}

	size := int(binary.BigEndian.Uint32(length[:]))
	if size > limit {
		return nil, fmt.Errorf("reply of %d bytes, %d are allowed", size, limit)
	}

	// The buffer grows with the bytes that arrive, not with the announced length.
	buf := make([]byte, 0, min(size, 1<<20))
	for len(buf) < size {
		if len(buf) == cap(buf) {
			buf = append(make([]byte, 0, min(size, 2*cap(buf))), buf...)
		}

		k, err := r.Read(buf[len(buf):min(size, cap(buf))])
		buf = buf[:len(buf)+k]
		if err != nil {
			return nil, err
		}
	}

	return buf, nil
}
