package member

import (
	"errors"
	"strings"
	"testing"

	"saltern/internal/control/toolrun"
	"saltern/supervisor/api"
)

// Nodes are asked for a tool that answer and have a master, those first whose master
// answers.
func TestAble(t *testing.T) {
	m, _ := withArbiter(t, "n1")
	names := func() string {
		var out []string
		for _, n := range m.peers.answeringMasters() {
			out = append(out, n.Name)
		}
		return strings.Join(out, " ")
	}

	view := func(name, master string, err error) {
		table := m.Table()
		n, _ := table.Find(name)
		v := &peerView{client: m.peers.clientFor(n), seen: now, err: err}
		v.summary.Node.Master = master
		m.peers.views[name] = v
	}

	if got := names(); got != "" {
		t.Errorf("before any was asked: %s", got)
	}

	view("n2", "failing", nil)
	view("n3", "", nil) // the arbiter
	if got := names(); got != "n2" {
		t.Errorf("a master that may be back: %s", got)
	}

	m.peers.views["n2"].err = errors.New("no route")
	if got := names(); got != "" {
		t.Errorf("a node that is away: %s", got)
	}

	_, _, err := Verbs{m}.RunTool(t.Context(), toolrun.Request{Tool: "salt", User: "root"})
	if !errors.Is(err, api.ErrState) || !strings.Contains(err.Error(), "no other node with a master answers") {
		t.Errorf("nobody to ask: %v", err)
	}

	view("n2", "ok", nil)
	_, _, err = Verbs{m}.RunTool(t.Context(), toolrun.Request{Tool: "sh", User: "root"})
	if !errors.Is(err, api.ErrState) || !strings.Contains(err.Error(), "n2: \"sh\" cannot be asked") {
		t.Errorf("refused by the only one: %v", err)
	}

	a, _ := withArbiter(t, "n3")
	if _, err := (host{a}).Tool(t.Context(), toolrun.Request{
		Tool: "salt",
		User: "root",
	}); err == nil || !strings.Contains(err.Error(), "arbiter") {
		t.Errorf("the arbiter: %v", err)
	}
}
