package share

import (
	"encoding/binary"
	"errors"
	"fmt"

	"saltern/master/cache"
	"saltern/master/cluster/wire"
)

// Kinds of messages between masters. A message is a list whose first element is its kind. The
// comments name the other elements.
const (
	kindHave int64 = iota + 1 // entries, each a list of bank, id, At, Base, Gone, and the data or nil
	kindSum                   // the sums of all buckets, 8 bytes for each
	kindList                  // bucket numbers, a byte each; asks for lists of their entries
	kindWant                  // bank and id, alternating; asks for these entries
	kindDone                  // the answer to a kindWant is complete
	// kindMeet is like kindSum, sent by a master that has just connected. The receiver answers with
	// a kindSum.
	kindMeet
)

var errMessage = errors.New("bad message")

// maxNodes bounds the number of values in a message.
const maxNodes = 8 * maxListed

type entryKey struct {
	bank cache.Bank
	id   string
}

type message struct {
	kind    int64
	entries []cache.Entry
	sums    [cache.Buckets]uint64
	buckets []byte
	keys    []entryKey
}

// packMessage packs a message. It returns nil if packing fails, which does not happen for the
// messages of this package.
func packMessage(kind int64, parts ...any) []byte {
	b, err := wire.Pack(append([]any{kind}, parts...))
	if err != nil {
		return nil
	}
	return b
}

func haveMessage(entries []cache.Entry) []byte {
	var parts []any
	for _, e := range entries {
		part := []any{string(e.Bank), e.ID, e.At, e.Base, e.Gone, nil}
		if e.Packed != nil {
			part[5] = e.Packed
		}
		parts = append(parts, part)
	}
	return packMessage(kindHave, parts...)
}

func sumMessage(kind int64, sums [cache.Buckets]uint64) (b []byte) {
	for _, n := range sums {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return packMessage(kind, b)
}

func bytesMessage(kind int64, body []byte) []byte { return packMessage(kind, body) }

func wantMessage(keys []entryKey) []byte {
	var parts []any
	for _, k := range keys {
		parts = append(parts, string(k.bank), k.id)
	}
	return packMessage(kindWant, parts...)
}

// parseMessage parses a message of a peer.
func parseMessage(b []byte) (message, error) {
	v, err := wire.Unpack(b, 3, maxNodes)
	if err != nil {
		return message{}, fmt.Errorf("%w: %w", errMessage, err)
	}

	parts, ok := v.([]any)
	if !ok || len(parts) == 0 {
		return message{}, errMessage
	}

	var m message
	m.kind, _ = parts[0].(int64)
	parts = parts[1:]
	switch m.kind {
	case kindHave:
		for _, p := range parts {
			e, ok := parseEntry(p)
			if !ok {
				return m, errMessage
			}
			m.entries = append(m.entries, e)
		}

		return m, nil
	case kindWant:
		for len(parts) >= 2 {
			bank, ok1 := parts[0].(string)
			id, ok2 := parts[1].(string)
			if !ok1 || !ok2 {
				return m, errMessage
			}
			m.keys = append(m.keys, entryKey{cache.Bank(bank), id})
			parts = parts[2:]
		}

		return m, nil
	case kindDone:
		return m, nil
	}

	if len(parts) != 1 {
		return m, errMessage
	}

	m.buckets, ok = parts[0].([]byte)
	switch {
	case m.kind == kindList && ok && len(m.buckets) <= cache.Buckets:
		return m, nil
	case (m.kind == kindSum || m.kind == kindMeet) && len(m.buckets) == 8*cache.Buckets:
		for i := range m.sums {
			m.sums[i] = binary.BigEndian.Uint64(m.buckets[8*i:])
		}
		return m, nil
	}

	return m, errMessage
}

func parseEntry(v any) (cache.Entry, bool) {
	l, ok := v.([]any)
	if !ok || len(l) != 6 {
		return cache.Entry{}, false
	}

	bank, ok1 := l[0].(string)
	id, ok2 := l[1].(string)
	at, ok3 := l[2].(int64)
	base, ok4 := l[3].(int64)
	gone, ok5 := l[4].(bool)
	packed, ok6 := l[5].([]byte)

	return cache.Entry{
		Bank:   cache.Bank(bank),
		ID:     id,
		At:     at,
		Base:   base,
		Gone:   gone,
		Packed: packed,
	}, ok1 && ok2 && ok3 && ok4 && ok5 && (ok6 || l[5] == nil)
}
