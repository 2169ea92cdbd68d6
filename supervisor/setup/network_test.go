package setup

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"saltern/test/await"
)

// networker works in a directory of its own; systemd-networkd is not asked.
func networker(t *testing.T) (*Networker, *atomic.Int32) {
	var reloads atomic.Int32
	return &Networker{Dir: t.TempDir(), Managed: func() bool { return true }, Log: slog.New(slog.DiscardHandler),
		Reload: func(context.Context) error { reloads.Add(1); return nil }}, &reloads
}

func content(t *testing.T, w *Networker) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(w.Dir, networkFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(b)
}

var someStatic = Network{
	Interface: "eth0",
	Method:    "static",
	Address:   "192.0.2.10/24",
	Gateway:   "192.0.2.1",
	DNS:       []string{"192.0.2.53"},
	Search:    []string{"example.org", "lan"},
	NTP:       []string{"ntp.example.org"},
}

func TestNetworkText(t *testing.T) {
	want := "# Written by the set-up.\n[Match]\nName=eth0\n\n[Network]\nAddress=192.0.2.10/24\nGateway=192.0.2.1\nDNS=192.0.2.53\nDomains=example.org lan\nNTP=ntp.example.org\n" + dhcpText
	if got := string(networkText(someStatic)); got != want {
		t.Errorf("%s", got)
	}
	if got := string(networkText(Network{Method: "dhcp"})); !strings.Contains(got, "Type=ether") ||
		!strings.Contains(got, "DHCP=yes") || !strings.Contains(got, "ClientIdentifier=mac\n") {
		t.Errorf("%s", got)
	}
	before, err := os.ReadFile("../../image/profile/overlay/etc/systemd/network/80-saltern-default.network")
	if err != nil || !strings.Contains(string(before), "ClientIdentifier=mac\nUseHostname=no\n") {
		t.Errorf("before the set-up: %v\n%s", err, before)
	}
}

// TestNetworkIsShownWhileItChanges: the state of the network is shown at once while the machine takes
// a new configuration over, and while it waits for its address.
func TestNetworkIsShownWhileItChanges(t *testing.T) {
	for name, change := range map[string]func(context.Context, *Networker) error{
		"try": func(ctx context.Context, w *Networker) error { _, err := w.Try(ctx, someStatic); return err },
		"set": func(ctx context.Context, w *Networker) error { return w.Set(ctx, someStatic) },
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := networker(t)
			begun := make(chan struct{})
			w.Reload = func(ctx context.Context) error {
				close(begun)
				<-ctx.Done() // networkd hangs
				return ctx.Err()
			}

			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- change(ctx, w) }()
			<-begun
			shown := make(chan Trial, 1)
			go func() { shown <- w.Look() }()
			await.That(t, "the state is shown", func() bool { return len(shown) == 1 })

			w.Reload = func(context.Context) error { return nil }
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}

func TestNetworkTrial(t *testing.T) {
	w, reloads := networker(t)
	tr, err := w.Try(t.Context(), someStatic)
	if err != nil || !tr.Active || time.Until(tr.Until) < 50*time.Second ||
		!strings.Contains(content(t, w), "192.0.2.10") {
		t.Fatalf("%+v %v", tr, err)
	}

	if tr := w.Look(); !tr.Active || tr.Until.IsZero() {
		t.Errorf("look: %+v", tr)
	}

	two := []Interface{
		{Name: "eth0", Addresses: []string{"192.0.2.10/24"}},
		{Name: "eth1", Addresses: []string{"198.51.100.1/24"}},
	}

	if one, all, none := addressesOf("eth0", two), addressesOf("", two), addressesOf("eth2", two); len(one) != 1 || one[0] != "192.0.2.10/24" || len(all) != 2 || none == nil || len(none) != 0 {
		t.Errorf("addresses: %v %v %v", one, all, none)
	}

	if tr, err := w.Revert(t.Context()); err != nil || tr.Active || content(t, w) != "" || reloads.Load() != 2 {
		t.Errorf("revert: %+v %v %q", tr, err, content(t, w))
	}

	if _, err := w.Confirm(); !errors.Is(err, ErrState) {
		t.Errorf("confirm of nothing: %v", err)
	}

	if _, err := w.Try(t.Context(), someStatic); err != nil {
		t.Fatal(err)
	}

	if tr, err := w.Confirm(); err != nil || tr.Active || !strings.Contains(content(t, w), "192.0.2.10") {
		t.Errorf("confirm: %+v %v", tr, err)
	}

	// Two tries in a row go back to what was confirmed.
	other := someStatic
	for _, a := range []string{"192.0.2.11/24", "192.0.2.12/24"} {
		other.Address = a
		if _, err := w.Try(t.Context(), other); err != nil {
			t.Fatal(err)
		}
	}

	if _, err := w.Revert(t.Context()); err != nil || !strings.Contains(content(t, w), "192.0.2.10/24") {
		t.Errorf("back from two tries: %v %q", err, content(t, w))
	}
}

// TestTrialTellsWhatAnswers: as soon as it is known, and no longer than the trial goes.
// (m5)
func TestTrialTellsWhatAnswers(t *testing.T) {
	w, _ := networker(t)
	asked := make(chan Network, 10)
	answers := []Reach{{What: "gateway", Address: "192.0.2.1", Answers: true}}
	w.Reach = func(ctx context.Context, n Network) []Reach {
		asked <- n
		return answers
	}

	if tr, err := w.Try(t.Context(), someStatic); err != nil || tr.Reach != nil {
		t.Fatalf("at once: %+v %v", tr, err)
	}

	if n := <-asked; !reflect.DeepEqual(n, someStatic) {
		t.Errorf("asked about %+v", n)
	}

	await.That(t, "what answers", func() bool { return reflect.DeepEqual(w.Look().Reach, answers) })
	if tr, err := w.Confirm(); err != nil || tr.Reach != nil {
		t.Errorf("when it is kept: %+v %v", tr, err)
	}

	hangs := make(chan struct{})
	w.Reach = func(ctx context.Context, _ Network) []Reach {
		close(hangs)
		<-ctx.Done()
		return answers
	}

	if _, err := w.Try(t.Context(), someStatic); err != nil {
		t.Fatal(err)
	}

	<-hangs
	if err := w.Close(); err != nil { // which waits for it
		t.Error(err)
	}
}

// TestTrialWaitsForSilentParts: while an interface comes up, its gateway does not answer. The page
// says so only when it stays silent.
func TestTrialWaitsForSilentParts(t *testing.T) {
	gateway := Reach{What: "gateway", Address: "192.0.2.1"}
	none := Reach{What: "name server", Detail: "there is none"}
	for _, c := range []struct {
		name   string
		comes  time.Duration // when the gateway answers
		asked  time.Duration
		told   bool
		answer bool
	}{
		{"coming up", 3 * time.Second, 2500 * time.Millisecond, false, false},
		{"came up", 3 * time.Second, 4500 * time.Millisecond, true, true},
		{"silent for nine seconds", time.Hour, 9 * time.Second, false, false},
		{"silent for good", time.Hour, 12 * time.Second, true, false},
		{"late", 13 * time.Second, 20 * time.Second, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, _ := networker(t)
				w.Lasts = time.Minute
				began := time.Now()
				w.Reach = func(context.Context, Network) []Reach {
					now := gateway
					now.Answers = time.Since(began) >= c.comes
					return []Reach{now, none}
				}

				if _, err := w.Try(t.Context(), someStatic); err != nil {
					t.Fatal(err)
				}

				time.Sleep(c.asked)
				synctest.Wait()
				reach := w.Look().Reach
				if told := reach != nil; told != c.told {
					t.Fatalf("after %v: %+v", c.asked, reach)
				}
				if c.told && reach[0].Answers != c.answer {
					t.Errorf("after %v: %+v", c.asked, reach)
				}

				if err := w.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestNetworkUnconfirmed: it is taken back when its time is over, after a power
// cut, and when networkd does not take it.
func TestNetworkUnconfirmed(t *testing.T) {
	w, _ := networker(t)
	w.Lasts = 20 * time.Millisecond
	if _, err := w.Try(t.Context(), someStatic); err != nil {
		t.Fatal(err)
	}

	await.That(t, "the trial's end", func() bool { return content(t, w) == "" })
	w.Lasts = time.Hour
	if _, err := w.Try(t.Context(), someStatic); err != nil {
		t.Fatal(err)
	}

	next := &Networker{Dir: w.Dir, Managed: w.Managed, Reload: w.Reload, Log: w.Log}
	if err := next.Resume(t.Context()); err != nil || content(t, next) != "" {
		t.Errorf("after a power cut: %v %q", err, content(t, next))
	}

	if err := next.Resume(t.Context()); err != nil {
		t.Errorf("nothing to take back: %v", err)
	}

	bad, _ := networker(t)
	bad.Reload = func(context.Context) error { return errors.New("networkd is away") }
	if tr, err := bad.Try(t.Context(), someStatic); err == nil || tr.Active || content(t, bad) != "" {
		t.Errorf("networkd is away: %+v %v", tr, err)
	}

	bad.Managed = func() bool { return false }
	if _, err := bad.Try(t.Context(), someStatic); !errors.Is(err, ErrState) {
		t.Errorf("a network that is not ours: %v", err)
	}
}
