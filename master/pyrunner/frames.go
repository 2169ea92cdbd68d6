package pyrunner

import (
	"encoding/binary"
	"errors"
	"fmt"

	"saltern/master/msgpack"
	"saltern/master/value"
)

// limits bound one answer of the shim.
var limits = msgpack.Limits{Depth: 128, Nodes: 8 << 20}

// maxFrames is how many answers a call has: the list and the result.
const maxFrames = 2

// frames reads the answers of the shim: lengths and packed maps.
func frames(b []byte) ([]*value.Map, error) {
	var out []*value.Map
	for len(b) > 0 {
		if len(out) == maxFrames {
			return nil, errors.New("there is more after the result")
		}
		packed, rest, ok := frame(b)
		if !ok {
			return nil, errors.New("it is cut short")
		}
		v, err := msgpack.Decode(packed, limits)
		if err != nil {
			return nil, fmt.Errorf("unpack: %w", err)
		}
		m, ok := v.(*value.Map)
		if !ok {
			return nil, errors.New("it is no map")
		}
		out, b = append(out, m), rest
	}
	return out, nil
}

// frame splits the first frame off, if it is there as a whole.
func frame(b []byte) (packed, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, b, false
	}
	size := int64(binary.BigEndian.Uint32(b))
	if size > int64(len(b)-4) {
		return nil, b, false
	}
	return b[4 : 4+size], b[4+size:], true
}

// maxList bounds the first answer: thousands of functions.
const maxList = 1 << 20

// reader hears the first answer as soon as it is there. It is written to by
// one goroutine.
type reader struct {
	first func(*value.Map)
	b     []byte
	done  bool
}

func (r *reader) Write(p []byte) (int, error) {
	if r.done {
		return len(p), nil
	}
	r.b = append(r.b, p[:min(len(p), maxList-len(r.b))]...)
	packed, _, ok := frame(r.b)
	if ok {
		if m, err := frames(r.b[:4+len(packed)]); err == nil {
			r.first(m[0])
		}
	}
	if ok || len(r.b) >= maxList {
		r.done, r.b = true, nil
	}
	return len(p), nil
}
