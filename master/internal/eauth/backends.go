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

// LDAP returns a Backend that checks passwords against an LDAP directory.
func LDAP(d *ldap.Directory) Backend {
	return func(ctx context.Context, user, password string) (Verdict, error) {
		name, groups, err := d.Login(ctx, user, password)
		return Verdict{OK: name != "", Name: name, Groups: groups}, err
	}
}

// OIDC returns a Backend that accepts an ID token of an OpenID provider as the password.
func OIDC(p *oidc.Provider) Backend {
	return func(ctx context.Context, user, token string) (Verdict, error) {
		ok, groups, err := p.Login(ctx, user, token)
		return Verdict{OK: ok, Groups: groups}, err
	}
}

// File returns a Backend that checks passwords against a file of users. If the file stores a
// password in an unknown form, the Backend calls fallback.
func File(f *userfile.File, fallback Backend) Backend {
	return func(ctx context.Context, user, password string) (Verdict, error) {
		ok, err := f.Login(user, password)
		if errors.Is(err, userfile.ErrUnknown) {
			return fallback(ctx, user, password)
		}
		return Verdict{OK: ok}, err
	}
}

// REST returns a Backend that sends log-ins to a URL. The answer may contain the user's
// permissions.
func REST(u *loginurl.URL) Backend {
	return func(ctx context.Context, user, password string) (Verdict, error) {
		ok, permissions, err := u.Login(ctx, user, password)
		return Verdict{OK: ok, Permissions: permissions}, err
	}
}

// PAM returns a Backend that checks passwords of accounts of this host. It asks the helper at
// socket, which runs as root. If there is no helper, it calls fallback: Salt's module, which works
// only if the master runs as root.
func PAM(socket string, fallback Backend, log *slog.Logger) Backend {
	return func(ctx context.Context, user, password string) (Verdict, error) {
		a, err := pam.Ask(ctx, socket, user, password)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fallback(ctx, user, password)
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

// Auto accepts every log-in, as Salt's "auto" does. It is meant for tests; the master logs a
// warning if the configuration enables it.
func Auto(context.Context, string, string) (Verdict, error) { return Verdict{OK: true}, nil }

// SharedSecret returns a Backend that compares the password with the option sharedsecret
// (salt/auth/sharedsecret.py). If secret is empty, the Backend refuses every log-in.
func SharedSecret(secret string) Backend {
	return func(_ context.Context, _, password string) (Verdict, error) {
		return Verdict{OK: secret != "" && subtle.ConstantTimeCompare([]byte(secret), []byte(password)) == 1}, nil
	}
}
