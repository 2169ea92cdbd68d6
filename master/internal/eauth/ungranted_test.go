package eauth

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"saltern/master/internal/acl"
	"saltern/master/value"
)

// aclLists is the lists of package acl.
type aclLists struct{}

func (aclLists) Permissions(s *value.Map, user string, groups []string) []any {
	return acl.FillAuthList(s, user, groups, false)
}

func (aclLists) Grants(permissions []any) bool { return acl.Grants(permissions) }

func (aclLists) Rights(permissions []any) []string {
	if acl.MayReadEvents(permissions) {
		return []string{"events"}
	}
	return nil
}

// ungranted is an Authenticator of one system, whose right password is "right" and which
// says said of what somebody may do.
func ungranted(t *testing.T, said []any) *Authenticator {
	t.Helper()
	now := time.Now()
	a := guesser(t, &now, nil)
	a.cfg.Now = time.Now
	a.slowestCheck = time.Second
	a.cfg.Lists = aclLists{}
	a.cfg.External = value.NewMap("dir",
		value.NewMap("ann", []any{"test.ping"}, "empty", []any{}, "odd",
			[]any{nil, value.NewMap(), value.NewMap("web*", []any{})}, "ops%", []any{"@runner"}))
	a.cfg.Backends["dir"] = func(_ context.Context, user, password string) (Verdict, error) {
		v := Verdict{OK: password == "right", Permissions: said}
		if user == "member" {
			v.Groups = []string{"ops"}
		}
		return v, nil
	}

	return a
}

// TestNoGrantIsAWrongPassword: somebody with the right password to whom nothing is granted
// gets the answer to a wrong one, in the same time, before and after as many attempts as lock
// somebody out; and is let in at once when something is granted to him. (Findings 8b and 27 of
// the second audit.)
func TestNoGrantIsAWrongPassword(t *testing.T) {
	for name, c := range map[string]struct {
		user string
		said []any // what the system says, as rest and modules do
		in   bool
	}{
		"somebody":           {user: "ann", in: true},
		"a group":            {user: "member", in: true},
		"the system says so": {user: "eve", said: []any{"test.ping"}, in: true},
		"nowhere":            {user: "eve"},
		"an empty list":      {user: "empty"},
		"a list of nothing":  {user: "odd"},
		"the system says []": {user: "ann", said: []any{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := ungranted(t, c.said)
				a.cfg.KeepACL = c.said != nil
				try := func(password string) (string, string, time.Duration) {
					t.Helper()
					creds := func() *value.Map {
						return value.NewMap("eauth", "dir", "username", c.user, "password", password)
					}
					began := time.Now()
					_, err := a.Check(t.Context(), value.NewMap(), creds(), near)
					token, fault := a.MakeToken(t.Context(), creds(), near)
					if fault != nil {
						t.Fatal(fault)
					}

					said := ""
					if err != nil {
						said = err.Error()
					}

					kind := "refused"
					if _, ok := token.(*value.Map); ok {
						kind = "token"
					} else if token != "" {
						t.Errorf("the answer is %v", token)
					}

					return said, kind, time.Since(began)
				}

				said, kind, took := try("right")
				if c.in {
					if said != "" || kind != "token" || took != 0 {
						t.Errorf("%s %s after %s", said, kind, took)
					}
					return
				}

				// Twice what locks out at a wrong password: the answers stay the same.
				for range 6 {
					text, kind, took := try("right")
					if text != said || kind != "refused" || took < 1500*time.Millisecond ||
						took > 2500*time.Millisecond {
						t.Errorf("%q %s after %s, at first %q", text, kind, took, said)
					}
				}

				wrong, _, took := try("wrong")
				if wrong != said || took < 1500*time.Millisecond {
					t.Errorf("a wrong password: %q after %s", wrong, took)
				}

				if s := a.Stats(); s.Ungranted != 14 || s.Lockout.Locks != 0 {
					t.Errorf("%+v", s)
				}

				for range 5 { // and these lock, which does not show either
					if text, kind, took := try("wrong"); text != said || kind != "refused" ||
						took < 1500*time.Millisecond || took > 2500*time.Millisecond {
						t.Errorf("%q %s after %s", text, kind, took)
					}
				}

				if a.Stats().Lockout.Locks != 1 {
					t.Error("wrong passwords lock nobody out")
				}
			})
		})
	}
}

// TestGrantAfterRefusals: nobody is locked out by his right password.
func TestGrantAfterRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := ungranted(t, nil)
		try := func() error {
			_, err := a.Check(t.Context(), value.NewMap(),
				value.NewMap("eauth", "dir", "username", "new", "password", "right"), near)
			return err
		}

		for range 20 {
			if try() == nil {
				t.Fatal("he is let in")
			}
		}

		a.cfg.External.Map("dir").Set("new", []any{"test.ping"})
		if err := try(); err != nil {
			t.Errorf("with a grant: %v", err)
		}
	})
}

// TestTokenWithoutGrant: a token ends when its owner has lost all that he was granted, and
// says what he may do today that is no function. One that would permit nothing is not given.
func TestTokenWithoutGrant(t *testing.T) {
	a := ungranted(t, nil)
	a.slowestCheck = 0
	made, err := a.MakeToken(t.Context(),
		value.NewMap("eauth", "dir", "username", "ann", "password", "right"), netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}

	token := made.(*value.Map).Str("token")
	get := func() *value.Map { return a.GetToken(value.NewMap("token", token)).(*value.Map) }
	if words, said := get().Get(RightsField); !said || len(words.([]any)) != 0 {
		t.Errorf("at first: %v", words)
	}

	a.cfg.External.Map("dir").Set("ann", []any{"@events"})
	if words := get().Texts(RightsField); len(words) != 1 {
		t.Errorf("with more: %v", words)
	}

	a.cfg.External.Map("dir").Set("ann", []any{})
	if got := get(); got.Len() != 0 {
		t.Errorf("with nothing: %v", got)
	}

	_, err = a.Check(t.Context(), value.NewMap(), value.NewMap("token", token), netip.Addr{})
	if _, refused := errors.AsType[*Failure](err); !refused {
		t.Errorf("a command with it: %v", err)
	}

	// eauth_acl_module says something of a password, and nothing of a token.
	a.cfg.Module = says("['test.ping']")
	if made, err := a.MakeToken(t.Context(),
		value.NewMap("eauth", "dir", "username", "eve", "password", "right"), netip.Addr{}); made != "" || err != nil {
		t.Errorf("a token that would permit nothing: %v %v", made, err)
	}

	a.cfg.KeepACL = true
	if made, err := a.MakeToken(t.Context(),
		value.NewMap("eauth", "dir", "username", "eve", "password", "right"), netip.Addr{}); made == "" || err != nil {
		t.Errorf("a token that keeps what the module said: %v %v", made, err)
	}
}
