package msgpack

import (
	"errors"
	"fmt"
	"math"

	"saltern/master/value"
)

// ErrNotMap means that a value is not a map, where a map was expected.
var ErrNotMap = errors.New("msgpack: not a map")

// Size is the size of a packed value.
type Size struct {
	Encoded int   // packed size in bytes
	Nodes   int   // number of values, including keys
	Memory  int64 // upper bound of the bytes of memory that Decode allocates
}

// Bytes of memory that values take besides their contents: for the headers of Go's interfaces,
// slices and texts, and for the entries and the index of a Map.
const (
	slotCost  = 16  // bytes of a list's slot, which is an interface value
	listCost  = 24  // bytes of a list's slice header
	mapCost   = 48  // bytes of the struct Map
	entryCost = 32  // bytes of an entry of a Map
	indexCost = 192 // bytes of an entry of a Map's index, including the smaller tables that the index had before
	textCost  = 24
	numCost   = 8
	extCost   = 56
)

// Measure returns the size of the first value in b. It does not decode the value and allocates
// nothing. It finds every fault of structure that Decode would find, and returns the same errors.
func Measure(b []byte, l Limits) (Size, error) {
	w := walker{d: decoder{b: b, nodes: l.Nodes, depth: l.Depth}}
	if err := w.walkValue(); err != nil {
		return Size{}, err
	}
	return Size{Encoded: w.d.off, Nodes: l.Nodes - w.d.nodes, Memory: w.memory}, nil
}

// walker goes through values without decoding them.
type walker struct {
	d      decoder
	memory int64
}

func (w *walker) walkValue() error {
	d := &w.d
	d.nodes--
	if d.nodes < 0 {
		return fmt.Errorf("%w: too many values", ErrLimit)
	}

	s, err := d.takeBytes(1)
	if err != nil {
		return err
	}

	switch c := s[0]; {
	case c <= 0x7f:
		return nil
	case c >= 0xe0: // a negative number: Go's runtime has preallocated only values from 0 to 255
		w.memory += numCost
		return nil
	case c <= 0x8f:
		return w.mapOf(uint64(c & 0x0f))
	case c <= 0x9f:
		return w.walkList(uint64(c & 0x0f))
	case c <= 0xbf:
		return w.skipBytes(uint64(c&0x1f), textCost)
	default:
		return w.tagged(c)
	}
}

func (w *walker) tagged(c byte) error {
	d := &w.d
	sized := func(width uint64, of func(uint64) error) error {
		n, err := d.readLength(width)
		if err != nil {
			return err
		}
		return of(n)
	}

	switch c {
	case 0xc0, 0xc2, 0xc3:
		return nil
	case 0xc4, 0xc5, 0xc6:
		return sized(1<<(c-0xc4), func(n uint64) error { return w.skipBytes(n, textCost) })
	case 0xc7, 0xc8, 0xc9:
		return sized(1<<(c-0xc7), func(n uint64) error { return w.skipBytes(n+1, extCost) })
	case 0xca:
		return w.skipBytes(4, numCost)
	case 0xcb:
		return w.skipBytes(8, numCost)
	case 0xcc, 0xcd, 0xce, 0xcf, 0xd0, 0xd1, 0xd2, 0xd3:
		return w.skipBytes(1<<(c&3), numCost)
	case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8:
		return w.skipBytes(1<<(c-0xd4)+1, extCost)
	case 0xd9, 0xda, 0xdb:
		return sized(1<<(c-0xd9), func(n uint64) error { return w.skipBytes(n, textCost) })
	case 0xdc, 0xdd:
		return sized(2<<(c-0xdc), w.walkList)
	case 0xde, 0xdf:
		return sized(2<<(c-0xde), w.mapOf)
	}

	return fmt.Errorf("msgpack: byte 0x%02x starts no value", c)
}

// skipBytes skips n bytes that Decode would copy, and counts their memory. The count includes an
// eighth more, because Go may round an allocation up by that much.
func (w *walker) skipBytes(n uint64, cost int64) error {
	if _, err := w.d.takeBytes(n); err != nil {
		return err
	}
	w.memory += cost + int64(n) + int64(n)/8
	return nil
}

func (w *walker) walkList(n uint64) error {
	if err := w.d.enterContainer(n); err != nil {
		return err
	}
	if n == 0 {
		w.d.depth++
		return nil
	}

	w.memory += listCost + slotCost*int64(n)
	if n > 4096 {
		w.memory += slotCost * int64(n) // while the list grows, append allocates further slots
	}

	for ; n > 0; n-- {
		if err := w.walkValue(); err != nil {
			return err
		}
	}

	w.d.depth++
	return nil
}

func (w *walker) mapOf(n uint64) error {
	if n > math.MaxUint32/2 {
		return ErrShort
	}

	if err := w.d.enterContainer(2 * n); err != nil {
		return err
	}

	w.memory += mapCost + entryCost*int64(n)
	if n > 1024 {
		w.memory += entryCost * int64(n)
	}

	if n >= value.IndexAt {
		w.memory += indexCost * int64(n)
	}

	for ; n > 0; n-- {
		start := w.d.off
		if err := w.walkValue(); err != nil { // Decode checks whether the value can be a key
			return err
		}

		if k, ok := Contents(w.d.b[start:w.d.off]); ok { // Decode converts a key of bytes to text
			w.memory += textCost + int64(len(k)) + int64(len(k))/8
		}

		if err := w.walkValue(); err != nil {
			return err
		}
	}

	w.d.depth++
	return nil
}

// Field is one entry of a packed map.
type Field struct {
	Key   []byte
	Value []byte // the packed value
}

// Fields splits the map that b consists of into its entries, without decoding their values. Key and
// Value of a Field share memory with b. Keys must be texts or bytes. For a map with more than
// maxEntries entries, Fields returns ErrLimit.
func Fields(b []byte, l Limits, maxEntries int) ([]Field, error) {
	d := decoder{b: b, nodes: l.Nodes, depth: l.Depth}
	n, err := d.mapHeader()
	if err != nil {
		return nil, err
	}
	if n > uint64(maxEntries) {
		return nil, fmt.Errorf("%w: a map of %d entries", ErrLimit, n)
	}

	out := make([]Field, 0, n)
	w := walker{d: d}
	w.d.depth--
	next := func() ([]byte, error) {
		start := w.d.off
		err := w.walkValue()
		return b[start:w.d.off], err
	}

	for ; n > 0; n-- {
		k, err := next()
		if err != nil {
			return nil, err
		}

		key, ok := Contents(k)
		if !ok {
			return nil, errors.New("msgpack: a key of the map is no text")
		}

		v, err := next()
		if err != nil {
			return nil, err
		}

		out = append(out, Field{key, v})
	}

	if w.d.off != len(b) {
		return nil, errTrailing
	}

	return out, nil
}

// mapHeader reads the head of a map and returns the number of its entries.
func (d *decoder) mapHeader() (uint64, error) {
	s, err := d.takeBytes(1)
	if err != nil {
		return 0, err
	}
	switch c := s[0]; {
	case c >= 0x80 && c <= 0x8f:
		return uint64(c & 0x0f), nil
	case c == 0xde, c == 0xdf:
		return d.readLength(2 << (c - 0xde))
	}
	return 0, ErrNotMap
}

// Contents returns the contents of a packed text or byte string, as a part of b. ok is false if b
// is any other value, or not exactly one value.
func Contents(b []byte) (contents []byte, ok bool) {
	d := decoder{b: b}
	s, err := d.takeBytes(1)
	if err != nil {
		return nil, false
	}

	var n uint64
	switch c := s[0]; {
	case c >= 0xa0 && c <= 0xbf:
		n = uint64(c & 0x1f)
	case c >= 0xc4 && c <= 0xc6:
		n, err = d.readLength(1 << (c - 0xc4))
	case c >= 0xd9 && c <= 0xdb:
		n, err = d.readLength(1 << (c - 0xd9))
	default:
		return nil, false
	}

	if err != nil {
		return nil, false
	}

	contents, err = d.takeBytes(n)
	return contents, err == nil && d.off == len(b)
}
