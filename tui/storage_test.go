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
	facts := setup.Facts{
		Hostname: "n1",
		Volume:   true,
		NoBricks: "brick directory /var/lib/saltern/bricks: it is on the root file system",
	}

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

// TestArbiter: the third choice of the first page makes answers for an arbiter,
// without a directory and without words about minions.
func TestArbiter(t *testing.T) {
	facts := setup.Facts{Hostname: "n3", Volume: true, Disks: []setup.Disk{{Path: "/dev/sdb", Empty: true}}}
	w := &Wizard{facts: facts, draft: newDraft(facts)}
	w.draft.mode, w.draft.joinString = joinAsArbiter, "sca1..."
	if a := w.draft.answers(); a.Mode != setup.Join || a.Storage.Role != setup.RoleArbiter ||
		a.DataDisk != "/dev/sdb" || a.JoinString == "" {
		t.Errorf("%+v", a)
	}

	w.draft.storage = sharedDir
	if a := w.draft.answers(); a.Storage.Kind != "" || a.Storage.Path != "" {
		t.Errorf("a directory for an arbiter: %+v", a)
	}

	for _, o := range storageChoices(w) {
		if o.Value == sharedDir {
			t.Error("an arbiter is offered a directory")
		}
	}

	applies := []string{}
	for _, p := range wizardPages() {
		if p.applies(w) && (p.heading() == "Storage" || p.heading() == "Shared directory" ||
			p.heading() == "Virtual address") {
			applies = append(applies, p.heading())
		}
	}

	if !slices.Equal(applies, []string{"Storage"}) {
		t.Errorf("pages: %q", applies)
	}

	rows := summary(setup.Answers{Mode: setup.Join, Node: "n3", Front: []string{"0.0.0.0"}}, &w.draft, facts)
	text := ""
	for _, r := range rows {
		text += r[0] + ": " + r[1] + "\n"
	}

	if !strings.Contains(text, "Role: arbiter: it keeps no data and serves no minions") ||
		strings.Contains(text, "Minions connect to") {
		t.Error(text)
	}

	w.progress = setup.Progress{
		State: "ready",
		Done:  &setup.Done{Arbiter: true, JoinString: "sca1", BackUp: []string{}},
	}

	if text := w.renderDone(); strings.Contains(text, "Minions use") || !strings.Contains(text, "arbiter") {
		t.Error(text)
	}
}
