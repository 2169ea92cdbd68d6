package saltlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Limits and times of a syslog.
const (
	maxWaiting = 8192    // largest number of lines that wait
	maxBytes   = 8 << 20 // most bytes of the lines that wait
	syslogPort = "514"
)

// facilities maps the names of facilities in Python's SysLogHandler, without LOG_.
var facilities = map[string]int{
	"KERN":     0,
	"USER":     1,
	"MAIL":     2,
	"DAEMON":   3,
	"AUTH":     4,
	"SYSLOG":   5,
	"LPR":      6,
	"NEWS":     7,
	"UUCP":     8,
	"CRON":     9,
	"AUTHPRIV": 10,
	"FTP":      11,
	"NTP":      12,
	"SECURITY": 13,
	"CONSOLE":  14,
	"SOLCRON":  15,
	"LOCAL0":   16,
	"LOCAL1":   17,
	"LOCAL2":   18,
	"LOCAL3":   19,
	"LOCAL4":   20,
	"LOCAL5":   21,
	"LOCAL6":   22,
	"LOCAL7":   23,
}

// Address is the address of a syslog and the facility of its lines.
type Address struct {
	Networks []string // networks of package net, in the order in which to try them
	Address  string
	Facility int
	text     string // URL as configured
}

// ParseAddress reads an option log_file that is the URL of a syslog, as Salt does
// (salt/_logging/impl.py setup_logfile_handler):
//
//	file:///dev/log  file:///dev/log/LOG_DAEMON  udp://host:port/LOG_USER  tcp://host
//
// It returns nil if the option is the path of a file.
func ParseAddress(name string) (*Address, error) {
	scheme, _, isURL := strings.Cut(name, "://")
	if !isURL || strings.ContainsAny(scheme, "/ ") {
		return nil, nil
	}

	u, err := url.Parse(name)
	if err != nil {
		return nil, fmt.Errorf("%.200q is no URL of a syslog: %w", name, errors.Unwrap(err))
	}

	facility := strings.ToUpper(strings.TrimSuffix(path.Base(u.Path), path.Ext(u.Path)))
	isFacility := strings.HasPrefix(facility, "LOG_")

	a := &Address{text: name}
	switch strings.ToLower(scheme) {
	case "file":
		a.Networks = []string{"unixgram", "unix"}
		a.Address = path.Clean(u.Path)
		if isFacility {
			a.Address = path.Dir(a.Address)
		} else {
			facility = "LOG_USER"
		}

		if u.Host != "" || a.Address == "." || a.Address == "/" {
			return nil, fmt.Errorf("%.200q names no socket: write file:///dev/log, with three slashes", name)
		}
	case "udp", "tcp":
		if u.Hostname() == "" {
			return nil, fmt.Errorf("%.200q names no host", name)
		}

		if port := u.Port(); port != "" {
			if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
				return nil, fmt.Errorf("%.200q: %s is not a port", name, port)
			}
		}

		a.Networks = []string{strings.ToLower(scheme)}
		a.Address = net.JoinHostPort(u.Hostname(), orDefault(u.Port(), syslogPort))
		if u.Path == "" {
			facility = "LOG_USER"
		}
	default:
		return nil, fmt.Errorf("%.200q: there are file://, udp:// and tcp:// for a syslog, and paths of files", name)
	}

	number, known := facilities[strings.TrimPrefix(facility, "LOG_")]
	if !known || !strings.HasPrefix(facility, "LOG_") {
		return nil, fmt.Errorf("%.200q: there is no facility %.40q; there are LOG_USER, LOG_DAEMON, LOG_LOCAL0 and others",
			name, facility)
	}

	a.Facility = number
	return a, nil
}

func orDefault(text, preset string) string {
	if text == "" {
		return preset
	}
	return text
}

// Syslog sends lines to a syslog in the form of Python's SysLogHandler: the priority, the line, a
// NUL. It never blocks its caller: lines wait in a queue. While the syslog cannot be reached,
// Syslog redials. Overflow policy: the newest line is dropped and counted, and a later line reports
// how many were dropped. If a connection breaks, the lines that were under way in it may be lost.
// Syslog is safe for concurrent use.
type Syslog struct {
	to           Address
	report       func(string) // gets messages about the connection, which cannot go to the syslog
	lines        chan []byte
	bytes        atomic.Int64 // bytes of the waiting lines
	lost         atomic.Int64 // dropped lines
	reportedLost int64        // number of dropped lines that a line has reported; used by sendLines only

	stop   context.CancelFunc
	closed atomic.Bool
	done   sync.WaitGroup
}

// OpenSyslog returns a Syslog that sends lines to an address. It calls report when the address
// cannot be reached any more, and when it can be reached again. The caller must call Close when it
// no longer writes lines.
func OpenSyslog(address *Address, report func(string)) *Syslog {
	ctx, stop := context.WithCancel(context.Background())
	s := &Syslog{
		to:     *address,
		report: report,
		lines:  make(chan []byte, maxWaiting),
		stop:   stop,
	}
	s.done.Go(func() { s.sendLines(ctx) })
	return s
}

// Lost returns the number of dropped lines since the start.
func (s *Syslog) Lost() int64 { return s.lost.Load() }

// Write implements io.Writer: it queues a line at the level error.
func (s *Syslog) Write(b []byte) (int, error) {
	s.queueLine(slog.LevelError, strings.TrimSuffix(string(b), "\n"))
	return len(b), nil
}

// Reopen does nothing, since Syslog redials by itself when a connection breaks.
func (s *Syslog) Reopen() error { return nil }

// Close sends the waiting lines, for at most a second, and closes the connection.
func (s *Syslog) Close() error {
	s.closed.Store(true)
	s.stop()
	s.done.Wait()
	if rest := len(s.lines); rest > 0 {
		s.lost.Add(int64(rest))
	}
	if n := s.Lost() - s.reportedLost; n > 0 {
		s.report(fmt.Sprintf("%s was not reached at the end: %d lines are lost", s.to.text, n))
	}
	return nil
}

// queueLine queues a line, or drops it when the queue is full.
func (s *Syslog) queueLine(level slog.Level, text string) {
	if s.closed.Load() {
		s.lost.Add(1)
		return
	}

	b := s.packet(level, text)
	size := int64(len(b))
	fits := s.bytes.Add(size) <= maxBytes
	if fits {
		select {
		case s.lines <- b:
			return
		default:
		}
	}

	s.bytes.Add(-size)
	s.lost.Add(1)
}

// packet returns a line as a syslog message. It assigns the priority warning to levels that
// Python's SysLogHandler.mapPriority does not know.
func (s *Syslog) packet(level slog.Level, text string) []byte {
	severity := map[string]int{
		"CRITICAL": 2,
		"ERROR":    3,
		"WARNING":  4,
		"INFO":     6,
		"DEBUG":    7,
	}[levelName(level)]
	if severity == 0 {
		severity = 4
	}
	return fmt.Appendf(nil, "<%d>%s\x00", s.to.Facility<<3|severity, text)
}

// sendLines sends lines until ctx ends. After that it sends the waiting lines.
func (s *Syslog) sendLines(ctx context.Context) {
	var conn *connection
	defer func() { conn.close() }()
	for {
		var b []byte
		select {
		case b = <-s.lines:
		case <-ctx.Done():
			s.flushLines(conn, nil)
			return
		}

		sent := false
		if conn, sent = s.deliver(ctx, conn, b); !sent { // ctx has ended before the line was sent
			s.flushLines(conn, b)
			return
		}

		s.bytes.Add(-int64(len(b)))
		s.tellLost(conn)
	}
}

// deliver sends one line, and redials until that succeeds. It returns false if ctx ends first.
func (s *Syslog) deliver(ctx context.Context, conn *connection, b []byte) (*connection, bool) {
	away := false
	for retry := 200 * time.Millisecond; ; retry = min(2*retry, 10*time.Second) {
		var err error
		if conn == nil {
			conn, err = s.connect(ctx)
		}

		if err == nil {
			err = conn.sendPacket(b)
		}

		if errors.Is(err, syscall.EMSGSIZE) { // a retry would fail as well
			s.lost.Add(1)
			err = nil
		}

		if err == nil {
			if away {
				s.report(s.to.text + " is back")
			}
			return conn, true
		}

		conn.close()
		conn = nil
		if !away {
			away = true
			s.report(fmt.Sprintf("%s is away, lines wait for it: %v", s.to.text, err))
		}

		select {
		case <-time.After(retry):
		case <-ctx.Done():
			return nil, false
		}
	}
}

// tellLost sends a line with the number of lines that were dropped since the last such line.
func (s *Syslog) tellLost(conn *connection) {
	lost := s.lost.Load()
	if lost == s.reportedLost {
		return
	}
	text := fmt.Sprintf("%d lines of this log are lost: too many waited for the syslog", lost-s.reportedLost)
	if conn.sendPacket(s.packet(slog.LevelWarn, text)) == nil {
		s.reportedLost = lost
	}
}

// flushLines sends the waiting lines, without redialling, for a bounded time. taken is the line before them, which is
// no longer in the queue; nil: none.
func (s *Syslog) flushLines(conn *connection, taken []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for ctx.Err() == nil {
		line := taken
		taken = nil
		if line == nil && len(s.lines) == 0 {
			return
		}
		if line == nil {
			line = <-s.lines
		}

		if conn == nil {
			var err error
			if conn, err = s.connect(ctx); err != nil {
				s.lost.Add(1)
				return
			}
			defer conn.close()
		}
		if conn.sendPacket(line) != nil {
			s.lost.Add(1)
			return
		}
	}
}

func (s *Syslog) connect(ctx context.Context) (*connection, error) {
	var errs []error
	for _, network := range s.to.Networks {
		d := net.Dialer{Timeout: 5 * time.Second}
		c, err := d.DialContext(ctx, network, s.to.Address)
		if err == nil {
			return connect(c, network), nil
		}
		errs = append(errs, err)
	}
	return nil, errs[len(errs)-1]
}

// connection is a connection to a syslog. Calling close on a nil connection is allowed.
type connection struct {
	net.Conn
	packets bool
	reader  sync.WaitGroup
}

// connect wraps a network connection. For a stream it reads from the connection, so that it notices
// at once when the syslog closes it. Writes alone would not show the close: the first write after
// the close succeeds.
func connect(c net.Conn, network string) *connection {
	conn := &connection{Conn: c, packets: network == "udp" || network == "unixgram"}
	if !conn.packets {
		conn.reader.Go(func() {
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		})
	}
	return conn
}

func (c *connection) sendPacket(b []byte) error {
	if err := c.SetWriteDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return fmt.Errorf("set a deadline: %w", err)
	}
	_, err := c.Write(b)
	if c.packets && errors.Is(err, syscall.ECONNREFUSED) && c.RemoteAddr().Network() == "udp" {
		_, err = c.Write(b) // the error was about the previous packet, so send this one again
	}
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("send a line: %w", err)
	}
	return err
}

func (c *connection) close() {
	if c == nil {
		return
	}
	_ = c.Close()
	c.reader.Wait()
}
