package member

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"saltern/supervisor/keyuse"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
)

// liar is a node that says of the table of nodes what it likes.
type liar struct {
	nodeapi.Host
	table nodes.Table // that it tells
	known nodes.Table // by which it knows who asks
	mu    sync.Mutex
	calls int
}

// Used implements nodeapi.Host.
func (l *liar) Used(nodes.Node, keyuse.Speaker, string) (refusal string) { return "" }

// Table is asked for about the connection, about who asks, and for the answer.
func (l *liar) Table() nodes.Table {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	if l.calls < 3 {
		return l.known
	}
	return l.table
}

// A node believes an arbiter that it asks only what that one may change itself, and nobody
// a version after which none can follow (finding 11 of the second audit).
func TestTablesThatAreFetched(t *testing.T) {
	_, start, key := keyed(t)
	m := start()
	id, err := nodeapi.LoadIdentity(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	setPeer := func(role string) nodes.Table {
		table := m.keeper.Table()
		table.Version++
		table.KeyHash = key.Hash
		table.Nodes[1] = nodes.Node{
			Name:        "n2",
			Address:     "127.0.0.2",
			State:       nodes.Member,
			Certificate: id.Hash,
			Storage:     role,
			Brick:       "/b/1",
		}

		return table
	}

	for _, row := range []struct {
		name, role string
		change     func(*nodes.Table)
		taken      bool
	}{
		{"an arbiter removes all others", nodes.ArbiterStorage,
			func(t *nodes.Table) { t.Nodes[0].State = nodes.Removed }, false},
		{"an arbiter is far ahead", nodes.ArbiterStorage, func(t *nodes.Table) { t.Version = 900 }, false},
		{"an arbiter has another brick", nodes.ArbiterStorage,
			func(t *nodes.Table) { t.Nodes[1].Brick = "/b/2" }, true},
		{"the last version of a node that serves", "client", func(t *nodes.Table) { t.Version = 1<<64 - 1 }, false},
		{"a node that serves was never missed", "client", func(t *nodes.Table) { t.Version = 900 }, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			now := setPeer(row.role)
			dir := t.TempDir()
			keeper, err := nodes.OpenKeeper(dir, dir)
			if err != nil {
				t.Fatal(err)
			}

			if _, err := keeper.Offer(now); err != nil {
				t.Fatal(err)
			}

			told := now.Clone()
			told.Version++
			row.change(&told)

			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}

			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = nodeapi.NewServer(&liar{table: told, known: now}, id, "v1",
					slog.New(slog.DiscardHandler), time.Now).Serve(ctx, ln)
			}()

			t.Cleanup(func() { cancel(); <-done })

			p := &peers{env: m.env, id: m.id, keeper: keeper}
			v := &peerView{client: nodeapi.NewClient(m.id, ln.Addr().String(), id.Hash), pin: id.Hash}
			defer v.client.Close()

			err = p.fetchTable(t.Context(), v)
			if row.taken && err != nil {
				t.Error(err)
			}

			if got := keeper.Table().Version; (got == told.Version) != row.taken || !row.taken && got != now.Version {
				t.Errorf("version %d: %v", got, err)
			}
		})
	}
}
