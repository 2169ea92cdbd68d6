// Package eauth proves who a local caller is: by the key file of a system user, by user name and
// password at an external system, or by a token that was granted for such a log-in. Package acl
// decides what a proven caller may do.
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

// Verdict is the answer of a backend.
type Verdict struct {
	OK bool
	// Name is the user's name as the system spells it, if that differs from the one he typed: ALICE
	// may be alice. Permissions are looked up by Name. "" means that the typed name is right.
	Name   string
	Groups []string
	// Permissions replace those that external_auth grants. It may be nil: external_auth applies.
	Permissions []any
}

// Backend checks a user name and password. It may block; the context bounds
// it.
type Backend func(ctx context.Context, user, password string) (Verdict, error)

// Lists reads lists of permissions.
type Lists interface {
	// Permissions collects what a user and his groups are granted in the section of a system.
	Permissions(section *value.Map, user string, groups []string) []any
	// Grants reports whether permissions permit anything. A user without any is refused as if his
	// password were wrong.
	Grants(permissions []any) bool
	// Rights returns which rights permissions give besides functions, as words for the programs of
	// this project, see [RightsField].
	Rights(permissions []any) []string
}

// Config of an Authenticator.
type Config struct {
	// External is external_auth: system → user or group% → permissions.
	External *value.Map
	// Backends are the backends by name of the system. Other is called for all other systems. It
	// may be nil: they are refused.
	Backends map[string]Backend
	Other    func(ctx context.Context, system, user, password string) (Verdict, error)
	// Module returns the permissions of a user whose password is proven, which replace those of
	// external_auth, or nil to keep those (eauth_acl_module). It may be nil: never replaced.
	Module func(ctx context.Context, system, user, password string) ([]any, error)
	// KeepACL stores the permissions of a token's owner in the token (keep_acl_in_token).
	KeepACL bool
	// PublisherACL is publisher_acl, SudoACL sudo_acl. User is the master's user; Running is the
	// account of the process, if that is another.
	PublisherACL  *value.Map
	SudoACL       bool
	User, Running string
	Lists         Lists
	// Expand holds, by name of the system, a function that changes the permissions granted there.
	Expand map[string]func(ctx context.Context, grants []any) []any
	// UserKeys are the contents of the key files, by system user.
	UserKeys map[string]string
	Tokens   *Tokens
	// TokenExpire is how long a token is valid. ExpireOverride says who may choose another time
	// (token_expire_user_override): true, or a map of external systems to lists of users.
	TokenExpire    time.Duration
	ExpireOverride any
	Log            *slog.Logger
	Now            func() time.Time
	// FailDelay is the least time that a refused log-in takes, to slow down guessing.
	FailDelay time.Duration
	// Lockout refuses log-ins after too many wrong passwords. It may be nil: never. Here reports
	// whether an address belongs to this host. It may be nil: [Here].
	Lockout *Lockout
	Here    func(netip.Addr) bool
}

// Authenticator checks callers. It is safe for concurrent use.
type Authenticator struct {
	cfg          Config
	logins       *ratelimit.Pool[culprit]     // bounds concurrent log-ins: external systems are slow
	people       ratelimit.Lately[culprit]    // users who proved themselves lately, each with the address
	sources      ratelimit.Lately[netip.Addr] // addresses at which a user proved himself lately
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

// Stop turns away all waiting log-ins and ends the delays of refusals.
func (a *Authenticator) Stop() { a.end() }

// Caller is a proven caller.
type Caller struct {
	// Kind is "user", "eauth" or "token".
	Kind string
	// Name is the proven name.
	Name string
	// Eauth is the external system that proved the caller; "" for a key.
	Eauth string
	// All means that the caller needs no permission, because he holds the key of root or of the
	// master's user.
	All bool
	// Permissions are what the caller may do if All is false; package acl checks them.
	Permissions []any
}

// Failure is a refusal in Salt's words.
type Failure struct {
	Name, Message string
	Busy          bool // not refused: the caller may try again, see [ErrBusy]
	// Cause is an [Unanswered] if nobody has checked the password. It may be nil: the password was
	// refused. The caller must not see it.
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

// Busy returns the answer for [ErrBusy]. Salt's tools show the text of this name
// (salt/client/__init__.py pub).
func Busy() *Failure {
	return &Failure{Name: "AuthenticationError", Message: ErrBusy.Error(), Busy: true}
}

// ErrorName returns the name of Salt's error class for refusals of this kind of log-in.
func ErrorName(kind string) string {
	switch kind {
	case "token":
		return "TokenAuthenticationError"
	case "eauth":
		return "EauthAuthenticationError"
	}
	return "UserAuthenticationError"
}

// Check proves the caller of a clear command. from is the address on whose behalf it was sent
// ([Authenticator.Source]). Token and password are taken from creds (the load itself, or its kwargs
// for publish), the key of a system user from load. Check removes the secrets from both maps.
func (a *Authenticator) Check(ctx context.Context, load, creds *value.Map, from netip.Addr) (Caller, error) {
	creds = cmp.Or(creds, value.NewMap())
	defer func() {
		for _, k := range []string{"token", "password", "key"} {
			creds.Delete(k)
			load.Delete(k)
		}
	}()

	if _, ok := creds.Get("token"); ok {
		caller, err := a.byToken(ctx, creds.Str("token"))
		if source := ratelimit.Source(a.countsAt(from)); err == nil && source.IsValid() {
			a.sources.Note(source, a.cfg.Now())
		}
		return caller, err
	}

	if _, ok := creds.Get("eauth"); ok {
		return a.byPassword(ctx, creds, a.countsAt(from))
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
	return Caller{Kind: "token", Name: t.Name, Eauth: t.Eauth, Permissions: a.expanded(ctx, t.Eauth, g)}, nil
}

// tokenOf returns a token and what its owner is granted today. It returns false for an invalid token,
// and if the owner has lost all permissions.
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

// grantOfToken returns what the owner of a token is granted.
func (a *Authenticator) grantOfToken(section *value.Map, t Token) grant {
	if a.cfg.KeepACL {
		return a.grantOf(section, t.Name, t.Groups, t.Permissions)
	}
	return a.grantOf(section, t.Name, t.Groups, nil)
}

// grant is the permissions of a user.
type grant struct {
	permissions []any
	said        bool // permissions replace those of external_auth: they come from the system, a module or the token
}

// grantOf returns the permissions in stated, or, if stated is nil, what external_auth grants a user
// and his groups.
func (a *Authenticator) grantOf(section *value.Map, name string, groups []string, stated []any) grant {
	if stated != nil {
		return grant{permissions: stated, said: true}
	}
	return grant{permissions: a.cfg.Lists.Permissions(section, name, groups)}
}

func (a *Authenticator) grants(g grant) bool { return a.cfg.Lists.Grants(g.permissions) }

// expanded returns a grant's permissions after Config.Expand. Salt expands them only for passwords,
// so that there ldap() targets never apply to a token.
func (a *Authenticator) expanded(ctx context.Context, system string, g grant) []any {
	if expand := a.cfg.Expand[system]; expand != nil && !g.said {
		return expand(ctx, g.permissions)
	}
	return g.permissions
}

// section returns the part of external_auth for one system.
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
	}, nil
}

// byKey follows Salt's authenticate_key, with one difference: the key decides who the caller is. The
// names root, sudo_NAME, that of the master's user and an empty name need the key of root or of the
// master's user, which Salt's clients send (salt/client/__init__.py __read_master_key); Salt accepts
// any known key. sudo_NAME acts as NAME with sudo_acl. Every other name needs its user's key.
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
		// The key of root or of the master's user allows any name.
		return Caller{Kind: "user", Name: name, All: true}, nil
	case known && name != "" && a.ownsKey(name, key):
		return a.restricted(name, denied)
	}

	a.cfg.Log.Warn(`Authentication failure of type "user" occurred.`, "user", name)
	return Caller{}, denied
}

// ownerOfKey returns the user of a key. It compares the key with all known ones, each in constant
// time.
func (a *Authenticator) ownerOfKey(key string) (string, bool) {
	found, ok := "", false
	for user, k := range a.cfg.UserKeys {
		if k != "" && subtle.ConstantTimeCompare([]byte(k), []byte(key)) == 1 {
			found, ok = user, true
		}
	}
	return found, ok
}

// Knows reports whether key belongs to a system user, token is valid, or passed was written by
// [source.Say] with a user's key. It does not check permissions.
func (a *Authenticator) Knows(key, token, passed string) bool {
	if key != "" {
		if _, ok := a.ownerOfKey(key); ok {
			return true
		}
	}

	if passed != "" {
		if _, ok := a.Source(value.NewMap(source.Field, passed), netip.Addr{}); ok {
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

// restricted collects the permissions of publisher_acl whose user pattern
// matches (salt/utils/master.py get_values_of_matching_keys).
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

// RightsField is the field with the rights other than functions of a token's owner, in the master's
// answers about a token: words of acl, for salt-api. Salt does not have it, and its clients ignore
// it.
const RightsField = "saltern_rights"

// MakeToken logs a caller in and returns a token. from is the address on whose behalf he asks
// ([Authenticator.Source]). The empty text is Salt's refusal (salt/master.py mk_token). The error may
// be [ErrBusy], or an [Unanswered] beside the empty text.
func (a *Authenticator) MakeToken(ctx context.Context, load *value.Map, from netip.Addr) (any, error) {
	system, user := load.Str("eauth"), load.Str("username")
	proven, err := a.logIn(ctx, login{system, user, load.Str("password"), a.countsAt(from), true})
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

	wanted := Token{Name: user, Eauth: system, Groups: proven.groups, From: shownAddr(from)}
	if a.cfg.KeepACL {
		wanted.Permissions = append([]any{}, a.expanded(ctx, system, proven.grant)...)

		// Nothing may be left after the expansion, if a directory lacks the computers that it names.
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

// describe returns a token in the form that clients see.
func (a *Authenticator) describe(t Token, g grant) *value.Map {
	m := t.Map()
	m.Set(RightsField, value.List(a.cfg.Lists.Rights(g.permissions)))
	return m
}

// shownAddr returns an address in the form for the list of tokens, or "" if it is unknown.
func shownAddr(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.Unmap().String()
}

// GetToken returns the description of a token. For an unknown or expired token it returns Salt's
// answer, the empty map.
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
