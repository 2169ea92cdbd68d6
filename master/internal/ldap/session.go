package ldap

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	ldapv3 "github.com/go-ldap/ldap/v3"
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
)

// session is a connection to a directory server. Only one goroutine may use it.
type session struct {
	net.Conn
	name      string // name of the server, for messages
	r         *bufio.Reader
	id        int
	bytesLeft int // number of bytes that the session still accepts from the directory
	stop      func() bool
}

// newSession starts a session on a connection. The session fails when ctx ends.
func newSession(ctx context.Context, c net.Conn, name string) *session {
	if d, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(d)
	}
	s := &session{Conn: c, name: name, r: bufio.NewReader(c), bytesLeft: maxSession}
	s.stop = context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	return s
}

// sayGoodbye sends an unbind request and closes the connection.
func (s *session) sayGoodbye() {
	s.stop()
	_ = s.SetWriteDeadline(time.Now().Add(time.Second))
	_ = s.sendRequest(func(b *cryptobyte.Builder) { b.AddASN1(unbindRequest, func(*cryptobyte.Builder) {}) }, nil)
	_ = s.Conn.Close()
}

// sendRequest sends a request with its controls.
func (s *session) sendRequest(op, controls func(*cryptobyte.Builder)) error {
	s.id++
	b, err := buildRequest(s.id, op, controls)
	if err != nil {
		return fmt.Errorf("make a request to the directory: %w", err)
	}
	if _, err := s.Write(b); err != nil {
		return s.noAnswer(err)
	}
	return nil
}

// noAnswer returns err wrapped in a message that names the server.
func (s *session) noAnswer(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = errors.New("it does not answer in time")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("it closed the connection")
	}
	return fmt.Errorf("ask the directory %s: %w", s.name, err)
}

// receive returns the next message that answers the last request.
func (s *session) receive() (message, error) {
	for {
		m, n, err := readMessage(s.r, min(maxMessage, s.bytesLeft))
		if err != nil {
			return m, s.noAnswer(err)
		}

		s.bytesLeft -= n
		switch {
		case m.op == intermediate && m.id == s.id:
		case m.id == 0 && m.op == extendedAnswer: // a notice of disconnection
			return m, s.noAnswer(fmt.Errorf("it ends the connection: %w", result(m.body)))
		case m.id < s.id: // an answer to a search that was abandoned
		case m.id > s.id:
			return m, s.noAnswer(errWire)
		default:
			return m, nil
		}
	}
}

// bindAs binds with a name and a password. If the directory refuses the bind, the error is a
// *resultError. bindAs never sends an empty password: many servers answer it with success, but
// without authenticating the user (RFC 4513, 5.1.2).
func (s *session) bindAs(dn, password string) error {
	if password == "" {
		return &resultError{invalidCredentials, "the password is empty"}
	}
	if err := s.sendBind(dn, password); err != nil {
		return err
	}
	return s.awaitBound()
}

func (s *session) sendBind(dn, password string) error {
	return s.sendRequest(func(b *cryptobyte.Builder) {
		b.AddASN1(bindRequest, func(b *cryptobyte.Builder) {
			b.AddASN1Int64(3)
			addText(b, dn)
			b.AddASN1(contextZero, func(b *cryptobyte.Builder) { b.AddBytes([]byte(password)) })
		})
	}, nil)
}

// awaitBound waits for the answer to a bind.
func (s *session) awaitBound() error {
	m, err := s.receive()
	if err != nil {
		return err
	}
	if m.op != bindResponse {
		return s.noAnswer(errWire)
	}
	return result(m.body)
}

// query is a search.
type query struct {
	base   string
	scope  int // 0: the entry itself, 1: its direct children, 2: all entries below
	filter string
	attrs  []string
	most   int // largest number of entries to read
	page   int // entries per page; 0: no pages
}

// errMore means that a search found more entries than query.most.
var errMore = errors.New("the directory finds more entries than are accepted")

// search returns the entries of a query. If the error is errMore, or if the server's own limit was
// reached, the entries found so far are valid. search does not follow references to other servers.
func (s *session) search(q query) ([]entry, error) {
	filter, err := compileFilter(q.filter)
	if err != nil {
		return nil, err
	}

	var found []entry
	var cookie []byte
	for {
		if err := s.sendRequest(func(b *cryptobyte.Builder) { q.appendTo(b, filter) }, q.pageControl(cookie)); err != nil {
			return nil, err
		}

		var last message
		for last.op == 0 {
			m, err := s.receive()
			if err != nil {
				return nil, err
			}

			switch m.op {
			case searchEntry:
				e, err := parseEntry(m.body)
				if err != nil {
					return nil, s.noAnswer(err)
				}
				if len(found) >= q.most {
					return found, errMore
				}

				found = append(found, e)
			case searchReference:
			case searchDone:
				last = m
			default:
				return nil, s.noAnswer(errWire)
			}
		}

		if err := result(last.body); err != nil {
			if r, ok := errors.AsType[*resultError](err); ok && r.code == sizeLimitExceeded {
				return found, errMore
			}
			return found, err
		}

		if q.page == 0 {
			return found, nil
		}

		if cookie, err = nextPage(last.controls); err != nil {
			return nil, s.noAnswer(err)
		}
		if len(cookie) == 0 {
			return found, nil
		}
	}
}

// appendTo appends the search request to b. filter is the encoded filter.
func (q query) appendTo(b *cryptobyte.Builder, filter []byte) {
	limit := int64(q.most) + 1
	if q.page > 0 {
		limit = 0
	}

	b.AddASN1(searchRequest, func(b *cryptobyte.Builder) {
		addText(b, q.base)
		b.AddASN1Enum(int64(q.scope))
		b.AddASN1Enum(0) // like Salt, do not follow aliases
		b.AddASN1Int64(limit)
		b.AddASN1Int64(0)
		b.AddASN1Boolean(false)
		b.AddBytes(filter)
		b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
			for _, a := range q.attrs {
				addText(b, a)
			}
		})
	})
}

// pageControl returns a function that appends the control for the next page. It returns nil if the
// query has no pages.
func (q query) pageControl(cookie []byte) func(*cryptobyte.Builder) {
	if q.page == 0 {
		return nil
	}

	return func(b *cryptobyte.Builder) {
		b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
			addText(b, pagedResults)
			b.AddASN1(asn1.OCTET_STRING, func(b *cryptobyte.Builder) {
				b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
					b.AddASN1Int64(int64(q.page))
					b.AddASN1OctetString(cookie)
				})
			})
		})
	}
}

// compileFilter encodes a filter. Like libldap it accepts a filter without outer parentheses.
func compileFilter(filter string) ([]byte, error) {
	if !strings.HasPrefix(filter, "(") {
		filter = "(" + filter + ")"
	}
	p, err := ldapv3.CompileFilter(filter)
	if err != nil {
		return nil, fmt.Errorf("read the filter %.200q: %w", filter, err)
	}
	return p.Bytes(), nil
}

// unbind ends the authentication of the session by an anonymous bind (RFC 4513, 5.1.1).
func (s *session) unbind() error {
	if err := s.sendBind("", ""); err != nil {
		return err
	}
	return s.awaitBound()
}
