package send

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"saltern/internal/printable"
	"saltern/master/internal/notify/alert"
	"saltern/master/internal/notify/form"
	"saltern/master/saltlog"
)

// syslog sends messages as lines to a syslog. No syslog acknowledges lines: Send returns nil when the
// kernel has taken the line for a syslog that is reachable.
type syslog struct{ to *saltlog.Address }

// Send sends a message as one line, over a new connection.
func (s *syslog) Send(ctx context.Context, m *alert.Message) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()

	var failures []error
	for _, network := range s.to.Networks {
		err := s.sendOver(ctx, network, m)
		if err == nil {
			return nil
		}
		failures = append(failures, err)
	}
	return fmt.Errorf("send to the syslog: %w", errors.Join(failures...))
}

func (s *syslog) sendOver(ctx context.Context, network string, m *alert.Message) error {
	d := net.Dialer{Timeout: 5 * time.Second}
	conn, err := d.DialContext(ctx, network, s.to.Address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}

	line := s.packet(network, m)
	if _, err := conn.Write(line); err != nil {
		return err
	}
	if network != "udp" {
		return nil
	}

	// If nobody listens at the port, the host says so by ICMP, and the next read fails.
	if err := conn.SetReadDeadline(time.Now().Add(answerTime)); err != nil {
		return err
	}
	if _, err := conn.Read(make([]byte, 1)); errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return nil
}

// answerTime is how long a host may take to say that nobody listens at a UDP port.
const answerTime = 200 * time.Millisecond

// packet returns a message as the syslog takes it.
func (s *syslog) packet(network string, m *alert.Message) []byte {
	if strings.HasPrefix(network, "unix") {
		line := form.Local(m, s.to.Facility)
		if network == "unix" {
			line = append(line, '\n')
		}
		return line
	}

	host, err := os.Hostname()
	if err != nil || host == "" || printable.Line(host) != host || strings.Contains(host, " ") {
		host = "-"
	}
	line := form.Remote(m, s.to.Facility, host, time.Now())
	if network == "tcp" { // octet counting, RFC 6587
		line = append(fmt.Appendf(nil, "%d ", len(line)), line...)
	}
	return line
}
