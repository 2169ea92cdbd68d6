package nodeapi

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"saltern/supervisor/nodes"
)

// role is the kind of the asking node, which determines the routes that the node may use.
type role string

// Roles of nodes.
const (
	// fullRole is a node that serves minions: it has a copy of the data, or uses the copies of
	// other nodes. It has the cluster's key.
	fullRole role = "full"
	// arbiterRole decides between two copies, and serves no minions.
	arbiterRole role = "arbiter"
	// copyRole is a machine that uses the key of a node and may not act for that node. It may read
	// what it needs to detect that it is a copy, whatever role the node has.
	copyRole role = "copy"
)

func roleOf(n nodes.Node) role {
	if n.IsArbiter() {
		return arbiterRole
	}
	return fullRole
}

// access lists, by role, the states in which nodes of the table may use a route. Machines outside
// the table and removed nodes may use no such route. A machine outside the table can only join, see
// join.go.
type access map[role][]nodes.State

// present returns the states of nodes that belong to the cluster.
func present() []nodes.State { return append(staying(), nodes.Leaving) }

// staying returns the states of nodes that are not leaving.
func staying() []nodes.State { return append(serving(), nodes.Joining) }

// serving returns the states of nodes that work.
func serving() []nodes.State { return []nodes.State{nodes.Member, nodes.Draining} }

// forAll permits a route to full nodes and arbiters. Such routes return data that every node needs
// about the others, or change the asking node's own entry in the table.
func forAll(states []nodes.State) access {
	return access{fullRole: states, arbiterRole: states}
}

// forCopies permits a route also to other machines that use the key of a node.
func forCopies(states []nodes.State) access {
	return access{fullRole: states, arbiterRole: states, copyRole: states}
}

// forFull permits a route only to full nodes that serve. Such routes concern minions, keys, tools,
// options, systems and records.
func forFull() access {
	return access{fullRole: serving()}
}

// accessTable returns a row for each route that only nodes of the table may use. addRoute panics
// for a route without a row.
func accessTable() map[string]access {
	return map[string]access{
		"GET /v1/table":  forCopies(present()),
		"GET /v1/status": forCopies(present()),
		"GET /v1/marks":  forCopies(present()),
		"PUT /v1/table":  forAll(present()), // nodes.CheckStep limits what the node may change

		"POST /v1/ready": forAll(staying()),
		"POST /v1/drain": forAll(serving()),
		"POST /v1/leave": forAll(present()),
		"POST /v1/gone":  forAll(present()),

		"POST /v1/storage/certificate": forAll(staying()),
		"GET /v1/storage/authority":    forFull(),

		"GET /v1/minions":           forFull(),
		"POST /v1/tool":             forFull(),
		"GET /v1/git":               forFull(),
		"POST /v1/git/fetch":        forFull(),
		"GET /v1/audit":             forFull(),
		"GET /v1/events":            forFull(),
		"GET /v1/course":            forFull(),
		"POST /v1/services/restart": forFull(),
		"POST /v1/files/newest":     forFull(),

		"GET /v1/options":        forFull(),
		"POST /v1/options/check": forFull(),
		"POST /v1/options/try":   forFull(),
		"POST /v1/options/back":  forFull(),
		"POST /v1/options/keep":  forFull(),

		"GET /v1/system":          forFull(),
		"PUT /v1/system/version":  forFull(),
		"POST /v1/system/restart": forFull(),
	}
}

// memberHandler answers a request of the given node, which is in the table and may use the route.
type memberHandler func(http.ResponseWriter, *http.Request, nodes.Node)

// routes registers the routes that only nodes of the table may use.
type routes struct {
	server *Server
	mux    *http.ServeMux
	table  map[string]access
}

// addRoute registers a route. It panics if accessTable has no row for the route.
func (r routes) addRoute(pattern string, handle memberHandler) {
	allowed, ok := r.table[pattern]
	if !ok {
		panic(fmt.Sprintf("node API: the route %q has no row in accessTable", pattern))
	}
	delete(r.table, pattern)
	r.mux.HandleFunc(pattern, r.server.member(allowed, handle))
}

// checkRows panics if accessTable has a row without a route.
func (r routes) checkRows() {
	if len(r.table) > 0 {
		panic(fmt.Sprintf("node API: rows of accessTable without a route: %v", slices.Sorted(maps.Keys(r.table))))
	}
}

// refusal returns why the node n may not use a route, or "" if it may. copied is the reason why the
// asking machine may not act for n; it is "" if the machine may.
func (a access) refusal(n nodes.Node, copied string) string {
	if _, ok := a[copyRole]; copied != "" && !ok {
		return copied
	}

	states, ok := a[roleOf(n)]
	switch {
	case !ok:
		return fmt.Sprintf("%s is the cluster's arbiter, which may not ask this: ask on a node that serves minions",
			n.Name)
	case !slices.Contains(states, n.State):
		var words []string
		for _, s := range states {
			words = append(words, string(s))
		}
		return fmt.Sprintf("%s is %s; nodes may ask this that are %s", n.Name, n.State, strings.Join(words, " or "))
	}

	return ""
}
