package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"saltern/master/msgpack"
	"saltern/master/value"
)

// Limits in bytes of frames that masters send.
const (
	// MaxFrame bounds a frame from an authenticated master. It has room for an event with the
	// largest return.
	MaxFrame = 80 << 20
	// MaxStranger bounds a frame from an unauthenticated sender. Messages of joining and session
	// keys take less than 8 KiB.
	MaxStranger = 64 << 10

	maxTag    = 4096
	prefixLen = 4
	tagEnd    = "\n\n"
)

var (
	// errFrame reports that bytes are not a frame that contains an event.
	errFrame = errors.New("bad frame")
	// errTooLarge reports that a frame announces too many bytes.
	errTooLarge = errors.New("frame is too large")
	// errBudget reports that too many bytes of large frames are in flight.
	errBudget = errors.New("too many bytes of large frames under way")
)

var (
	limits         = msgpack.Limits{Depth: 64, Nodes: 2 << 20}
	strangerLimits = msgpack.Limits{Depth: 16, Nodes: 4096}
)

// Frame is one frame, split into tag and packed data.
type Frame struct {
	Tag  string
	Data []byte // packed value
}

// Reader reads frames from one connection. Only one goroutine may use it.
type Reader struct {
	r   io.Reader
	max int
	buf bytes.Buffer
	// charge takes n bytes for large frames out of a budget, and returns false if fewer remain. It
	// may be nil: there is no budget.
	charge  func(n int) bool
	charged int
}

// NewReader returns a Reader of frames of at most max bytes from r, which should be a buffered
// reader.
func NewReader(r io.Reader, max int) *Reader { return &Reader{r: r, max: max} }

// SetMax changes the limit of a frame's size. The caller must raise it when the other end has
// authenticated.
func (r *Reader) SetMax(max int) { r.max = max }

// SetCharge sets a function that charges the bytes of a frame beyond [MaxStranger] to a budget as
// they arrive. The next call of Next or Release calls charge with a negative number to return these
// bytes to the budget.
func (r *Reader) SetCharge(charge func(n int) bool) { r.charge = charge }

// Release returns the bytes of the last frame to the budget.
func (r *Reader) Release() {
	if r.charged > 0 {
		r.buf = bytes.Buffer{}
		r.charge(-r.charged)
		r.charged = 0
	}
}

// readPayload reads the n bytes of a frame.
func (r *Reader) readPayload(n int64) error {
	for n > 0 {
		part := min(n, MaxStranger)
		if r.buf.Len() > 0 && r.charge != nil {
			if !r.charge(int(part)) {
				return errBudget
			}
			r.charged += int(part)
		}

		if _, err := io.CopyN(&r.buf, r.r, part); err != nil {
			return err
		}

		n -= part
	}

	return nil
}

// keepBuffer is the size of the largest buffer that a connection keeps between frames.
const keepBuffer = 64 << 10

// Next reads a frame, whose bytes are valid until the next call. Its memory grows with the bytes
// that arrive, not with the announced length. Next returns errors of the connection, io.EOF if the
// connection ends between two frames, errTooLarge, errBudget and errFrame.
func (r *Reader) Next() (Frame, error) {
	r.Release()
	var head [prefixLen]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return Frame{}, err
	}

	n := binary.BigEndian.Uint32(head[:])
	if uint64(n) > uint64(r.max) {
		return Frame{}, fmt.Errorf("%w: %d bytes", errTooLarge, n)
	}

	if r.buf.Cap() > keepBuffer && n <= keepBuffer {
		r.buf = bytes.Buffer{}
	}

	r.buf.Reset()
	if err := r.readPayload(int64(n)); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}

	return ParseFrame(r.buf.Bytes())
}

// ParseFrame parses a frame without its length prefix. Data shares memory with b.
func ParseFrame(b []byte) (Frame, error) {
	body, err := frameBody(b)
	if err != nil {
		return Frame{}, err
	}
	tag, data, ok := bytes.Cut(body, []byte(tagEnd))
	if !ok || len(tag) == 0 || len(tag) > maxTag || !utf8.Valid(tag) {
		return Frame{}, fmt.Errorf("%w: tag", errFrame)
	}
	return Frame{Tag: string(tag), Data: data}, nil
}

// frameHead comes before the body in the frames of all Salt masters.
const frameHead = "\x82\xa4head\x80\xa4body"

// frameBody returns the body of a frame. If the frame has Salt's form, frameBody copies nothing;
// otherwise it decodes the frame's map.
func frameBody(b []byte) ([]byte, error) {
	if rest, ok := bytes.CutPrefix(b, []byte(frameHead)); ok && len(rest) > 0 {
		if n, at := binLen(rest); at > 0 && n == len(rest)-at {
			return rest[at:], nil
		}
	}

	v, err := msgpack.Decode(b, strangerLimits)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFrame, err)
	}

	m, ok := v.(*value.Map)
	if !ok {
		return nil, fmt.Errorf("%w: not a map", errFrame)
	}

	body, ok := m.Bytes("body")
	if !ok {
		return nil, fmt.Errorf("%w: no body", errFrame)
	}

	return body, nil
}

// binLen parses the head of a bin or str. n is the length of the content in bytes, and start is the
// index of its first byte. For any other type start is 0.
func binLen(b []byte) (n, start int) {
	width := map[byte]int{0xc4: 1, 0xd9: 1, 0xc5: 2, 0xda: 2, 0xc6: 4, 0xdb: 4}[b[0]]
	if width == 0 || len(b) < 1+width {
		return 0, 0
	}
	for _, c := range b[1 : 1+width] {
		n = n<<8 | int(c)
	}
	return n, 1 + width
}

// AppendFrame packs data and appends a frame with it, and the frame's length, to dst.
func AppendFrame(dst []byte, tag string, data any) ([]byte, error) {
	packed, err := msgpack.Marshal(data, msgpack.Modern)
	if err != nil {
		return dst, fmt.Errorf("pack %q: %w", tag, err)
	}
	return AppendPacked(dst, tag, packed)
}

// AppendPacked works like AppendFrame, for data that is packed already.
func AppendPacked(dst []byte, tag string, packed []byte) ([]byte, error) {
	n := len(tag) + len(tagEnd) + len(packed)
	if n > MaxFrame-64 {
		return dst, fmt.Errorf("pack %q: %w", tag, errTooLarge)
	}

	var head []byte
	switch {
	case n <= 0xff:
		head = []byte{0xc4, byte(n)}
	case n <= 0xffff:
		head = binary.BigEndian.AppendUint16([]byte{0xc5}, uint16(n))
	default:
		head = binary.BigEndian.AppendUint32([]byte{0xc6}, uint32(n))
	}

	dst = binary.BigEndian.AppendUint32(dst, uint32(len(frameHead)+len(head)+n))
	dst = append(dst, frameHead...)
	dst = append(dst, head...)
	dst = append(dst, tag...)
	dst = append(dst, tagEnd...)

	return append(dst, packed...), nil
}

// Pack packs a value that Saltern's masters send each other or store on disk.
func Pack(v any) ([]byte, error) { return msgpack.Marshal(v, msgpack.Modern) }

// Unpack decodes the result of Pack. It returns an error if there are more than nodes values or
// depth levels.
func Unpack(b []byte, depth, nodes int) (any, error) {
	return msgpack.Decode(b, msgpack.Limits{Depth: depth, Nodes: nodes})
}

// UnpackEvent reads the packed data of an event.
func UnpackEvent(b []byte) (*value.Map, error) { return decodeMap(b, msgpack.DefaultLimits) }

// decodeMap reads packed data that must be a map.
func decodeMap(b []byte, l msgpack.Limits) (*value.Map, error) {
	v, err := msgpack.Decode(b, l)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFrame, err)
	}
	m, ok := v.(*value.Map)
	if !ok {
		return nil, fmt.Errorf("%w: data is not a map", errFrame)
	}
	return m, nil
}

// decodeBlob reads packed data that must be bytes.
func decodeBlob(b []byte) ([]byte, error) {
	if len(b) > 0 {
		if n, at := binLen(b); at > 0 && n == len(b)-at {
			return b[at:], nil
		}
	}

	v, err := msgpack.Decode(b, strangerLimits)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFrame, err)
	}

	switch v := v.(type) {
	case []byte:
		return v, nil
	case string:
		return []byte(v), nil
	}

	return nil, fmt.Errorf("%w: data is not bytes", errFrame)
}
