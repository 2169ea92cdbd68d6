package eauth

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"saltern/master/internal/loginurl"
	"saltern/master/value"
)

// With keep_acl_in_token a token says what its owner may do until it
// expires; others follow external_auth. What a system or eauth_acl_module says of somebody
// counts in the place of external_auth.
func TestPermissionsInTokens(t *testing.T) {
	for name, tt := range map[string]struct {
		system    string
		keep      bool
		module    func(context.Context, string, string, string) ([]any, error)
		password  string // what he may do who comes with his password
		token     string // and with a token
		later     string // and with the token, when external_auth grants another thing
		kept      bool   // the token says it to clients
		keepsLess bool   // and what counts when keep_acl_in_token is off again
	}{
		"plain": {system: "auto", password: "['old']", token: "['old']", later: "['new']"},
		"keep": {
			system:    "auto",
			keep:      true,
			password:  "['old']",
			token:     "['old']",
			later:     "['old']",
			kept:      true,
			keepsLess: true,
		},
		"rest": {
			system:   "rest",
			keep:     true,
			password: "['said']",
			token:    "['said']",
			later:    "['said']",
			kept:     true,
		},
		"module": {
			system:   "auto",
			module:   says("['mod']"),
			password: "['mod']",
			token:    "['old']",
			later:    "['new']",
		},
		"module for rest": {
			system:   "rest",
			keep:     true,
			module:   says("['mod']"),
			password: "['mod']",
			token:    "['mod']",
			later:    "['mod']",
			kept:     true,
		},
		"module, nothing": {
			system:   "rest",
			keep:     true,
			module:   says(""),
			password: "['old']",
			token:    "['old']",
			later:    "['old']",
			kept:     true,
		},
		"module fails": {
			system:    "auto",
			keep:      true,
			module:    fails,
			password:  "['old']",
			token:     "['old']",
			later:     "['old']",
			kept:      true,
			keepsLess: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1_700_000_000, 0)
			a := newTest(t, &now)
			grant := []any{"old"}
			a.cfg.KeepACL, a.cfg.Module = tt.keep, tt.module
			a.cfg.External.Set(loginurl.System, value.NewMap())
			a.cfg.Lists = grantsAll{permissions: &grant}
			a.cfg.Backends[loginurl.System] = func(context.Context, string, string) (Verdict, error) {
				return Verdict{OK: true, Permissions: []any{"said"}}, nil
			}
			may := func(kv ...any) string {
				t.Helper()
				c, err := a.Check(t.Context(), value.NewMap(), value.NewMap(kv...), netip.Addr{})
				if err != nil {
					t.Fatal(err)
				}
				return value.Repr(c.Permissions)
			}

			if got := may("eauth", tt.system, "username", "ann", "password", "x"); got != tt.password {
				t.Errorf("with a password %s", got)
			}

			made, err := a.MakeToken(t.Context(),
				value.NewMap("eauth", tt.system, "username", "ann", "password", "x"), netip.Addr{})
			if err != nil {
				t.Fatal(err)
			}

			token := made.(*value.Map)
			if _, ok := token.Get("auth_list"); ok != tt.kept {
				t.Errorf("the token says it: %v", ok)
			}

			if got := may("token", token.Str("token")); got != tt.token {
				t.Errorf("with a token %s", got)
			}

			grant = []any{"new"}
			if got := may("token", token.Str("token")); got != tt.later {
				t.Errorf("with a token, later %s", got)
			}

			a.cfg.KeepACL = false
			if tt.keepsLess {
				if got := may("token", token.Str("token")); got != "['new']" {
					t.Errorf("without keep_acl_in_token %s", got)
				}
			}
		})
	}
}

func says(what string) func(context.Context, string, string, string) ([]any, error) {
	return func(context.Context, string, string, string) ([]any, error) {
		if what == "" {
			return nil, nil
		}
		return []any{"mod"}, nil
	}
}

func fails(context.Context, string, string, string) ([]any, error) { return nil, errors.New("away") }

// A token that grants nothing is no token that says nothing.
func TestEmptyPermissionsInToken(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	a := newTest(t, &now)
	a.cfg.KeepACL = true
	var grant []any
	a.cfg.Lists = grantsAll{permissions: &grant}
	made, err := a.MakeToken(t.Context(), value.NewMap("eauth", "auto", "username", "ann", "password", "x"),
		netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}

	grant = []any{"new"}
	c, err := a.Check(t.Context(), value.NewMap(), value.NewMap("token", made.(*value.Map).Str("token")), netip.Addr{})
	if err != nil || c.Permissions == nil || len(c.Permissions) != 0 {
		t.Errorf("%v, %v", c.Permissions, err)
	}
}
