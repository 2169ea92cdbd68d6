package send

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/smtp"
	"net/textproto"
	"os"
	"time"

	"saltern/internal/printable"
	"saltern/master/internal/notify/alert"
	"saltern/master/internal/notify/form"
	"saltern/master/internal/notify/rules"
	"saltern/master/internal/webclient"
)

// maxSpoken bounds what a mail server may say in one session, in bytes.
const maxSpoken = 1 << 20

// mailer sends messages by SMTP (RFC 5321).
type mailer struct{ to *rules.Mail }

// Send passes a message to the mail server. The server has accepted it when it has answered the end
// of the mail.
func (m *mailer) Send(ctx context.Context, message *alert.Message) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	body, err := form.Mail(message, m.to.From, m.to.To, time.Now())
	if err != nil {
		return err
	}

	conn, err := m.dial(ctx)
	if err != nil {
		return fmt.Errorf("connect to the mail server %s: %w", m.to.Server, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()

	err = m.deliver(conn, body)
	var answer *textproto.Error
	if errors.As(err, &answer) {
		answer.Msg = printable.Brief(answer.Msg, 200)
	}
	return err
}

// dial returns a connection, of which only maxSpoken bytes can be read.
func (m *mailer) dial(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	conn, err := d.DialContext(ctx, "tcp", m.to.Server)
	if err != nil {
		return nil, err
	}
	conn = bounded{Conn: conn, rest: &io.LimitedReader{R: conn, N: maxSpoken}}
	if m.to.TLS != rules.Direct {
		return conn, nil
	}

	config, err := m.tlsConfig()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	encrypted := tls.Client(conn, config)
	if err := encrypted.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return encrypted, nil
}

func (m *mailer) tlsConfig() (*tls.Config, error) {
	host, _, err := net.SplitHostPort(m.to.Server)
	if err != nil {
		return nil, fmt.Errorf("read the name of the mail server: %w", err)
	}
	return webclient.TLS(host, m.to.CA)
}

// deliver runs the session on a connection, which it closes.
func (m *mailer) deliver(conn net.Conn, body []byte) error {
	host, _, _ := net.SplitHostPort(m.to.Server)
	client, err := smtp.NewClient(conn, host)
	if err != nil {
		return errors.Join(fmt.Errorf("greet the mail server: %w", err), conn.Close())
	}
	defer client.Close()

	if err := m.prepare(client, host); err != nil {
		return err
	}
	if err := client.Mail(m.to.From); err != nil {
		return fmt.Errorf("name the sender to the mail server: %w", err)
	}

	var refused []error
	for _, to := range m.to.To {
		if err := client.Rcpt(to); err != nil {
			refused = append(refused, fmt.Errorf("name the receiver %s to the mail server: %w", to, err))
		}
	}
	if len(refused) == len(m.to.To) {
		return errors.Join(refused...)
	}

	if err := pass(client, body); err != nil {
		return err
	}
	_ = client.Quit() // the mail is accepted, whatever the server says now

	if len(refused) > 0 {
		return &PartlyError{errors.Join(refused...)}
	}
	return nil
}

// pass sends the mail itself. A permanent refusal after its end is about this mail, so pass then
// returns ErrRefused.
func pass(client *smtp.Client, body []byte) error {
	data, err := client.Data()
	if err != nil {
		return fmt.Errorf("pass a mail to the mail server: %w", err)
	}
	if _, err := data.Write(body); err != nil {
		return fmt.Errorf("pass a mail to the mail server: %w", err)
	}

	err = data.Close()
	var answer *textproto.Error
	switch {
	case errors.As(err, &answer) && answer.Code >= 500:
		return fmt.Errorf("%w: the mail server answers with %w", ErrRefused, err)
	case err != nil:
		return fmt.Errorf("pass a mail to the mail server: %w", err)
	}
	return nil
}

// prepare introduces this host, encrypts, and logs in.
func (m *mailer) prepare(client *smtp.Client, host string) error {
	name, err := os.Hostname()
	if err != nil || printable.Line(name) != name || name == "" {
		name = "localhost"
	}
	if err := client.Hello(name); err != nil {
		return fmt.Errorf("introduce this host to the mail server: %w", err)
	}

	if m.to.TLS == rules.StartTLS {
		config, err := m.tlsConfig()
		if err != nil {
			return err
		}
		if err := client.StartTLS(config); err != nil {
			return fmt.Errorf("encrypt the session with the mail server (tls: starttls): %w", err)
		}
	}

	if m.to.User == "" {
		return nil
	}
	password, err := m.to.Password.Read()
	if err != nil {
		return err
	}
	if err := client.Auth(smtp.PlainAuth("", m.to.User, password, host)); err != nil {
		return fmt.Errorf("log in to the mail server: %w", withoutText(err))
	}
	return nil
}

// withoutText returns an error with the code of an answer only: some servers quote the command that
// they refuse, and that of a log-in contains the password.
func withoutText(err error) error {
	var answer *textproto.Error
	if errors.As(err, &answer) {
		return &textproto.Error{Code: answer.Code, Msg: "refused"}
	}
	return err
}

// bounded is a connection of which a bounded number of bytes can be read.
type bounded struct {
	net.Conn
	rest *io.LimitedReader
}

// Read implements net.Conn.
func (b bounded) Read(p []byte) (int, error) { return b.rest.Read(p) }
