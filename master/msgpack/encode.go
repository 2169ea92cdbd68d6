package msgpack

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"

	"saltern/master/value"
)

// Mode is the dialect that Marshal and Append write.
type Mode uint8

const (
	// Raw packs as Python does with use_bin_type=False: both text and bytes as raw, without str8
	// and bin. Salt uses this mode on the ZeroMQ channel and for everything inside an AES blob or a
	// signed blob (salt/payload.py dumps).
	Raw Mode = iota
	// Modern packs text as str (with str8) and bytes as bin. Salt uses this mode for events,
	// caches, the job cache, and the frames of the tcp transport.
	Modern
)

// maxEncodeDepth bounds the depth of the values to pack, so that a cycle cannot loop for ever.
const maxEncodeDepth = 200

// Marshal packs one value; see Append.
func Marshal(v any, mode Mode) ([]byte, error) { return Append(nil, v, mode) }

// Append packs v and appends the result to dst. Besides the values that Decode returns, it accepts
// int and the sized integers, *big.Int (packed as text, as in Salt, if it exceeds 64 bits),
// []string, []int, map[string]any and map[string]string (with sorted keys). It packs an integer in
// the fewest bytes, as Python's packer does. After an error it returns dst unchanged.
func Append(dst []byte, v any, mode Mode) ([]byte, error) {
	e := encoder{b: dst, mode: mode}
	if err := e.encodeValue(v, 0); err != nil {
		return dst, err
	}
	return e.b, nil
}

// AppendRawHead appends the head of a text or byte string of n bytes in Raw mode, for callers that
// append the bytes themselves. The head takes 1, 3 or 5 bytes.
func AppendRawHead(dst []byte, n int) []byte {
	e := encoder{b: dst, mode: Raw}
	e.rawHead(n)
	return e.b
}

type encoder struct {
	b    []byte
	mode Mode
}

func (e *encoder) encodeValue(v any, depth int) error {
	if depth > maxEncodeDepth {
		return fmt.Errorf("%w: nested too deep to pack", ErrLimit)
	}

	switch v := v.(type) {
	case nil:
		e.b = append(e.b, 0xc0)
	case bool:
		if v {
			e.b = append(e.b, 0xc3)
		} else {
			e.b = append(e.b, 0xc2)
		}
	case int64:
		e.encodeInt(v)
	case int:
		e.encodeInt(int64(v))
	case int32:
		e.encodeInt(int64(v))
	case uint16:
		e.encodeUint(uint64(v))
	case uint32:
		e.encodeUint(uint64(v))
	case uint64:
		e.encodeUint(v)
	case float64:
		e.b = binary.BigEndian.AppendUint64(append(e.b, 0xcb), math.Float64bits(v))
	case string:
		e.encodeText(v)
	case []byte:
		e.encodeBytes(v)
	case *big.Int:
		e.encodeBig(v)
	case value.Ext:
		return e.encodeExt(v)
	case *value.Map:
		return e.mapOf(v, depth)
	case []any:
		return encodeList(e, v, depth)
	case []string:
		return encodeList(e, v, depth)
	case []int:
		return encodeList(e, v, depth)
	case []*value.Map:
		return encodeList(e, v, depth)
	case map[string]any:
		return sorted(e, v, depth)
	case map[string]string:
		return sorted(e, v, depth)
	default:
		return fmt.Errorf("msgpack: cannot pack %T", v)
	}

	return nil
}

func (e *encoder) encodeBig(v *big.Int) {
	switch {
	case v.IsInt64():
		e.encodeInt(v.Int64())
	case v.IsUint64():
		e.encodeUint(v.Uint64())
	default:
		e.encodeText(v.String())
	}
}

func (e *encoder) encodeInt(v int64) {
	switch {
	case v >= 0:
		e.encodeUint(uint64(v))
	case v >= -32:
		e.b = append(e.b, byte(v))
	case v >= math.MinInt8:
		e.b = append(e.b, 0xd0, byte(v))
	case v >= math.MinInt16:
		e.b = binary.BigEndian.AppendUint16(append(e.b, 0xd1), uint16(v))
	case v >= math.MinInt32:
		e.b = binary.BigEndian.AppendUint32(append(e.b, 0xd2), uint32(v))
	default:
		e.b = binary.BigEndian.AppendUint64(append(e.b, 0xd3), uint64(v))
	}
}

func (e *encoder) encodeUint(v uint64) {
	switch {
	case v <= 0x7f:
		e.b = append(e.b, byte(v))
	case v <= math.MaxUint8:
		e.b = append(e.b, 0xcc, byte(v))
	case v <= math.MaxUint16:
		e.b = binary.BigEndian.AppendUint16(append(e.b, 0xcd), uint16(v))
	case v <= math.MaxUint32:
		e.b = binary.BigEndian.AppendUint32(append(e.b, 0xce), uint32(v))
	default:
		e.b = binary.BigEndian.AppendUint64(append(e.b, 0xcf), v)
	}
}

// rawHead writes the head of a raw or str of n bytes.
func (e *encoder) rawHead(n int) {
	switch {
	case n <= 31:
		e.b = append(e.b, 0xa0|byte(n))
	case n <= math.MaxUint8 && e.mode == Modern:
		e.b = append(e.b, 0xd9, byte(n))
	case n <= math.MaxUint16:
		e.b = binary.BigEndian.AppendUint16(append(e.b, 0xda), uint16(n))
	default:
		e.b = binary.BigEndian.AppendUint32(append(e.b, 0xdb), uint32(n))
	}
}

func (e *encoder) encodeText(s string) {
	e.rawHead(len(s))
	e.b = append(e.b, s...)
}

func (e *encoder) encodeBytes(s []byte) {
	if e.mode == Raw {
		e.rawHead(len(s))
		e.b = append(e.b, s...)
		return
	}

	switch n := len(s); {
	case n <= math.MaxUint8:
		e.b = append(e.b, 0xc4, byte(n))
	case n <= math.MaxUint16:
		e.b = binary.BigEndian.AppendUint16(append(e.b, 0xc5), uint16(n))
	default:
		e.b = binary.BigEndian.AppendUint32(append(e.b, 0xc6), uint32(n))
	}

	e.b = append(e.b, s...)
}

func (e *encoder) encodeExt(v value.Ext) error {
	n := len(v.Data)
	switch {
	case n == 1 || n == 2 || n == 4 || n == 8 || n == 16:
		c := byte(0xd4)
		for w := 1; w < n; w <<= 1 {
			c++
		}
		e.b = append(e.b, c)
	case n <= math.MaxUint8:
		e.b = append(e.b, 0xc7, byte(n))
	case n <= math.MaxUint16:
		e.b = binary.BigEndian.AppendUint16(append(e.b, 0xc8), uint16(n))
	case n <= math.MaxUint32:
		e.b = binary.BigEndian.AppendUint32(append(e.b, 0xc9), uint32(n))
	default:
		return fmt.Errorf("%w: extension of %d bytes", ErrLimit, n)
	}

	e.b = append(append(e.b, byte(v.Type)), v.Data...)
	return nil
}

func (e *encoder) writeHead(n int, fix, c16 byte) {
	switch {
	case n <= 15:
		e.b = append(e.b, fix|byte(n))
	case n <= math.MaxUint16:
		e.b = binary.BigEndian.AppendUint16(append(e.b, c16), uint16(n))
	default:
		e.b = binary.BigEndian.AppendUint32(append(e.b, c16+1), uint32(n))
	}
}

func (e *encoder) mapOf(m *value.Map, depth int) error {
	e.writeHead(m.Len(), 0x80, 0xde)
	for k, v := range m.All() {
		if err := e.encodeValue(k, depth+1); err != nil {
			return err
		}
		if err := e.encodeValue(v, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func encodeList[T any](e *encoder, l []T, depth int) error {
	e.writeHead(len(l), 0x90, 0xdc)
	for _, v := range l {
		if err := e.encodeValue(any(v), depth+1); err != nil {
			return err
		}
	}
	return nil
}

func sorted[T any](e *encoder, m map[string]T, depth int) error {
	e.writeHead(len(m), 0x80, 0xde)
	keys := slices.Sorted(maps.Keys(m))
	for _, k := range keys {
		e.encodeText(k)
		if err := e.encodeValue(any(m[k]), depth+1); err != nil {
			return err
		}
	}
	return nil
}
