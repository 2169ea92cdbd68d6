package eauth

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"sync/atomic"
	"time"

	"saltern/internal/ratelimit"
	"saltern/master/internal/request"
)

// loginsAtWork bounds the number of log-ins that are checked at once. loginsInLine bounds the
// number of log-ins that wait for a check. Each log-in occupies a worker of the request port, and
// refusals are delayed on purpose, so password guessers fill as many slots as they can get.
// Therefore the number of slots that may be taken depends on the sender. Addresses from which no
// user logged in lately may together take the fewest, and each of them no more than it leaves free
// for the others. Addresses from which a user logged in lately may take some more. A user who logs
// in from the address of his last log-in may take all.
//
// Overflow policy: a log-in waits at most loginWait. If no waiting slot is free, it is answered
// with [ErrBusy] at once. [ErrBusy] is not a refusal, because nobody has checked the password.
var (
	loginsAtWork = ratelimit.Bounds{Strangers: 8, Familiar: 12, All: 16}
	loginsInLine = ratelimit.Bounds{Strangers: 48, Familiar: 96, All: 128}
)

// loginWait is how long a log-in waits for a slot. Tools wait twice as long for the answer.
const loginWait = 15 * time.Second

var (
	// ErrBusy means that too many other log-ins were in progress, so nobody has checked the
	// password.
	ErrBusy = errors.New("too many log-ins are under way at once; nobody has looked at the password. Try again in a few seconds")
	// errWrong means that a log-in was refused. The log contains the reason.
	errWrong = errors.New("the log-in is refused")
)

// Unanswered means that the external system did not answer, so nobody has checked the password. Its
// text goes to the log and the audit record only; the caller gets the same refusal as after a wrong
// password.
type Unanswered struct {
	System string
	Err    error
}

func (u *Unanswered) Error() string {
	return fmt.Sprintf("nobody has looked at the password: external_auth %s does not answer: %v", u.System, u.Err)
}

func (u *Unanswered) Unwrap() error { return u.Err }

// login is a log-in by name and password.
type login struct {
	system, user, password string
	from                   netip.Addr // invalid if unknown
	forToken               bool       // the caller wants a token
}

// loginCounters count log-ins since the start.
type loginCounters struct{ right, wrong, ungranted, faults, busy atomic.Uint64 }

// Stats of log-ins by name and password since the start.
type Stats struct {
	Right uint64 `json:"right"`
	Wrong uint64 `json:"wrong"` // the external system refused the name or the password
	// Ungranted counts log-ins with a right password but without permissions. They were refused as
	// if the password were wrong.
	Ungranted uint64       `json:"ungranted"`
	Faults    uint64       `json:"faults"`  // the external system did not answer
	Busy      uint64       `json:"busy"`    // refused because too many log-ins were in progress
	Waiting   int          `json:"waiting"` // log-ins that wait now
	Lockout   LockoutStats `json:"lockout"` // see Lockout
	// EndedTokens counts tokens that were removed because their user had too many newer tokens.
	EndedTokens uint64 `json:"ended_tokens"`
}

// Stats returns the counters.
func (a *Authenticator) Stats() Stats {
	s := Stats{
		Right:     a.counters.right.Load(),
		Wrong:     a.counters.wrong.Load(),
		Ungranted: a.counters.ungranted.Load(),
		Faults:    a.counters.faults.Load(),
		Busy:      a.counters.busy.Load(),
		Waiting:   a.logins.Waiting(),
	}

	if a.cfg.Tokens != nil {
		s.EndedTokens = a.cfg.Tokens.limit.ended.Load()
	}

	if a.cfg.Lockout != nil {
		s.Lockout = a.cfg.Lockout.Stats(a.cfg.Now())
	}

	return s
}

// proven is an authenticated user who has at least one permission.
type proven struct {
	grant
	name   string // name as the external system spells it
	groups []string
}

// logIn checks a name and a password. The error is [ErrBusy], errWrong or an [Unanswered].
func (a *Authenticator) logIn(ctx context.Context, t login) (proven, error) {
	section, ok := a.section(t.system)
	if !ok {
		a.cfg.Log.Warn("external authentication system is not enabled", "eauth", t.system)
		return proven{}, errWrong
	}

	turn, err := a.waitTurn(ctx, t)
	if err != nil {
		a.counters.busy.Add(1)
		a.cfg.Log.Warn("too many log-ins at once; one is sent away", "eauth", t.system, "peer", t.from)
		return proven{}, ErrBusy
	}
	defer turn.Release()

	if a.lockedOut(t) { // this refusal is delayed like any other
		a.refuseSlowly(ctx)
		return proven{}, errWrong
	}

	start := a.cfg.Now()
	v, err := a.askSystem(ctx, t.system, t.user, t.password)
	switch {
	case err != nil:
		a.counters.faults.Add(1)
		a.cfg.Log.Warn("external authentication failed to answer; nobody has looked at the password",
			"eauth", t.system, "user", t.user, "peer", t.from, "error", err)
	case v.OK:
		typed := t.user
		t.user = cmp.Or(v.Name, t.user)
		g := a.grantOf(section, t.user, v.Groups, a.askModule(ctx, t, v.Permissions))
		lasting := g
		if t.forToken && !a.cfg.KeepACL { // without KeepACL, no token stores permissions that the system stated
			lasting = a.grantOf(section, t.user, v.Groups, nil)
		}

		if a.grants(lasting) {
			a.counters.right.Add(1)
			a.cfg.Lockout.Right(t.system, typed, t.from)
			a.people.Note(culpritOf(t.system, typed, t.from), start)
			a.sources.Note(ratelimit.Source(t.from), start)
			return proven{grant: g, name: t.user, groups: v.Groups}, nil
		}

		// The caller must not learn that the password was right, so he gets the delayed refusal for
		// a wrong one. The Lockout counts the log-in neither as wrong nor as right. The caller
		// cannot see that no lock follows, since a refusal because of a lock takes as long as any
		// other.
		a.counters.ungranted.Add(1)
		why := "external_auth grants this account nothing"
		if a.grants(g) {
			why = "a token of this account would permit nothing: set keep_acl_in_token: True"
		}

		a.cfg.Log.Warn("a log-in is refused as if the password were wrong", "because", why, "eauth",
			t.system, "user", t.user, "peer", t.from)
	default:
		a.counters.wrong.Add(1)
		a.cfg.Lockout.Wrong(t.system, t.user, t.from, a.cfg.Now())
	}

	a.delayRefusal(ctx, a.cfg.Now().Sub(start), err == nil)
	if err != nil {
		return proven{}, &Unanswered{System: t.system, Err: err}
	}

	return proven{}, errWrong
}

// waitTurn waits for a slot in which a log-in may be checked. It returns an error when loginWait
// has passed, the caller disconnects or the master stops. The caller of waitTurn must release the
// returned share.
func (a *Authenticator) waitTurn(ctx context.Context, t login) (*ratelimit.Share[culprit], error) {
	ctx, left := request.WhileAsked(ctx)
	defer left()
	ctx, cancel := context.WithTimeout(ctx, loginWait)
	defer cancel()

	defer context.AfterFunc(a.ending, cancel)()

	now := a.cfg.Now()
	source := ratelimit.Source(t.from)
	person := culpritOf(t.system, t.user, t.from)
	switch {
	case a.people.Has(person, now):
		return a.logins.Wait(ctx, person, ratelimit.Proven, 1)
	case !source.IsValid() || a.sources.Has(source, now): // log-ins from this host are treated as familiar
		return a.logins.Wait(ctx, culprit{from: source}, ratelimit.Familiar, 1)
	}

	return a.logins.Wait(ctx, culprit{from: source}, ratelimit.Stranger, 1)
}

// askModule returns the permissions from the module in eauth_acl_module. If there is no module, it
// returns the argument permissions, which the external system stated. If the module fails, it
// returns nil, so that external_auth applies, as in Salt (LoadAuth.__get_acl).
func (a *Authenticator) askModule(ctx context.Context, t login, permissions []any) []any {
	if a.cfg.Module == nil {
		return permissions
	}
	permissions, err := a.cfg.Module(ctx, t.system, t.user, t.password)
	if err != nil {
		a.cfg.Log.Warn("eauth_acl_module does not say what somebody may do; external_auth counts", "user",
			t.user, "error", err)
	}
	return permissions
}

func (a *Authenticator) lockedOut(t login) bool {
	if !a.cfg.Lockout.Refuses(t.system, t.user, t.from, a.cfg.Now()) {
		return false
	}
	a.cfg.Log.Warn("log-in refused after too many wrong passwords", "eauth", t.system, "user", t.user, "peer", t.from)
	return true
}

// refuseSlowly delays a refusal for as long as the check of a wrong password takes.
func (a *Authenticator) refuseSlowly(ctx context.Context) { a.delayRefusal(ctx, 0, false) }

func (a *Authenticator) askSystem(ctx context.Context, system, user, password string) (Verdict, error) {
	if b, ok := a.cfg.Backends[system]; ok {
		return b(ctx, user, password)
	}
	if a.cfg.Other != nil {
		return a.cfg.Other(ctx, system, user, password)
	}
	return Verdict{}, fmt.Errorf("no backend for external_auth %q", system)
}

// delayRefusal waits so that all refusals take about the same time, whatever their reason
// (salt/auth/__init__.py time_auth). duration is how long the system worked on the log-in. If the
// system did not answer, delayRefusal ignores duration for later refusals: otherwise each later
// refusal would be slow after an outage.
func (a *Authenticator) delayRefusal(ctx context.Context, duration time.Duration, answered bool) {
	a.mu.Lock()
	if answered {
		a.slowestCheck = max(a.slowestCheck, duration)
	}

	worst := a.slowestCheck
	a.mu.Unlock()
	if worst <= 0 {
		return
	}

	n, err := rand.Int(rand.Reader, big.NewInt(int64(worst/2)+1))
	if err != nil {
		return
	}

	t := time.NewTimer(worst*3/4 + time.Duration(n.Int64()) - duration)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-a.ending.Done():
	}
}
