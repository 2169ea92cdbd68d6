package postgres

import (
	"encoding/binary"
	"errors"
	"time"

	"saltern/internal/printable"
)

// record is a load, a return or an event as a spool holds it.
type record struct {
	kind  recordKind
	time  time.Time // when a master took it
	added time.Time // when this master added it to the spool
	jid   string

	// The fields below are empty in the record of a load, except for content: the load as JSON.
	minion, user, function string
	arguments              []byte // fun_args as JSON
	summary                []byte // summary.Append
	out                    []byte // content of out.p, or empty
	content                []byte // content of return.p

	// Only the record of an event has the fields below. It has no jid, and of the others only content: the packed data.
	writer string // identifies the run of the master that wrote the record, among all masters
	number uint64 // of the record among those of its writer; the first is 1
	tag    string
	master string // id of the master on which the event was made
}

// recordKey identifies the job or the return of a record.
type recordKey struct {
	kind        recordKind
	jid, minion string
}

func (r *record) key() recordKey { return recordKey{kind: r.kind, jid: r.jid, minion: r.minion} }

// logName returns the attributes that name the record in the log.
func (r *record) logName() []any {
	if r.kind == kindEvent {
		return []any{"tag", printable.Clip(r.tag, maxText)}
	}
	return []any{"jid", r.jid, "minion", r.minion}
}

// recordKind is stored on disk: the numbers must not change.
type recordKind byte

const (
	kindLoad      recordKind = 1
	kindReturn    recordKind = 2
	kindFirstLoad recordKind = 3 // of spools of before: a load that was made of a return, treated as any load
	kindEvent     recordKind = 4
)

// recordVersion is the first byte of a record.
const recordVersion = 1

var errRecord = errors.New("a record of the spool is of another version or damaged")

// pack returns the record for the spool: the version, the kind, the times as varints, and the texts, each
// with its length. An event has its number before them.
func (r *record) pack() []byte {
	b := make([]byte, 0, len(r.content)+len(r.summary)+len(r.arguments)+256)
	b = append(b, recordVersion, byte(r.kind))
	b = binary.AppendVarint(b, r.time.UnixNano())
	b = binary.AppendVarint(b, r.added.UnixNano())
	texts, contents := r.parts()
	if r.kind == kindEvent {
		b = binary.AppendUvarint(b, r.number)
	}
	for _, text := range texts {
		b = append(binary.AppendUvarint(b, uint64(len(*text))), *text...)
	}
	for _, content := range contents {
		b = append(binary.AppendUvarint(b, uint64(len(*content))), *content...)
	}
	return b
}

// parts returns the fields that a record of this kind has, in the order in which the spool holds them.
func (r *record) parts() (texts []*string, contents []*[]byte) {
	if r.kind == kindEvent {
		return []*string{&r.writer, &r.tag, &r.master}, []*[]byte{&r.content}
	}
	return []*string{&r.jid, &r.minion, &r.user, &r.function}, []*[]byte{&r.arguments, &r.summary, &r.out, &r.content}
}

// parseRecord reads a record. The result shares memory with b.
func parseRecord(b []byte) (record, error) {
	if len(b) < 2 || b[0] != recordVersion {
		return record{}, errRecord
	}

	r := record{kind: recordKind(b[1])}
	p := recordReader{rest: b[2:]}
	r.time = p.time()
	r.added = p.time()
	texts, contents := r.parts()
	if r.kind == kindEvent {
		r.number = p.uvarint()
	}
	for _, text := range texts {
		*text = string(p.bytes())
	}
	for _, content := range contents {
		*content = p.bytes()
	}

	if p.failed || len(p.rest) > 0 || r.kind < kindLoad || r.kind > kindEvent {
		return record{}, errRecord
	}
	return r, nil
}

// recordReader reads the parts of a record. After a fault it returns zero values.
type recordReader struct {
	rest   []byte
	failed bool
}

func (p *recordReader) time() time.Time {
	n, size := binary.Varint(p.rest)
	if size <= 0 {
		p.failed = true
		return time.Time{}
	}
	p.rest = p.rest[size:]
	return time.Unix(0, n).UTC()
}

func (p *recordReader) uvarint() uint64 {
	n, size := binary.Uvarint(p.rest)
	if size <= 0 {
		p.failed = true
		return 0
	}
	p.rest = p.rest[size:]
	return n
}

func (p *recordReader) bytes() []byte {
	n := p.uvarint()
	if n > uint64(len(p.rest)) {
		p.failed = true
		return nil
	}
	text := p.rest[:n]
	p.rest = p.rest[n:]
	return text
}
