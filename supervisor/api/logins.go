package api

import (
	"context"
	"net/http"

	"saltern/internal/control"
)

// LogIns is what the routes of tokens serve, which are those of all masters:
//
//	GET  /v1/tokens          who is logged in (control.Tokens)
//	POST /v1/tokens/revoke   control.Revocation: these log-ins end (control.Revoked)
type LogIns interface {
	Tokens(ctx context.Context) (control.Tokens, error)
	RevokeTokens(ctx context.Context, r control.Revocation) (control.Revoked, error)
}

func (s *Server) tokenRoutes(mux *http.ServeMux, n LogIns) {
	mux.HandleFunc("GET /v1/tokens", func(w http.ResponseWriter, r *http.Request) {
		t, err := n.Tokens(r.Context())
		s.answer(w, t, err)
	})
	mux.HandleFunc("POST /v1/tokens/revoke",
		withBody(func(w http.ResponseWriter, r *http.Request, q control.Revocation) {
			out, err := n.RevokeTokens(r.Context(), q)
			s.answer(w, out, err)
		}))
}

// Tokens asks who is logged in, by the tokens of the masters.
func (c *Client) Tokens(ctx context.Context) (t control.Tokens, err error) {
	err = c.do(ctx, http.MethodGet, "/v1/tokens", nil, &t)
	return t, err
}

// RevokeTokens ends log-ins.
func (c *Client) RevokeTokens(ctx context.Context, r control.Revocation) (out control.Revoked, err error) {
	err = c.post(ctx, "/v1/tokens/revoke", r, &out)
	return out, err
}
