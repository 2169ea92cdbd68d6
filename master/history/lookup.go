package history

import (
	"errors"
	"os"
)

// openFile holds the file of a segment that is being read, so that the next read of the segment need
// not open it, and the last content of returns that was read.
type openFile struct {
	number uint64
	file   *os.File

	bodyKey cacheKey
	body    []byte
}

func (o *openFile) open(g *segment) (*os.File, error) {
	if o.file != nil && o.number == g.number {
		return o.file, nil
	}
	o.close()
	file, err := os.Open(g.path)
	if err != nil {
		return nil, err
	}
	o.file = file
	o.number = g.number
	return file, nil
}

func (o *openFile) close() {
	if o.file != nil {
		_ = o.file.Close()
		o.file = nil
	}
}

// readCached returns the result of parse for the rows of a frame, from the cache if it is there.
func readCached[T any](
	s *Store, o *openFile, g *segment, offset int64, want kind, parse func(rows []byte) (v T, memory int, err error),
) (v T, err error) {
	key := cacheKey{g.number, offset}
	if e, ok := s.cache.get(key); ok {
		if v, ok = e.(T); ok {
			return v, nil
		}
	}

	file, err := o.open(g)
	if err != nil {
		return v, err
	}
	f, err := readFrame(file, g.mark, offset)
	if err != nil {
		return v, err
	}
	if f.kind != want {
		return v, errDamaged
	}
	rows, err := s.packer.readRows(file, &f)
	if err != nil {
		return v, err
	}

	v, memory, err := parse(rows)
	if err == nil {
		s.cache.put(key, v, memory)
	}
	return v, err
}

func asBytes(rows []byte) ([]byte, int, error) { return rows, len(rows), nil }

// chunkRows returns the rows of a chunk.
func (s *Store) chunkRows(o *openFile, g *segment, offset int64) ([]byte, error) {
	return readCached(s, o, g, offset, kindChunk, asBytes)
}

// chunkBody returns the returns of a chunk.
func (s *Store) chunkBody(o *openFile, g *segment, offset int64) ([]byte, error) {
	key := cacheKey{g.number, offset}
	if o.body != nil && o.bodyKey == key {
		return o.body, nil
	}

	file, err := o.open(g)
	if err != nil {
		return nil, err
	}
	f, err := readFrame(file, g.mark, offset)
	if err != nil {
		return nil, err
	}
	body, err := s.packer.readBody(file, &f)
	if err != nil {
		return nil, err
	}
	o.body = body
	o.bodyKey = key
	return body, nil
}

// candidates returns the chunks of a segment that have a term of each set. The segment must not
// change any more. If the index is damaged, candidates returns all chunks that it can find, and the
// caller reads more.
func (s *Store) candidates(o *openFile, g *segment, sets [][]string) ([]chunkPlace, error) {
	if g.memory != nil {
		return choose(g.chunks, g.memory.candidates(sets, len(g.chunks))), nil
	}

	places, err := readCached(s, o, g, g.directory, kindDirectory, func(rows []byte) ([]chunkPlace, int, error) {
		places, err := parseDirectory(rows)
		return places, 24 * len(places), err
	})
	if err != nil {
		return s.scanPlaces(o, g, err)
	}

	numbers, all, err := s.lookUpAll(o, g, sets, len(places))
	switch {
	case errors.Is(err, errDamaged):
		s.countDamage(g, g.sparse, err)
		return places, nil
	case err != nil:
		return nil, err
	case all:
		return places, nil
	}
	return choose(places, numbers), nil
}

func choose(places []chunkPlace, numbers []uint32) []chunkPlace {
	out := make([]chunkPlace, len(numbers))
	for i, n := range numbers {
		out[i] = places[n]
	}
	return out
}

// lookUpAll returns the numbers of the chunks that have a term of each set. all is true if there
// are no sets.
func (s *Store) lookUpAll(o *openFile, g *segment, sets [][]string, chunks int) (numbers []uint32, all bool, err error) {
	for i, set := range sets {
		var lists [][]uint32
		for _, term := range set {
			list, err := s.lookUp(o, g, term, chunks)
			if err != nil {
				return nil, false, err
			}
			lists = append(lists, list)
		}

		if i == 0 {
			numbers = union(lists)
		} else {
			numbers = intersect(numbers, union(lists))
		}
		if len(numbers) == 0 {
			return nil, false, nil
		}
	}
	return numbers, len(sets) == 0, nil
}

// lookUp returns the numbers of the chunks of a sealed segment that have a term.
func (s *Store) lookUp(o *openFile, g *segment, term string, chunks int) ([]uint32, error) {
	sparse, err := readCached(s, o, g, g.sparse, kindSparse, func(rows []byte) (*sparseIndex, int, error) {
		x, err := parseSparse(rows)
		if err != nil {
			return nil, 0, err
		}
		return x, x.memory(), nil
	})
	if err != nil {
		return nil, err
	}

	offset, found := sparse.blockOf(term)
	if !found {
		return nil, nil
	}
	block, err := readCached(s, o, g, offset, kindIndex, asBytes)
	if err != nil {
		return nil, err
	}
	list, found, err := findInBlock(block, term)
	if err != nil || !found {
		return nil, err
	}
	numbers, ok := parsePosting(list, chunks)
	if !ok {
		return nil, errDamaged
	}
	return numbers, nil
}

// candidates returns the numbers, all below chunks, of the chunks that have a term of each set.
func (x *memoryIndex) candidates(sets [][]string, chunks int) (numbers []uint32) {
	if len(sets) == 0 {
		numbers = make([]uint32, chunks)
		for i := range numbers {
			numbers[i] = uint32(i)
		}
		return numbers
	}

	for i, set := range sets {
		lists := [][]uint32{nil}
		for _, term := range set {
			if p := x.postings[term]; p != nil {
				list, _ := parsePosting(p.list, chunks)
				lists = append(lists, list)
			}
		}
		if i == 0 {
			numbers = union(lists)
		} else {
			numbers = intersect(numbers, union(lists))
		}
	}
	return numbers
}

// scanPlaces finds the chunks of a segment whose directory is damaged. damage is the error of the
// directory, which scanPlaces counts.
func (s *Store) scanPlaces(o *openFile, g *segment, damage error) ([]chunkPlace, error) {
	if !errors.Is(damage, errDamaged) {
		return nil, damage
	}

	s.countDamage(g, g.directory, damage)
	file, err := o.open(g)
	if err != nil {
		return nil, err
	}
	var places []chunkPlace
	_, err = scanFrames(file, g.mark, g.bytes, func(f *frame) error {
		if f.kind == kindChunk {
			places = append(places, chunkPlace{f.offset, g.from, g.to})
		}
		return nil
	})
	return places, err
}

// segmentContains reports whether a segment has a run. The segment must not change any more.
func (s *Store) segmentContains(g *segment, jid, minion string) (bool, error) {
	var o openFile
	defer o.close()
	places, err := s.candidates(&o, g, [][]string{{string(termJID) + jid}})
	if err != nil {
		return false, s.leaveOut(err, g, 0)
	}

	for _, c := range places {
		rows, err := s.chunkRows(&o, g, c.offset)
		if err != nil {
			if err = s.leaveOut(err, g, c.offset); err != nil {
				return false, err
			}
			continue
		}
		for r := readRows(rows); r.next(); {
			if string(r.row.jid) == jid && string(r.row.minion) == minion {
				return true, nil
			}
		}
	}
	return false, nil
}
