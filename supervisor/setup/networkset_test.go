package setup

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestNetworkSet: what was given with the machine needs no confirmation, and
// is in force before anything is checked.
func TestNetworkSet(t *testing.T) {
	w, reloads := networker(t)
	if _, err := w.Try(t.Context(), Network{Method: "dhcp"}); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := w.Set(ctx, someStatic); err == nil ||
		!strings.Contains(err.Error(), "eth0 did not get the address 192.0.2.10") {
		t.Errorf("an address that nobody has: %v", err)
	}

	if !strings.Contains(content(t, w), "192.0.2.10") || reloads.Load() != 2 {
		t.Errorf("%q, %d reloads", content(t, w), reloads.Load())
	}

	if _, err := os.Stat(filepath.Join(w.Dir, beforeFile)); err == nil {
		t.Error("it would be taken back at the next start")
	}

	for _, i := range interfaces() {
		for _, a := range i.Addresses {
			n := someStatic
			n.Address = a
			if err := w.Set(t.Context(), n); err != nil {
				t.Errorf("%s: %v", a, err)
			}
		}
	}

	w.Managed = func() bool { return false }
	if err := w.Set(t.Context(), someStatic); err == nil {
		t.Error("changed a network that is managed elsewhere")
	}

	for _, c := range []struct {
		all  []Interface
		want string
	}{
		{[]Interface{{Name: "a"}}, "a"}, {[]Interface{{Name: "a"}, {Name: "b", Default: true}}, "b"}, {[]Interface{{Name: "a"}, {Name: "b"}}, ""}, {nil, ""},
	} {
		if got, err := likely(c.all); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%v: %q %v", c.all, got, err)
		}
	}

	a := Answers{Mode: Form}
	if planSteps(a)[0].id != stepPreflight {
		t.Error("a step for a network that is left as it is")
	}

	a.Network = someStatic
	for _, a.Mode = range []Mode{Form, Join} {
		if planSteps(a)[0].id != stepNetwork {
			t.Errorf("%s: the network comes after what needs it", a.Mode)
		}
	}
}
