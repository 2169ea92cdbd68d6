package send

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"saltern/master/internal/notify/rules"
	"saltern/test/check"
)

// mailServer is an SMTP server for one session at a time, which keeps what it got.
type mailServer struct {
	listener net.Listener
	config   *tls.Config       // of STARTTLS; nil: it does not offer it
	answers  map[string]string // to lines that begin so, in place of the usual one
	wg       sync.WaitGroup

	mu    sync.Mutex
	lines []string // commands
	mails []string
}

func startMailServer(t *testing.T, wrap func(net.Listener) net.Listener, config *tls.Config, answers map[string]string) *mailServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check.Must(t, err)
	s := &mailServer{listener: wrap(l), config: config, answers: answers}
	s.wg.Go(func() {
		for {
			c, err := s.listener.Accept()
			if err != nil {
				return
			}
			s.serve(c)
		}
	})
	t.Cleanup(func() { l.Close(); s.wg.Wait() })
	return s
}

func plainly(l net.Listener) net.Listener { return l }

func (s *mailServer) serve(c net.Conn) {
	defer func() { c.Close() }()
	in := bufio.NewReader(c)
	say := func(text string) { fmt.Fprint(c, text+"\r\n") }
	say("220 ready")
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimSpace(line)
		s.mu.Lock()
		s.lines = append(s.lines, line)
		s.mu.Unlock()

		verb, _, _ := strings.Cut(strings.ToUpper(line), " ")
		answer := "250 ok"
		for begin, other := range s.answers {
			if strings.HasPrefix(line, begin) {
				answer = other
			}
		}
		switch verb {
		case "EHLO":
			if s.config != nil {
				say("250-STARTTLS")
			}
			answer = "250 AUTH PLAIN"
		case "STARTTLS":
			if s.config == nil {
				answer = "502 what?"
				break
			}
			say("220 go on")
			encrypted := tls.Server(c, s.config)
			if encrypted.Handshake() != nil {
				return
			}
			c, in = encrypted, bufio.NewReader(encrypted)
			continue
		case "AUTH":
			answer = cmp.Or(s.answers["AUTH"], "235 welcome")
		case "DATA":
			say("354 go on")
			var mail strings.Builder
			for {
				part, err := in.ReadString('\n')
				if err != nil {
					return
				}
				if part == ".\r\n" {
					break
				}
				mail.WriteString(part)
			}
			if strings.HasPrefix(answer, "2") {
				s.mu.Lock()
				s.mails = append(s.mails, mail.String())
				s.mu.Unlock()
			}
		}
		say(answer)
	}
}

// certified returns settings of TLS, and the file of the authority behind them.
func certified(t *testing.T) (*tls.Config, string) {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	check.Must(t, os.WriteFile(ca, certificate(server.Certificate()), 0o600))
	return &tls.Config{Certificates: server.TLS.Certificates}, ca
}

func (s *mailServer) destination(ca string, way rules.TLS) *rules.Destination {
	m := &rules.Mail{
		Server: s.listener.Addr().String(),
		TLS:    way,
		From:   "salt@example.com",
		To:     []string{"ops@example.com", "night@example.com"},
		CA:     ca,
	}
	if way != rules.Clear {
		m.User = "salt"
		m.Password = rules.NewSecret("PASSWORD")
	}
	return &rules.Destination{Name: "ops/1", Mail: m}
}

func TestMail(t *testing.T) {
	config, ca := certified(t)
	directly := func(l net.Listener) net.Listener { return tls.NewListener(l, config) }
	for way, s := range map[rules.TLS]*mailServer{
		rules.StartTLS: startMailServer(t, plainly, config, nil),
		rules.Direct:   startMailServer(t, directly, nil, nil),
		rules.Clear:    startMailServer(t, plainly, nil, nil),
	} {
		t.Run(string(way), func(t *testing.T) {
			check.Must(t, New(s.destination(ca, way)).Send(t.Context(), testMessage()))
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.mails) != 1 || !strings.Contains(s.mails[0], "Subject: test of the rule ops") ||
				!strings.Contains(s.mails[0], "Message-ID: <"+testMessage().ID+"@example.com>") {
				t.Errorf("%q", s.mails)
			}

			login := "AUTH PLAIN " + base64.StdEncoding.EncodeToString([]byte("\x00salt\x00PASSWORD"))
			if said := strings.Join(s.lines, "\n"); strings.Contains(said, login) != (way != rules.Clear) {
				t.Errorf("commands: %s", said)
			}
		})
	}
}

// Without the encryption that the rule wants, neither a password nor a mail is sent.
func TestMailIsNotSentInClear(t *testing.T) {
	_, ca := certified(t)
	s := startMailServer(t, plainly, nil, nil)
	if err := New(s.destination(ca, rules.StartTLS)).Send(t.Context(), testMessage()); err == nil {
		t.Error("a server without STARTTLS got it")
	}

	config, _ := certified(t)
	other := startMailServer(t, plainly, config, nil)
	if err := New(other.destination("", rules.StartTLS)).Send(t.Context(), testMessage()); err == nil {
		t.Error("a server whose certificate nobody knows got it")
	}
	for _, server := range []*mailServer{s, other} {
		server.mu.Lock()
		if said := strings.Join(server.lines, "\n"); strings.Contains(said, "AUTH") || len(server.mails) > 0 {
			t.Error(said)
		}
		server.mu.Unlock()
	}
}

// A server that quotes the log-in that it refuses does not bring the password into the error.
func TestMailEchoesTheLogIn(t *testing.T) {
	login := base64.StdEncoding.EncodeToString([]byte("\x00salt\x00PASSWORD"))
	config, ca := certified(t)
	s := startMailServer(t, plainly, config, map[string]string{"AUTH": "535 what is AUTH PLAIN " + login})
	err := New(s.destination(ca, rules.StartTLS)).Send(t.Context(), testMessage())
	if err == nil || strings.Contains(err.Error(), login) || !strings.Contains(err.Error(), "535") {
		t.Error(err)
	}
}

func TestMailIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name    string
		answers map[string]string
		refused bool // for good
		partly  bool
	}{
		{name: "spam", answers: map[string]string{"DATA": "554 spam\x1b[31m"}, refused: true},
		{name: "greylisted", answers: map[string]string{"RCPT": "451 later"}},
		{name: "one unknown", answers: map[string]string{"RCPT TO:<night": "550 nobody"}, partly: true},
		{name: "all unknown", answers: map[string]string{"RCPT": "550 nobody"}},
		{name: "sender", answers: map[string]string{"MAIL": "550 no"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := startMailServer(t, plainly, nil, tt.answers)
			err := New(s.destination("", rules.Clear)).Send(t.Context(), testMessage())
			var partly *PartlyError
			if err == nil || errors.Is(err, ErrRefused) != tt.refused || errors.As(err, &partly) != tt.partly {
				t.Error(err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if (len(s.mails) == 1) != tt.partly || strings.Contains(err.Error(), "\x1b") {
				t.Errorf("%d mails, %q", len(s.mails), err)
			}
		})
	}
}
