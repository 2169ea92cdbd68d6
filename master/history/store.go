package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"saltern/internal/filelock"
)

var (
	// ErrInUse means that another process has the history open.
	ErrInUse = errors.New("history: folder is in use")
	// ErrClosed means that the history was closed.
	ErrClosed = errors.New("history: closed")
)

// Config configures a Store. A field that is zero has the default that its comment states.
type Config struct {
	Dir      string        // created if it does not exist; on a local disk
	Keep     time.Duration // age at which runs may be removed; default 90 days
	MaxBytes int64         // bound of the total size of all segments; default 4 GiB
	// CacheBytes bounds the memory for what was read; default 32 MiB.
	CacheBytes int
	Now        func() time.Time
	Log        *slog.Logger

	chunkRows    int   // bytes of rows with which a chunk is written; default chunkRows
	segmentRuns  int   // runs at which a segment is sealed; default segmentRuns
	segmentBytes int64 // size at which a segment is sealed; default segmentBytes, or an eighth of MaxBytes
	oneSegment   bool  // the segment is never sealed
	// test hook: an error that it returns is the result of the operation op; nil outside of tests
	fault func(op string) error
}

// A segment is sealed when it has this many runs, this many bytes, or an index of this many bytes
// in memory.
const (
	segmentRuns   = 100_000
	segmentBytes  = 32 << 20
	maxIndexBytes = 32 << 20
)

func (c *Config) setDefaults() {
	c.Keep = cmp.Or(max(c.Keep, 0), 90*24*time.Hour)
	c.MaxBytes = cmp.Or(max(c.MaxBytes, 0), 4<<30)
	c.CacheBytes = cmp.Or(max(c.CacheBytes, 0), 32<<20)
	c.chunkRows = cmp.Or(c.chunkRows, chunkRows)
	c.segmentRuns = cmp.Or(c.segmentRuns, segmentRuns)
	c.segmentBytes = cmp.Or(c.segmentBytes, min(segmentBytes, max(c.MaxBytes/8, 1)))
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

// segmentAge is the age at which a segment is sealed, so that its runs can be removed when they are
// old.
func (c *Config) segmentAge() time.Duration { return max(c.Keep/16, time.Hour) }

// Store is the history in a folder. All methods may be called concurrently.
type Store struct {
	cfg     Config
	log     *slog.Logger
	packer  *packer
	cache   *cache
	lock    *os.File
	seed    maphash.Seed
	stop    context.CancelFunc
	readers *semaphore.Weighted
	done    chan struct{} // closed when the goroutine of retention has ended

	// writing is held by functions that change files. It is locked before mu.
	writing    sync.Mutex
	file       *os.File // of the newest segment; nil: the next chunk begins one
	syncedSize int64    // bytes of file that are durable
	syncFailed bool     // what follows syncedSize must be written again before a sync counts
	nextNumber uint64
	// overlapping are restored segments that are still to be merged. Only Open and then the goroutine of
	// retention use it.
	overlapping []*segment

	mu     sync.RWMutex
	closed bool
	sealed []*segment // oldest first
	newest *segment   // being written; nil: the next chunk begins one
	chunk  *chunk     // runs that are in no segment yet
	// recent has the hashes of the runs in chunk and newest. former has those of the segment before
	// newest, whose number is formerOf.
	recent, former map[uint64]struct{}
	formerOf       uint64 // number of a segment; 0: none
	removedUntil   int64  // time of the latest run of a segment that was removed, in Unix nanoseconds; 0: none was
	counters       Stats
	badChunks      map[cacheKey]bool // chunks whose damage was counted
}

// Open opens the history in a folder, which no other process may have open, and starts a goroutine,
// which Close ends.
func Open(cfg Config) (*Store, error) {
	cfg.setDefaults()
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open the history: %w", err)
	}

	lock, err := os.OpenFile(filepath.Join(cfg.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the history: %w", err)
	}

	s := &Store{
		cfg:        cfg,
		log:        cfg.Log,
		cache:      newCache(cfg.CacheBytes),
		lock:       lock,
		seed:       maphash.MakeSeed(),
		done:       make(chan struct{}),
		chunk:      newChunk(),
		recent:     map[uint64]struct{}{},
		former:     map[uint64]struct{}{},
		badChunks:  map[cacheKey]bool{},
		nextNumber: 1,
		readers:    semaphore.NewWeighted(maxReaders),
	}

	err = filelock.Try(lock)
	if errors.Is(err, filelock.ErrHeld) {
		err = fmt.Errorf("%w by another process: %s", ErrInUse, cfg.Dir)
	}
	if err == nil {
		s.packer, err = newPacker()
	}
	if err == nil {
		err = s.load()
	}
	if err != nil {
		if s.file != nil {
			_ = s.file.Close()
		}
		_ = lock.Close()
		return nil, fmt.Errorf("open the history: %w", err)
	}

	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go s.retain(ctx)
	return s, nil
}

// Close makes durable what was appended, and frees the folder. It refuses to append more. An error
// means that the last runs may be lost; the history can be opened again nevertheless.
func (s *Store) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}

	s.stop()
	<-s.done
	s.writing.Lock()
	defer s.writing.Unlock()
	err := s.sync()
	if s.file != nil {
		err = errors.Join(err, s.file.Close())
	}
	return errors.Join(err, filelock.Release(s.lock), s.lock.Close())
}

// Stats holds present sizes, and counters since Open.
type Stats struct {
	Runs     int   // stored runs
	Segments int   // files
	Bytes    int64 // of all files
	// Oldest is the time of the oldest run. It is zero if there is none.
	Oldest time.Time
	// Newest is the time of the latest run. It is zero if there is none.
	Newest time.Time

	Appended, Duplicates uint64 // runs that were stored, and that were stored already
	Restored             uint64 // runs that were taken from the files of a restore
	Oversized            uint64 // runs that were stored without their return, which was too large
	TornBytes            uint64 // cut off at Open
	Damaged              uint64 // places that could not be read
	// DroppedOld, DroppedLarge and DroppedFull count the runs that were removed because they were
	// older than Config.Keep, because of Config.MaxBytes, and because the disk was full.
	DroppedOld, DroppedLarge, DroppedFull uint64
	MemoryBytes                           int // roughly, of indexes and hashes of runs
}

// Stats returns the counters.
func (s *Store) Stats() Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := s.counters
	from, to := s.chunk.from, s.chunk.to
	out.Runs = s.chunk.runs
	for _, g := range s.segmentsLocked() {
		if g.runs > 0 && out.Runs == 0 {
			from, to = g.from, g.to
		}
		out.Runs += g.runs
		out.Bytes += g.bytes
		out.Segments++
		from, to = min(from, g.from), max(to, g.to)
		out.MemoryBytes += g.memoryBytes()
	}

	if out.Runs > 0 {
		out.Oldest = time.Unix(0, from).UTC()
		out.Newest = time.Unix(0, to).UTC()
	}
	const hashBytes = 20 // of a key in a map
	out.MemoryBytes += hashBytes*(len(s.recent)+len(s.former)) + len(s.chunk.rows) + len(s.chunk.body)
	return out
}

// Oldest returns the time of the oldest run, or the zero time if there is none.
func (s *Store) Oldest() time.Time { return s.Stats().Oldest }

// WholeSince returns the time since which no run was removed, or the zero time if there is no run. It may be later than
// the time of the oldest run: a run that came late from another master is in a segment of newer ones.
func (s *Store) WholeSince() time.Time {
	oldest := s.Oldest()
	s.mu.RLock()
	defer s.mu.RUnlock()
	if oldest.IsZero() || oldest.UnixNano() > s.removedUntil {
		return oldest
	}
	return time.Unix(0, s.removedUntil+1).UTC()
}

// segmentsLocked returns all segments, oldest first.
func (s *Store) segmentsLocked() []*segment {
	list := s.sealed[:len(s.sealed):len(s.sealed)]
	if s.newest != nil {
		list = append(list, s.newest)
	}
	return list
}

// countDamage counts and logs a place that cannot be read, once.
func (s *Store) countDamage(g *segment, offset int64, err error) {
	const mostBad = 10_000
	key := cacheKey{g.number, offset}
	s.mu.Lock()
	known := s.badChunks[key] || len(s.badChunks) >= mostBad
	if !known {
		s.badChunks[key] = true
		s.counters.Damaged++
	}
	s.mu.Unlock()
	if !known {
		s.log.Error("history: runs cannot be read and are left out", "path", g.path, "offset", offset, "error", err)
	}
}

func (s *Store) injectFault(op string) error {
	if s.cfg.fault == nil {
		return nil
	}
	return s.cfg.fault(op)
}
