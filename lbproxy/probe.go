package lbproxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"saltern/internal/printable"
	"saltern/internal/proxyproto"
	"saltern/master/msgpack"
	"saltern/master/value"
)

// maxProbeFrame bounds a frame that a check reads. READY and the answer to a ping are far smaller.
const maxProbeFrame = 16 << 10

// maxProbeFrames bounds how many frames, such as heartbeats, a check reads before the expected
// frame.
const maxProbeFrames = 16

const (
	// pingFault is the field of a ping's answer in which a Saltern master reports why it is unwell.
	// It equals control.PingFault, which this package does not import.
	pingFault = "saltern_fault"
	// maxTrouble bounds the reason in pingFault, in bytes.
	maxTrouble = 200
)

var (
	errSilent  = errors.New("no answer in time")
	errJoining = errors.New("master is not ready yet")
	errUnwell  = errors.New("master is unwell")

	errAPIUnready = errors.New("salt-api is not ready")
	errFull       = errors.New("master takes no more connections")
	errShut       = errors.New("closed before a greeting")
	errProtocol   = errors.New("unexpected answer")
)

// grade is the outcome of a check.
type grade uint8

const (
	gradeUp      grade = iota
	gradeJoining       // answers, but is not ready or is full
	gradeSilent        // answers too late, or with something unexpected: the master may still serve its sessions
	gradeGone          // refuses connects, or has no route: the master is not running or not reachable
	gradeUnwell        // answers that it is unwell
)

// markShut marks the error of a connection that was closed right after it was made.
func markShut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("%w: %w", errShut, err)
	}
	return err
}

// connectError is a failed dial, as opposed to a connection that broke.
type connectError struct{ err error }

func (e connectError) Error() string { return "connect: " + e.err.Error() }
func (e connectError) Unwrap() error { return e.err }

// gradeOf returns the grade of a check's error. Only a failed dial proves that the master is gone:
// a master that starts, stops or is overloaded may accept a connection and close it.
func gradeOf(err error) grade {
	var ce connectError
	switch {
	case err == nil:
		return gradeUp
	case errors.Is(err, errJoining), errors.Is(err, errAPIUnready), errors.Is(err, errFull):
		return gradeJoining
	case errors.Is(err, errUnwell):
		return gradeUnwell
	case errors.As(err, &ce) && (errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH) ||
		errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTDOWN) || errors.Is(err, syscall.ECONNRESET)):
		return gradeGone
	}
	return gradeSilent
}

// prober checks one port. It belongs to one checker.
type prober struct {
	check  Check
	send   string
	expect string
	header bool // connections begin with a PROXY header, as those of sessions do
	dial   func(ctx context.Context, addr string) (net.Conn, error)
	reuse  reuse
}

// probe checks one port within ctx.
func (pr *prober) probe(ctx context.Context, addr string, mode Mode) error {
	err := pr.reuse.probeKept(ctx, mode, pr.check == CheckPing)
	if pr.reuse.used = !errors.Is(err, errNoConnection); !pr.reuse.used {
		err = pr.probeFresh(ctx, addr, mode)
	}
	if err != nil {
		pr.reuse.goodInRow = 0
	}
	return err
}

// probeFresh checks with a new connection.
func (pr *prober) probeFresh(ctx context.Context, addr string, mode Mode) error {
	c, err := pr.dial(ctx, addr)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("%w: %w", errSilent, err)
		}
		return connectError{markShut(err)}
	}

	kept := false
	defer func() {
		if !kept {
			_ = c.Close()
		}
	}()

	free, err := limitTo(ctx, c)
	if err != nil {
		return err
	}
	defer free()

	if pr.header {
		// LOCAL: a check has no client (proxy-protocol.txt, 2.2).
		if _, err := io.WriteString(c, proxyproto.Local); err != nil {
			return fmt.Errorf("send PROXY header: %w", markShut(err))
		}
	}

	switch pr.check {
	case CheckTCP:
		return nil
	case CheckExchange:
		err = exchange(c, pr.send, pr.expect)
	default:
		r := bufio.NewReaderSize(c, 4096)
		if err = zmtpProbe(c, r, mode, pr.check == CheckPing && mode == Request); err == nil && free() {
			kept = pr.reuse.keepConnection(c, r)
		}
	}

	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("%w: %w", errSilent, err)
	}

	return err
}

func exchange(c io.ReadWriter, send, expect string) error {
	if _, err := io.WriteString(c, send); err != nil {
		return fmt.Errorf("send: %w", err)
	}

	b := make([]byte, len(expect))
	if n, err := io.ReadFull(c, b); err != nil {
		if n > 0 && errors.Is(err, io.ErrUnexpectedEOF) {
			err = io.EOF
		}
		return fmt.Errorf("receive: %w", err)
	}

	if string(b) != expect {
		return fmt.Errorf("%w: %.32q", errProtocol, b)
	}

	return nil
}

// zmtpProbe does the ZMTP handshake as SUB or REQ and, with ping, a Salt ping. It sends greeting
// and READY together, but the ping only after the peer's READY: libzmq drops a peer that sends all
// three in one segment.
func zmtpProbe(c io.Writer, r *bufio.Reader, mode Mode, ping bool) error {
	kind := "SUB"
	if mode == Request {
		kind = "REQ"
	}

	hello := make([]byte, greetingLen, 160)
	hello[0] = 0xff
	hello[8] = 1
	hello[9] = 0x7f
	hello[10] = 3
	hello[11] = 1
	copy(hello[12:], "NULL")
	hello = appendFrame(hello, flagCommand, appendReady(nil, kind))
	if _, err := c.Write(hello); err != nil {
		return fmt.Errorf("send greeting: %w", markShut(err))
	}

	if err := readGreeting(r); err != nil {
		return err
	}

	flags, body, err := readFrame(r)
	if err != nil {
		return fmt.Errorf("read READY: %w", err)
	}
	if flags&flagCommand == 0 || len(body) < 6 || string(body[:6]) != "\x05READY" {
		return fmt.Errorf("%w: no READY but %.16q", errProtocol, body)
	}

	if got := socketType(body[6:]); !socketFits(got, mode) {
		return fmt.Errorf("%w: a %.16q socket", errProtocol, got)
	}
	if !ping {
		return nil
	}

	return askPing(c, r)
}

// socketType returns the Socket-Type among READY's properties. A property has a name with a length
// of one byte, and a value with a length of four.
func socketType(b []byte) string {
	for len(b) > 0 {
		n := int(b[0])
		if len(b) < 1+n+4 {
			return ""
		}

		name, v := b[1:1+n], uint64(binary.BigEndian.Uint32(b[1+n:]))
		b = b[1+n+4:]
		if v > uint64(len(b)) {
			return ""
		}
		if bytes.EqualFold(name, []byte("Socket-Type")) {
			return string(b[:v])
		}

		b = b[v:]
	}

	return ""
}

// socketFits reports whether masters have a socket of that type on a port of that mode.
func socketFits(kind string, mode Mode) bool {
	if mode == Publish {
		return kind == "PUB" || kind == "XPUB"
	}
	return kind == "ROUTER" || kind == "REP"
}

func readGreeting(r *bufio.Reader) error {
	var g [greetingLen]byte
	if n, err := io.ReadFull(r, g[:]); err != nil {
		switch {
		case n > 0 && errors.Is(err, io.ErrUnexpectedEOF):
			err = io.EOF
		case n == 0:
			err = markShut(err)
		}
		return fmt.Errorf("read greeting: %w", err)
	}

	if g[0] != 0xff || g[9] != 0x7f || g[10] < 3 || string(g[12:17]) != "NULL\x00" {
		return fmt.Errorf("%w: greeting %x", errProtocol, g[:17])
	}

	return nil
}

// readReply reads one whole message, answers PINGs, and returns the message's last frame.
func readReply(w io.Writer, r *bufio.Reader) ([]byte, error) {
	for range maxProbeFrames {
		flags, body, err := readFrame(r)
		if err != nil {
			return nil, err
		}

		switch {
		case flags&flagCommand != 0:
			if err := answerPing(w, body); err != nil {
				return nil, err
			}
		case flags&flagMore == 0:
			return body, nil
		}
	}

	return nil, fmt.Errorf("%w: more than %d frames", errProtocol, maxProbeFrames)
}

// readFrame reads one ZMTP frame of at most maxProbeFrame bytes.
func readFrame(r *bufio.Reader) (flags byte, body []byte, err error) {
	if flags, err = r.ReadByte(); err != nil {
		return 0, nil, err
	}
	if flags&^(flagMore|flagLong|flagCommand) != 0 {
		return 0, nil, fmt.Errorf("%w: frame flags %#x", errProtocol, flags)
	}

	var n uint64
	if flags&flagLong != 0 {
		var b [8]byte
		if _, err = io.ReadFull(r, b[:]); err != nil {
			return 0, nil, err
		}
		n = binary.BigEndian.Uint64(b[:])
	} else {
		b, err := r.ReadByte()
		if err != nil {
			return 0, nil, err
		}
		n = uint64(b)
	}

	if n > maxProbeFrame {
		return 0, nil, fmt.Errorf("%w: frame of %d bytes", errProtocol, n)
	}

	body = make([]byte, n)
	_, err = io.ReadFull(r, body)
	return flags, body, err
}

func appendFrame(b []byte, flags byte, body []byte) []byte {
	if len(body) > 255 {
		b = append(b, flags|flagLong)
		b = binary.BigEndian.AppendUint64(b, uint64(len(body)))
	} else {
		b = append(b, flags, byte(len(body)))
	}
	return append(b, body...)
}

func appendReady(b []byte, kind string) []byte {
	b = append(b, "\x05READY\x0bSocket-Type"...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(kind)))
	b = append(b, kind...)
	b = append(b, "\x08Identity"...)
	return binary.BigEndian.AppendUint32(b, 0)
}

// pingRequest returns {"enc":"clear","load":{"cmd":"ping"},"version":3}. Without the version a
// master logs a rejected sign-in for each check.
func pingRequest() []byte {
	return []byte("\x83\xa3enc\xa5clear\xa4load\x81\xa3cmd\xa4ping\xa7version\x03")
}

// pingAnswer returns the error that the answer to a ping means, or nil. A ready master sends the
// load back, bare or in the envelope of a clear reply. A member of a cluster that is not ready
// answers cluster_retry. A Saltern master that is unwell answers with the reason.
func pingAnswer(b []byte) error {
	v, err := msgpack.Decode(b, msgpack.Limits{Depth: 8, Nodes: 256})
	if err != nil {
		return fmt.Errorf("%w: %w", errProtocol, err)
	}

	m, ok := v.(*value.Map)
	if !ok {
		return fmt.Errorf("%w: %.64q", errProtocol, fmt.Sprint(v))
	}

	if load := m.Map("load"); load != nil {
		m = load
	}

	if trouble := m.Str(pingFault); trouble != "" {
		return fmt.Errorf("%w: %s", errUnwell, printable.Brief(trouble, maxTrouble))
	}
	if m.Bool("cluster_retry") {
		return errJoining
	}
	if m.Str("cmd") != "ping" {
		return fmt.Errorf("%w: a map without the ping", errProtocol)
	}

	return nil
}
