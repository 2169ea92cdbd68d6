package presence

import (
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
