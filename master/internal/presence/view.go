package presence

import (
	"context"
	"iter"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"saltern/internal/control"
	"saltern/master/crypt"
	"saltern/master/event"
	"saltern/master/internal/request"
	"saltern/master/keys"
	"saltern/master/runner"
	"saltern/master/value"
	"saltern/master/zmtp"
)

// View combines keys, requests and subscriptions to determine which minions are connected to this
// master. It is safe for concurrent use.
type View struct {
	*Tracker
	Keys *keys.Store
	// Subs yields the connections on the publish port.
	Subs       iter.Seq[Subscription]
	HashType   string // hash type of fingerprints
	Now        func() time.Time
	Log        *slog.Logger
	recordFile string // path of the record
}

// Open returns v with the record in dir loaded.
func Open(dir string, v View) *View {
	v.Tracker, v.recordFile = New(), filepath.Join(dir, "minions-heard.json")
	if err := v.Load(v.recordFile, v.Now()); err != nil {
		v.Log.Warn("when minions were heard before is not known", "error", err)
	}
	return &v
}

// Record writes the times of each minion's last requests and sign-ins, which the next start of the
// master reads. If v is nil, Record does nothing.
func (v *View) Record(context.Context) {
	if v == nil {
		return
	}
	v.Prune(func(id string) bool { // also of minions whose keys were removed while this master was down
		e, known := v.Keys.Lookup(id)
		return known && e.State == keys.Accepted
	})
	err := v.Save(v.recordFile, func(id string) bool {
		_, known := v.Keys.Lookup(id)
		_, denied := v.Keys.Denied(id)
		return known || denied
	})
	if err != nil {
		v.Log.Warn("after a restart it will not be known when minions were heard", "error", err)
	}
}

// On returns a sequence of the connections on a publish port, for View.Subs.
func On(pub *zmtp.Pub) iter.Seq[Subscription] {
	return func(yield func(Subscription) bool) {
		for s := range pub.Each {
			if !yield(Subscription{From: s.Remote.Addr(), Topics: s.Topics}) {
				return
			}
		}
	}
}

// Heard records the address from which a minion sent an authenticated request.
func (v *View) Heard(id string, from netip.AddrPort) { v.SawRequest(id, from.Addr(), v.Now()) }

// IDs returns the sorted ids of connected minions.
func (v *View) IDs() []string { return v.Tracker.Connected(v.Subs) }

// Connections returns the sorted ids of connected minions, and the number of subscriptions that belong to nobody known.
func (v *View) Connections() (ids []string, unattributed int) {
	found := v.attribute(v.Subs, ofThisMaster)
	return slices.Sorted(maps.Keys(found.Connected)), found.Unattributed()
}

// CountWith returns the number of connected minions, which the caller compares with max_minions,
// and reports whether the minion id is connected.
func (v *View) CountWith(id string) (int, bool) {
	ids := v.IDs()
	_, has := slices.BinarySearch(ids, id)
	return len(ids), has
}

// Connected implements runner.Presence.
func (v *View) Connected() map[string]string {
	out := map[string]string{}
	for id, from := range v.attribute(v.Subs, ofThisMaster).Connected {
		if last, _, known := v.LastPlace(id); known {
			from = last
		}
		out[id] = ""
		if from.IsValid() {
			out[id] = from.String()
		}
	}
	return out
}

// Learn records a request of a minion to another master. A time after now, from a clock that is ahead,
// becomes now.
func (v *View) Learn(id string, from netip.Addr, at time.Time) {
	if now := v.Now(); at.After(now) {
		at = now
	}
	v.Tracker.Learn(id, from, at)
}

// maxAddresses bounds the addresses of a minion that are taken from its grains.
const maxAddresses = 32

// ReadGrains records the addresses of the accepted minions of which no request is known, by their grains.
// grains returns those of a minion.
func (v *View) ReadGrains(ctx context.Context, grains func(id string) (*value.Map, bool)) {
	for _, id := range v.Keys.List(keys.Accepted) {
		if ctx.Err() != nil {
			return
		}
		if _, _, known := v.LastPlace(id); known {
			continue
		}
		all, _ := grains(id)
		v.LearnAddresses(id, addressesOf(all))
	}
}

// addressesOf returns the addresses in grains, without those that each machine has.
func addressesOf(grains *value.Map) (all []netip.Addr) {
	if grains == nil {
		return nil
	}
	texts := slices.Concat(grains.Texts("ipv4"), grains.Texts("ipv6"))
	for _, text := range texts[:min(len(texts), maxAddresses)] {
		from, err := netip.ParseAddr(text)
		shared := from == netip.IPv6Loopback() || from == netip.AddrFrom4([4]byte{127, 0, 0, 1})
		if err == nil && !shared {
			all = append(all, from.Unmap())
		}
	}
	return all
}

// Noting is a request.Auth that records the address of each sign-in, accepted or not.
type Noting struct {
	request.Auth
	View *View
}

// SignIn implements request.Auth.
func (n Noting) SignIn(ctx context.Context, load *value.Map, version int64, from netip.AddrPort) any {
	answer := n.Auth.SignIn(ctx, load, version, from)
	id := load.Str("id")
	known, isKnown := n.View.Keys.Lookup(id)
	other, isDenied := n.View.Keys.Denied(id)
	if isKnown || isDenied {
		pub := crypt.NormalizePEM(load.Str("pub"))
		denied := isDenied && (!isKnown || pub != known.PEM && pub == other.PEM)
		n.View.SawSignIn(id, denied, from.Addr(), n.View.Now())
	}
	return answer
}

// List runs the runner presence.minions. It returns [control.Minions]. With finger=True it includes
// the fingerprints.
func (v *View) List(_ context.Context, _ *runner.Env, _ []any, named *value.Map) (any, error) {
	finger := named.Bool("finger")
	all := v.Minions(finger)
	// Who reads this list knows the subscriptions at this master alone, while times and addresses are also of
	// requests to others. So all that this master can attribute is attributed here.
	found := v.attribute(v.Subs, ofThisMaster)
	out := make([]any, 0, len(all.Minions))
	for _, x := range all.Minions {
		_, holds := found.Connected[x.ID]
		connected := holds && x.Key == keys.Accepted.String()
		e := value.NewMap("id", x.ID, "key", x.Key, "connected", connected, "address", x.Address, "seen", x.Seen)
		if finger {
			e.Set("finger", x.Finger)
		}
		out = append(out, e)
	}

	from := value.NewMap()
	for a, n := range found.Unknown {
		from.Set(a.String(), int64(n))
	}

	return value.NewMap("minions", out, "subscriptions", from), nil
}

// Minions returns all keys, each with the times of its minion's last requests and sign-ins.
func (v *View) Minions(finger bool) control.Minions {
	subs := slices.Collect(v.Subs)
	found := v.attribute(slices.Values(subs), ofThisMaster)
	slots := collectSubscriptions(slices.Values(subs)).unnamed
	out := control.Minions{Minions: []control.Minion{}, Subscriptions: map[string]int{}}
	for _, st := range []keys.State{keys.Accepted, keys.Pending, keys.Rejected, keys.Denied} {
		for _, id := range v.Keys.List(st) {
			from, at, ok := v.LastPlace(id)
			if !ok || st != keys.Accepted {
				from, at, ok = v.LastSignIn(id, st == keys.Denied)
			}

			e := control.Minion{ID: id, Key: st.String()}
			// Who compares the lists of several masters attributes subscriptions from the address.
			holds, connected := found.Connected[id]
			if connected && st == keys.Accepted && (!ok || holds != from) {
				e.Connected = true
				if slots[holds] > 0 {
					slots[holds]--
				}
			}

			if ok {
				e.Address, e.Seen = from.String(), float64(at.UnixMilli())/float64(time.Second/time.Millisecond)
			} else if at := v.Before(id, st == keys.Accepted, st == keys.Denied); !at.IsZero() {
				e.Seen = float64(at.Unix())
			}

			if finger {
				e.Finger = v.fingerOf(id, st)
			}

			out.Minions = append(out.Minions, e)
		}
	}

	if at := v.Since(); !at.IsZero() {
		out.Since = float64(at.Unix())
	}

	for a, n := range slots {
		if n > 0 {
			out.Subscriptions[a.String()] = n
		}
	}

	return out
}

// fingerOf returns the fingerprint of the key that id has in state st, or "" if there is no such
// key any more.
func (v *View) fingerOf(id string, st keys.State) string {
	e, ok := v.Keys.Lookup(id)
	if st == keys.Denied {
		e, ok = v.Keys.Denied(id)
	}
	if !ok {
		return ""
	}
	f, err := keys.Fingerprint(e.PEM, v.HashType)
	if err != nil {
		return ""
	}
	return f
}

// Events fires an event with the ids of the minions that connected and disconnected since the last
// call. connected holds the ids that were connected at the last call; Events updates it
// (salt/master.py handle_presence).
func (v *View) Events(connected map[string]bool, fire func(tag string, data *value.Map)) {
	present := v.IDs()
	now := make(map[string]bool, len(present))
	fresh, lost := []string{}, []string{}
	for _, id := range present {
		now[id] = true
		if !connected[id] {
			fresh = append(fresh, id)
		}
	}

	for id := range connected {
		if !now[id] {
			lost = append(lost, id)
		}
	}

	if len(fresh)+len(lost) > 0 {
		fire(event.Tag("presence", "change"), value.NewMap("new", fresh, "lost", lost))
	}

	if present == nil {
		present = []string{}
	}

	fire(event.Tag("presence", "present"), value.NewMap("present", present))
	clear(connected)
	for id := range now {
		connected[id] = true
	}
}
