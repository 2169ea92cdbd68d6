package presence

import (
	"crypto/rand"
	"crypto/rsa"
	"net/netip"
	"slices"
	"testing"
	"time"

	"saltern/master/crypt"
	"saltern/master/keys"
	"saltern/master/value"
	"saltern/test/check"
)

// The list of one master shows as connected the minion that this master heard, also if another master heard one
// behind the same NAT later.
func TestListOfOneMaster(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	check.Must(t, err)
	pem, err := crypt.PublicPEM(&key.PublicKey)
	check.Must(t, err)
	store, err := keys.Open(t.TempDir(), keys.Config{Create: true})
	check.Must(t, err)
	for _, id := range []string{"here", "elsewhere"} {
		check.Must(t, store.Put(id, keys.Accepted, pem))
	}

	nat := netip.MustParseAddr("198.51.100.7")
	now := time.Unix(2_000_000_000, 0)
	v := &View{
		Tracker: New(),
		Keys:    store,
		Now:     func() time.Time { return now },
		Subs:    slices.Values([]Subscription{{From: nat, Topics: []string{""}}}),
	}
	v.SawRequest("here", nat, now.Add(-time.Hour))
	v.Learn("elsewhere", nat, now.Add(-time.Minute))

	got, err := v.List(t.Context(), nil, nil, value.NewMap())
	check.Must(t, err)
	list := got.(*value.Map)
	for _, e := range list.List("minions") {
		m := e.(*value.Map)
		if want := m.Str("id") == "here"; m.Bool("connected") != want {
			t.Errorf("%s: connected %t, want %t", m.Str("id"), !want, want)
		}
	}
	if left := list.Map("subscriptions"); left.Len() > 0 {
		t.Errorf("subscriptions are left: %v", left)
	}
}
