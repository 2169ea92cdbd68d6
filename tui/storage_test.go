package tui

import (
	"slices"
	"strings"
	"testing"

	"saltern/supervisor/setup"
)

// TestOneFileSystem: on a machine whose only file system holds the system, no
// copy of a shared volume is promised there; the machine can be one that no
// other joins.
func TestOneFileSystem(t *testing.T) {
	facts := setup.Facts{Hostname: "n1", Volume: true, NoBricks: "brick directory /var/lib/saltern/bricks: it is on the root file system"}
	for mode, want := range map[setup.Mode]struct{ kind, says string }{
		setup.Form: {"local", "of this machine alone: no other node can join"},
		setup.Join: {"", "if the cluster keeps no copies"},
	} {
		w := &Wizard{facts: facts, draft: newDraft(facts)}
		w.draft.mode = string(mode)
		if got := w.draft.answers().Storage.Kind; got != want.kind {
			t.Errorf("%s: kind %q", mode, got)
		}
		lines := []string{}
		for _, o := range storageChoices(w) {
			lines = append(lines, o.Key)
		}
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, want.says) }) {
			t.Errorf("%s: %q", mode, lines)
		}
	}
	facts.NoBricks = ""
	if d := newDraft(facts); d.answers().Storage.Kind != "" {
		t.Error("a machine with room for a copy is set up without one")
	}
}
