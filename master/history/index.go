package history

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"
	"sort"
	"strings"

	"saltern/master/history/summary"
)

// A term is a kind of term (one byte) and a text. The index lists for each term the chunks that have
// runs with it.
const (
	termJID      = 'j'
	termMinion   = 'm'
	termUser     = 'u'
	termFunction = 'f'
	termState    = 's'
	termResult   = 'r'
)

func resultTerm(r summary.Result) string { return string([]byte{termResult, byte(r)}) }

// termsOf calls visit for each term of a run.
func termsOf(w *row, s *summary.Summary, visit func(term string)) {
	visit(string(termJID) + string(w.jid))
	visit(string(termMinion) + string(w.minion))
	visit(string(termUser) + string(w.user))
	visit(string(termFunction) + string(w.function))
	if bytes.IndexByte(w.function, ',') >= 0 { // several functions: each finds the run
		for one := range bytes.SplitSeq(w.function, []byte{','}) {
			visit(string(termFunction) + string(bytes.TrimSpace(one)))
		}
	}
	visit(resultTerm(s.Result))
	for _, id := range statesOf(s) {
		visit(string(termState) + id)
	}
}

// terms returns sets of terms. A chunk can have runs that the filter selects only if it has a
// term of each set.
func (f *Filter) terms() (sets [][]string) {
	for _, t := range []struct {
		kind byte
		text string
	}{
		{termJID, f.JID},
		{termMinion, f.Minion},
		{termState, f.State},
		{termUser, f.User},
		{termFunction, f.Function},
	} {
		if t.text != "" {
			sets = append(sets, []string{string(t.kind) + t.text})
		}
	}

	if len(f.Results) > 0 {
		var results []string
		for _, r := range f.Results {
			results = append(results, resultTerm(r))
		}
		sets = append(sets, results)
	}

	return sets
}

// posting lists chunks by number: the differences to the number before, as varints.
type posting struct {
	list []byte
	next uint32 // one more than the last number
}

func (p *posting) add(chunk uint32) {
	if chunk < p.next {
		return // it is there already
	}
	p.list = binary.AppendUvarint(p.list, uint64(chunk-p.next))
	p.next = chunk + 1
}

// parsePosting returns the numbers of a posting. ok is false unless all of them are below chunks.
func parsePosting(b []byte, chunks int) (numbers []uint32, ok bool) {
	r := reader{rest: b}
	next := uint64(0)
	for len(r.rest) > 0 {
		n := next + uint64(r.size(int64(chunks)))
		if r.failed || n >= uint64(chunks) {
			return nil, false
		}
		numbers = append(numbers, uint32(n))
		next = n + 1
	}
	return numbers, !r.failed
}

// memoryIndex is the index of a segment that is not sealed.
type memoryIndex struct {
	postings map[string]*posting
	bytes    int // roughly the memory that the index takes
}

func newMemoryIndex() *memoryIndex { return &memoryIndex{postings: map[string]*posting{}} }

// entryBytes is roughly the memory that a term takes besides its text.
const entryBytes = 96

func (x *memoryIndex) add(term string, chunk uint32) {
	p := x.postings[term]
	if p == nil {
		p = &posting{}
		x.postings[term] = p
		x.bytes += len(term) + entryBytes
	}
	before := len(p.list)
	p.add(chunk)
	x.bytes += len(p.list) - before
}

// The index of a sealed segment: frames of the kind kindIndex with the terms in order. A block is
//
//	shared, length of the rest, length of the posting, rest of the term, posting …
//
// where shared is how many bytes the term shares with the term before it. The frame of the kind
// kindSparse has the offset and the first term of each block.
const blockBytes = 8 << 10

// write calls write with each block of the index. write returns the offset of the block's frame.
// The result is the rows of the sparse index.
func (x *memoryIndex) write(write func(block []byte) (offset int64)) (sparse []byte) {
	var block []byte
	first, before := "", ""
	flush := func() {
		if len(block) == 0 {
			return
		}
		sparse = binary.AppendUvarint(sparse, uint64(write(block)))
		sparse = binary.AppendUvarint(sparse, uint64(len(first)))
		sparse = append(sparse, first...)
		block = block[:0]
		before = ""
	}

	for _, term := range slices.Sorted(maps.Keys(x.postings)) {
		if len(block) == 0 {
			first = term
		}

		p := x.postings[term]
		shared := sharedPrefix(before, term)
		block = binary.AppendUvarint(block, uint64(shared))
		block = binary.AppendUvarint(block, uint64(len(term)-shared))
		block = binary.AppendUvarint(block, uint64(len(p.list)))
		block = append(block, term[shared:]...)
		block = append(block, p.list...)
		before = term

		if len(block) >= blockBytes {
			flush()
		}
	}

	flush()
	return sparse
}

func sharedPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// findInBlock returns the posting of a term in a block; found is false if it has none.
func findInBlock(block []byte, term string) (list []byte, found bool, err error) {
	r := reader{rest: block}
	var key []byte
	for len(r.rest) > 0 {
		shared := r.size(int64(len(key)))
		length := r.size(maxRows)
		size := r.size(maxRows)
		if r.failed || length+size > len(r.rest) {
			return nil, false, errDamaged
		}

		key = append(key[:shared], r.rest[:length]...)
		list = r.rest[length : length+size]
		r.rest = r.rest[length+size:]
		switch c := strings.Compare(string(key), term); {
		case c == 0:
			return list, true, nil
		case c > 0:
			return nil, false, nil
		}
	}
	return nil, false, nil
}

// sparseIndex is the parsed sparse index of a sealed segment.
type sparseIndex struct {
	offsets []int64
	first   []string
}

func parseSparse(b []byte) (*sparseIndex, error) {
	x := &sparseIndex{}
	r := reader{rest: b}
	for len(r.rest) > 0 {
		offset := r.size(1 << 40)
		first := string(r.bytes(maxRows))
		if r.failed {
			return nil, errDamaged
		}
		x.offsets = append(x.offsets, int64(offset))
		x.first = append(x.first, first)
	}
	return x, nil
}

// blockOf returns the offset of the block in which a term is, if it is in the index.
func (x *sparseIndex) blockOf(term string) (offset int64, found bool) {
	i := sort.Search(len(x.first), func(i int) bool { return x.first[i] > term })
	if i == 0 {
		return 0, false
	}
	return x.offsets[i-1], true
}

// memory returns roughly how many bytes the index takes.
func (x *sparseIndex) memory() int { return 64 * len(x.first) }

// chunkPlace is the position of a chunk, and the times of its oldest and latest run.
type chunkPlace struct {
	offset   int64
	from, to int64 // Unix nanoseconds, both included
}

func appendDirectory(dst []byte, chunks []chunkPlace) []byte {
	var before chunkPlace
	for _, c := range chunks {
		dst = binary.AppendUvarint(dst, uint64(c.offset-before.offset))
		dst = binary.AppendVarint(dst, c.from-before.from)
		dst = binary.AppendVarint(dst, c.to-c.from)
		before = c
	}
	return dst
}

func parseDirectory(b []byte) ([]chunkPlace, error) {
	var chunks []chunkPlace
	var c chunkPlace
	r := reader{rest: b}
	for len(r.rest) > 0 {
		c.offset += int64(r.size(1 << 40))
		c.from += r.varint()
		c.to = c.from + r.varint()
		if r.failed {
			return nil, errDamaged
		}
		chunks = append(chunks, c)
	}
	return chunks, nil
}

// intersect returns the numbers that are in both sorted lists.
func intersect(a, b []uint32) []uint32 {
	var out []uint32
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			a = a[1:]
		case a[0] > b[0]:
			b = b[1:]
		default:
			out = append(out, a[0])
			a = a[1:]
			b = b[1:]
		}
	}
	return out
}

// union returns the numbers that are in any of the sorted lists.
func union(lists [][]uint32) []uint32 {
	if len(lists) == 1 {
		return lists[0]
	}
	out := slices.Concat(lists...)
	slices.Sort(out)
	return slices.Compact(out)
}
