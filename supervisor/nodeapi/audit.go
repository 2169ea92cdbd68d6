package nodeapi

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"

	"saltern/internal/audit"
	"saltern/supervisor/nodes"
)

// auditRoutes adds the route of this node's audit records.
func (s *Server) auditRoutes(routes routes) {
	routes.addRoute("GET /v1/audit", func(w http.ResponseWriter, r *http.Request, _ nodes.Node) {
		q, err := audit.ParseQuery(r.URL.Query())
		if err != nil {
			refuse(w, newFault(codeRequest, err.Error(), http.StatusBadRequest))
			return
		}
		v, err := s.host.Audit(r.Context(), q)
		answer(w, v, err)
	})
}

// Audit asks the node for its audit records. node is its name in the table: the records are
// attributed to that node, whatever node they name.
func (c *Client) Audit(ctx context.Context, node string, q audit.Query) (p audit.Page, err error) {
	err = c.within(ctx, maxList, http.MethodGet, "/v1/audit?"+q.Values().Encode(), nil, &p)
	if notThere(err) {
		return audit.Page{}, errors.New("its version keeps no audit record yet; next: applianced upgrade")
	}
	if err != nil {
		return audit.Page{}, err
	}
	return p.Bounded(node), nil
}

// peerActor returns the actor of an audit record for the machine that sent r. name is the node's
// name that the machine claims, and proof says how far the machine has proven that name.
func peerActor(r *http.Request, name string, proof audit.Proof) audit.Actor {
	from, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		from = r.RemoteAddr
	}
	return audit.Actor{User: name, Proof: proof, From: from}
}

// joinRefused writes an audit record of a machine that has not proven the cluster's secret.
func (s *Server) joinRefused(r *http.Request) {
	s.host.Record(audit.Record{
		Actor:    peerActor(r, "UNKNOWN", audit.Unproven),
		Action:   "node.join",
		Result:   audit.Refused,
		Detail:   "wrong secret",
		Stranger: true,
	})
}

// stateVerb returns the last word of the audit action for a node that requests a state.
func stateVerb(to nodes.State) string {
	verb := map[nodes.State]string{
		nodes.Member:   "ready",
		nodes.Draining: "drain",
		nodes.Leaving:  "leave",
		nodes.Removed:  "gone",
	}[to]
	return cmp.Or(verb, string(to))
}
