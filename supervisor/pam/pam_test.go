package pam

import (
	"context"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"saltern/control/pam"
	"saltern/localsock"
)

// accounts are those of the tests: name, uid, password, and the rest of its line in
// /etc/shadow.
var accounts = []struct{ name, uid, password, rest string }{
	{"root", "0", "secret of root", "20000:0:99999:7:::"},
	{"toor", "0", "secret of toor", "20000:0:99999:7:::"},
	{"ann", "1000", "secret of ann", "20000:0:99999:7:::"},
	{"locked", "1001", "!secret of locked", "20000:0:99999:7:::"},
	{"gone", "1002", "secret of gone", "20000:0:99999:7::19000:"},
	{"aged", "1003", "secret of aged", "10000:0:30:7:::"},
	{"must-change", "1004", "secret of must-change", "0:0:99999:7:::"},
	{"empty", "1005", "", "20000:0:99999:7:::"},
	{"none", "1006", "*", "20000:0:99999:7:::"},
}

// apart runs a test of this package again where /etc has accounts of the tests alone.
func apart(t *testing.T) (inside bool) {
	t.Helper()
	if os.Getenv("SALTERN_TEST_ACCOUNTS") != "" {
		return true
	}
	for _, program := range []string{"unshare", "openssl", chkpwd} {
		if _, err := exec.LookPath(program); err != nil || os.Getuid() != 0 {
			t.Skipf("NOT TESTED: needs root and %s", program)
		}
	}
	dir := t.TempDir()
	var passwd, shadow strings.Builder
	for _, a := range accounts {
		hash := a.password
		if hash != "" && hash != "*" {
			plain, locked := strings.CutPrefix(a.password, "!")
			out, err := exec.Command("openssl", "passwd", "-6", plain).Output()
			if err != nil {
				t.Fatal(err)
			}
			if hash = strings.TrimSpace(string(out)); locked {
				hash = "!" + hash
			}
		}
		passwd.WriteString(a.name + ":x:" + a.uid + ":" + a.uid + "::/:/bin/sh\n")
		shadow.WriteString(a.name + ":" + hash + ":" + a.rest + "\n")
	}
	files := map[string]string{"passwd": passwd.String(), "shadow": shadow.String(), "group": "root:x:0:\nann:x:1000:\nops:x:2000:x,ann\n"}
	script := "set -e; "
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		script += "mount --bind " + filepath.Join(dir, name) + " /etc/" + name + "; "
	}
	cmd := exec.Command("unshare", "--mount", "sh", "-c", script+`exec "$0" "$@"`, os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "SALTERN_TEST_ACCOUNTS=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// TestAttack75Accounts: who has the password of an account that may log in is let in, and
// nobody else, whatever name or password he brings.
func TestAttack75Accounts(t *testing.T) {
	if !apart(t) {
		return
	}
	check := func(name, password string) pam.Answer {
		return Check(t.Context(), name, password)
	}
	if a := check("ann", "secret of ann"); !a.OK || !slices.Equal(a.Groups, []string{"ann", "ops"}) {
		t.Errorf("ann: %+v", a)
	}
	for _, a := range accounts {
		if got := check(a.name, a.password); got.OK != (a.name == "ann") || got.Fault {
			t.Errorf("%s: %+v", a.name, got)
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
	for name, text := range map[string]string{"nothing": "", "half": `{"user": "ann"`, "no JSON": "ann secret\n", "without an end": strings.Repeat("x", 1<<20), "a list": "[]\n"} {
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
