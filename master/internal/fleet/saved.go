package fleet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"saltern/master/history/summary"
)

// A saved table is savedMagic, Table.daysFrom, the number of minions, the entries, and a checksum (CRC-32C)
// of all that. Numbers are varints, a text is its length and its bytes.
const savedMagic = "SALTFLT2"

// savedBefore begins tables of the version before, whose entries have no days.
const savedBefore = "SALTFLT1"

// maxSaved bounds the file of a table, in bytes.
const maxSaved = maxMinions * (maxEntry + 300)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	errSaved   = errors.New("the file is torn, damaged or of another version")
)

// pack returns the table for the file, and whether it has changed since the last call.
func (t *Table) pack() (packed []byte, changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.changed {
		return nil, false
	}

	t.changed = false
	b := binary.BigEndian.AppendUint32([]byte(savedMagic), uint32(t.daysFrom))
	b = binary.AppendUvarint(b, uint64(len(t.entries)))
	for minion, e := range t.entries {
		b = appendText(b, minion)
		b = appendAnswer(b, &e.answer)
		b = appendAnswer(b, &e.run)
		b = append(appendText(b, string(e.packed)), flag(e.drifted))
		b = appendBaselines(b, e.baselines)
		b = appendDays(b, &e.days)
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)), true
}

func (t *Table) markChanged() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changed = true
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendAnswer(b []byte, a *Answer) []byte {
	b = appendText(b, a.JID)
	b = appendText(b, a.Function)
	b = appendText(b, a.User)
	var nanos int64
	if !a.Time.IsZero() {
		nanos = a.Time.UnixNano()
	}
	b = binary.AppendVarint(b, nanos)
	return append(b, byte(a.Result))
}

// savedBaselines is how many baselines of a minion are saved: the version before refuses a table with more.
const savedBaselines = 3

func appendBaselines(b []byte, list []baseline) []byte {
	list = slices.Clone(list)
	for len(list) > savedBaselines {
		list = dropBaseline(list)
	}

	b = binary.AppendUvarint(b, uint64(len(list)))
	for i := range list {
		b = appendBaseline(b, &list[i])
	}
	return b
}

func appendBaseline(b []byte, base *baseline) []byte {
	b = binary.BigEndian.AppendUint64(b, base.scope)
	b = binary.BigEndian.AppendUint64(b, base.revision)
	b = appendText(b, base.order)
	b = append(b, flag(base.partial), byte(len(base.touched)))
	for _, t := range base.touched {
		b = binary.BigEndian.AppendUint32(b, uint32(t))
	}
	return b
}

func appendDays(b []byte, d *days) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(d.newest))
	for _, r := range d.results {
		b = append(b, byte(r))
	}
	return b
}

func flag(v bool) byte {
	if v {
		return 1
	}
	return 0
}

// parseTable reads a table that pack has made. hasDays is false for a table of the version before.
func parseTable(b []byte) (table *Table, hasDays bool, err error) {
	const sumSize = 4
	if len(b) < len(savedMagic)+sumSize {
		return nil, false, errSaved
	}
	magic := string(b[:len(savedMagic)])
	if magic != savedMagic && magic != savedBefore {
		return nil, false, errSaved
	}
	body := b[:len(b)-sumSize]
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(b[len(body):]) {
		return nil, false, fmt.Errorf("%w: its checksum is wrong", errSaved)
	}
	hasDays = magic == savedMagic

	r := savedReader{rest: body[len(savedMagic):]}
	t := newTable()
	if hasDays {
		t.daysFrom = r.day()
	}
	for range r.number(maxMinions) {
		minion := r.text(maxEntry)
		e := &entry{answer: r.answer(), run: r.answer()}
		e.packed = []byte(r.text(maxEntry))
		e.drifted = r.byte() == 1
		for range r.number(maxBaselines) {
			e.baselines = append(e.baselines, r.baseline())
		}
		if hasDays {
			e.days = r.days()
		}
		if r.failed {
			return nil, false, errSaved
		}
		t.entries[minion] = e
	}
	if r.failed || len(r.rest) > 0 {
		return nil, false, errSaved
	}
	return t, hasDays, nil
}

// savedReader reads the parts of a saved table. After a fault it returns zero values.
type savedReader struct {
	rest   []byte
	failed bool
}

func (r *savedReader) take(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.failed = true
		r.rest = nil
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *savedReader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *savedReader) number(most uint64) uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || n > most {
		r.take(1 << 62) // fails
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *savedReader) text(most uint64) string { return string(r.take(r.number(most))) }

func (r *savedReader) answer() Answer {
	a := Answer{JID: r.text(maxEntry), Function: r.text(maxEntry), User: r.text(maxEntry)}
	nanos, size := binary.Varint(r.rest)
	if size <= 0 {
		r.take(1 << 62) // fails
		return a
	}
	r.rest = r.rest[size:]
	if nanos != 0 {
		a.Time = time.Unix(0, nanos).UTC()
	}
	a.Result = summary.Result(r.byte())
	return a
}

// fixed reads a number of 8 bytes.
func (r *savedReader) fixed() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *savedReader) baseline() baseline {
	var b baseline
	b.scope = r.fixed()
	b.revision = r.fixed()
	b.order = r.text(maxEntry)
	b.partial = r.byte() == 1
	for range min(r.byte(), maxTouched) {
		if t := r.take(4); t != nil {
			b.touched = append(b.touched, touched(binary.BigEndian.Uint32(t)))
		}
	}
	return b
}

func (r *savedReader) days() (d days) {
	d.newest = r.day()
	for i, result := range r.take(keptDays) {
		d.results[i] = min(dayResult(result), worstDay)
	}
	return d
}

// day reads the number of a day.
func (r *savedReader) day() int32 {
	b := r.take(4)
	if b == nil {
		return 0
	}
	return max(0, int32(binary.BigEndian.Uint32(b)))
}
