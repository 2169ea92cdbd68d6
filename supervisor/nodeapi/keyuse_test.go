package nodeapi

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"testing"

	"saltern/internal/control/toolrun"
	"saltern/supervisor/keyuse"
	"saltern/supervisor/nodes"
)

// TestCopyMayRead: a machine that uses the key of a node without being it may read what
// tells it so, and nothing else, whatever the node is (F5).
func TestCopyMayRead(t *testing.T) {
	c := startNode(t)
	c.options, c.system = &optionsHost{}, &machine{}
	c.tool = func(context.Context, toolrun.Request) (func(context.Context, io.Writer), error) {
		return nil, errors.New("no tool")
	}

	for _, storage := range []string{"data", "client", nodes.ArbiterStorage} {
		for _, state := range present() {
			id := identity(t)
			c.mu.Lock()
			c.table.Nodes = append(c.table.Nodes, nodes.Node{
				Name:        "n" + storage + string(state),
				Address:     "127.0.70.9",
				State:       state,
				Certificate: id.Hash,
				Storage:     storage,
			})
			c.mu.Unlock()

			copied := asker{name: storage + " " + string(state)}
			copied.http = NewClient(id.Speaking(func() keyuse.Speaker { return keyuse.Speaker{Life: "copy"} }),
				c.address, c.id.Hash).http
			t.Cleanup(copied.http.CloseIdleConnections)

			for pattern := range accessTable() {
				want := codeAccess
				if slices.Contains([]string{"GET /v1/table", "GET /v1/status", "GET /v1/marks"}, pattern) {
					want = ""
				}
				if got := copied.ask(t, pattern); got != want {
					t.Errorf("a copy of %s: %s: %q, want %q", copied.name, pattern, got, want)
				}
			}
		}
	}
}

// TestCopyIsToldWhy: who is refused reads which machines there are.
func TestCopyIsToldWhy(t *testing.T) {
	c := startNode(t)
	cl := NewClient(c.id.Speaking(func() keyuse.Speaker { return keyuse.Speaker{Life: "copy"} }), c.address, c.id.Hash)
	defer cl.Close()
	_, err := cl.SetState(within(t), nodes.Leaving)
	if err == nil || !strings.Contains(err.Error(),
		"the machine at 127.0.0.1 may not act for n1: two machines use the key of n1") {
		t.Errorf("%v", err)
	}
}

// TestSpeakerThatCannotBeRead: what a machine says about itself is bounded and plain, and
// is not passed over.
func TestSpeakerThatCannotBeRead(t *testing.T) {
	c := startNode(t)
	cl := NewClient(c.id, c.address, c.id.Hash)
	defer cl.Close()

	for _, text := range []string{"life=", "life=a%zz", "life=A&board=x", "life=" + strings.Repeat("A", 41),
		"life=A&later=" + strings.Repeat("x", keyuse.MaxSpeaker)} {
		req, err := http.NewRequestWithContext(within(t), http.MethodGet, "https://node/v1/table", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}

		req.Header.Set(machineHeader, text)
		resp, err := cl.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}

		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%.30q: %s", text, resp.Status)
		}
	}
}

// TestIdentityIsKeptWhenItIsSaved: a key that is made for the checks of the set-up is on no
// disk until it is saved, and is the same one then (F8).
func TestIdentityIsKeptWhenItIsSaved(t *testing.T) {
	dir := t.TempDir()
	id, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}

	if _, err := ReadIdentity(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}

	if err := id.Save(dir); err != nil {
		t.Fatal(err)
	}

	again, err := LoadIdentity(dir)
	if err != nil || again.Hash != id.Hash {
		t.Errorf("%+v %v", again, err)
	}
}
