package history

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"syscall"

	"github.com/klauspost/compress/zstd"
)

// A segment starts with segmentMagic and a mark, 8 random bytes. Then come frames of two parts each,
// compressed with zstd:
//
//	mark(8) kind(1) raw(4) packed(4) raw(4) packed(4) crc(4) crc(4) crc of this head(4) part part
//
// big-endian; raw and packed are the sizes of a part, crc is the CRC-32C of its packed bytes. With
// the mark a reader finds the next frame after a damaged one. The mark is random, so that no
// minion can put a forged frame into its return.
const (
	segmentMagic = "SALTHST1"
	markSize     = 8
	segmentHead  = len(segmentMagic) + markSize
	frameHead    = markSize + 1 + 7*4
)

// kind is the type of a frame. The numbers are stored on disk and must not change.
type kind uint8

const (
	kindChunk     kind = 1 // rows, and the content of their returns
	kindIndex     kind = 2 // a block of the index
	kindDirectory kind = 3 // places and times of the chunks
	kindSparse    kind = 4 // the first key of each block of the index
	kindFooter    kind = 5 // the sizes and bounds of the segment
)

// Bounds of a frame.
const (
	// MaxReturn bounds the content of a return in bytes. Of a larger one the history has the summary only.
	MaxReturn = 16 << 20
	maxRows   = 4 << 20               // raw bytes of the first part
	maxBody   = MaxReturn + chunkBody // raw bytes of the second part
	maxPacked = maxBody + maxBody/8   // packed bytes of a part
)

type mark [markSize]byte

var (
	// errDamaged means that a place has not what was written there, or that the disk cannot read it.
	errDamaged = errors.New("it is damaged")
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// packer compresses and decompresses the parts of frames. All methods may be called concurrently.
type packer struct {
	encoder *zstd.Encoder
	decoder *zstd.Decoder
}

func newPacker() (*packer, error) {
	encoder, err := zstd.NewWriter(nil,
		zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(512<<10), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, err
	}

	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderMaxWindow(maxBody), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, err
	}

	return &packer{encoder, decoder}, nil
}

// appendFrame appends a frame to dst.
func (p *packer) appendFrame(dst []byte, m mark, k kind, rows, body []byte) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, frameHead)...)
	dst = p.encoder.EncodeAll(rows, dst)
	bodyAt := len(dst)
	if len(body) > 0 {
		dst = p.encoder.EncodeAll(body, dst)
	}

	head := append(dst[at:at:at+frameHead], m[:]...)
	head = append(head, byte(k))
	packedRows := dst[at+frameHead : bodyAt]
	packedBody := dst[bodyAt:]
	be := binary.BigEndian
	for _, n := range []int{len(rows), len(packedRows), len(body), len(packedBody)} {
		head = be.AppendUint32(head, uint32(n))
	}

	head = be.AppendUint32(head, crc32.Checksum(packedRows, castagnoli))
	head = be.AppendUint32(head, crc32.Checksum(packedBody, castagnoli))
	be.AppendUint32(head, crc32.Checksum(head, castagnoli))
	return dst
}

// frame is the head of a frame, at offset of a file.
type frame struct {
	kind                               kind
	offset                             int64
	rawRows, packedRows, rawBody, body int // sizes in bytes; body is the packed size
	rowsSum, bodySum                   uint32
}

// size returns the size of the whole frame.
func (f *frame) size() int64 { return int64(frameHead + f.packedRows + f.body) }

// parseFrame parses the head of a frame.
func parseFrame(head []byte, m mark) (frame, bool) {
	be := binary.BigEndian
	if len(head) < frameHead || mark(head[:markSize]) != m {
		return frame{}, false
	}
	if crc32.Checksum(head[:frameHead-4], castagnoli) != be.Uint32(head[frameHead-4:]) {
		return frame{}, false
	}

	number := func(i int) uint32 { return be.Uint32(head[markSize+1+4*i:]) }
	if number(0) > maxRows || number(1) > maxPacked || number(2) > maxBody || number(3) > maxPacked {
		return frame{}, false
	}
	return frame{
		kind:       kind(head[markSize]),
		rawRows:    int(number(0)),
		packedRows: int(number(1)),
		rawBody:    int(number(2)),
		body:       int(number(3)),
		rowsSum:    number(4),
		bodySum:    number(5),
	}, true
}

// readFrame reads the head of the frame at offset.
func readFrame(r io.ReaderAt, m mark, offset int64) (frame, error) {
	head := make([]byte, frameHead)
	if _, err := r.ReadAt(head, offset); err != nil {
		return frame{}, damageOf(err)
	}
	f, ok := parseFrame(head, m)
	if !ok {
		return frame{}, errDamaged
	}
	f.offset = offset
	return f, nil
}

// readRows returns the first part of a frame.
func (p *packer) readRows(r io.ReaderAt, f *frame) ([]byte, error) {
	return p.readPart(r, f.offset+int64(frameHead), f.packedRows, f.rawRows, f.rowsSum)
}

// readBody returns the second part of a frame.
func (p *packer) readBody(r io.ReaderAt, f *frame) ([]byte, error) {
	if f.rawBody == 0 {
		return nil, nil
	}
	return p.readPart(r, f.offset+int64(frameHead+f.packedRows), f.body, f.rawBody, f.bodySum)
}

// checkBody returns errDamaged if the second part of a frame is damaged.
func checkBody(r io.ReaderAt, f *frame) error {
	_, err := readPacked(r, f.offset+int64(frameHead+f.packedRows), f.body, f.bodySum)
	return err
}

func readPacked(r io.ReaderAt, offset int64, packed int, sum uint32) ([]byte, error) {
	b := make([]byte, packed)
	if _, err := r.ReadAt(b, offset); err != nil {
		return nil, damageOf(err)
	}
	if crc32.Checksum(b, castagnoli) != sum {
		return nil, errDamaged
	}
	return b, nil
}

func (p *packer) readPart(r io.ReaderAt, offset int64, packed, raw int, sum uint32) ([]byte, error) {
	b, err := readPacked(r, offset, packed, sum)
	if err != nil {
		return nil, err
	}

	out, err := p.decoder.DecodeAll(b, make([]byte, 0, raw)) // never more than raw bytes
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if len(out) != raw {
		return nil, errDamaged
	}
	return out, nil
}

// damageOf returns errDamaged for a file that ends too early, and for a place that the disk cannot read.
func damageOf(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errDamaged
	}
	if isUnreadable(err) {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	return err
}

// isUnreadable reports whether an error means that the disk or its file system is damaged (EUCLEAN and
// EBADMSG: XFS, ext4 and btrfs found a wrong checksum).
func isUnreadable(err error) bool {
	return errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EUCLEAN) || errors.Is(err, syscall.EBADMSG)
}

// scanFrames calls visit for the head of every frame of a file of so many bytes. It skips places
// where no frame begins, or for which visit returned errDamaged, and returns the number of such gaps
// that a good frame follows. It stops at another error.
func scanFrames(r io.ReaderAt, m mark, size int64, visit func(*frame) error) (gaps int, err error) {
	inGap := false
	for at := int64(segmentHead); at < size; {
		f, err := readFrame(r, m, at)
		if err == nil && f.size() > size-at {
			err = errDamaged
		}
		if err == nil {
			err = visit(&f)
		}

		switch {
		case err == nil:
			if inGap {
				gaps++
			}
			inGap = false
			at += f.size()
		case errors.Is(err, errDamaged):
			inGap = true
			if at, err = findMark(r, m, at+1, size); err != nil {
				return gaps, err
			}
		default:
			return gaps, err
		}
	}

	return gaps, nil
}

// findMark returns the place of the next mark from offset on, or size if there is none. It leaves out blocks
// that the disk cannot read.
func findMark(r io.ReaderAt, m mark, offset, size int64) (int64, error) {
	const block = 4096 // the smallest part of a file that a disk may fail to read
	b := make([]byte, 64<<10)
	for offset < size {
		n, err := r.ReadAt(b[:min(int64(len(b)), size-offset)], offset)
		unreadable := isUnreadable(err)
		if err != nil && !errors.Is(err, io.EOF) && !unreadable {
			return 0, err
		}
		if i := bytes.Index(b[:n], m[:]); i >= 0 {
			return offset + int64(i), nil
		}
		if n < markSize && unreadable {
			offset += block - offset%block
			continue
		}
		if n < markSize {
			break
		}
		offset += int64(n - markSize + 1)
	}
	return size, nil
}
