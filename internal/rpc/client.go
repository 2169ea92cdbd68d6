package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"saltern/internal/localsock"
)

// Client calls the methods of one server. It is safe for concurrent use.
type Client struct {
	Socket localsock.Client
	// Host names the server in the requests.
	Host string
	// Header is sent with each request. It may be nil.
	Header http.Header
}

// Call calls a method of the server and waits for at most [Row.Takes] plus [Slack]. A refusal is an
// *[Error]. Any other error comes from the connection, or is an [*AnswerError].
func Call[In, Out any](ctx context.Context, c *Client, m *Method[In, Out], in In) (out Out, err error) {
	ctx, cancel := context.WithTimeout(ctx, m.Takes+Slack)
	defer cancel()

	target, body, err := m.request(in)
	if err != nil {
		return out, fmt.Errorf("encode the request: %w", err)
	}

	b, err := c.Socket.Do(ctx, m.Verb(), c.Host+target, c.Header, body)
	if refusal, ok := errors.AsType[*localsock.Refusal](err); ok {
		return out, decodeError(refusal)
	}
	if err != nil {
		return out, err
	}

	if _, silent := any(out).(None); silent {
		return out, nil
	}
	err = json.Unmarshal(b, &out)
	if err != nil {
		var none Out
		return none, &AnswerError{err}
	}
	return out, nil
}

// AnswerError means that an answer cannot be decoded.
type AnswerError struct{ Err error }

// Error returns the reason.
func (e *AnswerError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *AnswerError) Unwrap() error { return e.Err }

// request returns the path with its query, and the body.
func (m *Method[In, Out]) request(in In) (target string, body []byte, err error) {
	switch {
	case m.Form != nil:
		return m.fillPath(m.Form.Write(in)), nil, nil
	case m.Body != nil:
		return m.path(), m.Body.Write(in), nil
	case m.Verb() == http.MethodGet:
		return m.path(), nil, nil
	}
	body, err = json.Marshal(in)
	return m.path(), body, err
}

// fillPath returns the path with values filled in, and the remaining values as a query.
func (m *Method[In, Out]) fillPath(values url.Values) string {
	target := m.path()
	for _, name := range places(target) {
		target = strings.Replace(target, "{"+name+"}", url.PathEscape(values.Get(name)), 1)
		values.Del(name)
	}
	if len(values) > 0 {
		target += "?" + values.Encode()
	}
	return target
}

// decodeError returns the refusal in an answer whose status is not 200. It never returns nil.
func decodeError(answer *localsock.Refusal) *Error {
	refusal := Error{}
	_ = json.Unmarshal(answer.Body, &refusal) // if the body is not JSON, the status below becomes the text
	if refusal.Text == "" {
		refusal.Text = answer.Status
		// A server sends these codes without JSON if the route is not in its table.
		if answer.Code == http.StatusNotFound || answer.Code == http.StatusMethodNotAllowed {
			refusal.Text = "the running program does not know this request, because it has another version than the " +
				"program that asks (" + answer.Status + "); next: start it again"
		}
	}
	if refusal.Code == "" {
		refusal.Code = codeOf(answer.Code)
	}
	return &refusal
}
