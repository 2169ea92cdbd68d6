// Package eauth authenticates local callers: by the key file of a system user, by user name and
// password at an external system, or by a token that an earlier log-in returned. Package acl
// decides what an authenticated caller may do.
//
// Sources: salt/auth/__init__.py (LoadAuth), salt/daemons/masterapi.py (access_keys),
// salt/master.py (ClearFuncs).
package eauth

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"saltern/internal/ratelimit"
	"saltern/master/internal/source"
	"saltern/master/pattern"
	"saltern/master/value"
)

// Verdict is a backend's answer to a log-in.
type Verdict struct {
	OK bool
	// Name is the user's name in the spelling of the external system, if the user typed another
	// spelling: ALICE may be alice. Permissions are looked up by Name. "" means that the user typed
	// the system's spelling.
	Name   string
	Groups []string
	// Permissions replace the permissions that external_auth grants. It may be nil: external_auth
	// applies.
	Permissions []any
}

// Backend checks a user name and password. It may block until the context ends.
type Backend func(ctx context.Context, user, password string) (Verdict, error)

// Lists interprets lists of permissions.
type Lists interface {
	// Permissions returns the permissions that the section of an external system grants a user and
	// his groups.
	Permissions(section *value.Map, user string, groups []string) []any
	// Grants reports whether permissions permit anything. A user whose permissions permit nothing
	// is refused as if his password were wrong.
	Grants(permissions []any) bool
	// Rights returns the rights in permissions that do not concern functions, as keywords for the
	// programs of this project, see [RightsField].
	Rights(permissions []any) []string
}

// Config of an Authenticator.
type Config struct {
	// External is external_auth: system → user or group% → permissions.
	External *value.Map
	// Backends contains the backends by the name of their system. Other serves all systems that
	// Backends does not contain. Other may be nil: log-ins at such systems are refused.
	Backends map[string]Backend
	Other    func(ctx context.Context, system, user, password string) (Verdict, error)
	// Module returns the permissions of a user whose password was right. They replace those of
	// external_auth; if Module returns nil, external_auth applies (eauth_acl_module). Module may be
	// nil: external_auth always applies.
	Module func(ctx context.Context, system, user, password string) ([]any, error)
	// KeepACL stores the permissions of a token's owner in the token (keep_acl_in_token).
	KeepACL bool
	// PublisherACL is publisher_acl, SudoACL is sudo_acl. User is the option user. Running is the
	// account of the process, if that differs from User.
	PublisherACL  *value.Map
	SudoACL       bool
	User, Running string
	Lists         Lists
	// Expand holds, by the name of an external system, a function that returns the expanded form of
	// the permissions that external_auth grants for that system.
	Expand map[string]func(ctx context.Context, grants []any) []any
	// UserKeys are the contents of the key files, by system user.
	UserKeys map[string]string
	Tokens   *Tokens
	// TokenExpire is how long a token is valid. ExpireOverride lists the users who may choose
	// another time (token_expire_user_override): true for all users, or a map of external systems
	// to lists of users.
	TokenExpire    time.Duration
	ExpireOverride any
	Log            *slog.Logger
	Now            func() time.Time
	// FailDelay is the least time that a refused log-in takes. The delay slows down password
	// guessing.
	FailDelay time.Duration
	// Lockout refuses log-ins after too many wrong passwords. It may be nil: no log-in is refused
	// for that reason. Here reports whether an address belongs to this host. It may be nil: the
	// function [Here] is used.
	Lockout *Lockout
	Here    func(netip.Addr) bool
}

// Authenticator checks callers. It is safe for concurrent use.
type Authenticator struct {
	cfg          Config
	logins       *ratelimit.Pool[culprit]     // bounds concurrent log-ins
	people       ratelimit.Lately[culprit]    // users who logged in lately, each with the address from which he did
	sources      ratelimit.Lately[netip.Addr] // addresses from which a user logged in lately
	counters     loginCounters
	ending       context.Context // ends when the master ends
	end          context.CancelFunc
	mu           sync.Mutex
	slowestCheck time.Duration
}

// New returns an Authenticator.
func New(cfg Config) *Authenticator {
	if cfg.Here == nil {
		cfg.Here = Here
	}
	a := &Authenticator{cfg: cfg, logins: ratelimit.NewPool[culprit](loginsAtWork, loginsInLine), slowestCheck: cfg.FailDelay}
	a.ending, a.end = context.WithCancel(context.Background())
	return a
}

// Stop refuses all waiting log-ins and ends the delays of refusals.
func (a *Authenticator) Stop() { a.end() }

// Caller is an authenticated caller.
type Caller struct {
	// Kind is how the caller was authenticated: "user" (by a key file), "eauth" or "token".
	Kind string
	// Name is the name of the authenticated user.
	Name string
	// Eauth is the external system that authenticated the caller; "" for a caller with a key file.
	Eauth string
	// All means that the caller may do everything, because he holds the key of root or of the
	// master's user.
	All bool
	// Permissions lists the caller's permissions, in the form that package acl checks. It is not
	// used if All is true.
	Permissions []any
	// Groups lists the caller's groups in the system Eauth, as they were at the log-in.
	Groups []string
}

// Failure is a refusal of a caller, with the error name and the text that Salt uses.
type Failure struct {
	Name, Message string
	Busy          bool // nobody has checked the credentials: the caller may try again, see [ErrBusy]
	// Cause is an [Unanswered] if nobody has checked the password. It may be nil: the password was
	// refused. The master must not send Cause to the caller.
	Cause error
}

func (f *Failure) Unwrap() error { return f.Cause }

func (f *Failure) Error() string { return f.Message }

// Map returns the answer in the form that Salt's clients know.
func (f *Failure) Map() *value.Map {
	m := value.NewMap("error", value.NewMap("name", f.Name, "message", f.Message))
	if f.Busy {
		m.Set(source.BusyField, true)
	}
	return m
}

// Busy returns the answer for [ErrBusy]. Its error name is one whose text Salt's tools show to the
// user (salt/client/__init__.py pub).
func Busy() *Failure {
	return &Failure{Name: "AuthenticationError", Message: ErrBusy.Error(), Busy: true}
}

// ErrorName returns the name of Salt's error class for refused log-ins of this kind.
func ErrorName(kind string) string {
	switch kind {
	case "token":
		return "TokenAuthenticationError"
	case "eauth":
		return "EauthAuthenticationError"
	}
	return "UserAuthenticationError"
}

// Check authenticates the caller of a clear command. client is the address on whose behalf the
// command was sent ([Authenticator.Source]). Check reads token and password from creds (the load
// itself, or its kwargs for publish) and the key of a system user from load. It removes these
// secrets from both maps.
func (a *Authenticator) Check(ctx context.Context, load, creds *value.Map, client netip.Addr) (Caller, error) {
	creds = cmp.Or(creds, value.NewMap())
	defer func() {
		for _, k := range []string{"token", "password", "key"} {
			creds.Delete(k)
			load.Delete(k)
		}
	}()

	if _, ok := creds.Get("token"); ok {
		caller, err := a.byToken(ctx, creds.Str("token"))
		if source := ratelimit.Source(a.countsAt(client)); err == nil && source.IsValid() {
			a.sources.Note(source, a.cfg.Now())
		}
		return caller, err
	}

	if _, ok := creds.Get("eauth"); ok {
		return a.byPassword(ctx, creds, a.countsAt(client))
	}

	return a.byKey(load)
}

func (a *Authenticator) byToken(ctx context.Context, token string) (Caller, error) {
	t, g, ok := a.tokenOf(token)
	if !ok {
		a.cfg.Log.Warn(`Authentication failure of type "token" occurred.`)
		return Caller{}, &Failure{
			Name:    "TokenAuthenticationError",
			Message: `Authentication failure of type "token" occurred.`,
		}
	}
	return Caller{
		Kind:        "token",
		Name:        t.Name,
		Eauth:       t.Eauth,
		Permissions: a.expanded(ctx, t.Eauth, g),
		Groups:      t.Groups,
	}, nil
}

// tokenOf returns a token and its owner's current permissions. It returns false if the token is
// invalid or the owner has no permissions any more.
func (a *Authenticator) tokenOf(token string) (Token, grant, bool) {
	t, err := a.cfg.Tokens.Get(token, a.cfg.Now())
	if err != nil {
		return Token{}, grant{}, false
	}
	section, ok := a.section(t.Eauth)
	if !ok {
		return Token{}, grant{}, false
	}
	g := a.grantOfToken(section, t)
	return t, g, a.grants(g)
}

// grantOfToken returns the permissions of the owner of a token.
func (a *Authenticator) grantOfToken(section *value.Map, t Token) grant {
	if a.cfg.KeepACL {
		return a.grantOf(section, t.Name, t.Groups, t.Permissions)
	}
	return a.grantOf(section, t.Name, t.Groups, nil)
}

// grant is the permissions of a user.
type grant struct {
	permissions []any
	// said means that the permissions come from the external system, a module or the token, and not
	// from external_auth.
	said bool
}

// grantOf returns the permissions in stated. If stated is nil, it returns the permissions that
// external_auth grants a user and his groups.
func (a *Authenticator) grantOf(section *value.Map, name string, groups []string, stated []any) grant {
	if stated != nil {
		return grant{permissions: stated, said: true}
	}
	return grant{permissions: a.cfg.Lists.Permissions(section, name, groups)}
}

func (a *Authenticator) grants(g grant) bool { return a.cfg.Lists.Grants(g.permissions) }

// expanded returns a grant's permissions after Config.Expand. (Salt expands them only when the
// caller logs in with a password, so in Salt ldap() targets never apply to a token.)
func (a *Authenticator) expanded(ctx context.Context, system string, g grant) []any {
	if expand := a.cfg.Expand[system]; expand != nil && !g.said {
		return expand(ctx, g.permissions)
	}
	return g.permissions
}

// section returns the part of external_auth for one system. It returns false if there is no such
// part, and nil and true if the part is not a map.
func (a *Authenticator) section(system string) (*value.Map, bool) {
	v, ok := a.cfg.External.Get(system)
	if !ok {
		return nil, false
	}
	m, _ := v.(*value.Map)
	return m, true
}

func (a *Authenticator) byPassword(ctx context.Context, creds *value.Map, from netip.Addr) (Caller, error) {
	system := creds.Str("eauth")
	name, shown := creds.Str("username"), "UNKNOWN"
	if name != "" {
		shown = name
	}

	proven, err := a.logIn(ctx, login{system, name, creds.Str("password"), from, false})
	if errors.Is(err, ErrBusy) {
		return Caller{}, Busy()
	}

	if err != nil {
		a.cfg.Log.Warn(`Authentication failure of type "eauth" occurred.`, "user", shown)
		failure := &Failure{
			Name:    "EauthAuthenticationError",
			Message: fmt.Sprintf(`Authentication failure of type "eauth" occurred for user %s.`, shown),
		}

		if unanswered, ok := errors.AsType[*Unanswered](err); ok {
			failure.Cause = unanswered
		}

		return Caller{}, failure
	}

	return Caller{
		Kind:        "eauth",
		Name:        proven.name,
		Eauth:       system,
		Permissions: a.expanded(ctx, system, proven.grant),
		Groups:      proven.groups,
	}, nil
}

// byKey authenticates a caller by the key of a system user, as Salt's authenticate_key does, with
// one difference: in Salt any known key is valid for any name. Here the names root, sudo_NAME, the
// name of the master's user and the empty name need the key of root or of the master's user, which
// Salt's clients send (salt/client/__init__.py __read_master_key). Every other name needs the key
// of that user. sudo_NAME acts as NAME with sudo_acl.
func (a *Authenticator) byKey(load *value.Map) (Caller, error) {
	denied := &Failure{Name: "UserAuthenticationError", Message: `Authentication failure of type "user" occurred`}
	key := load.Str("key")
	if key == "" {
		a.cfg.Log.Warn(`Authentication failure of type "user" occurred.`)
		return Caller{}, denied
	}

	user, named := load.Get("user")
	name, _ := user.(string)
	owner, known := a.ownerOfKey(key)
	super := known && (owner == "root" || owner == a.cfg.User || owner == a.cfg.Running)
	switch sudo, isSudo := strings.CutPrefix(name, "sudo_"); {
	case !named && super:
		return Caller{Kind: "user", Name: a.cfg.User, All: true}, nil
	case isSudo && super:
		if !a.cfg.SudoACL || a.cfg.PublisherACL.Len() == 0 {
			return Caller{Kind: "user", Name: name, All: true}, nil
		}
		return a.restricted(sudo, denied)
	case name != "" && super:
		// A caller with the key of root or of the master's user may use any name.
		return Caller{Kind: "user", Name: name, All: true}, nil
	case known && name != "" && a.ownsKey(name, key):
		return a.restricted(name, denied)
	}

	a.cfg.Log.Warn(`Authentication failure of type "user" occurred.`, "user", name)
	return Caller{}, denied
}

// ownerOfKey returns the system user to whom a key belongs. It returns false if the key belongs to
// nobody. It compares the key with every known key in constant time.
func (a *Authenticator) ownerOfKey(key string) (string, bool) {
	found, ok := "", false
	for user, k := range a.cfg.UserKeys {
		if k != "" && subtle.ConstantTimeCompare([]byte(k), []byte(key)) == 1 {
			found, ok = user, true
		}
	}
	return found, ok
}

// Knows reports whether one of the arguments is valid: key is the key of a system user, token is a
// valid token, signedSource was made by [source.Say] with the key of root or of the master's user.
// It does not check permissions.
func (a *Authenticator) Knows(key, token, signedSource string) bool {
	if key != "" {
		if _, ok := a.ownerOfKey(key); ok {
			return true
		}
	}

	if signedSource != "" {
		if _, ok := a.Source(value.NewMap(source.Field, signedSource), netip.Addr{}); ok {
			return true
		}
	}

	if token == "" {
		return false
	}

	_, err := a.cfg.Tokens.Get(token, a.cfg.Now())
	return err == nil
}

func (a *Authenticator) ownsKey(user, key string) bool {
	k := a.cfg.UserKeys[user]
	return k != "" && subtle.ConstantTimeCompare([]byte(k), []byte(key)) == 1
}

// restricted returns the caller with the permissions of the publisher_acl entries whose user
// pattern matches (salt/utils/master.py get_values_of_matching_keys).
func (a *Authenticator) restricted(user string, denied *Failure) (Caller, error) {
	var perms []any
	for k, v := range a.cfg.PublisherACL.All() {
		expr, _ := k.(string)
		if !pattern.Expr(user, expr) {
			continue
		}
		if l, ok := v.([]any); ok {
			perms = append(perms, l...)
		}
	}

	if len(perms) == 0 {
		return Caller{}, denied
	}

	return Caller{Kind: "user", Name: user, Permissions: perms}, nil
}

// mayChooseExpire reports whether a user may choose how long his token is valid.
func (a *Authenticator) mayChooseExpire(system, user string) bool {
	if m, ok := a.cfg.ExpireOverride.(*value.Map); ok {
		return slices.Contains(m.List(system), any(user))
	}
	all, _ := a.cfg.ExpireOverride.(bool)
	return all
}

// RightsField is a field in the master's answers about a token, for salt-api. It lists the rights
// of the token's owner that do not concern functions, as keywords of package acl. Salt has no such
// field, and its clients ignore it.
const RightsField = "saltern_rights"

// MakeToken logs a caller in and returns a token. client is the address on whose behalf the caller
// logs in ([Authenticator.Source]). If MakeToken refuses the log-in, it returns the empty text, as
// Salt does (salt/master.py mk_token). The error may be [ErrBusy], or an [Unanswered] together with
// the empty text.
func (a *Authenticator) MakeToken(ctx context.Context, load *value.Map, client netip.Addr) (any, error) {
	system, user := load.Str("eauth"), load.Str("username")
	proven, err := a.logIn(ctx, login{system, user, load.Str("password"), a.countsAt(client), true})
	if errors.Is(err, ErrBusy) {
		return nil, err
	}
	if err != nil {
		a.cfg.Log.Warn(`Authentication failure of type "eauth" occurred.`, "user", user)
		if unanswered, ok := errors.AsType[*Unanswered](err); ok {
			return "", unanswered
		}
		return "", nil
	}

	user = proven.name

	life := a.cfg.TokenExpire
	if secs, ok := load.Int("token_expire"); ok && secs > 0 && a.mayChooseExpire(system, user) {
		life = time.Duration(secs) * time.Second
	}

	wanted := Token{Name: user, Eauth: system, Groups: proven.groups, From: shownAddr(client)}
	if a.cfg.KeepACL {
		wanted.Permissions = append([]any{}, a.expanded(ctx, system, proven.grant)...)

		// The expanded permissions may be empty, if the directory does not contain the named
		// computers.
		if !a.grants(grant{permissions: wanted.Permissions, said: true}) {
			a.cfg.Log.Warn("a token of this account would permit nothing, and none is given", "eauth",
				system, "user", user)
			a.refuseSlowly(ctx)
			return "", nil
		}
	}

	t, err := a.cfg.Tokens.Make(wanted, life, a.cfg.Now())
	if err != nil {
		return nil, err
	}

	section, _ := a.section(system)
	return a.describe(t, a.grantOfToken(section, t)), nil
}

// describe returns the description of a token that clients receive.
func (a *Authenticator) describe(t Token, g grant) *value.Map {
	m := t.Map()
	m.Set(RightsField, value.List(a.cfg.Lists.Rights(g.permissions)))
	return m
}

// shownAddr returns an address in the form in which lists of tokens show it, or "" if the address
// is unknown.
func shownAddr(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.Unmap().String()
}

// GetToken returns the description of a token. For an unknown or expired token it returns an empty
// map, as Salt does.
func (a *Authenticator) GetToken(load *value.Map) any {
	if _, ok := load.Get("token"); !ok {
		return false
	}
	t, g, ok := a.tokenOf(load.Str("token"))
	if !ok {
		return value.NewMap()
	}
	return a.describe(t, g)
}
