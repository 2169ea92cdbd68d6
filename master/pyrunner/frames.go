package pyrunner

import (
	"errors"

	"saltern/master/pyframe"
	"saltern/master/value"
)

// maxFrames is how many answers a call has: the list and the result.
const maxFrames = 2

// frames reads the answers of the shim: lengths and packed maps.
func frames(b []byte) (out []*value.Map, err error) {
	for len(b) > 0 {
		if len(out) == maxFrames {
			return nil, errors.New("there is more after the result")
		}
		packed, rest, ok := pyframe.Split(b)
		if !ok {
			return nil, errors.New("it is cut short")
		}
		m, err := pyframe.Map(packed)
		if err != nil {
			return nil, err
		}
		out, b = append(out, m), rest
	}
	return out, nil
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
	packed, _, ok := pyframe.Split(r.b)
	if ok {
		if m, err := pyframe.Map(packed); err == nil {
			r.first(m)
		}
	}
	if ok || len(r.b) >= maxList {
		r.done, r.b = true, nil
	}
	return len(p), nil
}
