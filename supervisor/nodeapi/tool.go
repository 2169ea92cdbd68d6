package nodeapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"saltern/internal/control/toolrun"
	"saltern/internal/httpserver"
	"saltern/supervisor/nodes"
)

// toolRoute lets a node that serves run one of Salt's tools here, by our own master and
// with the rights of its account. It has no more by that: it holds the cluster's key,
// and may order every minion anyway.
func (s *Server) toolRoute(routes routes) {
	routes.addRoute("POST "+toolrun.Path, func(w http.ResponseWriter, r *http.Request, n nodes.Node) {
		q, err := toolrun.Read(r.Body)
		if err != nil {
			refuse(w, newFault(codeRequest, err.Error(), http.StatusBadRequest))
			return
		}

		run, err := s.host.Tool(r.Context(), q)
		if err != nil {
			refuse(w, faultOf(err))
			return
		}

		s.log.Info("a node, whose master does not answer, has a tool run here", "peer", n.Name, "tool",
			q.Tool, "user", q.User)
		run(r.Context(), httpserver.Stream(w, toolrun.Stall))
	})
}

// ErrNotRun marks errors of [Client.RunTool] after which the tool has not run, and
// will not.
var ErrNotRun = errors.New("the tool was not run")

// notRunError is an error that is [ErrNotRun], in its own words.
type notRunError struct{ error }

func (e *notRunError) Unwrap() []error { return []error{ErrNotRun, e.error} }

// RunTool has the node run one of Salt's tools by its master, and gives the frames,
// which end with ctx. Whether the tool has run is known only for an error that is
// [ErrNotRun].
func (c *Client) RunTool(ctx context.Context, q toolrun.Request) (io.ReadCloser, error) {
	body, err := q.Encode()
	if err != nil {
		return nil, &notRunError{err}
	}

	var reached atomic.Bool
	ctx, cancel := context.WithCancel(httptrace.WithClientTrace(ctx,
		&httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { reached.Store(true) }}))
	late := time.AfterFunc(answerTakes, cancel)
	defer late.Stop()

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://node"+toolrun.Path, bytes.NewReader(body))
	if err != nil {
		cancel()
		return nil, &notRunError{err}
	}

	req.GetBody = nil // package http must not send it twice
	long := *c.http
	long.Timeout = 0
	resp, err := long.Do(req)
	switch {
	case err != nil && !reached.Load():
		err = &notRunError{shortError(err)}
	case err != nil:
		err = shortError(err)
	case resp.StatusCode == http.StatusOK && late.Stop():
		return &toolFrames{resp.Body, cancel}, nil
	case resp.StatusCode == http.StatusOK:
		err = errors.Join(errors.New("no answer in time"), resp.Body.Close())
	default:
		err = notRun(resp)
	}

	cancel()
	return nil, err
}

// notRun is the reason for which a node has refused to run a tool.
func notRun(resp *http.Response) error {
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxHello))
	var f fault
	if err != nil || json.Unmarshal(b, &f) != nil || f.Error == "" {
		return &notRunError{&httpError{resp.StatusCode, resp.Status}}
	}
	return &notRunError{&refusedError{codes[f.Code], oneLine(f.Error), f.Next}}
}

// toolFrames are the frames of a run, which Close ends.
type toolFrames struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close implements [io.Closer].
func (f *toolFrames) Close() error {
	f.cancel()
	return f.ReadCloser.Close()
}
