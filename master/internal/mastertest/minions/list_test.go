package minions

import (
	"reflect"
	"testing"

	"saltern/master/internal/mastertest"
	"saltern/master/keys"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// The list of minions tells who is there, and from where a key came that
// nobody has accepted yet.
func TestListOfMinions(t *testing.T) {
	r := mastertest.Start(t, "")
	r.AcceptedMinion("web1", "min6")
	check.Must(t, r.Parts.Keys.Put("web2", keys.Accepted, mastertest.PublicPEM(t, mastertest.KeyPair(t, "min7"))))
	r.NewMinion("new", "min8").SignIn()
	ret, err := r.Parts.Runs.Call(t.Context(), "presence.minions", nil, value.NewMap("finger", true))
	all, _ := ret.(*value.Map)
	list := all.List("minions")
	if err != nil || len(list) != 3 || all.Map("subscriptions").Len() != 0 {
		t.Fatalf("%v %v", ret, err)
	}

	for i, want := range []struct {
		id, key, address string
		seen             bool
	}{{"web1", "accepted", "127.0.0.1", true}, {"web2", "accepted", "", false}, {"new", "pending", "127.0.0.1", true}} {
		m := list[i].(*value.Map)
		at, _ := m.Get("seen")
		if m.Str("id") != want.id || m.Str("key") != want.key || m.Str("address") != want.address ||
			(at.(float64) > 1e9) != want.seen || len(m.Str("finger")) != 95 {
			t.Errorf("%d: %v", i, m)
		}

		if there := m.Bool("connected"); there {
			t.Errorf("%s has no subscription", want.id)
		}
	}

	check.Must(t, r.Parts.Keys.Delete("new"))
	await.That(t, "what is known of a deleted key is gone", func() bool {
		_, _, ok := r.Parts.Presence.LastSignIn("new", false)
		return !ok
	})
}

// TestHeardInEarlierLives: a master that starts anew knows when minions were heard
// before, and tells a denied key that is not offered any more from its namesake that is.
func TestHeardInEarlierLives(t *testing.T) {
	r := mastertest.Start(t, "")
	r.AcceptedMinion("web1", "min6")
	r.NewMinion("web1", "min7").SignIn() // another key: it is denied
	r.NewMinion("new", "min8").SignIn()
	check.Must(t, r.Parts.Keys.Put("never", keys.Accepted, mastertest.PublicPEM(t, mastertest.KeyPair(t, "min7"))))
	before := r.Parts.Presence.Minions(false)
	r = r.Restart("")
	r.NewMinion("web1", "min6").SignIn()
	after := r.Parts.Presence.Minions(false)
	if len(after.Minions) != 4 || len(before.Minions) != 4 || before.Since == 0 || after.Since != before.Since {
		t.Fatalf("before %+v\nafter %+v", before, after)
	}

	for i, m := range after.Minions {
		b := before.Minions[i]
		heard := m.Seen > 0 && m.Seen >= float64(int64(b.Seen))
		if m.ID != b.ID || m.Key != b.Key || heard != (m.ID != "never") ||
			(m.Address != "") != (m.ID == "web1" && m.Key == "accepted") {
			t.Errorf("before %+v\nafter %+v", b, m)
		}
	}
}

// After a restart, a minion that subscribes again is present although it sends nothing.
func TestIdleMinionIsPresentAfterARestart(t *testing.T) {
	r := mastertest.Start(t, "")
	n := r.AcceptedMinion("web1", "min6")
	n.Ask("_mine", "data", value.NewMap())
	r = r.Restart("")
	r.Subscribe()
	present, err := r.Parts.Runs.Call(t.Context(), "manage.present", nil, value.NewMap())
	if err != nil || !reflect.DeepEqual(present, []any{"web1"}) {
		t.Errorf("%v, %v", present, err)
	}
}
