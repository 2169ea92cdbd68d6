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
	"saltern/master/internal/loginurl"
	"saltern/master/internal/oidc"
	"saltern/master/internal/userfile"
	"saltern/master/pyrunner"
	"saltern/master/value"
)

// Callers holds the parts that authenticate callers of this master.
type Callers struct {
	Auth    *eauth.Authenticator
	Tokens  *eauth.Tokens
	Lockout *eauth.Lockout
	python  *eauth.Python
}

// Stop refuses waiting log-ins, so that they do not delay the stop of the master.
func (c Callers) Stop() {
	if c.Auth != nil {
		c.Auth.Stop()
	}
}

// Close ends the processes that check log-ins.
func (c Callers) Close() {
	if c.python != nil {
		c.python.Close()
	}
}

// OpenCallers creates the keys of this host's users and opens the external systems for log-ins.
// fire fires the event of a lockout. quiet is the logger for lines that untrusted senders can
// provoke.
func OpenCallers(c *conf.Master, fire func(tag string, data *value.Map), log, quiet *slog.Logger) (Callers, error) {
	users := append([]string{c.User, CurrentUser()}, c.PublisherACL.Keys()...)
	known, err := UserKeys(c.CacheDir, users, c.ClientACLVerify, log)
	if err != nil {
		return Callers{}, err
	}

	tokens, err := eauth.OpenTokens(c.TokenDir, c.Audit("salt-master", log).Node)
	if err != nil {
		return Callers{}, err
	}

	tokens.Limit(c.UserSessions)
	if _, ok := c.ExternalAuth.Get("auto"); ok {
		log.Warn("external_auth auto lets everybody in; it is for tests only")
	}

	systems, err := openLoginSystems(c, quiet)
	if err != nil {
		return Callers{}, err
	}

	lockout := eauth.NewLockout(c.LoginFailures, c.LoginLock, func(k eauth.Locked) {
		quiet.Warn("a user is locked out at an address after too many wrong passwords", "eauth", k.System,
			"user", k.User, "peer", k.From, "until", k.Until)
		fire(eauth.LockTag, k.Map())
	})

	return Callers{Tokens: tokens, Lockout: lockout, python: systems.python, Auth: eauth.New(eauth.Config{
		External:       c.ExternalAuth,
		Backends:       systems.backends,
		Expand:         systems.expand,
		Lockout:        lockout,
		Other:          systems.python.Login,
		Module:         systems.module(c),
		KeepACL:        c.KeepACLInToken,
		PublisherACL:   c.PublisherACL,
		SudoACL:        c.SudoACL,
		User:           c.User,
		Running:        CurrentUser(),
		Lists:          accessLists{c},
		UserKeys:       known,
		Tokens:         tokens,
		TokenExpire:    c.TokenExpire,
		ExpireOverride: c.TokenExpireUserOverride,
		Log:            quiet,
		Now:            time.Now,
		FailDelay:      time.Second,
	})}, nil
}

// accessLists interprets lists of permissions by the master's options. It implements [eauth.Lists].
type accessLists struct{ options *conf.Master }

func (l accessLists) Permissions(section *value.Map, user string, groups []string) []any {
	return acl.FillAuthList(section, user, groups, l.options.PermissiveACL)
}

func (l accessLists) Grants(permissions []any) bool     { return acl.Grants(permissions) }
func (l accessLists) Rights(permissions []any) []string { return l.options.Rights(permissions) }

// loginSystems holds the external systems that check passwords.
type loginSystems struct {
	backends map[string]eauth.Backend
	expand   map[string]func(context.Context, []any) []any
	python   *eauth.Python
}

// openLoginSystems opens the systems in external_auth. quiet is the logger for lines that untrusted
// senders can provoke.
func openLoginSystems(c *conf.Master, quiet *slog.Logger) (loginSystems, error) {
	s := loginSystems{
		backends: map[string]eauth.Backend{"auto": eauth.Auto, "sharedsecret": eauth.SharedSecret(c.SharedSecret)},
		expand:   map[string]func(context.Context, []any) []any{},
		python:   eauth.NewPython(pyrunner.Pythons(c.RendererPython), c.Path, c.PythonLayer),
	}

	if o, asks := c.LDAPOptions(); asks {
		directory, err := ldap.New(o, quiet, time.Now)
		if err != nil {
			return s, fmt.Errorf("read the options of external_auth's ldap: %w", err)
		}
		s.backends["ldap"] = eauth.LDAP(directory)
		s.expand["ldap"] = directory.Expand
	}

	if o, asks := c.OIDCOptions(); asks {
		provider, err := oidc.New(o, quiet, time.Now)
		if err != nil {
			return s, fmt.Errorf("read the options of external_auth's oidc: %w", err)
		}
		s.backends["oidc"] = eauth.OIDC(provider)
	}

	saltModule := func(system string) eauth.Backend {
		return func(ctx context.Context, user, password string) (eauth.Verdict, error) {
			return s.python.Login(ctx, system, user, password)
		}
	}

	if socket := c.PAMHelper(); socket != "" {
		s.backends["pam"] = eauth.PAM(socket, saltModule("pam"), quiet)
	}

	if section, asks := c.UserFile(); asks {
		file, err := userfile.New(section)
		if err != nil {
			return s, fmt.Errorf("read the options of external_auth's file: %w", err)
		}
		s.backends["file"] = eauth.File(file, saltModule("file"))
	}

	if section, asks := c.LoginURL(); asks {
		address, err := loginurl.New(section)
		if err != nil {
			return s, fmt.Errorf("read the options of external_auth's rest: %w", err)
		}
		s.backends[loginurl.System] = eauth.REST(address)
	}

	return s, nil
}

// permissionsFunc returns the permissions of a user whose password was right.
type permissionsFunc func(ctx context.Context, system, user, password string) ([]any, error)

// module returns the function that calls the module in eauth_acl_module. It returns nil if the
// option is not set.
func (s loginSystems) module(c *conf.Master) (module permissionsFunc) {
	if c.EauthACLModule != "" {
		module = s.python.Permissions
	}

	if rest, asks := s.backends[loginurl.System]; asks && c.EauthACLModule == loginurl.System {
		module = func(ctx context.Context, _, user, password string) ([]any, error) {
			v, err := rest(ctx, user, password)
			return v.Permissions, err
		}
	}

	return module
}
