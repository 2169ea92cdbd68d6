package api

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"time"

	"saltern/supervisor/setup"
)

// Setup is what the set-up routes serve:
//
//	GET  /v1/setup            where it stands (setup.Progress)
//	GET  /v1/setup/facts      what the machine has (setup.Facts)
//	POST /v1/setup/validate   answers → setup.Validation; changes nothing
//	POST /v1/setup/preflight  answers → []setup.Check; changes nothing
//	POST /v1/setup/start      answers; the work goes on by itself
//	POST /v1/setup/retry      what failed is tried again
//	POST /v1/setup/back       back to the answers
//	POST /v1/setup/network    {action: try|look|confirm|revert, network} → setup.Trial
//	POST /v1/setup/claim      setup.ClaimRequest → setup.Claim
//
// Each client has a random token; who leads the set-up is told apart by it.
// What changes something is refused to others while a claim is held.
type Setup interface {
	Progress() setup.Progress
	Facts(ctx context.Context) setup.Facts
	Validate(ctx context.Context, a setup.Answers) setup.Validation
	Preflight(ctx context.Context, a setup.Answers) ([]setup.Check, error)
	Start(ctx context.Context, token string, a setup.Answers) error
	Retry(token string) error
	Back(token string) error
	Network(ctx context.Context, token, action string, n setup.Network) (setup.Trial, error)
	Claim(token string, q setup.ClaimRequest) setup.Claim
}

// ErrState marks a request that does not fit to where the set-up stands, or
// that somebody else leads.
var ErrState = setup.ErrState

// tokenHeader carries a client's token.
const tokenHeader = "X-Setup-Token"

// preflightTakes bounds a preflight: it talks to other machines.
const preflightTakes = 60 * time.Second

type networkRequest struct {
	Action  string        `json:"action"`
	Network setup.Network `json:"network"`
}

// setupRoutes adds the routes of the set-up.
func (s *Server) setupRoutes(mux *http.ServeMux, n Setup) {
	mux.HandleFunc("GET /v1/setup", func(w http.ResponseWriter, _ *http.Request) { s.answer(w, n.Progress(), nil) })
	mux.HandleFunc("GET /v1/setup/facts", func(w http.ResponseWriter, r *http.Request) {
		s.answer(w, n.Facts(r.Context()), nil)
	})
	mux.HandleFunc("POST /v1/setup/validate", withBody(func(w http.ResponseWriter, r *http.Request, a setup.Answers) {
		s.answer(w, n.Validate(r.Context(), a), nil)
	}))
	mux.HandleFunc("POST /v1/setup/preflight", withBody(func(w http.ResponseWriter, r *http.Request, a setup.Answers) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(preflightTakes + 10*time.Second))
		ctx, cancel := context.WithTimeout(r.Context(), preflightTakes)
		defer cancel()
		c, err := n.Preflight(ctx, a)
		s.answer(w, c, err)
	}))

	mux.HandleFunc("POST /v1/setup/start", withBody(func(w http.ResponseWriter, r *http.Request, a setup.Answers) {
		s.answer(w, struct{}{}, n.Start(r.Context(), token(r), a))
	}))
	mux.HandleFunc("POST /v1/setup/retry", func(w http.ResponseWriter, r *http.Request) {
		s.answer(w, struct{}{}, n.Retry(token(r)))
	})
	mux.HandleFunc("POST /v1/setup/back", func(w http.ResponseWriter, r *http.Request) {
		s.answer(w, struct{}{}, n.Back(token(r)))
	})
	mux.HandleFunc("POST /v1/setup/network", withBody(func(w http.ResponseWriter, r *http.Request, q networkRequest) {
		t, err := n.Network(r.Context(), token(r), q.Action, q.Network)
		s.answer(w, t, err)
	}))

	mux.HandleFunc("POST /v1/setup/claim", withBody(func(w http.ResponseWriter, r *http.Request, q setup.ClaimRequest) {
		s.answer(w, n.Claim(token(r), q), nil)
	}))
}

func token(r *http.Request) string {
	t := r.Header.Get(tokenHeader)
	return t[:min(len(t), 64)]
}

// withBody decodes a bounded JSON body; unknown keys are refused.
func withBody[T any](do func(http.ResponseWriter, *http.Request, T)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var v T
		dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&v); err != nil {
			fail(w, http.StatusBadRequest, "request cannot be read: "+err.Error())
			return
		}
		do(w, r, v)
	}
}

// SetupProgress tells where the set-up stands.
func (c *Client) SetupProgress(ctx context.Context) (p setup.Progress, err error) {
	err = c.do(ctx, http.MethodGet, "/v1/setup", nil, &p)
	return p, err
}

// SetupFacts tells what the machine has.
func (c *Client) SetupFacts(ctx context.Context) (f setup.Facts, err error) {
	err = c.do(ctx, http.MethodGet, "/v1/setup/facts", nil, &f)
	return f, err
}

// SetupValidate checks answers without trying anything.
func (c *Client) SetupValidate(ctx context.Context, a setup.Answers) (v setup.Validation, err error) {
	err = c.post(ctx, "/v1/setup/validate", a, &v)
	return v, err
}

// SetupPreflight checks answers against the world. It takes up to a minute.
func (c *Client) SetupPreflight(ctx context.Context, a setup.Answers) (list []setup.Check, err error) {
	err = c.post(ctx, "/v1/setup/preflight", a, &list)
	return list, err
}

// SetupStart begins the set-up; SetupProgress tells how it goes.
func (c *Client) SetupStart(ctx context.Context, a setup.Answers) error {
	return c.post(ctx, "/v1/setup/start", a, nil)
}

// SetupRetry tries again what failed.
func (c *Client) SetupRetry(ctx context.Context) error {
	return c.post(ctx, "/v1/setup/retry", nil, nil)
}

// SetupBack gives up a set-up that has not made this machine part of a
// cluster yet; the state is new then.
func (c *Client) SetupBack(ctx context.Context) error {
	return c.post(ctx, "/v1/setup/back", nil, nil)
}

// SetupNetwork tries (action try), looks at (look), keeps (confirm) or takes
// back (revert) a network configuration. Without a confirmation it is taken back after
// setup.TrialLasts. The network is used by try only.
func (c *Client) SetupNetwork(ctx context.Context, action string, n setup.Network) (t setup.Trial, err error) {
	err = c.post(ctx, "/v1/setup/network", networkRequest{action, n}, &t)
	return t, err
}

// SetupClaim asks who leads the set-up, or to lead it.
func (c *Client) SetupClaim(ctx context.Context, q setup.ClaimRequest) (a setup.Claim, err error) {
	err = c.post(ctx, "/v1/setup/claim", q, &a)
	return a, err
}

// post sends v as JSON; nil sends an empty body.
func (c *Client) post(ctx context.Context, path string, v, into any) error {
	var body []byte
	if v != nil {
		var err error
		if body, err = json.Marshal(v); err != nil {
			return err
		}
	}
	return c.do(ctx, http.MethodPost, path, body, into)
}

// newToken gives a client's token.
func newToken() string { return rand.Text() }
