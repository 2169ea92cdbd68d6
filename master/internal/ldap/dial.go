package ldap

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"golang.org/x/crypto/cryptobyte"
)

// maxServers bounds the number of servers in auth.ldap.uri.
const maxServers = 16

// server is one server of the directory.
type server struct {
	name             string // as configured
	network, address string
	host             string // name for which the server's certificate must be valid
	tls              bool   // TLS starts with the connection (ldaps), not by StartTLS
}

// servers returns the servers in auth.ldap.uri. As in libldap, blanks and commas separate them.
func servers(uris string) ([]server, error) {
	var out []server
	for _, u := range strings.FieldsFunc(uris,
		func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' }) {
		s, err := serverOf(u)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	if len(out) == 0 || len(out) > maxServers {
		return nil, fmt.Errorf("auth.ldap.uri names %d servers; 1 to %d are possible", len(out), maxServers)
	}
	return out, nil
}

func serverOf(uri string) (server, error) {
	wrong := fmt.Errorf("auth.ldap.uri: %.200q is not of the form ldap://HOST:PORT, ldaps://HOST:PORT or ldapi://%%2Fpath",
		uri)
	scheme, rest, _ := strings.Cut(uri, "://")
	scheme = strings.ToLower(scheme)
	if scheme == "ldapi" {
		path, err := url.PathUnescape(strings.TrimSuffix(rest, "/"))
		if err != nil || !strings.HasPrefix(path, "/") {
			return server{}, wrong
		}
		return server{name: uri, network: "unix", address: path}, nil
	}

	port := map[string]string{"ldap": "389", "ldaps": "636"}[scheme]
	u, err := url.Parse(uri)
	if err != nil || port == "" || u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" ||
		u.RawQuery != "" {
		return server{}, wrong
	}

	if p := u.Port(); p != "" {
		port = p
	}

	return server{
		name:    uri,
		network: "tcp",
		address: net.JoinHostPort(u.Hostname(), port),
		host:    u.Hostname(),
		tls:     scheme == "ldaps",
	}, nil
}

// dialAny opens a session with the first server that answers. It first tries the server that
// answered last.
func (d *Directory) dialAny(ctx context.Context) (*session, error) {
	first := int(d.preferred.Load())
	var errs []error
	for i := range d.servers {
		n := (first + i) % len(d.servers)
		s, err := d.connect(ctx, d.servers[n])
		if err == nil {
			d.preferred.Store(int32(n))
			return s, nil
		}

		errs = append(errs, fmt.Errorf("connect to the directory %s: %w", d.servers[n].name, err))
		if ctx.Err() != nil {
			break
		}
	}

	return nil, errors.Join(errs...)
}

func (d *Directory) connect(ctx context.Context, srv server) (*session, error) {
	short, cancel := context.WithTimeout(ctx, d.connectTime)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(short, srv.network, srv.address)
	if err != nil {
		return nil, err
	}

	secure := srv.tls
	if d.opts.StartTLS && !secure {
		if err := startTLS(short, c, srv.name); err != nil {
			_ = c.Close()
			return nil, err
		}
		secure = true
	}

	if secure {
		conf, err := d.tlsConfig(srv.host)
		if err != nil {
			_ = c.Close()
			return nil, err
		}

		t := tls.Client(c, conf)
		if err := t.HandshakeContext(short); err != nil {
			_ = c.Close()
			return nil, fmt.Errorf("agree on TLS: %w", err)
		}

		c = t
	}

	return newSession(ctx, c, srv.name), nil
}

// startTLS starts TLS on a connection (RFC 4511, 4.14). It reads nothing beyond the server's
// answer: otherwise bytes that an attacker inserted before TLS would be treated as received through
// TLS.
func startTLS(ctx context.Context, c net.Conn, name string) error {
	s := newSession(ctx, c, name)
	defer func() {
		s.stop()
		_ = c.SetDeadline(time.Time{})
	}()

	s.r = bufio.NewReaderSize(oneByte{c}, 16)
	err := s.sendRequest(func(b *cryptobyte.Builder) {
		b.AddASN1(extendedRequest, func(b *cryptobyte.Builder) {
			b.AddASN1(contextZero, func(b *cryptobyte.Builder) { b.AddBytes([]byte("1.3.6.1.4.1.1466.20037")) })
		})
	}, nil)
	if err != nil {
		return err
	}

	m, err := s.receive()
	if err != nil {
		return err
	}
	if m.op != extendedAnswer {
		return s.noAnswer(errWire)
	}

	if err := result(m.body); err != nil {
		return fmt.Errorf("ask %s for TLS: %w", name, err)
	}

	return nil
}

// oneByte is a connection that returns one byte per read, so that no reader buffers bytes beyond
// the answer.
type oneByte struct{ net.Conn }

func (o oneByte) Read(b []byte) (int, error) { return o.Conn.Read(b[:min(1, len(b))]) }

// tlsConfig returns a TLS configuration that requires a certificate for the name host, signed by a
// certificate authority of the system or of saltern_ldap_ca.
func (d *Directory) tlsConfig(host string) (*tls.Config, error) {
	c := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12, InsecureSkipVerify: d.opts.NoVerify}
	if d.opts.CA == "" || d.opts.NoVerify {
		return c, nil
	}
	pool, err := readCA(d.opts.CA)
	c.RootCAs = pool
	return c, err
}
