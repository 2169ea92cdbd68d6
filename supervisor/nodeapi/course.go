package nodeapi

import (
	"context"
	"errors"
	"net/http"

	"saltern/internal/audit"
	"saltern/internal/control"
	"saltern/supervisor/nodes"
)

// errOlder is the error for a node whose version does not have the route.
var errOlder = errors.New("its version does not do that yet; next: applianced upgrade")

// serviceRequest names a service of this node, and the user who wants it restarted.
type serviceRequest struct {
	Service string     `json:"service"`
	By      control.By `json:"by"`
}

// courseRoutes adds the routes of this node's metrics and of restarts of its services.
func (s *Server) courseRoutes(routes routes) {
	routes.addRoute("GET /v1/course",
		func(w http.ResponseWriter, _ *http.Request, _ nodes.Node) { replyJSON(w, s.host.Points()) })
	routes.addRoute("POST /v1/services/restart", func(w http.ResponseWriter, r *http.Request, n nodes.Node) {
		withBody(maxHello, func(w http.ResponseWriter, r *http.Request, q serviceRequest) {
			rec := audit.Record{
				Actor:  peerActor(r, n.Name, audit.Peer),
				Action: "service.restart",
				Object: q.Service,
				Result: audit.Started,
				Detail: "asked for by " + q.By.User + " (" + q.By.Eauth + ") from " + q.By.From,
			}

			err := s.host.RestartService(q.Service)
			if err != nil {
				rec.Result, rec.Detail = audit.Refused, rec.Detail+": "+err.Error()
			}

			s.host.Record(rec)
			answer(w, struct{}{}, err)
		})(w, r)
	})
}

// Points returns the metrics history of a node for the last day. Callers check it with
// [control.Course.Clean].
func (c *Client) Points(ctx context.Context) (points []control.Point, err error) {
	return points, orOlder(c.do(ctx, http.MethodGet, "/v1/course", nil, &points))
}

// RestartService asks a node to restart one of its services. The service restarts soon after the
// answer.
func (c *Client) RestartService(ctx context.Context, name string, by control.By) error {
	return orOlder(c.do(ctx, http.MethodPost, "/v1/services/restart", serviceRequest{name, by}, nil))
}

func orOlder(err error) error {
	if notThere(err) {
		return errOlder
	}
	return err
}
