package msgpack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"saltern/master/value"
)

// Errors that a caller may need to distinguish. All other errors mean malformed input.
var (
	// ErrShort means that the input ends inside a value.
	ErrShort = errors.New("msgpack: input ends inside a value")
	// errTrailing means that bytes follow the value.
	errTrailing = errors.New("msgpack: bytes after the value")
	// ErrLimit means that the value has too many levels or too many values inside.
	ErrLimit = errors.New("msgpack: value exceeds the limits")
)

// Limits bound the values that Decode accepts. The caller must bound the size in bytes itself,
// since the bytes are already in memory when it calls Decode.
type Limits struct {
	Depth int // levels of nested containers
	Nodes int // values in all, including keys
}

// DefaultLimits are the limits for requests and cache files: 64 levels and 2 million values.
var DefaultLimits = Limits{Depth: 64, Nodes: 2 << 20}

type decoder struct {
	b     []byte
	off   int
	nodes int
	depth int
}

// Decode decodes b, which must be exactly one value. The result does not share memory with b.
func Decode(b []byte, l Limits) (any, error) {
	v, n, err := DecodePrefix(b, l)
	if err != nil {
		return nil, err
	}
	if n != len(b) {
		return nil, errTrailing
	}
	return v, nil
}

// DecodePrefix decodes the first value in b and returns its length in bytes. ErrShort means that b
// ends inside the value. The result does not share memory with b.
func DecodePrefix(b []byte, l Limits) (any, int, error) {
	d := decoder{b: b, nodes: l.Nodes, depth: l.Depth}
	v, err := d.decodeValue()
	if err != nil {
		return nil, 0, err
	}
	return v, d.off, nil
}

func (d *decoder) takeBytes(n uint64) ([]byte, error) {
	if n > uint64(len(d.b)-d.off) {
		return nil, ErrShort
	}
	s := d.b[d.off : d.off+int(n)]
	d.off += int(n)
	return s, nil
}

// readLength reads a big-endian length of w bytes.
func (d *decoder) readLength(w uint64) (uint64, error) {
	s, err := d.takeBytes(w)
	if err != nil {
		return 0, err
	}
	switch w {
	case 1:
		return uint64(s[0]), nil
	case 2:
		return uint64(binary.BigEndian.Uint16(s)), nil
	default:
		return uint64(binary.BigEndian.Uint32(s)), nil
	}
}

func (d *decoder) decodeValue() (any, error) {
	d.nodes--
	if d.nodes < 0 {
		return nil, fmt.Errorf("%w: too many values", ErrLimit)
	}

	s, err := d.takeBytes(1)
	if err != nil {
		return nil, err
	}

	c := s[0]
	switch {
	case c <= 0x7f:
		return int64(c), nil
	case c >= 0xe0:
		return int64(int8(c)), nil
	case c <= 0x8f:
		return d.mapOf(uint64(c & 0x0f))
	case c <= 0x9f:
		return d.decodeList(uint64(c & 0x0f))
	case c <= 0xbf:
		return d.decodeRaw(uint64(c & 0x1f))
	}

	return d.tagged(c)
}

func (d *decoder) tagged(c byte) (any, error) {
	switch c {
	case 0xc0:
		return nil, nil
	case 0xc2:
		return false, nil
	case 0xc3:
		return true, nil
	case 0xc4, 0xc5, 0xc6:
		n, err := d.readLength(1 << (c - 0xc4))
		if err != nil {
			return nil, err
		}
		return d.decodeBytes(n)
	case 0xc7, 0xc8, 0xc9:
		n, err := d.readLength(1 << (c - 0xc7))
		if err != nil {
			return nil, err
		}
		return d.decodeExt(n)
	case 0xca:
		s, err := d.takeBytes(4)
		if err != nil {
			return nil, err
		}
		return float64(math.Float32frombits(binary.BigEndian.Uint32(s))), nil
	case 0xcb:
		s, err := d.takeBytes(8)
		if err != nil {
			return nil, err
		}
		return math.Float64frombits(binary.BigEndian.Uint64(s)), nil
	case 0xcc, 0xcd, 0xce, 0xcf, 0xd0, 0xd1, 0xd2, 0xd3:
		return d.integer(c)
	case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8:
		return d.decodeExt(1 << (c - 0xd4))
	case 0xd9, 0xda, 0xdb:
		n, err := d.readLength(1 << (c - 0xd9))
		if err != nil {
			return nil, err
		}
		return d.decodeRaw(n)
	case 0xdc, 0xdd:
		n, err := d.readLength(2 << (c - 0xdc))
		if err != nil {
			return nil, err
		}
		return d.decodeList(n)
	case 0xde, 0xdf:
		n, err := d.readLength(2 << (c - 0xde))
		if err != nil {
			return nil, err
		}
		return d.mapOf(n)
	}

	return nil, fmt.Errorf("msgpack: byte 0x%02x starts no value", c)
}

func (d *decoder) integer(c byte) (any, error) {
	w := uint64(1) << (c & 3)
	s, err := d.takeBytes(w)
	if err != nil {
		return nil, err
	}

	var u uint64
	for _, x := range s {
		u = u<<8 | uint64(x)
	}

	if c >= 0xd0 { // signed: extend the sign bit
		shift := 64 - 8*w
		return int64(u<<shift) >> shift, nil
	}
	if u > math.MaxInt64 {
		return u, nil
	}

	return int64(u), nil
}

// decodeRaw reads n bytes and returns them as text if they are valid UTF-8, otherwise as bytes.
func (d *decoder) decodeRaw(n uint64) (any, error) {
	s, err := d.takeBytes(n)
	if err != nil {
		return nil, err
	}
	if utf8.Valid(s) {
		return string(s), nil
	}
	return append(make([]byte, 0, len(s)), s...), nil
}

func (d *decoder) decodeBytes(n uint64) (any, error) {
	s, err := d.takeBytes(n)
	if err != nil {
		return nil, err
	}
	return append(make([]byte, 0, len(s)), s...), nil
}

func (d *decoder) decodeExt(n uint64) (any, error) {
	t, err := d.takeBytes(1)
	if err != nil {
		return nil, err
	}
	typ := int8(t[0])
	s, err := d.takeBytes(n)
	if err != nil {
		return nil, err
	}
	return value.Ext{Type: typ, Data: append(make([]byte, 0, len(s)), s...)}, nil
}

// enterContainer checks that n values fit into the remaining bytes (each value takes at least one
// byte) and into the limits. It then goes one level down.
func (d *decoder) enterContainer(n uint64) error {
	if n > uint64(len(d.b)-d.off) {
		return ErrShort
	}
	if n > uint64(d.nodes) {
		return fmt.Errorf("%w: too many values", ErrLimit)
	}
	d.depth--
	if d.depth < 0 {
		return fmt.Errorf("%w: nested too deep", ErrLimit)
	}
	return nil
}

// emptyList is used for every empty list. It has no capacity, so appending to it allocates a new
// list.
var emptyList any = []any{}

func (d *decoder) decodeList(n uint64) (any, error) {
	if err := d.enterContainer(n); err != nil {
		return nil, err
	}
	if n == 0 {
		d.depth++
		return emptyList, nil
	}

	l := make([]any, 0, min(n, 4096))
	for ; n > 0; n-- {
		v, err := d.decodeValue()
		if err != nil {
			return nil, err
		}

		if len(l) == cap(l) { // double the capacity, up to the number of remaining elements
			l = slices.Grow(l, int(min(n, uint64(len(l)))))
		}

		l = append(l, v)
	}

	d.depth++
	return l, nil
}

func (d *decoder) mapOf(n uint64) (any, error) {
	if n > math.MaxUint32/2 {
		return nil, ErrShort
	}

	if err := d.enterContainer(2 * n); err != nil {
		return nil, err
	}

	m := value.Sized(int(min(n, 1024)))
	for ; n > 0; n-- {
		k, err := d.decodeKey()
		if err != nil {
			return nil, err
		}

		v, err := d.decodeValue()
		if err != nil {
			return nil, err
		}

		m.Set(k, v) // as in Python, the last value of a repeated key replaces the others
	}

	d.depth++
	return m, nil
}

// decodeKey decodes a map key. It converts bytes to text, as Salt's own decoder does, which uses
// surrogates for bytes that are not UTF-8. It refuses containers and extensions.
func (d *decoder) decodeKey() (any, error) {
	k, err := d.decodeValue()
	if err != nil {
		return nil, err
	}

	switch k := k.(type) {
	case []byte:
		return string(k), nil
	case float64:
		if math.IsNaN(k) {
			return nil, errors.New("msgpack: not-a-number cannot be a map key")
		}
		return k, nil
	case nil, bool, int64, uint64, string:
		return k, nil
	}

	return nil, fmt.Errorf("msgpack: %T cannot be a map key", k)
}
