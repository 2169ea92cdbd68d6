package eauth

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
)

// The list shows who is logged in and from where, the newest first, without what is
// expired or no token; ending one leaves the others.
func TestListOfTokens(t *testing.T) {
	dir := t.TempDir()
	tokens, err := OpenTokens(dir, "n1")
	if err != nil {
		t.Fatal(err)
	}

	now := time.Now()
	var made []Token
	for i, who := range []Token{
		{Name: "ann", Eauth: "pam", From: "192.0.2.7"},
		{Name: "ann", Eauth: "ldap"},
		{Name: "bob", Eauth: "pam"},
	} {
		tok, err := tokens.Make(who, time.Hour, now.Add(time.Duration(i)*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, tok)
	}

	if _, err := tokens.Make(Token{Name: "old", Eauth: "pam"}, time.Minute, now.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}

	for name, text := range map[string]string{
		strings.Repeat("ab", 32) + ".p": "\xc1",
		"x.p":                           "x",
		strings.Repeat("cd", 32):        "x",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	list := func() (out string) {
		t.Helper()
		l, err := tokens.LogIns()
		if err != nil || l.More != 0 {
			t.Fatalf("%+v %v", l, err)
		}

		for _, k := range l.Tokens {
			out += k.User + " " + k.Eauth + " " + k.From + " " + k.Node + ", "
		}

		return out
	}

	if got := list(); got != "bob pam  n1, ann ldap  n1, ann pam 192.0.2.7 n1, " {
		t.Errorf("%s", got)
	}

	if got, err := tokens.Get(made[0].Token, now); err != nil || got.From != "192.0.2.7" ||
		got.Map().Value(fromKey) != nil {
		t.Errorf("%+v %v", got, err)
	}

	if n, err := tokens.EndLogIns(control.Revocation{
		User:  "ann",
		Eauth: "pam",
	}); err != nil || n.Count != 1 || list() != "bob pam  n1, ann ldap  n1, " {
		t.Errorf("%+v %v", n, err)
	}

	if n, err := tokens.EndLogIns(control.Revocation{Name: control.TokenName(made[2].Token)}); err != nil ||
		n.Count != 1 || list() != "ann ldap  n1, " {
		t.Errorf("%+v %v", n, err)
	}

	for _, r := range []control.Revocation{
		{User: "bob"},
		{User: "old"},
		{User: "An*"},
		{Name: control.TokenName(made[2].Token)},
	} {
		if _, err := tokens.EndLogIns(r); !errors.Is(err, control.ErrNoSuchToken) {
			t.Errorf("%+v: %v", r, err)
		}
	}

	for _, r := range []control.Revocation{
		{},
		{Name: made[1].Token},
		{Name: "../../../../etc"},
		{Name: control.TokenName(made[1].Token), User: "ann"},
	} {
		if _, err := tokens.EndLogIns(r); err == nil || errors.Is(err, control.ErrNoSuchToken) {
			t.Errorf("%+v: %v", r, err)
		}
	}

	if got := list(); got != "ann ldap  n1, " {
		t.Errorf("%s", got)
	}
}
