package event

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// Config of the sockets. Zero fields take the defaults that are named.
type Config struct {
	Dir          string      // sock_dir; it must exist
	PubMode      fs.FileMode // mode of the pub socket, 0660
	PubPrefix    bool        // write the length prefix that tools of 3006 expect
	ReaderBuffer int         // bytes that may wait for one reader (ipc_write_buffer), 32 MiB
	MaxReaders   int         // connections on the pub socket, 256
	MaxWriters   int         // connections on the pull socket, 512
	MaxFrame     int         // bytes of one frame on the pull socket, twice the event size and 64 KiB
	FrameTimeout time.Duration
	// PullUIDs may fire events besides root and the user of this process.
	PullUIDs []uint32

	peerUID func(*net.UnixConn) (uint32, error) // for tests
}

func (c *Config) setDefaults(maxSize int) {
	c.PubMode = cmp.Or(c.PubMode, 0o660)
	if c.ReaderBuffer <= 0 {
		c.ReaderBuffer = 32 << 20
	}
	if c.MaxReaders <= 0 {
		c.MaxReaders = 256
	}
	if c.MaxWriters <= 0 {
		c.MaxWriters = 512
	}
	if c.MaxFrame <= 0 {
		c.MaxFrame = 2*maxSize + 64<<10
	}
	if c.FrameTimeout <= 0 {
		c.FrameTimeout = 30 * time.Second
	}
	if c.peerUID == nil {
		c.peerUID = peerUID
	}
}

// Server serves a bus on Salt's two Unix sockets. Start it with Serve.
type Server struct {
	bus *Bus
	cfg Config
	log *slog.Logger

	pub, pull *net.UnixListener
	wg        sync.WaitGroup

	mu      sync.Mutex
	readers map[*reader]struct{}
	writers map[*net.UnixConn]struct{}
	// settling are the calls of Settle under way, by the name they connect from.
	settling map[string]chan struct{}
	closed   bool

	cut, refused, bad atomic.Uint64
}

// Serve makes the sockets and the marker files in cfg.Dir and serves them
// until Close. It fails with ErrInUse when another master answers there.
func Serve(bus *Bus, cfg Config, log *slog.Logger) (*Server, error) {
	cfg.setDefaults(bus.maxSize)
	s := &Server{
		bus: bus, cfg: cfg, log: log,
		readers: map[*reader]struct{}{},
		writers: map[*net.UnixConn]struct{}{},

		settling: map[string]chan struct{}{},
	}
	var err error
	if s.pub, err = Listen(cfg.Dir, pubName, cfg.PubMode); err != nil {
		return nil, err
	}
	if s.pull, err = Listen(cfg.Dir, pullName, 0o600); err == nil {
		err = errors.Join(
			marker(filepath.Join(cfg.Dir, publishMarker)),
			marker(filepath.Join(cfg.Dir, workersMarker)))
	}
	if err != nil {
		s.unlisten()
		return nil, err
	}
	bus.attach(s)
	s.wg.Add(2)
	go s.accept(s.pub, pubName, s.addReader)
	go s.accept(s.pull, pullName, s.addWriter)
	return s, nil
}

// unlisten closes the listeners and removes their paths.
func (s *Server) unlisten() {
	for name, l := range map[string]*net.UnixListener{pubName: s.pub, pullName: s.pull} {
		if l != nil {
			os.Remove(filepath.Join(s.cfg.Dir, name))
			l.Close()
		}
	}
}

// Close stops serving, removes the sockets, cuts all connections and waits
// until every goroutine has ended. The marker files stay.
func (s *Server) Close() {
	s.bus.detach(s)
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	if first {
		s.unlisten()
	}
	for r := range s.readers {
		r.conn.Close()
	}
	for c := range s.writers {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// SocketStats are counters since the start, and connections now.
type SocketStats struct {
	Readers, Writers int
	Cut              uint64 // readers cut off since they were too slow
	Refused          uint64 // connections beyond the limits or of other users
	Bad              uint64 // frames on the pull socket that were not events
}

// Stats reads the counters.
func (s *Server) Stats() SocketStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return SocketStats{
		Readers: len(s.readers), Writers: len(s.writers),
		Cut: s.cut.Load(), Refused: s.refused.Load(), Bad: s.bad.Load(),
	}
}

func (s *Server) accept(l *net.UnixListener, name string, add func(*net.UnixConn) error) {
	defer s.wg.Done()
	for {
		c, err := l.AcceptUnix()
		if err == nil {
			err = add(c)
			if err == errSettled {
				c.Close()
			} else if err != nil {
				if n := s.refused.Add(1); n <= 10 || n%100 == 0 { // not one line for each of a flood
					s.log.Warn("event socket: connection refused", "path", name, "refused", n, "error", err)
				}
				c.Close()
			}
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		// No descriptors, most likely: the connection waits in the backlog.
		s.log.Error("event socket: accept", "path", name, "error", err)
		time.Sleep(50 * time.Millisecond)
	}
}

// deliver passes an event to all readers; it runs under the lock of the bus,
// which gives all readers one order.
func (s *Server) deliver(e *Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.readers) == 0 {
		return
	}
	e.wire.pack(e.Tag, e.Data)
	if e.wire.err != nil {
		s.log.Error("event not sent to socket readers", "tag", e.Tag, "error", e.wire.err)
		return
	}
	frame := e.wire.frame
	if !s.cfg.PubPrefix {
		frame = frame[prefixLen:]
	}
	for r := range s.readers {
		if !r.push(frame, s.cfg.ReaderBuffer) {
			s.cut.Add(1)
			s.log.Warn("event socket: slow reader cut off", "waiting", r.waiting(), "uid", r.uid)
			r.conn.Close()
			s.forget(r)
		}
	}
}

func (s *Server) end() {}

func (s *Server) addReader(c *net.UnixConn) error {
	uid, err := s.cfg.peerUID(c)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return net.ErrClosed
	case s.settled(c):
		return errSettled
	case len(s.readers) >= s.cfg.MaxReaders:
		return fmt.Errorf("%d readers already", len(s.readers))
	}
	r := &reader{conn: c, uid: uid, wake: make(chan struct{}, 1), gone: make(chan struct{})}
	s.readers[r] = struct{}{}
	s.bus.readers.Add(1)
	s.wg.Add(2)
	go func() {
		defer s.wg.Done()
		r.write()
		s.drop(r)
	}()
	go func() {
		defer s.wg.Done()
		r.watch()
	}()
	return nil
}

func (s *Server) drop(r *reader) {
	r.conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(r)
}

// forget drops a reader; s.mu is held.
func (s *Server) forget(r *reader) {
	if _, ok := s.readers[r]; ok {
		delete(s.readers, r)
		s.bus.readers.Add(-1)
	}
}
