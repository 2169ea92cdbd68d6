package eauth

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"math/big"
	"net/netip"
	"sync/atomic"
	"time"

	"saltern/master/value"
)

// maxLogins bounds the logins that are checked at once; further ones wait for
// their turn. Each holds a worker of the request port, and refusals are slow
// on purpose: no more than maxQueued may be under way, or strangers could take
// all workers from the minions. Overflow policy: the newest is refused at once.
const (
	maxLogins = 16
	maxQueued = 64
)

// attempt is a log-in by name and password.
type attempt struct {
	system, user, password string
	from                   netip.Addr // not valid: of nobody in particular
}

// loginCounters are counted since the start.
type loginCounters struct{ right, wrong, faults, busy atomic.Uint64 }

// Stats of log-ins by name and password since the start.
type Stats struct {
	Right   uint64       `json:"right"`
	Wrong   uint64       `json:"wrong"`   // the system refused name or password
	Faults  uint64       `json:"faults"`  // the system could not be asked
	Busy    uint64       `json:"busy"`    // refused since too many were under way
	Lockout LockoutStats `json:"lockout"` // see Lockout
	// EndedTokens are those that ended since their user had too many newer ones.
	EndedTokens uint64 `json:"ended_tokens"`
}

// Stats counts.
func (a *Authenticator) Stats() Stats {
	s := Stats{Right: a.count.right.Load(), Wrong: a.count.wrong.Load(), Faults: a.count.faults.Load(), Busy: a.count.busy.Load()}
	if a.cfg.Tokens != nil {
		s.EndedTokens = a.cfg.Tokens.limit.ended.Load()
	}
	if a.cfg.Lockout != nil {
		s.Lockout = a.cfg.Lockout.Stats(a.cfg.Now())
	}
	return s
}

func (a *Authenticator) login(ctx context.Context, t attempt) (Verdict, *value.Map, bool) {
	section, ok := a.section(t.system)
	if !ok {
		a.cfg.Log.Warn("external authentication system is not enabled", "eauth", t.system)
		return Verdict{}, nil, false
	}
	if a.lockedOut(t) {
		return Verdict{}, nil, false
	}
	select {
	case a.queue <- struct{}{}:
		defer func() { <-a.queue }()
	default:
		a.count.busy.Add(1)
		a.cfg.Log.Warn("too many logins at once; one is refused", "eauth", t.system)
		return Verdict{}, nil, false
	}
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	case <-ctx.Done():
		return Verdict{}, nil, false
	}
	if a.lockedOut(t) { // meanwhile: those that came at the same moment count as well
		return Verdict{}, nil, false
	}
	start := a.cfg.Now()
	v, err := a.ask(ctx, t.system, t.user, t.password)
	switch {
	case err != nil:
		a.count.faults.Add(1)
		a.cfg.Log.Warn("external authentication failed to answer", "eauth", t.system, "error", err)
	case v.OK:
		a.count.right.Add(1)
		a.cfg.Lockout.Right(t.system, t.user, t.from)
		v.Name = cmp.Or(v.Name, t.user)
		t.user = v.Name
		v.Permissions = a.ofModule(ctx, t, v.Permissions)
		return v, section, true
	default:
		a.count.wrong.Add(1)
		a.cfg.Lockout.Wrong(t.system, t.user, t.from, a.cfg.Now())
	}
	a.delay(ctx, a.cfg.Now().Sub(start), err == nil)
	return Verdict{}, nil, false
}

// ofModule asks the module in eauth_acl_module, which then counts in the place of the
// system's own. One that fails says nothing, as in Salt (LoadAuth.__get_acl).
func (a *Authenticator) ofModule(ctx context.Context, t attempt, own []any) []any {
	if a.cfg.Module == nil {
		return own
	}
	permissions, err := a.cfg.Module(ctx, t.system, t.user, t.password)
	if err != nil {
		a.cfg.Log.Warn("eauth_acl_module does not say what somebody may do; external_auth counts", "user", t.user, "error", err)
	}
	return permissions
}

func (a *Authenticator) lockedOut(t attempt) bool {
	if !a.cfg.Lockout.Refuses(t.system, t.user, t.from, a.cfg.Now()) {
		return false
	}
	a.cfg.Log.Warn("log-in refused after too many wrong passwords", "eauth", t.system, "user", t.user, "peer", t.from)
	return true
}

func (a *Authenticator) ask(ctx context.Context, system, user, password string) (Verdict, error) {
	if b, ok := a.cfg.Backends[system]; ok {
		return b(ctx, user, password)
	}
	if a.cfg.Other != nil {
		return a.cfg.Other(ctx, system, user, password)
	}
	return Verdict{}, fmt.Errorf("no backend for external_auth %q", system)
}

// delay makes all refusals take about the same time, whatever was wrong
// (salt/auth/__init__.py time_auth). A system that did not answer is no measure: what
// comes after an outage would be slow for good.
func (a *Authenticator) delay(ctx context.Context, took time.Duration, answered bool) {
	a.mu.Lock()
	if answered {
		a.worst = max(a.worst, took)
	}
	worst := a.worst
	a.mu.Unlock()
	if worst <= 0 {
		return
	}
	n, err := rand.Int(rand.Reader, big.NewInt(int64(worst/2)+1))
	if err != nil {
		return
	}
	t := time.NewTimer(worst*3/4 + time.Duration(n.Int64()) - took)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
