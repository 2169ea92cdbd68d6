package postgres

import (
	"encoding/binary"
	"errors"
	"time"
)

// record is a load or a return as a spool holds it.
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
}

// recordKey identifies what a record is of.
type recordKey struct {
	kind        recordKind
	jid, minion string
}

func (r *record) key() recordKey { return recordKey{kind: r.kind, jid: r.jid, minion: r.minion} }

// recordKind is stored on disk: the numbers must not change.
type recordKind byte

const (
	kindLoad      recordKind = 1
	kindReturn    recordKind = 2
	kindFirstLoad recordKind = 3 // the load of a job that no master knew, made of its first return
)

// recordVersion is the first byte of a record.
const recordVersion = 1

var errRecord = errors.New("a record of the spool is of another version or damaged")

// pack returns the record for the spool: the version, the kind, the times as varints, and the texts, each
// with its length.
func (r *record) pack() []byte {
	b := make([]byte, 0, len(r.content)+len(r.summary)+len(r.arguments)+256)
	b = append(b, recordVersion, byte(r.kind))
	b = binary.AppendVarint(b, r.time.UnixNano())
	b = binary.AppendVarint(b, r.added.UnixNano())
	for _, text := range []string{r.jid, r.minion, r.user, r.function} {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	for _, text := range [][]byte{r.arguments, r.summary, r.out, r.content} {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	return b
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
	for _, text := range []*string{&r.jid, &r.minion, &r.user, &r.function} {
		*text = string(p.bytes())
	}
	for _, text := range []*[]byte{&r.arguments, &r.summary, &r.out, &r.content} {
		*text = p.bytes()
	}

	if p.failed || len(p.rest) > 0 || r.kind < kindLoad || r.kind > kindFirstLoad {
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

func (p *recordReader) bytes() []byte {
	n, size := binary.Uvarint(p.rest)
	if size <= 0 || n > uint64(len(p.rest)-size) {
		p.failed = true
		return nil
	}
	text := p.rest[size : size+int(n)]
	p.rest = p.rest[size+int(n):]
	return text
}
