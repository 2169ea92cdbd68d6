package eauth

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"saltern/internal/control/pam"
	"saltern/test/accounts"
)

// helper answers at a socket as root's helper does, for one account.
func helper(t *testing.T) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}

	var done sync.WaitGroup
	done.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}

			user, password, err := pam.Receive(c)
			switch {
			case err != nil || user == "mute":
			case user == "broken":
				_ = pam.Reply(c, pam.Answer{Fault: true, Why: "no such program\x1b[2J", OK: true})
			default:
				_ = pam.Reply(c,
					pam.Answer{OK: user == "ann" && password == "right", Groups: []string{"ops"}, Why: "wrong"})
			}

			c.Close()
		}
	})

	t.Cleanup(func() { ln.Close(); done.Wait() })
	return socket
}

// TestSaltsPAM: where the master is root and has no helper, Salt's module proves accounts of
// the host, by the machine's own stack.
func TestSaltsPAM(t *testing.T) {
	python := os.Getenv("SALTERN_PYTHON")
	if python == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python that has the Salt library to test logins")
	}
	if !accounts.Apart(t, []accounts.Account{{Name: "root", UID: "0", Password: "*", Ages: accounts.Good},
		{
			Name:     "locked",
			UID:      "1001",
			Password: "!right",
			Ages:     accounts.Good,
		}, {Name: "ann", UID: "1000", Password: "right", Ages: accounts.Good}}) {
		return
	}

	file := filepath.Join(t.TempDir(), "master")
	if err := os.WriteFile(file,
		[]byte("root_dir: "+t.TempDir()+"\nexternal_auth: {pam: {ann: [test.ping], locked: [test.ping]}}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}

	ask := NewPython([]string{python}, file, "")
	defer ask.Close()
	for _, tt := range []struct {
		user, password string
		want           bool
	}{{"ann", "right", true}, {"ann", "wrong", false}, {"locked", "right", false}} {
		v, err := ask.Login(t.Context(), "pam", tt.user, tt.password)
		if v.OK != tt.want || err != nil || v.OK && !slices.Contains(v.Groups, "ops") {
			t.Errorf("%s with %q: %+v, %v", tt.user, tt.password, v, err)
		}
	}
}

// TestPAM: the helper decides; what it cannot look at is no wrong password; without one
// Salt's module is asked.
func TestPAM(t *testing.T) {
	python := func(context.Context, string, string) (Verdict, error) {
		return Verdict{OK: true, Groups: []string{"python"}}, nil
	}
	ask := PAM(helper(t), python, slog.New(slog.DiscardHandler))
	for _, tt := range []struct {
		user, password string
		want, fault    bool
	}{
		{"ann", "right", true, false},
		{"ann", "wrong", false, false},
		{"bob", "right", false, false},
		{"mute", "x", false, true},
		{"broken", "x", false, true},
	} {
		v, err := ask(t.Context(), tt.user, tt.password)
		if v.OK != tt.want || (err != nil) != tt.fault || v.OK && !slices.Equal(v.Groups, []string{"ops"}) {
			t.Errorf("%s with %q: %+v, %v", tt.user, tt.password, v, err)
		}
	}

	v, err := PAM(filepath.Join(t.TempDir(), "none"), python, slog.New(slog.DiscardHandler))(t.Context(),
		"ann", "wrong")
	if err != nil || !v.OK || v.Groups[0] != "python" {
		t.Errorf("without a helper: %+v, %v", v, err)
	}
}
