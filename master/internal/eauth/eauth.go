// Package eauth proves who a local caller is: by the key file of a system
// user, by user name and password against an external system, or by a token
// that was given out for the latter. What a proven caller may do is decided
// by package acl.
//
// Sources: salt/auth/__init__.py (LoadAuth), salt/daemons/masterapi.py
// (access_keys), salt/master.py (ClearFuncs).
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

// Verdict of a backend.
type Verdict struct {
	OK bool
	// Name is the user as the system has him, where that differs from what he wrote: ALICE
	// may be alice. All lists go by it. "": as he wrote.
	Name   string
	Groups []string
	// Permissions are in the place of what external_auth grants; nil: nothing is said.
	Permissions []any
}

// Backend checks a user name and password. It may block; the context bounds
// it.
type Backend func(ctx context.Context, user, password string) (Verdict, error)

// Config of an Authenticator.
type Config struct {
	// External is external_auth: system → user or group% → permissions.
	External *value.Map
	// Backends by name of the system. Other is asked for systems that have
	// none of their own; nil refuses them.
	Backends map[string]Backend
	Other    func(ctx context.Context, system, user, password string) (Verdict, error)
	// Module gives the permissions of somebody whose password is proven, in the place of
	// those of external_auth; nil: nothing is said (eauth_acl_module). It may be nil.
	Module func(ctx context.Context, system, user, password string) ([]any, error)
	// KeepACL puts into a token what its owner may do (keep_acl_in_token).
	KeepACL bool
	// PublisherACL is publisher_acl, SudoACL sudo_acl, User the master's user,
	// Running the one as whom it runs, if that is another.
	PublisherACL  *value.Map
	SudoACL       bool
	User, Running string
	// Permissions collects what user and groups are granted in the section
	// of a system (acl.FillAuthList).
	Permissions func(section *value.Map, user string, groups []string) []any
	// Grants reports whether permissions permit anything (acl.Grants). Who is granted
	// nothing is refused as if his password were wrong. Nil: everybody is let in.
	Grants func(permissions []any) bool
	// Rights are what permissions allow that is no function, in words for the programs of
	// this project, see [RightsField]. It may be nil: no token says any.
	Rights func(permissions []any) []string
	// Expand changes what was collected, by name of the system.
	Expand map[string]func(ctx context.Context, grants []any) []any
	// UserKeys are the contents of the key files by system user.
	UserKeys map[string]string
	Tokens   *Tokens
	// TokenExpire is the life of a token; ExpireOverride says who may choose another
	// (token_expire_user_override): true, or a map of external systems to lists of users.
	TokenExpire    time.Duration
	ExpireOverride any
	Log            *slog.Logger
	Now            func() time.Time
	// FailDelay is the least time a failed login takes, against guessing.
	FailDelay time.Duration
	// Lockout refuses after too many wrong passwords; nil never does. Here reports
	// whether an address is one of this host; nil is [Here].
	Lockout *Lockout
	Here    func(netip.Addr) bool
}

// Authenticator checks callers. It is safe for concurrent use.
type Authenticator struct {
	cfg          Config
	logins       *ratelimit.Pool[culprit]     // external systems are slow: bound them
	people       ratelimit.Lately[culprit]    // users who proved themselves, each at an address
	sources      ratelimit.Lately[netip.Addr] // where somebody did
	counters     loginCounters
	ending       context.Context // ends with the master
	end          context.CancelFunc
	mu           sync.Mutex
	slowestCheck time.Duration
}

// New makes an Authenticator.
func New(cfg Config) *Authenticator {
	if cfg.Here == nil {
		cfg.Here = Here
	}
	a := &Authenticator{cfg: cfg, logins: ratelimit.NewPool[culprit](loginsAtWork, loginsInLine), slowestCheck: cfg.FailDelay}
	a.ending, a.end = context.WithCancel(context.Background())
	return a
}

// Stop sends away all log-ins that wait, and lets no refusal take its time any more.
func (a *Authenticator) Stop() { a.end() }

// Caller is a proven caller.
type Caller struct {
	// Kind is "user", "eauth" or "token".
	Kind string
	// Name is the proven name.
	Name string
	// Eauth is the system of external authentication that proved it; "" for a key.
	Eauth string
	// All means that the caller needs no permission: he holds the key of root or
	// of the master's user.
	All bool
	// Permissions is what acl checks otherwise.
	Permissions []any
}

// Failure tells why a caller was refused, in Salt's words.
type Failure struct {
	Name, Message string
	Busy          bool // it is no refusal: he may try again; see [ErrBusy]
	// Cause is why nobody has looked at the password, an [Unanswered]; nil: it was refused.
	// It is not for the caller.
	Cause error
}

func (f *Failure) Unwrap() error { return f.Cause }

func (f *Failure) Error() string { return f.Message }

// Map is the answer that clients of Salt know.
func (f *Failure) Map() *value.Map {
	m := value.NewMap("error", value.NewMap("name", f.Name, "message", f.Message))
	if f.Busy {
		m.Set(source.BusyField, true)
	}
	return m
}

// Busy is the answer of [ErrBusy]. Salt's tools show the text of this name
// (salt/client/__init__.py pub).
func Busy() *Failure {
	return &Failure{Name: "AuthenticationError", Message: ErrBusy.Error(), Busy: true}
}

// ErrorName is the class Salt uses for refusals of this kind of login.
func ErrorName(kind string) string {
	switch kind {
	case "token":
		return "TokenAuthenticationError"
	case "eauth":
		return "EauthAuthenticationError"
	}
	return "UserAuthenticationError"
}

// Check proves the caller of a clear command that is given for an address
// ([Authenticator.Source]). Token and
// password are looked for in creds (the load itself, or its kwargs for publish), the
// key of a system user in load. Both maps lose what is secret in them.
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

// tokenOf finds a token that is good, and what its owner is granted today. A token whose
// owner has lost all that he was granted is as good as none.
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

// grantOfToken is what the owner of a token is granted.
func (a *Authenticator) grantOfToken(section *value.Map, t Token) grant {
	if a.cfg.KeepACL {
		return a.grantOf(section, t.Name, t.Groups, t.Permissions)
	}
	return a.grantOf(section, t.Name, t.Groups, nil)
}

// grant is what somebody is granted.
type grant struct {
	permissions []any
	said        bool // by the system, a module or a token, in the place of external_auth
}

// grantOf is what was said of somebody, or what external_auth grants him and his groups
// where nothing was said (nil).
func (a *Authenticator) grantOf(section *value.Map, name string, groups []string, said []any) grant {
	if said != nil {
		return grant{permissions: said, said: true}
	}
	return grant{permissions: a.cfg.Permissions(section, name, groups)}
}

func (a *Authenticator) grants(g grant) bool {
	return a.cfg.Grants == nil || a.cfg.Grants(g.permissions)
}

// expanded are the permissions of a grant. Salt expands them for passwords only, so that
// ldap() targets never count with a token.
func (a *Authenticator) expanded(ctx context.Context, system string, g grant) []any {
	if expand := a.cfg.Expand[system]; expand != nil && !g.said {
		return expand(ctx, g.permissions)
	}
	return g.permissions
}

// section is the part of external_auth for one system.
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

// byKey follows authenticate_key, with a difference: who holds a key is who he
// is. The names root, sudo_NAME, the master's user and none at all are for the
// keys of root and of the master's user only, as Salt's clients send them
// (salt/client/__init__.py __read_master_key); Salt takes any known key.
// sudo_NAME acts as NAME with sudo_acl. Others need their own key.
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
		// The superuser's key may be used under any name.
		return Caller{Kind: "user", Name: name, All: true}, nil
	case known && name != "" && a.ownsKey(name, key):
		return a.restricted(name, denied)
	}

	a.cfg.Log.Warn(`Authentication failure of type "user" occurred.`, "user", name)
	return Caller{}, denied
}

// ownerOfKey compares a key with all known ones, in constant time each.
func (a *Authenticator) ownerOfKey(key string) (string, bool) {
	found, ok := "", false
	for user, k := range a.cfg.UserKeys {
		if k != "" && subtle.ConstantTimeCompare([]byte(k), []byte(key)) == 1 {
			found, ok = user, true
		}
	}
	return found, ok
}

// Knows reports whether a key is that of a system user, a token one that was given out and
// has not expired, or said what [source.Say] writes with such a key. It says nothing of what
// their bearer may do.
func (a *Authenticator) Knows(key, token, said string) bool {
	if key != "" {
		if _, ok := a.ownerOfKey(key); ok {
			return true
		}
	}

	if said != "" {
		if _, ok := a.Source(value.NewMap(source.Field, said), netip.Addr{}); ok {
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

// mayChooseExpire reports whether a user may choose the life of a token.
func (a *Authenticator) mayChooseExpire(system, user string) bool {
	if m, ok := a.cfg.ExpireOverride.(*value.Map); ok {
		return slices.Contains(m.List(system), any(user))
	}
	all, _ := a.cfg.ExpireOverride.(bool)
	return all
}

// RightsField is where the master's answers about a token say what its owner may do that
// is no function: words of acl, for salt-api. It is an addition of ours, which Salt's
// clients ignore.
const RightsField = "saltern_rights"

// MakeToken logs a caller in for an address ([Authenticator.Source]) and gives out a token;
// the empty text is Salt's refusal (salt/master.py mk_token). The error may be [ErrBusy], or
// beside the empty text an [Unanswered].
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

	who := Token{Name: user, Eauth: system, Groups: proven.groups, From: shownAddr(from)}
	if a.cfg.KeepACL {
		who.Permissions = append([]any{}, a.expanded(ctx, system, proven.grant)...)

		// such as computers, of which a directory has none
		if !a.grants(grant{permissions: who.Permissions, said: true}) {
			a.cfg.Log.Warn("a token of this account would permit nothing, and none is given", "eauth",
				system, "user", user)
			a.refuseSlowly(ctx)
			return "", nil
		}
	}

	t, err := a.cfg.Tokens.Make(who, life, a.cfg.Now())
	if err != nil {
		return nil, err
	}

	section, _ := a.section(system)
	return a.describe(t, a.grantOfToken(section, t)), nil
}

// describe is a token as clients see it.
func (a *Authenticator) describe(t Token, g grant) *value.Map {
	m := t.Map()
	if a.cfg.Rights != nil {
		m.Set(RightsField, value.List(a.cfg.Rights(g.permissions)))
	}
	return m
}

// shownAddr is an address as the list of tokens shows it.
func shownAddr(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.Unmap().String()
}

// GetToken describes a token; the empty map is Salt's answer for one that is
// unknown or expired.
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
