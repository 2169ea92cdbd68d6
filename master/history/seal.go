package history

import (
	"encoding/binary"
	"fmt"
	"os"
)

// seal appends the index to the newest segment and syncs it. The caller holds s.writing.
func (s *Store) seal() error {
	g := s.newest
	if s.syncFailed {
		if err := s.writeAgain(); err != nil {
			return fmt.Errorf("write again what could not be synced: %w", err)
		}
	}

	sealed, index := s.packIndex(g)
	if err := s.write(index, g.bytes); err != nil {
		return fmt.Errorf("seal a segment: %w", err)
	}

	err := s.injectFault("sync")
	if err == nil {
		err = s.file.Sync()
	}
	if err != nil {
		s.syncFailed = true
		_ = s.file.Truncate(g.bytes)
		return fmt.Errorf("seal a segment: %w", err)
	}

	_ = s.file.Close()
	s.file = nil
	s.syncFailed = false
	s.mu.Lock()
	s.sealed = append(s.sealed[:len(s.sealed):len(s.sealed)], sealed)
	s.newest = nil
	s.former = s.recent
	s.formerOf = sealed.number
	s.recent = map[uint64]struct{}{}
	for r := readRows(s.chunk.rows); r.next(); {
		s.recent[s.hash(string(r.row.jid), string(r.row.minion))] = struct{}{}
	}
	s.mu.Unlock()
	s.removeOld()
	return nil
}

// packIndex returns the sealed form of a segment, and the bytes to append to its file.
func (s *Store) packIndex(g *segment) (sealed *segment, index []byte) {
	write := func(k kind, rows []byte) (offset int64) {
		offset = g.bytes + int64(len(index))
		index = s.packer.appendFrame(index, g.mark, k, rows, nil)
		return offset
	}

	sparse := g.memory.write(func(block []byte) int64 { return write(kindIndex, block) })

	copied := *g
	sealed = &copied
	sealed.memory = nil
	sealed.chunks = nil
	sealed.sparse = write(kindSparse, sparse)
	sealed.directory = write(kindDirectory, appendDirectory(nil, g.chunks))
	footer := write(kindFooter, sealed.footer())
	index = binary.BigEndian.AppendUint64(index, uint64(footer))
	index = append(index, trailerMagic...)
	sealed.bytes = g.bytes + int64(len(index))
	return sealed, index
}

// sealAgain writes a new footer for a segment whose own was damaged. If that fails, the index stays
// in memory.
func (s *Store) sealAgain(g *segment) *segment {
	sealed, index := s.packIndex(g)
	file, err := os.OpenFile(g.path, os.O_RDWR, 0)
	if err == nil {
		defer file.Close()
		err = file.Truncate(g.bytes)
	}
	if err == nil {
		_, err = file.WriteAt(index, g.bytes)
	}
	if err == nil {
		err = file.Sync()
	}
	if err != nil {
		s.log.Warn("history: the index of a segment stays in memory until the next start", "path", g.path, "error", err)
		return g
	}
	return sealed
}
