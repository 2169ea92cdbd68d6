package jobs

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// kind is the type of a record. The numbers are stored on disk and must not change.
type kind uint8

const (
	kindPrep    kind = 1 // field a is empty, or "n" for nocache
	kindLoad    kind = 2 // field a is the content of .load.p
	kindMinions kind = 3 // id is a syndic or "", a is a packed list of minions to add
	kindReturn  kind = 4 // id is a minion, a the content of return.p, b the content of out.p or nil
	kindEndtime kind = 5 // field a is the text of the file endtime
)

// record is one entry of the journal. Once a record is created, the bytes of its stored fields
// never change.
type record struct {
	kind kind
	time int64 // when a master made the record, in Unix nanoseconds; the same on all masters
	jid  string
	id   string
	a, b []byte

	// The fields below are not stored on disk.
	made      int64         // when it was made, if stampLater has set time to something later; otherwise 0
	own       bool          // this master took the return, see Archived.Own
	at        uint32        // offset in its segment; valid once it is committed or scanned
	cost      int64         // bytes of the queue's bound that the record takes
	segment   *segment      // the record's segment, set when it is committed
	committed bool          // guarded by overlay.mu
	done      chan struct{} // closed when the record is durable or has failed; nil: an earlier run has made it durable
	err       error         // outcome; valid once done is closed
	visible   chan struct{} // may be nil; closed when the files of the record exist
	// needs is the load of a return's job, if that was not durable when the return came; it may be nil. When the load
	// fails, so does the return.
	needs  *record
	failed bool // the journal could not write it; used by the goroutine of commit only
	// origin is the record in this master's journal of which this one is a copy for others. It may be nil: that record
	// is durable.
	origin *record
}

// isStored reports whether this master's journal is known to have a copy for others.
func (r *record) isStored() bool {
	if r.origin == nil {
		return true
	}
	select {
	case <-r.origin.done:
		return r.origin.err == nil
	default:
		return false
	}
}

// copy returns a copy of the stored fields, for another log.
func (r *record) copy() *record {
	return &record{
		kind: r.kind,
		time: r.time,
		jid:  r.jid,
		id:   r.id,
		a:    r.a,
		b:    r.b,
	}
}

// urgent reports whether the background writer writes the files of this record before the files of
// records that are not urgent, because tools on this host look for these files at once.
func (r *record) urgent() bool { return r.kind != kindReturn && r.kind != kindEndtime }

// finish passes the outcome to the callers of wait.
func (r *record) finish(err error) {
	r.err = err
	close(r.done)
}

// wait waits until the record is durable or has failed.
func (r *record) wait(ctx context.Context) error {
	if r.done == nil {
		return nil
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("wait for the job journal: %w", ctx.Err())
	}
}

// A segment starts with segmentMagic and a mark, 8 random bytes. Then come
// records:
//
//	mark(8) length(4) crc32c(4) payload(length)
//	payload = kind(1) time(8) len jid(2) len id(2) len a(4) len b(4) jid id a b
//
// big-endian; len b is all ones when there is no b. With the mark a reader finds the next record
// after a damaged record. The mark is random, so that minions do not know it. Otherwise a minion
// could put a forged record into its return, and hope that a torn write leaves damage just before
// the forgery.
const (
	segmentMagic = "SALTJNL1"
	markSize     = 8
	segmentHead  = len(segmentMagic) + markSize
	recordHead   = markSize + 8
	payloadHead  = 21
	noB          = 0xffffffff
)

type mark [markSize]byte

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (r *record) size() int {
	return recordHead + payloadHead + len(r.jid) + len(r.id) + len(r.a) + len(r.b)
}

// appendTo appends the packed record to buf. It leaves the mark zero; see setMark.
func (r *record) appendTo(buf []byte) []byte {
	at := len(buf)
	be := binary.BigEndian
	buf = append(buf, make([]byte, markSize)...)
	buf = be.AppendUint32(buf, uint32(r.size()-recordHead))
	buf = be.AppendUint32(buf, 0)
	buf = append(buf, byte(r.kind))
	buf = be.AppendUint64(buf, uint64(r.time))
	buf = be.AppendUint16(buf, uint16(len(r.jid)))
	buf = be.AppendUint16(buf, uint16(len(r.id)))
	buf = be.AppendUint32(buf, uint32(len(r.a)))
	if r.b == nil {
		buf = be.AppendUint32(buf, noB)
	} else {
		buf = be.AppendUint32(buf, uint32(len(r.b)))
	}

	buf = append(buf, r.jid...)
	buf = append(buf, r.id...)
	buf = append(buf, r.a...)
	buf = append(buf, r.b...)
	be.PutUint32(buf[at+markSize+4:], crc32.Checksum(buf[at+recordHead:], castagnoli))

	return buf
}

// parseRecord reads the record at the start of b; n is the length of the record in bytes. ok is
// false when b does not start with a complete and undamaged record.
func parseRecord(b []byte, m mark) (r *record, n int, ok bool) {
	be := binary.BigEndian
	if len(b) < recordHead+payloadHead || mark(b[:markSize]) != m {
		return nil, 0, false
	}

	length := uint64(be.Uint32(b[markSize:]))
	if length < payloadHead || length > uint64(len(b)-recordHead) {
		return nil, 0, false
	}

	p := b[recordHead : recordHead+int(length)]
	if crc32.Checksum(p, castagnoli) != be.Uint32(b[markSize+4:]) {
		return nil, 0, false
	}

	jid := uint64(be.Uint16(p[9:]))
	id := uint64(be.Uint16(p[11:]))
	la := uint64(be.Uint32(p[13:]))
	lb := uint64(be.Uint32(p[17:]))
	hasB := lb != noB
	if !hasB {
		lb = 0
	}

	if payloadHead+jid+id+la+lb != length {
		return nil, 0, false
	}

	r = &record{kind: kind(p[0]), time: int64(be.Uint64(p[1:]))}
	rest := p[payloadHead:]
	cut := func(n uint64) []byte {
		s := rest[:n:n]
		rest = rest[n:]
		return s
	}

	r.jid = string(cut(jid))
	r.id = string(cut(id))
	r.a = cut(la)
	if hasB {
		r.b = cut(lb)
	}

	return r, recordHead + int(length), true
}

// scanSegment calls yield for every undamaged record of a segment. damaged is the number of damaged
// gaps that a good record follows. tail is the number of bytes after the last good record, without
// the zeros of preallocation.
func scanSegment(b []byte, yield func(*record) error) (damaged, tail int, err error) {
	if len(b) < segmentHead || string(b[:len(segmentMagic)]) != segmentMagic {
		return 0, tornBytes(b), nil
	}

	m := mark(b[len(segmentMagic):segmentHead])
	size := len(b)
	for b = b[segmentHead:]; len(b) > 0; {
		r, n, ok := parseRecord(b, m)
		if !ok {
			next := resync(b, m)
			if next < 0 {
				return damaged, tornBytes(b), nil
			}
			damaged++
			b = b[next:]
			continue
		}

		r.at = uint32(size - len(b))
		if err := yield(r); err != nil {
			return damaged, 0, err
		}

		b = b[n:]
	}

	return damaged, 0, nil
}

func tornBytes(b []byte) int { return len(bytes.TrimRight(b, "\x00")) }

// resync returns the position of the next good record after the start of b, or -1.
func resync(b []byte, m mark) int {
	for at := 1; at < len(b); at++ {
		i := bytes.Index(b[at:], m[:])
		if i < 0 {
			return -1
		}
		at += i
		if _, _, ok := parseRecord(b[at:], m); ok {
			return at
		}
	}
	return -1
}
