package msgpack

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"saltern/master/value"
)

// Adaptations are the kinds of changes that AppendJSON has made, as a set of bits. JSON, and
// PostgreSQL's jsonb, cannot hold what was changed.
type Adaptations uint8

// The kinds of changes.
const (
	AdaptedNUL    Adaptations = 1 << iota // a NUL in a text became U+2400, the symbol for NUL
	AdaptedBytes                          // a byte that is not UTF-8 became \xNN
	AdaptedNumber                         // NaN or an infinity became a text
	AdaptedKey                            // a key of a map became a text, or another text
	AdaptedExt                            // an extension value, such as a time, became a text
)

var adaptationWords = []string{"nul", "bytes", "number", "key", "ext"}

// Words returns the names of the kinds.
func (a Adaptations) Words() (words []string) {
	for i, word := range adaptationWords {
		if a&(1<<i) != 0 {
			words = append(words, word)
		}
	}
	return words
}

// AppendJSON appends a packed value to dst as JSON that every parser and PostgreSQL's jsonb takes,
// and returns what it had to change for that. It builds no tree, so that it costs no memory beside
// the text. ErrLimit means also that dst would be longer than maxBytes.
//
// Keys of maps become texts as by Python's json.dumps. If two keys of a map become the same text, the
// later one gets a number at its end.
func AppendJSON(dst, packed []byte, l Limits, maxBytes int) ([]byte, Adaptations, error) {
	start := len(dst)
	w := jsonWriter{dst: dst, most: maxBytes}
	err := w.write(packed, l)
	if errors.Is(err, errOddKey) {
		w = jsonWriter{dst: w.dst[:start], most: maxBytes, track: true}
		err = w.write(packed, l)
	}
	return w.dst, w.changes, err
}

// errOddKey means that a map has a key that is not a text, so that the keys of maps must be compared.
var errOddKey = errors.New("msgpack: odd key")

type jsonWriter struct {
	d       decoder
	dst     []byte
	most    int
	track   bool // compare the texts of the keys of each map
	changes Adaptations
}

func (w *jsonWriter) write(packed []byte, l Limits) error {
	w.d = decoder{b: packed, nodes: l.Nodes, depth: l.Depth}
	if err := w.writeValue(); err != nil {
		return err
	}
	if w.d.off != len(packed) {
		return errTrailing
	}
	return nil
}

func (w *jsonWriter) writeValue() error {
	if len(w.dst) > w.most {
		return fmt.Errorf("%w: its JSON has more than %d bytes", ErrLimit, w.most)
	}
	if w.d.off >= len(w.d.b) {
		return ErrShort
	}

	c := w.d.b[w.d.off]
	switch {
	case c >= 0x80 && c <= 0x8f, c == 0xde, c == 0xdf:
		return w.writeMap()
	case c >= 0x90 && c <= 0x9f, c == 0xdc, c == 0xdd:
		return w.writeList(c)
	}

	text, isText, err := w.d.rawText()
	if err != nil {
		return err
	}
	if isText {
		return w.writeText(text)
	}

	v, err := w.d.decodeValue()
	if err != nil {
		return err
	}
	return w.writeScalar(v)
}

// rawText reads the next value if it is a text or bytes. The text shares memory with the input.
func (d *decoder) rawText() (text []byte, ok bool, err error) {
	var n uint64
	at := d.off
	c := d.b[at]
	d.off++
	switch {
	case c >= 0xa0 && c <= 0xbf:
		n = uint64(c & 0x1f)
	case c >= 0xd9 && c <= 0xdb:
		n, err = d.readLength(1 << (c - 0xd9))
	case c >= 0xc4 && c <= 0xc6:
		n, err = d.readLength(1 << (c - 0xc4))
	default:
		d.off = at
		return nil, false, nil
	}
	if err != nil {
		return nil, true, err
	}

	d.nodes--
	if d.nodes < 0 {
		return nil, true, fmt.Errorf("%w: too many values", ErrLimit)
	}
	text, err = d.takeBytes(n)
	return text, true, err
}

func (w *jsonWriter) writeList(c byte) error {
	d := &w.d
	d.nodes--
	if d.nodes < 0 {
		return fmt.Errorf("%w: too many values", ErrLimit)
	}
	d.off++
	n := uint64(c & 0x0f)
	if c >= 0xdc {
		var err error
		if n, err = d.readLength(2 << (c - 0xdc)); err != nil {
			return err
		}
	}
	if err := d.enterContainer(n); err != nil {
		return err
	}

	w.dst = append(w.dst, '[')
	for i := range n {
		if i > 0 {
			w.dst = append(w.dst, ',')
		}
		if err := w.writeValue(); err != nil {
			return err
		}
	}
	w.dst = append(w.dst, ']')
	d.depth++
	return nil
}

func (w *jsonWriter) writeMap() error {
	d := &w.d
	d.nodes--
	if d.nodes < 0 {
		return fmt.Errorf("%w: too many values", ErrLimit)
	}
	n, err := d.mapHeader()
	if err != nil {
		return err
	}
	if n > math.MaxUint32/2 {
		return ErrShort
	}
	if err := d.enterContainer(2 * n); err != nil {
		return err
	}

	var keys map[string]bool
	if w.track {
		keys = map[string]bool{}
	}
	w.dst = append(w.dst, '{')
	for i := range n {
		if i > 0 {
			w.dst = append(w.dst, ',')
		}
		if err := w.writeKey(keys, i); err != nil {
			return err
		}
		w.dst = append(w.dst, ':')
		if err := w.writeValue(); err != nil {
			return err
		}
	}
	w.dst = append(w.dst, '}')
	d.depth++
	return nil
}

// writeKey writes a key of a map. keys are the texts of the keys before it; it is nil unless w.track is
// set. number is the place of the key in the map.
func (w *jsonWriter) writeKey(keys map[string]bool, number uint64) error {
	if w.d.off >= len(w.d.b) {
		return ErrShort
	}

	before := w.changes
	start := len(w.dst)
	text, isText, err := w.d.rawText()
	if err != nil {
		return err
	}
	if !isText {
		key, err := w.d.decodeKey()
		if err != nil {
			return err
		}
		text = []byte(value.JSONKey(key))
		w.changes |= AdaptedKey
	}

	w.changes &^= AdaptedNUL | AdaptedBytes
	if err := w.writeText(text); err != nil {
		return err
	}
	changed := w.changes&(AdaptedNUL|AdaptedBytes) != 0
	w.changes |= before
	if keys == nil {
		if !isText || changed {
			return errOddKey
		}
		return nil
	}

	w.renameKey(keys, start, number)
	return nil
}

// renameKey adds a number to a key that an earlier one equals. start is where the key begins.
func (w *jsonWriter) renameKey(keys map[string]bool, start int, number uint64) {
	// A map in which so many numbers are taken was made to have equal keys: its last one wins.
	const tries = 8
	for range tries {
		written := string(w.dst[start:])
		if !keys[written] {
			keys[written] = true
			return
		}
		w.changes |= AdaptedKey
		w.dst = append(strconv.AppendUint(append(w.dst[:len(w.dst)-1], " #"...), number, 10), '"')
		number++
	}
}

func (w *jsonWriter) writeScalar(v any) error {
	switch v := v.(type) {
	case nil:
		w.dst = append(w.dst, "null"...)
	case bool:
		w.dst = strconv.AppendBool(w.dst, v)
	case int64:
		w.dst = strconv.AppendInt(w.dst, v, 10)
	case uint64:
		w.dst = strconv.AppendUint(w.dst, v, 10)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			w.changes |= AdaptedNumber
			return w.writeText([]byte(value.JSONKey(v)))
		}
		w.dst = append(w.dst, value.FloatRepr(v)...)
	case value.Ext:
		w.changes |= AdaptedExt
		return w.writeText(v.Data)
	default:
		return fmt.Errorf("msgpack: %T is no JSON", v)
	}
	return nil
}

const hexDigits = "0123456789abcdef"

// writeText writes a text in quotes.
func (w *jsonWriter) writeText(text []byte) error {
	w.dst = append(w.dst, '"')
	plain := 0 // where the bytes begin that are written as they are
	for i := 0; i < len(text); {
		c := text[i]
		if c >= 0x20 && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}

		size := 1
		if c >= utf8.RuneSelf {
			var r rune
			if r, size = utf8.DecodeRune(text[i:]); r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
		}

		w.dst = append(w.dst, text[plain:i]...)
		w.writeEscaped(c)
		i += size
		plain = i
		if len(w.dst) > w.most {
			return fmt.Errorf("%w: its JSON has more than %d bytes", ErrLimit, w.most)
		}
	}
	w.dst = append(append(w.dst, text[plain:]...), '"')
	return nil
}

func (w *jsonWriter) writeEscaped(c byte) {
	switch {
	case c == 0:
		w.changes |= AdaptedNUL
		w.dst = append(w.dst, "\u2400"...)
	case c >= utf8.RuneSelf:
		w.changes |= AdaptedBytes
		w.dst = append(w.dst, '\\', '\\', 'x', hexDigits[c>>4], hexDigits[c&15])
	case c == '"' || c == '\\':
		w.dst = append(w.dst, '\\', c)
	case c == '\n':
		w.dst = append(w.dst, '\\', 'n')
	default:
		w.dst = append(w.dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
	}
}
