package pam

import (
	"context"
	"net"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"saltern/internal/control/pam"
	"saltern/internal/localsock"
	"saltern/test/accounts"
)

// all are the accounts of the test.
func all() []accounts.Account {
	return []accounts.Account{
		{Name: "root", UID: "0", Password: "secret of root", Ages: accounts.Good},
		{Name: "toor", UID: "0", Password: "secret of toor", Ages: accounts.Good},
		{Name: "locked", UID: "1001", Password: "!secret of locked", Ages: accounts.Good},
		{Name: "gone", UID: "1002", Password: "secret of gone", Ages: "20000:0:99999:7::19000:"},
		{Name: "aged", UID: "1003", Password: "secret of aged", Ages: "10000:0:30:7:::"},
		{Name: "must-change", UID: "1004", Password: "secret of must-change", Ages: "0:0:99999:7:::"},
		{Name: "empty", UID: "1005", Password: "", Ages: accounts.Good},
		{Name: "none", UID: "1006", Password: "*", Ages: accounts.Good},
		{Name: "ann", UID: "1000", Password: "secret of ann", Ages: accounts.Good},
	}
}

// TestAttack75Accounts: who has the password of an account that may log in is let in, and
// nobody else, whatever name or password he brings.
func TestAttack75Accounts(t *testing.T) {
	if !accounts.Apart(t, all()) {
		return
	}

	check := func(name, password string) pam.Answer {
		return Check(t.Context(), name, password)
	}
	if a := check("ann", "secret of ann"); !a.OK || !slices.Equal(a.Groups, []string{"ann", "ops"}) {
		t.Errorf("ann: %+v", a)
	}

	for _, a := range all() {
		if got := check(a.Name, a.Password); got.OK != (a.Name == "ann") || got.Fault {
			t.Errorf("%s: %+v", a.Name, got)
		}
	}

	for _, try := range [][2]string{
		{"ann", "secret of gone"}, {"ann", ""}, {"ann", "secret of ann\x00more"}, {"ann", "\x00secret of ann"}, {"ann", strings.Repeat("x", 1000)},
		{"locked", "secret of locked"}, {"empty", "x"}, {"none", "*"}, {"nobody-here", "x"}, {"", "x"}, {"-h", "x"}, {"--help", "x"},
		{"ann\n", "secret of ann"}, {"../ann", "secret of ann"}, {"ann:x", "secret of ann"}, {"Ann", "secret of ann"}, {"1000", "secret of ann"}, {"*", "x"},
	} {
		if got := check(try[0], try[1]); got.OK || got.Fault {
			t.Errorf("%q with %q: %+v", try[0], try[1], got)
		}
	}
}

// TestAttack75Helper: only the master's account is answered, and only what is a request.
func TestAttack75Helper(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(t.TempDir(), "s")
	ln, err := localsock.Listen(path, 0o600, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()

	ask := func(account string, say func(net.Conn)) error {
		t.Helper()
		done := make(chan error, 1)
		go func() {
			c, err := ln.Accept()
			if err == nil {
				err = Serve(context.Background(), c, account)
				c.Close()
			}
			done <- err
		}()

		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}

		say(c)
		c.Close()
		return <-done
	}

	request := func(text string) func(net.Conn) {
		return func(c net.Conn) {
			_, _ = c.Write([]byte(text))
			_ = c.(*net.UnixConn).CloseWrite()
		}
	}

	for name, text := range map[string]string{
		"nothing":        "",
		"half":           `{"user": "ann"`,
		"no JSON":        "ann secret\n",
		"without an end": strings.Repeat("x", 1<<20),
		"a list":         "[]\n",
	} {
		if err := ask(me.Username, request(text)); err == nil {
			t.Errorf("%s is answered", name)
		}
	}

	if err := ask("no such account", request("")); err == nil {
		t.Error("a master without an account is answered")
	}

	done := make(chan pam.Answer, 1)
	go func() {
		c, err := ln.Accept()
		if err == nil {
			_ = Serve(context.Background(), c, me.Username)
			c.Close()
		}
	}()

	go func() {
		a, err := pam.Ask(context.Background(), path, "no-such-account-here", "x")
		if err != nil {
			t.Error(err)
		}
		done <- a
	}()

	if a := <-done; a.OK || a.Fault || a.Why == "" {
		t.Errorf("%+v", a)
	}
}
