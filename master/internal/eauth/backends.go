package eauth

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"saltern/internal/control/pam"
	"saltern/internal/printable"
	"saltern/master/internal/ldap"
	"saltern/master/internal/loginurl"
	"saltern/master/internal/oidc"
	"saltern/master/internal/userfile"
)

// LDAP checks log-ins with a directory.
func LDAP(d *ldap.Directory) Backend {
	return func(ctx context.Context, user, password string) (Verdict, error) {
		name, groups, err := d.Login(ctx, user, password)
		return Verdict{OK: name != "", Name: name, Groups: groups}, err
	}
}

// OIDC accepts an ID token of an OpenID provider as the password.
func OIDC(p *oidc.Provider) Backend {
	return func(ctx context.Context, user, token string) (Verdict, error) {
		ok, groups, err := p.Login(ctx, user, token)
		return Verdict{OK: ok, Groups: groups}, err
	}
}

// File looks users up in a file. otherwise is called for a password in an unknown form.
func File(f *userfile.File, otherwise Backend) Backend {
	return func(ctx context.Context, user, password string) (Verdict, error) {
		ok, err := f.Login(user, password)
		if errors.Is(err, userfile.ErrUnknown) {
			return otherwise(ctx, user, password)
		}
		return Verdict{OK: ok}, err
	}
}

// REST checks log-ins by asking an address, which also says what a user may do.
func REST(u *loginurl.URL) Backend {
	return func(ctx context.Context, user, password string) (Verdict, error) {
		ok, permissions, err := u.Login(ctx, user, password)
		return Verdict{OK: ok, Permissions: permissions}, err
	}
}

// PAM has the helper at socket, which runs as root, check passwords of accounts of this host.
// Without a helper otherwise is called: Salt's module, which must itself run as root.
func PAM(socket string, otherwise Backend, log *slog.Logger) Backend {
	return func(ctx context.Context, user, password string) (Verdict, error) {
		a, err := pam.Ask(ctx, socket, user, password)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return otherwise(ctx, user, password)
		case err != nil:
			return Verdict{}, err
		case a.Fault:
			return Verdict{}, fmt.Errorf("ask the helper for passwords of local accounts: %s",
				printable.Brief(a.Why, 300))
		case !a.OK:
			log.Info("a log-in by pam is refused", "user", user, "because", printable.Brief(a.Why, 300))
		}

		return Verdict{OK: a.OK, Groups: a.Groups}, nil
	}
}

// Auto accepts everybody, as Salt's "auto" does. It is for tests; the master warns of a
// configuration that enables it.
func Auto(context.Context, string, string) (Verdict, error) { return Verdict{OK: true}, nil }

// SharedSecret compares the password with the option sharedsecret
// (salt/auth/sharedsecret.py). An empty secret refuses everybody.
func SharedSecret(secret string) Backend {
	return func(_ context.Context, _, password string) (Verdict, error) {
		return Verdict{OK: secret != "" && subtle.ConstantTimeCompare([]byte(secret), []byte(password)) == 1}, nil
	}
}
