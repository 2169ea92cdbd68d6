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

	"saltern/internal/localsock"
	"saltern/master/value"
)

// Config configures the sockets. A field that is zero has the default that its comment states.
type Config struct {
	Dir          string      // option sock_dir; the directory must exist
	PubMode      fs.FileMode // mode of the pub socket, default 0660
	PubPrefix    bool        // write the length prefix that tools of 3006 expect
	ReaderBuffer int         // bytes that may wait for one reader: ipc_write_buffer, default 32 MiB
	MaxReaders   int         // largest number of connections on the pub socket, default 256
	MaxWriters   int         // largest number of connections on the pull and confirming sockets together, default 512
	MaxFrame     int         // largest size in bytes of a writer's frame; default 64 KiB more than twice the event size
	FrameTimeout time.Duration
	// Later means that the server reads no events of other processes until the caller calls Take;
	// until then these events wait in the kernel. Call Take when all parts that act on events have
	// subscribed.
	Later bool
	// Clean returns the data of another process's event without the values that readers must not
	// see. It returns the same map if it removes nothing. Clean may be nil: nothing is removed.
	Clean func(tag string, data *value.Map) *value.Map
	// PullUIDs lists users that may fire events, besides root and the user of this process.
	PullUIDs []uint32

	peerUID func(*net.UnixConn) (uint32, error) // replaces peerUID in tests
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

// Server serves a bus on Salt's two Unix sockets and on a third socket of Saltern's. The third
// socket accepts events in the frames of the pull socket and answers each event when it is on the
// bus; a [Sender] waits for that answer. Serve starts a Server.
type Server struct {
	bus *Bus
	cfg Config
	log *slog.Logger

	pub, pull, ack *localsock.Listener
	// reading counts the goroutines that read events from writers. serving counts those that send
	// events to readers.
	reading, serving sync.WaitGroup
	accepting        sync.WaitGroup
	markers          sync.WaitGroup // waits for the goroutine keepMarkers
	ended            chan struct{}  // closed by Close

	mu      sync.Mutex
	readers map[*reader]struct{}
	writers map[*net.UnixConn]struct{}
	// settling has an entry for each running call of the method passed. The key is the local
	// address of the connection that the call opened.
	settling map[string]chan struct{}
	stopped  bool // the server accepts no more events
	closed   bool

	cut, refused, bad atomic.Uint64
}

// Serve creates the sockets and the marker files in cfg.Dir and serves them until Close. It fails
// with errInUse when another master listens there.
func Serve(bus *Bus, cfg Config, log *slog.Logger) (*Server, error) {
	cfg.setDefaults(bus.maxSize)
	s := &Server{
		bus:     bus,
		cfg:     cfg,
		log:     log,
		readers: map[*reader]struct{}{},
		writers: map[*net.UnixConn]struct{}{},

		settling: map[string]chan struct{}{},
		ended:    make(chan struct{}),
	}

	var err error
	if s.pub, err = Listen(cfg.Dir, pubName, cfg.PubMode); err != nil {
		return nil, err
	}

	// Create this socket before the pull socket: a Sender uses the pull socket only if this one
	// does not exist.
	if s.ack, err = Listen(cfg.Dir, ackName, 0o600); err == nil {
		s.pull, err = Listen(cfg.Dir, pullName, 0o600)
	}

	if err == nil {
		err = s.createMarkers()
	}

	if err != nil {
		s.unlisten()
		return nil, err
	}

	bus.attach(s)
	s.markers.Go(s.keepMarkers)
	s.accepting.Go(func() { s.accept(s.pub, pubName, s.addReader) })
	if !cfg.Later {
		s.Take()
	}

	return s, nil
}

// Take starts to accept the events of other processes. It may be called once, and only with
// Config.Later.
func (s *Server) Take() {
	s.accepting.Go(func() { s.accept(s.pull, pullName, s.addWriter) })
	s.accepting.Go(func() { s.accept(s.ack, ackName, s.addConfirmed) })
}

// createMarkers creates the marker files that do not exist.
func (s *Server) createMarkers() error {
	return errors.Join(
		marker(filepath.Join(s.cfg.Dir, publishMarker)),
		marker(filepath.Join(s.cfg.Dir, workersMarker)))
}

// markersEvery is the interval at which keepMarkers checks for missing marker files. The paths of
// the sockets are checked as often.
const markersEvery = time.Second

// keepMarkers creates marker files again that somebody has removed, until Close.
func (s *Server) keepMarkers() {
	tick := time.NewTicker(markersEvery)
	defer tick.Stop()

	for {
		select {
		case <-s.ended:
			return
		case <-tick.C:
			_ = s.createMarkers() // the next round tries again
		}
	}
}

// unlisten closes all listeners and removes their paths.
func (s *Server) unlisten() {
	s.unlistenPull()
	unlisten(s.pub)
}

// unlistenPull closes the sockets that accept events. It closes the confirming one last: otherwise
// a Sender would use the pull socket instead.
func (s *Server) unlistenPull() {
	unlisten(s.pull)
	unlisten(s.ack)
}

func unlisten(l *localsock.Listener) {
	if l != nil {
		_ = l.Remove()
	}
}

// StopTaking stops accepting events of other processes. When it returns, every confirmed event is
// on the bus. Stop the parts that act on events only after StopTaking has returned.
func (s *Server) StopTaking() {
	s.mu.Lock()
	if !s.stopped {
		s.stopped = true
		s.unlistenPull()
	}
	for c := range s.writers {
		c.Close()
	}
	s.mu.Unlock()
	s.reading.Wait()
}

// Close stops serving. It accepts no more events, and readers have at most a second to read the
// events that were fired before. It removes the sockets and the markers that tools look for, closes
// all connections and waits until every goroutine has ended.
func (s *Server) Close() {
	s.StopTaking()
	s.mu.Lock()
	first := !s.closed
	s.closed = true

	if first {
		close(s.ended)
		s.markers.Wait()
		unlisten(s.pub)
		for _, name := range []string{publishMarker, workersMarker} {
			_ = os.Remove(filepath.Join(s.cfg.Dir, name))
		}
	}
	s.mu.Unlock()

	s.accepting.Wait()

	s.bus.detach(s)
	s.mu.Lock()
	if first {
		for r := range s.readers {
			// Readers have a second to read the events that were fired before the end.
			_ = r.conn.SetWriteDeadline(time.Now().Add(time.Second))
			close(r.finished)
		}
	}
	s.mu.Unlock()

	s.serving.Wait()
}

// SocketStats holds counters since the start and the present number of connections.
type SocketStats struct {
	Readers, Writers int
	Cut              uint64 // readers whose connection was closed because they were too slow
	Refused          uint64 // connections that were refused: beyond the limits, or of other users
	Bad              uint64 // frames on the pull socket that were not events
}

// Stats returns the counters.
func (s *Server) Stats() SocketStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return SocketStats{
		Readers: len(s.readers),
		Writers: len(s.writers),
		Cut:     s.cut.Load(),
		Refused: s.refused.Load(),
		Bad:     s.bad.Load(),
	}
}

func (s *Server) accept(l *localsock.Listener, name string, add func(*net.UnixConn) error) {
	for {
		c, err := l.AcceptUnix()
		if err == nil {
			err = add(c)
			if err == errSettled {
				c.Close()
			} else if err != nil {
				if n := s.refused.Add(1); n <= 10 || n%100 == 0 { // log only some of many refusals
					s.log.Warn("event socket: connection refused", "path", name, "refused", n, "error", err)
				}
				c.Close()
			}

			continue
		}

		if errors.Is(err, net.ErrClosed) {
			return
		}

		// The process has probably run out of file descriptors. The new connection waits in the
		// kernel's backlog.
		s.log.Error("event socket: accept", "path", name, "error", err)
		time.Sleep(50 * time.Millisecond)
	}
}

// deliver passes an event to all readers. The bus holds its lock during the call, so all readers
// get the events in the same order.
func (s *Server) deliver(e *Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.readers) == 0 {
		return
	}

	e.wire.packOnce(e.Tag, e.Data)
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

	r := &reader{
		conn:     c,
		uid:      uid,
		wake:     make(chan struct{}, 1),
		gone:     make(chan struct{}),
		finished: make(chan struct{}),
	}

	s.readers[r] = struct{}{}
	s.bus.readers.Add(1)
	s.serving.Go(func() {
		r.writeFrames()
		s.dropReader(r)
	})

	s.serving.Go(r.watchHangup)
	return nil
}

func (s *Server) dropReader(r *reader) {
	r.conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(r)
}

// forget removes a reader from the server's readers. The caller holds s.mu.
func (s *Server) forget(r *reader) {
	if _, ok := s.readers[r]; ok {
		delete(s.readers, r)
		s.bus.readers.Add(-1)
	}
}
