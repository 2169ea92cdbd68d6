package eauth

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"saltern/master/value"
)

// names is lists that grant what stands at a user's name, and let everybody in.
type names struct{}

func (names) Permissions(s *value.Map, user string, _ []string) []any { return s.List(user) }
func (names) Grants([]any) bool                                       { return true }
func (names) Rights([]any) []string                                   { return nil }

// grantsAll is lists that grant the same to everybody.
type grantsAll struct {
	names
	permissions *[]any
}

func (l grantsAll) Permissions(*value.Map, string, []string) []any { return *l.permissions }

func newTest(t *testing.T, now *time.Time) *Authenticator {
	t.Helper()
	tokens, err := OpenTokens(filepath.Join(t.TempDir(), "tokens"), "n1")
	if err != nil {
		t.Fatal(err)
	}

	return New(Config{
		External:     value.NewMap("auto", value.NewMap("ann", []any{"test.*"}), "sharedsecret", value.NewMap()),
		Backends:     map[string]Backend{"auto": Auto, "sharedsecret": SharedSecret("s3")},
		PublisherACL: value.NewMap("bob", []any{"test.ping"}, "op.*", []any{"cmd.run"}),
		SudoACL:      true,
		User:         "root",
		Lists:        names{},
		UserKeys:     map[string]string{"root": "rootkey", "bob": "bobkey", "ops1": "opskey", "mallory": "malkey"},
		Tokens:       tokens,
		TokenExpire:  time.Hour,
		Log:          slog.New(slog.DiscardHandler),
		Now:          func() time.Time { return *now },
	})
}

func TestAttack02KeysAndPasswords(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	a := newTest(t, &now)
	tests := []struct {
		name        string
		load, creds *value.Map
		want        string // name, "" for refused
		all         bool
		perms       int
	}{
		{"root", value.NewMap("user", "root", "key", "rootkey"), nil, "root", true, 0},
		{"another key as root", value.NewMap("user", "root", "key", "bobkey"), nil, "", false, 0},
		{"no user", value.NewMap("key", "rootkey"), nil, "root", true, 0},
		{"no key", value.NewMap("user", "root"), nil, "", false, 0},
		{"empty key", value.NewMap("user", "root", "key", ""), nil, "", false, 0},
		{"wrong key", value.NewMap("user", "root", "key", "rootkeX"), nil, "", false, 0},
		{"key is no text", value.NewMap("user", "root", "key", int64(0)), nil, "", false, 0},
		{"user is no text", value.NewMap("user", []any{"root"}, "key", "bobkey"), nil, "", false, 0},
		{"bob", value.NewMap("user", "bob", "key", "bobkey"), nil, "bob", false, 1},
		{"bob with another's key", value.NewMap("user", "bob", "key", "malkey"), nil, "", false, 0},
		{"by pattern", value.NewMap("user", "ops1", "key", "opskey"), nil, "ops1", false, 1},
		{"no acl", value.NewMap("user", "mallory", "key", "malkey"), nil, "", false, 0},
		{"sudo acts as bob", value.NewMap("user", "sudo_bob", "key", "rootkey"), nil, "bob", false, 1},
		{"sudo of nobody", value.NewMap("user", "sudo_x", "key", "rootkey"), nil, "", false, 0},
		{"eauth", value.NewMap(), value.NewMap("eauth", "auto", "username", "ann", "password", "x"), "ann", false, 1},
		{"eauth without entry", value.NewMap(),
			value.NewMap("eauth", "auto", "username", "eve", "password", "x"), "eve", false, 0},
		{"system not enabled", value.NewMap(),
			value.NewMap("eauth", "pam", "username", "ann", "password", "x"), "", false, 0},
		{"wrong password", value.NewMap(),
			value.NewMap("eauth", "sharedsecret", "username", "ann", "password", "x"), "", false, 0},
		{"unknown token", value.NewMap(), value.NewMap("token", "../../etc/passwd"), "", false, 0},
		{"token is no text", value.NewMap(), value.NewMap("token", nil), "", false, 0},
		{"root key does not help a bad token", value.NewMap("user", "root", "key", "rootkey"),
			value.NewMap("token", ""), "", false, 0},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := a.Check(context.Background(), tt.load, tt.creds, netip.Addr{})
			if (err == nil) != (tt.want != "") || c.Name != tt.want || c.All != tt.all ||
				len(c.Permissions) != tt.perms {
				t.Errorf("got %+v, %v", c, err)
			}

			if _, ok := tt.load.Get("key"); ok {
				t.Error("the key is still in the load")
			}
		})
	}
}

// Who holds a key is who he is: the names that have all rights need the key of
// root or of the master's user.
func TestFinding05OwnKeys(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for _, sudoACL := range []bool{false, true} {
		a := newTest(t, &now)
		a.cfg.SudoACL, a.cfg.User = sudoACL, "salt"
		a.cfg.UserKeys["salt"] = "saltkey"
		for _, key := range []string{"bobkey", "malkey", "opskey"} {
			for _, load := range []*value.Map{
				value.NewMap("user", "root"), value.NewMap("user", "salt"), value.NewMap("user", "sudo_x"), value.NewMap("user", "sudo_bob"),
				value.NewMap("user", "sudo_root"), value.NewMap("user", "sudo_"), value.NewMap("user", ""), value.NewMap("user", nil), value.NewMap(),
			} {
				load.Set("key", key)
				as, given := load.Get("user")
				if c, err := a.Check(t.Context(), load, nil, netip.Addr{}); err == nil {
					t.Errorf("sudo_acl %v: %s as %v (given: %v) is %+v", sudoACL, key, as, given, c)
				}
			}
		}

		for _, key := range []string{"rootkey", "saltkey"} { // what Salt's own tools send
			for _, user := range []any{"root", "salt", "ann"} {
				if c, err := a.Check(t.Context(), value.NewMap("user", user, "key", key), nil,
					netip.Addr{}); err != nil || !c.All || c.Name != user {
					t.Errorf("%s as %v: %+v, %v", key, user, c, err)
				}
			}

			c, err := a.Check(t.Context(), value.NewMap("user", "sudo_bob", "key", key), nil, netip.Addr{})
			if err != nil || c.All == sudoACL || sudoACL && (c.Name != "bob" || len(c.Permissions) != 1) {
				t.Errorf("sudo_acl %v: %s as sudo_bob: %+v, %v", sudoACL, key, c, err)
			}
		}

		if c, err := a.Check(t.Context(), value.NewMap("user", "bob", "key", "bobkey"), nil, netip.Addr{}); err != nil || c.All || len(c.Permissions) != 1 {
			t.Errorf("bob himself: %+v, %v", c, err)
		}
	}
}

func TestAttack29ExpiredToken(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	a := newTest(t, &now)
	v, err := a.MakeToken(context.Background(),
		value.NewMap("eauth", "auto", "username", "ann", "password", "x"), netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}

	tok := v.(*value.Map).Str("token")
	if len(tok) != 64 {
		t.Fatalf("token %q", tok)
	}

	use := func() error {
		_, err := a.Check(context.Background(), value.NewMap(), value.NewMap("token", tok), netip.Addr{})
		return err
	}

	if err := use(); err != nil {
		t.Errorf("fresh token: %v", err)
	}

	if m := a.GetToken(value.NewMap("token", tok)).(*value.Map); m.Str("name") != "ann" || m.Str("eauth") != "auto" {
		t.Errorf("get_token says %v", m)
	}

	now = now.Add(time.Hour)
	var f *Failure
	if err := use(); !errors.As(err, &f) || f.Name != "TokenAuthenticationError" {
		t.Errorf("at the moment it expires: %v", err)
	}

	now = now.Add(-time.Minute)
	if err := use(); err == nil {
		t.Error("it works again after the clock went back: it was not removed")
	}

	if m := a.GetToken(value.NewMap("token", tok)).(*value.Map); m.Len() != 0 {
		t.Errorf("get_token says %v", m)
	}
}

func TestTokenFiles(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	a := newTest(t, &now)
	dir := a.cfg.Tokens.dir
	tok, err := a.cfg.Tokens.Make(Token{Name: "ann", Eauth: "auto", Groups: []string{"wheel"}}, time.Minute, now)
	if err != nil {
		t.Fatal(err)
	}

	info, err := os.Stat(filepath.Join(dir, tok.Token+".p"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("token file: %v, %v", info, err)
	}

	bad := filepath.Join(dir, "00112233445566778899aabbccddeeff.p")
	if err := os.WriteFile(bad, []byte{0xdd, 0xff, 0xff, 0xff, 0xff}, 0o600); err != nil {
		t.Fatal(err)
	}

	if _, err := a.cfg.Tokens.Get("00112233445566778899aabbccddeeff", now); err == nil {
		t.Error("a corrupt token is accepted")
	}

	if err := a.cfg.Tokens.Clean(now.Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}

	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("%d files left after cleaning", len(left))
	}
}
