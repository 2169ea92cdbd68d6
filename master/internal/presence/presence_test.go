package presence

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"
)

func TestConnected(t *testing.T) {
	a, b, nat := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("::ffff:10.0.0.2"), netip.MustParseAddr("10.0.0.9")
	tr := New()
	at := time.Unix(1000, 0)
	tr.SawRequest("one", a, at)
	tr.SawRequest("two", b, at)

	for i, id := range []string{"n1", "n2", "n3"} {
		tr.SawRequest(id, nat, at.Add(time.Duration(i)*time.Second))
	}

	plain := func(from ...netip.Addr) (out []Subscription) {
		for _, f := range from {
			out = append(out, Subscription{From: f, Topics: []string{""}})
		}
		return out
	}

	for _, tt := range []struct {
		name string
		subs []Subscription
		want []string
	}{
		{"nobody", nil, nil},
		{"one", plain(a), []string{"one"}},
		{"mapped address", plain(b.Unmap()), []string{"two"}},
		{"a stranger", plain(netip.MustParseAddr("10.9.9.9")), nil},
		{"behind NAT, all", plain(nat, nat, nat), []string{"n1", "n2", "n3"}},
		{"behind NAT, the latest two", plain(nat, nat), []string{"n2", "n3"}},
		{"filtering", []Subscription{{From: nat, Topics: []string{"broadcast", topicOf("n1")}}}, []string{"n1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tr.Connected(slices.Values(tt.subs)); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if all, n := tr.Count(slices.Values(tt.subs)); all != len(tt.subs) || n != len(tt.want) {
				t.Errorf("counted %d, %d", all, n)
			}
		})
	}

	if all, n := tr.Count(slices.Values([]Subscription{{From: a}})); all != 0 || n != 0 {
		t.Errorf("a connection without a subscription is counted: %d, %d", all, n)
	}

	tr.Forget("one")
	if got := tr.Connected(slices.Values(plain(a))); got != nil {
		t.Errorf("a forgotten minion is present: %v", got)
	}

	if _, _, ok := tr.LastRequest("one"); ok {
		t.Error("a forgotten minion is remembered")
	}
}

// A minion that nobody has heard is known by its grains, one whose requests come from another address than
// its subscription by its answers to jobs. What belongs to nobody is left.
func TestAttribution(t *testing.T) {
	address := netip.MustParseAddr
	at := time.Unix(1000, 0)
	plain := func(from ...string) (out []Subscription) {
		for _, f := range from {
			out = append(out, Subscription{From: address(f), Topics: []string{""}})
		}
		return out
	}
	tr := New()
	tr.SawRequest("here", address("10.0.0.1"), at)
	tr.Learn("elsewhere", address("10.0.0.1"), at.Add(time.Minute)) // the same NAT
	tr.LearnAddresses("unheard", []netip.Addr{address("172.17.0.1"), address("10.0.0.3")})
	tr.LearnAddresses("here", []netip.Addr{address("10.0.0.3")}) // of no use: it was heard
	tr.SawRequest("nat", address("192.0.2.1"), at)
	tr.SawAnswer("nat", at)
	tr.SawRequest("nat2", address("192.0.2.1"), at)
	tr.SawAnswer("nat2", at.Add(-time.Minute))

	for _, tt := range []struct {
		name        string
		subs        []Subscription
		here, all   []string
		left, left2 int // of this master, of all
	}{
		{name: "nobody"},
		{
			name: "the one that was heard here",
			subs: plain("10.0.0.1"), here: []string{"here"}, all: []string{"elsewhere"},
		},
		{
			name: "grains",
			subs: plain("10.0.0.3"), here: []string{"unheard"}, all: []string{"unheard"},
		},
		{
			name: "an answer",
			subs: plain("203.0.113.5"), here: []string{"nat"}, left2: 1,
		},
		{
			name: "two answers, three subscriptions",
			subs: plain("203.0.113.5", "203.0.113.6", "203.0.113.6"), here: []string{"nat", "nat2"}, left: 1, left2: 3,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			subs := slices.Values(tt.subs)
			if got := tr.Connected(subs); !slices.Equal(got, tt.here) {
				t.Errorf("connected: %v, want %v", got, tt.here)
			}
			everywhere := tr.Everywhere(subs)
			if got := slices.Sorted(maps.Keys(everywhere.Connected)); !slices.Equal(got, tt.all) {
				t.Errorf("connected to any: %v, want %v", got, tt.all)
			}
			if n := tr.attribute(subs, ofThisMaster).Unattributed(); n != tt.left {
				t.Errorf("%d are left, want %d", n, tt.left)
			}
			if n := everywhere.Unattributed(); n != tt.left2 {
				t.Errorf("%d are left of all, want %d", n, tt.left2)
			}
		})
	}
}
