package nodeapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"saltern/internal/printable"
	"saltern/supervisor/nodes"
	"saltern/supervisor/options"
)

// optionsRequest is the request to try, drop or keep a version of the master's options.
type optionsRequest struct {
	Mark  string        `json:"mark,omitempty"`
	Why   string        `json:"why,omitempty"`
	Limit time.Duration `json:"limit,omitempty"` // time for the master to serve, in nanoseconds
}

func (q optionsRequest) checkSize() error {
	if len(q.Mark) > 64 || len(q.Why) > 2048 {
		return errors.New("the request is too large")
	}
	return nil
}

// optionsRoutes adds the routes for [options.Node].
func (s *Server) optionsRoutes(routes routes) {
	routes.addRoute("GET /v1/options", func(w http.ResponseWriter, r *http.Request, _ nodes.Node) {
		st, err := s.host.Options().State(r.Context(), r.URL.Query().Get("fresh") != "")
		answer(w, st, err)
	})

	routes.addRoute("POST /v1/options/check", func(w http.ResponseWriter, r *http.Request, _ nodes.Node) {
		f, err := s.host.Options().Check(r.Context())
		answer(w, f, err)
	})

	for verb, do := range map[string]func(context.Context, options.Node, optionsRequest) error{
		"try": func(ctx context.Context, n options.Node, q optionsRequest) error {
			return n.Try(ctx, q.Mark,
				q.Limit)
		},
		"back": func(ctx context.Context, n options.Node, q optionsRequest) error { return n.Back(ctx, q.Mark, q.Why) },
		"keep": func(ctx context.Context, n options.Node, q optionsRequest) error { return n.Keep(ctx, q.Mark) },
	} {
		routes.addRoute("POST /v1/options/"+verb, func(w http.ResponseWriter, r *http.Request, n nodes.Node) {
			withBody(maxHello, func(w http.ResponseWriter, r *http.Request, q optionsRequest) {
				err := q.checkSize()
				if err == nil {
					err = do(r.Context(), s.host.Options(), q)
				}
				if err == nil {
					s.log.Info("a node changes which options the master has", "peer", n.Name, "change", verb)
				}

				answer(w, struct{}{}, err)
			})(w, r)
		})
	}
}

func answer(w http.ResponseWriter, v any, err error) {
	if err != nil {
		refuse(w, faultOf(err))
		return
	}
	replyJSON(w, v)
}

// Options returns the node's master as a target for changes of options.
func (c *Client) Options() options.Node { return optionsClient{c} }

type optionsClient struct{ c *Client }

// State implements options.Node.
func (o optionsClient) State(ctx context.Context, fresh bool) (st options.State, err error) {
	path := "/v1/options"
	if fresh {
		path += "?fresh=1"
	}
	if err := o.askRoute(ctx, http.MethodGet, path, nil, &st); err != nil {
		return options.State{}, err
	}
	if len(st.Files) > options.MaxFiles {
		return options.State{}, fmt.Errorf("node API: a list of %d files", len(st.Files))
	}
	st.LastGood = oneLine(st.LastGood)
	return st, nil
}

// Check implements options.Node.
func (o optionsClient) Check(ctx context.Context) (f options.Findings, err error) {
	if err := o.askRoute(ctx, http.MethodPost, "/v1/options/check", nil, &f); err != nil {
		return options.Findings{}, err
	}
	for _, list := range []*[]options.Fault{&f.Faults, &f.Notes} {
		*list = (*list)[:min(len(*list), options.MaxFiles)]
		for i := range *list {
			one := &(*list)[i]
			one.File = oneLine(one.File)
			one.Option = printable.Brief(one.Option, 100)
			one.Text = oneLine(one.Text)
		}
	}
	return f, nil
}

// Try implements options.Node.
func (o optionsClient) Try(ctx context.Context, mark string, limit time.Duration) error {
	return o.askRoute(ctx, http.MethodPost, "/v1/options/try", optionsRequest{Mark: mark, Limit: limit}, nil)
}

// Back implements options.Node.
func (o optionsClient) Back(ctx context.Context, mark, why string) error {
	return o.askRoute(ctx, http.MethodPost, "/v1/options/back", optionsRequest{Mark: mark, Why: why}, nil)
}

// Keep implements options.Node.
func (o optionsClient) Keep(ctx context.Context, mark string) error {
	return o.askRoute(ctx, http.MethodPost, "/v1/options/keep", optionsRequest{Mark: mark}, nil)
}

// askRoute sends a request. If the node's version has no such route, it returns options.ErrOld.
func (o optionsClient) askRoute(ctx context.Context, method, path string, in, into any) error {
	err := o.c.do(ctx, method, path, in, into)
	if notThere(err) {
		return options.ErrOld
	}
	return err
}

// notThere reports whether err means that the node has no such route.
func notThere(err error) bool {
	http404, ok := errors.AsType[*httpError](err)
	return ok && http404.status == http.StatusNotFound
}

// httpError is an HTTP response that does not come from the node API.
type httpError struct {
	status int
	text   string
}

func (e *httpError) Error() string { return "node API: the other node answered " + e.text }
