package event

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"sync"
	"syscall"
	"time"

	"saltern/master/value"
)

// Sender fires events on the bus of a master on this host. It keeps one connection, and connects
// again after the master was restarted. When Fire has returned, its event is on the bus before all
// events that are fired later. A Sender is safe for concurrent use.
//
// Saltern's masters confirm each event on a socket that Salt's masters do not have (see [Server]).
// Salt's masters and older releases have only the pull socket: with them Fire returns as soon as
// the kernel has accepted the event.
type Sender struct {
	dir string
	now func() time.Time
	// turn is the write lock: it holds one element while a call writes. It is a channel, not a
	// mutex, so that a waiting call can stop waiting when its context ends.
	turn chan struct{}

	mu      sync.Mutex
	link    *senderLink // nil while not connected
	closed  bool
	readers sync.WaitGroup
}

// NewSender returns a Sender to the master with the given sock_dir. The Sender connects when it
// fires the first event. Only root and the master's account may connect.
func NewSender(sockDir string) *Sender {
	return &Sender{dir: sockDir, now: time.Now, turn: make(chan struct{}, 1)}
}

var (
	// errSenderClosed means that the Sender was closed.
	errSenderClosed = errors.New("event: the sender is closed")
	// errUnconfirmed means that it is unknown whether an event reached the bus.
	errUnconfirmed = errors.New("the master hung up before it confirmed the event")
)

// Fire puts an event on the bus, with the present time as _stamp. When it returns nil, all
// subscribers receive the event before any event that is fired later. After an error the event is
// not on the bus, unless the connection was closed or ctx ended before the confirmation arrived:
// then the event may be on the bus. Fire never fires an event twice.
func (s *Sender) Fire(ctx context.Context, tag string, data *value.Map) error {
	if err := CheckTag(tag); err != nil {
		return err
	}

	stamped := data.Clone()
	stamped.Set("_stamp", Stamp(s.now()))
	frame, _, err := packFrame(tag, stamped, defaultMaxSize)
	if err != nil {
		return err
	}

	confirmed, err := s.writeFrame(ctx, frame)
	if err == nil {
		err = confirmed.wait(ctx)
	}

	if err != nil {
		return fmt.Errorf("fire event %q: %w", tag, err)
	}

	return nil
}

// Ready connects to the master unless there is a connection. It returns the error that Fire would
// return. confirms reports whether the master confirms events; every present Saltern master does,
// and also removes the key of an authorised event.
func (s *Sender) Ready(ctx context.Context) (confirms bool, err error) {
	if err := s.awaitTurn(ctx); err != nil {
		return false, err
	}
	defer func() { <-s.turn }()
	link, _, err := s.connected(ctx)
	if err != nil {
		return false, err
	}
	return link.confirms, nil
}

// Close closes the connection. Calls of Fire that wait for a confirmation return an error.
func (s *Sender) Close() {
	s.mu.Lock()
	s.closed = true
	link := s.link
	s.link = nil
	s.mu.Unlock()
	if link != nil {
		_ = link.conn.Close()
	}
	s.readers.Wait()
}

// awaitTurn waits until no other call writes, and takes the write lock.
func (s *Sender) awaitTurn(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for other events: %w", ctx.Err())
	}
}

// writeFrame sends a frame when no other call writes. If a connection that was open before the call
// breaks, writeFrame sends the frame once more on a new connection; the master ignores the
// incomplete first frame.
func (s *Sender) writeFrame(ctx context.Context, frame []byte) (confirmation, error) {
	if err := s.awaitTurn(ctx); err != nil {
		return nil, err
	}
	defer func() { <-s.turn }()

	for {
		link, fresh, err := s.connected(ctx)
		if err != nil {
			return nil, err
		}

		confirmed, err := link.writeFrame(ctx, frame)
		if err == nil {
			return confirmed, nil
		}

		s.dropLink(link)
		if fresh || ctx.Err() != nil {
			return nil, err
		}
	}
}

// connected returns the connection to the master. fresh reports whether this call has made the
// connection. The caller holds the write lock (turn).
func (s *Sender) connected(ctx context.Context) (link *senderLink, fresh bool, err error) {
	s.mu.Lock()
	link, closed := s.link, s.closed
	s.mu.Unlock()

	if closed {
		return nil, false, errSenderClosed
	}
	if link != nil {
		return link, false, nil
	}

	conn, confirms, err := dialBus(ctx, s.dir)
	if err != nil {
		return nil, false, err
	}

	link = &senderLink{conn: conn, confirms: confirms}
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.closed {
		_ = conn.Close()
		return nil, false, errSenderClosed
	}

	s.link = link
	s.readers.Go(func() {
		link.readAnswers()
		s.dropLink(link)
	})

	return link, true, nil
}

// dialBus connects to the confirming socket, or to the pull socket of a master that has no
// confirming socket. A starting master creates the confirming socket first: when a pull socket
// answers, the confirming one either exists already or never will.
func dialBus(ctx context.Context, dir string) (conn net.Conn, confirms bool, err error) {
	conn, err = dialSocket(ctx, dir, ackName)
	if err == nil || !absent(err) {
		return conn, true, err
	}

	pull, err := dialSocket(ctx, dir, pullName)
	if err != nil {
		return nil, false, err
	}

	conn, err = dialSocket(ctx, dir, ackName) // the master may have started between the two attempts
	if err != nil && absent(err) {
		return pull, false, nil
	}

	_ = pull.Close()
	return conn, true, err
}

// absent reports whether a dial failed because nobody listens on the socket.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// dropLink closes a connection, so that the next event opens a new one.
func (s *Sender) dropLink(link *senderLink) {
	_ = link.conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == link {
		s.link = nil
	}
}

// senderLink is one connection of a Sender.
type senderLink struct {
	conn     net.Conn
	confirms bool

	mu      sync.Mutex
	waiting []confirmation // unanswered events, in the order in which their frames were sent
	ended   bool
}

// confirmation receives the master's answer to one event. If the confirmation is nil, wait returns
// at once.
type confirmation chan error

func (c confirmation) wait(ctx context.Context) error {
	if c == nil {
		return nil
	}
	select {
	case err := <-c:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait until the master confirms: %w", ctx.Err())
	}
}

// writeFrame writes all bytes of a frame, or returns an error. It must not be called concurrently.
func (l *senderLink) writeFrame(ctx context.Context, frame []byte) (confirmation, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}

	confirmed, err := l.expect()
	if err != nil {
		return nil, err
	}

	until, bounded := ctx.Deadline()
	if !bounded {
		// The context has no deadline. Without the deadline set here, a master that does not read
		// could block the sender.
		until = time.Now().Add(10 * time.Second)
	}

	if err := l.conn.SetWriteDeadline(until); err != nil {
		return nil, err
	}

	_, err = l.conn.Write(frame)
	return confirmed, err // after an error the caller drops the connection
}

// expect returns the channel on which the answer to the next frame will arrive. It returns nil when
// the master does not confirm events.
func (l *senderLink) expect() (confirmation, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil, io.ErrClosedPipe
	}
	if !l.confirms {
		return nil, nil
	}
	confirmed := make(confirmation, 1)
	l.waiting = append(l.waiting, confirmed)
	return confirmed, nil
}

// readAnswers passes the master's answers to the waiting calls until the master closes the
// connection.
func (l *senderLink) readAnswers() {
	in := bufio.NewReader(l.conn)
	for {
		text, err := readAnswer(in)
		if err != nil {
			l.failWaiting()
			return
		}

		l.mu.Lock()
		if len(l.waiting) == 0 {
			l.mu.Unlock()
			l.failWaiting() // the master sent an answer that no call waits for
			return
		}

		next := l.waiting[0]
		l.waiting = l.waiting[1:]
		l.mu.Unlock()

		if text == "" {
			next <- nil
		} else {
			next <- errors.New(text)
		}
	}
}

// failWaiting ends all waiting calls with an error, since no answer will arrive.
func (l *senderLink) failWaiting() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for _, c := range l.waiting {
		c <- errUnconfirmed
	}
	l.waiting = nil
}

// maxAnswer bounds the length of an answer's text, in bytes.
const maxAnswer = 4 << 10

// appendAnswer appends the answer to an event: the length of a text and the text. The text is empty
// if the event is on the bus; otherwise it is the reason why not.
func appendAnswer(b []byte, err error) []byte {
	text := ""
	if err != nil {
		text = err.Error()
	}
	text = text[:min(len(text), maxAnswer)]
	return append(binary.BigEndian.AppendUint32(b, uint32(len(text))), text...)
}

func readAnswer(in *bufio.Reader) (string, error) {
	var head [4]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return "", err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxAnswer {
		return "", fmt.Errorf("%w: an answer of %d bytes", errFrame, n)
	}
	text := make([]byte, n)
	_, err := io.ReadFull(in, text)
	return string(text), err
}
