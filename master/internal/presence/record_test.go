package presence

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestRecordOfEarlierLives(t *testing.T) {
	path := filepath.Join(t.TempDir(), "heard.json")
	now := time.Unix(1_800_000_000, 0)
	from := netip.MustParseAddr("192.0.2.1")
	all := func(string) bool { return true }
	life := func(at time.Time) *Tracker {
		t.Helper()
		tr := New()
		if err := tr.Load(path, at); err != nil {
			t.Fatal(err)
		}
		return tr
	}

	first := life(now)
	first.SawRequest("web1", from, now.Add(time.Hour))
	first.SawSignIn("web1", false, from, now)
	first.SawSignIn("web1", true, from, now.Add(2*time.Hour))
	first.SawSignIn("gone", false, from, now)
	first.SawSignIn("deleted", false, from, now)

	if err := first.Save(path, all); err != nil {
		t.Fatal(err)
	}

	second := life(now.Add(24 * time.Hour))
	if !second.Since().Equal(now) || !second.Before("web1", true, false).Equal(now.Add(time.Hour)) ||
		!second.Before("web1", false, true).Equal(now.Add(2*time.Hour)) ||
		!second.Before("web1", false, false).Equal(now) || !second.Before("nobody", true, false).IsZero() {
		t.Errorf("%+v", second.earlier)
	}

	if _, _, ok := second.LastRequest("web1"); ok {
		t.Error("an earlier life counts for who is there")
	}

	second.Forget("deleted")
	second.SawSignIn("gone", false, from, now.Add(25*time.Hour))
	if err := second.Save(path, func(id string) bool { return id != "gone" }); err != nil {
		t.Fatal(err)
	}

	third := life(now.Add(48 * time.Hour))
	if !third.Since().Equal(now) || !third.Before("deleted", false, false).IsZero() ||
		!third.Before("gone", false, false).IsZero() || third.Before("web1", true, false).IsZero() {
		t.Errorf("%+v", third.earlier)
	}

	for _, bad := range []string{"", "{", "null", "[]", "{}",
		`{"since": 1, "heard": {"web1": "x"}}`, `{"since": 1, "heard": null, "asked": {}, "denied": {}}`} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		tr := New()
		if err := tr.Load(path, now); err == nil || !tr.Since().Equal(now) || !tr.Before("web1", true, false).IsZero() {
			t.Errorf("%q: %v %+v", bad, err, tr.earlier)
		}
	}
}

// A clock that was set back makes times of the record those of now, and nothing is forgotten.
func TestRecordOfAClockThatWasAhead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "heard.json")
	now := time.Unix(1_800_000_000, 0)
	from := netip.MustParseAddr("192.0.2.1")
	ahead := New()
	if err := ahead.Load(path, now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	ahead.SawRequest("web1", from, now.Add(2*time.Hour))
	ahead.SawSignIn("web2", true, from, now.Add(-time.Hour))
	if err := ahead.Save(path, func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}

	tr := New()
	if err := tr.Load(path, now); err != nil {
		t.Fatal(err)
	}
	if !tr.Since().Equal(now) || !tr.Before("web1", true, false).Equal(now) ||
		!tr.Before("web2", false, true).Equal(now.Add(-time.Hour)) {
		t.Errorf("%+v", tr.earlier)
	}
}

// After a restart the addresses of minions are known, and a removed key's is forgotten.
func TestConnectedAfterARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "heard.json")
	now := time.Unix(1_800_000_000, 0)
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	subs := []Subscription{{From: a, Topics: []string{""}}, {From: b, Topics: []string{""}}}

	tr := New()
	if err := tr.Load(path, now); err != nil {
		t.Fatal(err)
	}
	tr.SawRequest("web1", a, now)
	tr.Learn("web2", b, now)
	for range 2 {
		if err := tr.Save(path, func(string) bool { return true }); err != nil {
			t.Fatal(err)
		}
		tr = New()
		if err := tr.Load(path, now.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if got := tr.Connected(slices.Values(subs)); !slices.Equal(got, []string{"web1", "web2"}) {
			t.Errorf("%v", got)
		}
		if _, _, ok := tr.LastRequest("web1"); ok {
			t.Error("an address of an earlier life authenticates")
		}
	}

	tr.Forget("web1")
	if got := tr.Connected(slices.Values(subs)); !slices.Equal(got, []string{"web2"}) {
		t.Errorf("%v", got)
	}
	tr.Prune(func(string) bool { return false }) // its key was removed while the master was down
	if got := tr.Connected(slices.Values(subs)); len(got) > 0 {
		t.Errorf("%v", got)
	}
}
