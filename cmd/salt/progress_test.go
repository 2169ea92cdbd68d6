package main

import (
	"strings"
	"testing"

	"saltern/test/fakemaster"
)

// TestProgress: with --progress a bar on standard error counts the returns, and a summary takes the
// place of them, as in Salt.
func TestProgress(t *testing.T) {
	m := fakemaster.New(t, "a", "b", "c")
	asUser(t, m)
	h := newHouse(t, m, "")
	if code := h.run("salt", "-p", "*", "test.ping"); code != 0 {
		t.Errorf("exit %d", code)
	}

	shows := strings.Split(strings.TrimSuffix(h.errs, "\n"), "\r")[1:]
	if len(shows) != 4 {
		t.Fatalf("shown %d times: %q", len(shows), h.errs)
	}
	for i, want := range []string{"  0% |", " 33% |####", " 66% |####", "100% |####"} {
		if !strings.HasPrefix(shows[i], want) || !strings.HasSuffix(shows[i], "Returns: ["+string(rune('0'+i))+"/3]") ||
			len(shows[i]) != len(shows[0]) {
			t.Errorf("line %d: %q, want %q…", i, shows[i], want)
		}
	}
	if strings.Contains(h.out, "True") || !strings.Contains(h.out, "# of minions targeted: 3\n# of minions returned: 3\n") {
		t.Errorf("printed %q", h.out)
	}
}
