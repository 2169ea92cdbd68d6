package nodeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"saltern/internal/control/toolrun"
	"saltern/supervisor/nodes"
)

// still is a node whose table nobody changes.
type still struct{ *clusterNode }

func (s still) SetState(context.Context, string, nodes.State) (nodes.Table, error) {
	return s.Table(), nil
}

// asker is a machine that asks a node, in one of the states and roles.
type asker struct {
	name  string
	role  role // "": a stranger
	state nodes.State
	http  *http.Client
}

// askers serves a node with a machine of each role and state in its table, and gives these.
func askers(t *testing.T) (c *clusterNode, all []asker) {
	t.Helper()
	c = startNode(t)
	c.options, c.system = &optionsHost{}, &machine{}
	c.tool = func(context.Context, toolrun.Request) (func(context.Context, io.Writer), error) {
		return nil, errors.New("no tool")
	}
	address := serve(t, still{c}, c.id, slog.New(slog.DiscardHandler), frozen)
	add := func(storage string, r role, state nodes.State) {
		id := identity(t)
		a := asker{
			name:  strings.TrimSpace(string(r) + " " + string(state)),
			role:  r,
			state: state,
		}

		a.http = &http.Client{Transport: &http.Transport{DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialPinned(ctx, id, address, "")
		}}}
		t.Cleanup(a.http.CloseIdleConnections)
		all = append(all, a)

		if r == "" {
			return
		}

		n := len(c.table.Nodes) + 1
		c.table.Nodes = append(c.table.Nodes, nodes.Node{
			Name:        fmt.Sprint("n", n),
			Address:     fmt.Sprint("127.0.70.", n),
			State:       state,
			Certificate: id.Hash,
			Storage:     storage,
		})
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	for _, state := range []nodes.State{nodes.Joining, nodes.Member, nodes.Draining, nodes.Leaving, nodes.Removed} {
		add("data", fullRole, state)
		add("client", fullRole, state)
		add(nodes.ArbiterStorage, arbiterRole, state)
	}

	add("", "", "")
	return c, all
}

// ask asks for a route and gives the code of the refusal, "" for any other answer.
func (a asker) ask(t *testing.T, pattern string) string {
	t.Helper()
	method, path, _ := strings.Cut(pattern, " ")
	req, err := http.NewRequestWithContext(within(t), method, "https://node"+path, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}

	resp, err := a.http.Do(req)
	if err != nil {
		t.Fatalf("%s: %s: %v", a.name, pattern, err)
	}
	defer resp.Body.Close()

	var f fault
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		t.Fatal(err)
	}

	_ = json.Unmarshal(text, &f) // not all answers are objects
	if slices.Contains([]string{codeAccess, codeRemoved, codeStranger}, f.Code) {
		return f.Code
	}

	return ""
}

// Each route answers those roles and states that may use it, and nobody else: what an
// arbiter and a joining node may is written down here once more (finding 11 of the second
// audit).
func TestRoutesByRoleAndState(t *testing.T) {
	own := []string{"GET /v1/table", "GET /v1/status", "GET /v1/marks", "PUT /v1/table", "POST /v1/leave",
		"POST /v1/gone"}
	_, all := askers(t)
	for pattern := range accessTable() {
		for _, a := range all {
			want := ""
			switch {
			case a.role == "":
				want = codeStranger
			case a.state == nodes.Removed:
				want = codeRemoved
			case slices.Contains(own, pattern):
			case pattern == "POST /v1/ready", pattern == "POST /v1/storage/certificate":
				if a.state == nodes.Leaving {
					want = codeAccess
				}
			case pattern == "POST /v1/drain":
				if a.state != nodes.Member && a.state != nodes.Draining {
					want = codeAccess
				}
			case a.role == arbiterRole, a.state == nodes.Joining, a.state == nodes.Leaving:
				want = codeAccess
			}

			if got := a.ask(t, pattern); got != want {
				t.Errorf("%s: %s: %q, want %q", a.name, pattern, got, want)
			}
		}
	}
}

// A route that nobody has thought about does not start.
func TestRouteWithoutARow(t *testing.T) {
	panics := func(do func()) (text string) {
		defer func() { text = fmt.Sprint(recover()) }()
		do()
		return ""
	}
	r := routes{server: &Server{}, mux: http.NewServeMux(), table: accessTable()}
	nothing := func(http.ResponseWriter, *http.Request, nodes.Node) {}
	if text := panics(func() { r.addRoute("GET /v1/new", nothing) }); !strings.Contains(text, `"GET /v1/new" has no row`) {
		t.Errorf("%q", text)
	}
	if text := panics(r.checkRows); !strings.Contains(text, "without a route") {
		t.Errorf("%q", text)
	}
}

// Who does not serve offers a table with its own entry changed and no other, and nobody
// a version after which none can follow.
func TestOfferedTables(t *testing.T) {
	c, all := askers(t)
	offer := func(a asker, change func(*nodes.Table)) string {
		table := c.Table()
		table.Version++
		change(&table)
		body, err := json.Marshal(table)
		if err != nil {
			t.Fatal(err)
		}

		req, err := http.NewRequestWithContext(within(t), http.MethodPut, "https://node/v1/table",
			strings.NewReader(string(body)))
		if err != nil {
			t.Fatal(err)
		}

		resp, err := a.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()

		text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode == http.StatusOK {
			return ""
		}

		return string(text)
	}

	state := func(name string, to nodes.State) func(*nodes.Table) {
		return func(t *nodes.Table) {
			for i := range t.Nodes {
				if t.Nodes[i].Name == name {
					t.Nodes[i].State = to
				}
			}
		}
	}

	before := c.Table()
	for _, a := range all {
		if a.role == "" || a.state == nodes.Removed {
			continue
		}

		serves := a.role == fullRole && a.state != nodes.Joining
		got := offer(a, state("n1", nodes.Draining))
		if (got == "") != serves {
			t.Errorf("%s drains another node: %q", a.name, got)
		}

		if got := offer(a, func(t *nodes.Table) { t.Version = 1<<64 - 1 }); !strings.Contains(got,
			"looks for a newer one by itself") {
			t.Errorf("%s: %q", a.name, got)
		}

		c.mu.Lock()
		if c.table.Version > before.Version+1 || c.looks == 0 {
			t.Errorf("version %d, %d looks", c.table.Version, c.looks)
		}

		c.table, c.looks = before.Clone(), 0
		c.mu.Unlock()
	}
}
