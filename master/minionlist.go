package master

import (
	"context"
	"net/netip"
	"time"

	"saltern/master/keys"
	"saltern/master/msgpack"
	"saltern/master/presence"
	"saltern/master/request"
	"saltern/master/runner"
)

// minionsRunner lists the keys with what this master saw of their minions.
const minionsRunner = "presence.minions"

// noting notes from where minions sign in, accepted or not.
type noting struct {
	request.Auth
	m *Master
}

// SignIn implements request.Auth.
func (n noting) SignIn(ctx context.Context, load *msgpack.Map, version int64, from netip.AddrPort) any {
	answer := n.Auth.SignIn(ctx, load, version, from)
	id := load.Str("id")
	if _, known := n.m.keys.Lookup(id); known {
		n.m.presence.Asked(id, from.Addr(), n.m.now())
	} else if _, denied := n.m.keys.Denied(id); denied {
		n.m.presence.Asked(id, from.Addr(), n.m.now())
	}
	return answer
}

// listMinions gives of every key: id, state, whether its minion subscribed here
// under its own name, from where it was last heard, when (Unix time in seconds,
// 0: not by this master in this life), and with finger=True the fingerprint of
// the key. And it counts the other subscriptions by their address.
func (m *Master) listMinions(_ context.Context, _ *runner.Env, _ []any, named *msgpack.Map) (any, error) {
	v, _ := named.Get("finger")
	finger, _ := v.(bool)
	slots, subscribed := presence.Subscribed(m.subscriptions)
	out := []any{}
	for _, st := range []keys.State{keys.Accepted, keys.Pending, keys.Rejected, keys.Denied} {
		for _, id := range m.keys.List(st) {
			from, at, ok := m.presence.Last(id)
			if !ok || st != keys.Accepted {
				from, at, ok = m.presence.LastAsked(id)
			}
			e := msgpack.NewMap("id", id, "key", st.String(), "connected", st == keys.Accepted && subscribed(id), "address", "", "seen", 0.0)
			if ok {
				e.Set("address", from.String())
				e.Set("seen", float64(at.UnixMilli())/float64(time.Second/time.Millisecond))
			}
			if finger {
				e.Set("finger", m.fingerOf(id, st))
			}
			out = append(out, e)
		}
	}
	from := msgpack.NewMap()
	for a, n := range slots {
		from.Set(a.String(), int64(n))
	}
	return msgpack.NewMap("minions", out, "subscriptions", from), nil
}

// fingerOf gives the fingerprint of the key with that state; empty when it is
// gone by now.
func (m *Master) fingerOf(id string, st keys.State) string {
	e, ok := m.keys.Lookup(id)
	if st == keys.Denied {
		e, ok = m.keys.Denied(id)
	}
	if !ok {
		return ""
	}
	f, err := keys.Fingerprint(e.PEM, m.cfg.HashType)
	if err != nil {
		return ""
	}
	return f
}
