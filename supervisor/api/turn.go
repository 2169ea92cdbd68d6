package api

import (
	"context"
	"net/http"
	"time"

	"saltern/supervisor/nodes"
)

// Turns is what the routes of restarts serve: machines of a cluster are away
// one at a time:
//
//	GET  /v1/cluster/turn           [Turn]
//	POST /v1/cluster/turn  {force}  this node takes it; it is drained from then on
//	POST /v1/cluster/turn  {end}    this node gives it back
type Turns interface {
	Turn(ctx context.Context) (Turn, error)
	TakeTurn(ctx context.Context, force bool) error
	EndTurn(ctx context.Context) error
}

// Turn says where the cluster stands with restarts.
type Turn struct {
	// Alone: the node has no cluster, and needs to ask nobody.
	Alone bool        `json:"alone,omitempty"`
	Now   *nodes.Turn `json:"now,omitempty"` // nil: nobody has it
	Mine  bool        `json:"mine"`          // this node has it, and took it in this life
	// Needed says why the cluster cannot do without this node now; empty: it can.
	Needed string `json:"needed,omitempty"`
	// Sessions are connections for jobs that this node's master still has.
	Sessions int `json:"sessions"`
}

func (s *Server) turnRoutes(mux *http.ServeMux, n Turns) {
	mux.HandleFunc("GET /v1/cluster/turn", func(w http.ResponseWriter, r *http.Request) {
		t, err := n.Turn(r.Context())
		s.answer(w, t, err)
	})

	mux.HandleFunc("POST /v1/cluster/turn", withBody(func(w http.ResponseWriter, r *http.Request, q clusterRequest) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(changeTakes + 10*time.Second))
		ctx, cancel := context.WithTimeout(r.Context(), changeTakes)
		defer cancel()

		if q.End {
			s.answer(w, struct{}{}, n.EndTurn(ctx))
			return
		}

		s.answer(w, struct{}{}, n.TakeTurn(ctx, q.Force))
	}))
}

// Turn asks where the cluster stands with restarts.
func (c *Client) Turn(ctx context.Context) (t Turn, err error) {
	err = c.do(ctx, http.MethodGet, "/v1/cluster/turn", nil, &t)
	return t, err
}

// TakeTurn takes the turn for this node, and drains it. An error that is
// [ErrState] says who has it, or why this node is needed.
func (c *Client) TakeTurn(ctx context.Context, force bool) error {
	return c.change(ctx, "turn", clusterRequest{Force: force}, nil)
}

// EndTurn gives the turn back.
func (c *Client) EndTurn(ctx context.Context) error {
	return c.change(ctx, "turn", clusterRequest{End: true}, nil)
}
