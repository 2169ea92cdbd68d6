package eauth

import (
	"context"
	"crypto/subtle"

	"saltern/master/internal/ldap"
	"saltern/master/internal/oidc"
)

// LDAP asks a directory.
func LDAP(d *ldap.Directory) Backend {
	return func(ctx context.Context, user, password string) (Verdict, error) {
		ok, groups, err := d.Login(ctx, user, password)
		return Verdict{OK: ok, Groups: groups}, err
	}
}

// OIDC takes an ID token of an OpenID provider as the password.
func OIDC(p *oidc.Provider) Backend {
	return func(ctx context.Context, user, token string) (Verdict, error) {
		ok, groups, err := p.Login(ctx, user, token)
		return Verdict{OK: ok, Groups: groups}, err
	}
}

// Auto approves everybody, as Salt's "auto" does. It is for tests; a config
// that enables it is reported loudly by the master.
func Auto(context.Context, string, string) (Verdict, error) { return Verdict{OK: true}, nil }

// SharedSecret compares the password with the option sharedsecret
// (salt/auth/sharedsecret.py). An empty secret refuses everybody.
func SharedSecret(secret string) Backend {
	return func(_ context.Context, _, password string) (Verdict, error) {
		return Verdict{OK: secret != "" && subtle.ConstantTimeCompare([]byte(secret), []byte(password)) == 1}, nil
	}
}
