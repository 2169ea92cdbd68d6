package api

import (
	"context"
	"net/http"
	"time"

	"saltern/supervisor/status"
)

// Minions is what the routes of minions and their keys serve:
//
//	GET  /v1/minions[?finger=1]   what all nodes know of them (status.MinionList)
//	POST /v1/keys                 KeyChange: accept, reject or delete keys
type Minions interface {
	Minions(ctx context.Context, finger bool) (status.MinionList, error)
	ChangeKeys(ctx context.Context, c KeyChange) error
}

// KeyChange is a change of keys, by their full names.
type KeyChange struct {
	Verb string   `json:"verb"` // accept, reject or delete
	IDs  []string `json:"ids"`
	// State and Finger leave all other keys of these names alone; empty: any.
	State  string `json:"state,omitempty"` // with delete: accepted, pending, rejected or denied
	Finger string `json:"finger,omitempty"`
}

// MaxKeys bounds the keys of one change.
const MaxKeys = 1000

// keysTake bounds the answer to a question about all minions, or a change of
// many keys.
const keysTake = 60 * time.Second

func (s *Server) minionRoutes(mux *http.ServeMux, n Minions) {
	within := func(w http.ResponseWriter, r *http.Request) (context.Context, context.CancelFunc) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(keysTake + 10*time.Second))
		return context.WithTimeout(r.Context(), keysTake)
	}

	mux.HandleFunc("GET /v1/minions", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := within(w, r)
		defer cancel()
		list, err := n.Minions(ctx, r.URL.Query().Get("finger") != "")
		s.answer(w, list, err)
	})

	mux.HandleFunc("POST /v1/keys", withBody(func(w http.ResponseWriter, r *http.Request, q KeyChange) {
		ctx, cancel := within(w, r)
		defer cancel()
		s.answer(w, struct{}{}, n.ChangeKeys(ctx, q))
	}))
}

// Minions asks what all nodes know of their minions; finger: with the
// fingerprints of the keys.
func (c *Client) Minions(ctx context.Context, finger bool) (status.MinionList, error) {
	ctx, cancel := context.WithTimeout(ctx, keysTake+5*time.Second)
	defer cancel()
	path := "/v1/minions"
	if finger {
		path += "?finger=1"
	}
	var list status.MinionList
	err := c.do(ctx, http.MethodGet, path, nil, &list)
	return list, err
}

// ChangeKeys accepts, rejects or deletes at most [MaxKeys] keys.
func (c *Client) ChangeKeys(ctx context.Context, q KeyChange) error {
	ctx, cancel := context.WithTimeout(ctx, keysTake+5*time.Second)
	defer cancel()
	return c.post(ctx, "/v1/keys", q, nil)
}
