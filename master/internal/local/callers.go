package local

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"saltern/master/conf"
	"saltern/master/internal/acl"
	"saltern/master/internal/eauth"
	"saltern/master/internal/ldap"
	"saltern/master/internal/oidc"
	"saltern/master/pyrunner"
	"saltern/master/value"
)

// Callers is who may ask this master for something, and how he proves who he is.
type Callers struct {
	Auth    *eauth.Authenticator
	Tokens  *eauth.Tokens
	Lockout *eauth.Lockout
}

// OpenCallers makes the keys of the users of this host and opens what log-ins need.
// fire tells the bus of users who are locked out; quiet is for lines that strangers can
// cause.
func OpenCallers(c *conf.Master, fire func(tag string, data *value.Map), log, quiet *slog.Logger) (Callers, error) {
	users := append([]string{c.User, CurrentUser()}, c.PublisherACL.Keys()...)
	known, err := UserKeys(c.CacheDir, users, c.ClientACLVerify, log)
	if err != nil {
		return Callers{}, err
	}
	tokens, err := eauth.OpenTokens(c.TokenDir, c.Audit("salt-master").Node)
	if err != nil {
		return Callers{}, err
	}
	if _, ok := c.ExternalAuth.Get("auto"); ok {
		log.Warn("external_auth auto lets everybody in; it is for tests only")
	}
	backends := map[string]eauth.Backend{"auto": eauth.Auto, "sharedsecret": eauth.SharedSecret(c.SharedSecret)}
	expand := map[string]func(context.Context, []any) []any{}
	if o, asks := c.LDAPOptions(); asks {
		directory, err := ldap.New(o, quiet, time.Now)
		if err != nil {
			return Callers{}, fmt.Errorf("read the options of external_auth's ldap: %w", err)
		}
		backends["ldap"], expand["ldap"] = eauth.LDAP(directory), directory.Expand
	}
	if o, asks := c.OIDCOptions(); asks {
		provider, err := oidc.New(o, quiet, time.Now)
		if err != nil {
			return Callers{}, fmt.Errorf("read the options of external_auth's oidc: %w", err)
		}
		backends["oidc"] = eauth.OIDC(provider)
	}
	python := eauth.Python(pyrunner.Pythons(c.RendererPython), c.Path, c.PythonLayer)
	if socket := c.PAMHelper(); socket != "" {
		backends["pam"] = eauth.PAM(socket, func(ctx context.Context, user, password string) (eauth.Verdict, error) {
			return python(ctx, "pam", user, password)
		}, quiet)
	}
	lockout := eauth.NewLockout(c.LoginFailures, c.LoginLock, func(k eauth.Locked) {
		quiet.Warn("a user is locked out at an address after too many wrong passwords", "eauth", k.System, "user", k.User, "peer", k.From, "until", k.Until)
		fire(eauth.LockTag, k.Map())
	})
	return Callers{Tokens: tokens, Lockout: lockout, Auth: eauth.New(eauth.Config{
		External: c.ExternalAuth, Backends: backends, Expand: expand, Lockout: lockout,
		Other:        python,
		PublisherACL: c.PublisherACL, SudoACL: c.SudoACL, User: c.User, Running: CurrentUser(),
		Permissions: func(s *value.Map, user string, groups []string) []any {
			return acl.FillAuthList(s, user, groups, c.PermissiveACL)
		},
		UserKeys: known, Tokens: tokens, TokenExpire: c.TokenExpire, ExpireOverride: c.TokenExpireUserOverride,
		Log: quiet, Now: time.Now, FailDelay: time.Second,
	})}, nil
}
