package msgpack

import "errors"

// Reader goes through a packed value in one pass, and lets its user decode only the parts that it
// needs. All results share memory with the packed value. A Reader has the bounds of [Decode].
type Reader struct{ w walker }

// NewReader returns a reader at the first value in b.
func NewReader(b []byte, l Limits) *Reader {
	return &Reader{walker{d: decoder{b: b, nodes: l.Nodes, depth: l.Depth}}}
}

// AtMap reports whether the next value is a map.
func (r *Reader) AtMap() bool {
	d := &r.w.d
	if d.off >= len(d.b) {
		return false
	}
	c := d.b[d.off]
	return c >= 0x80 && c <= 0x8f || c == 0xde || c == 0xdf
}

// AtList reports whether the next value is a list.
func (r *Reader) AtList() bool {
	d := &r.w.d
	if d.off >= len(d.b) {
		return false
	}
	c := d.b[d.off]
	return c >= 0x90 && c <= 0x9f || c == 0xdc || c == 0xdd
}

// Map enters the map that is the next value, and returns the number of its entries. The caller then
// reads that many keys and values.
func (r *Reader) Map() (entries int, err error) {
	n, err := r.w.d.mapHeader()
	if err != nil {
		return 0, err
	}
	if n > uint64(len(r.w.d.b)-r.w.d.off)/2 {
		return 0, ErrShort
	}
	return int(n), nil
}

// List enters the list that is the next value, and returns the number of its elements.
func (r *Reader) List() (elements int, err error) {
	d := &r.w.d
	s, err := d.takeBytes(1)
	if err != nil {
		return 0, err
	}

	var n uint64
	switch c := s[0]; {
	case c >= 0x90 && c <= 0x9f:
		n = uint64(c & 0x0f)
	case c == 0xdc, c == 0xdd:
		n, err = d.readLength(2 << (c - 0xdc))
	default:
		return 0, errors.New("msgpack: not a list")
	}

	if err != nil {
		return 0, err
	}
	if n > uint64(len(d.b)-d.off) {
		return 0, ErrShort
	}
	return int(n), nil
}

// Value returns the next value, still packed.
func (r *Reader) Value() ([]byte, error) {
	start := r.w.d.off
	if err := r.w.walkValue(); err != nil {
		return nil, err
	}
	return r.w.d.b[start:r.w.d.off], nil
}
