package localsock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// Client sends HTTP requests to a program on its socket. It is safe for concurrent use.
type Client struct {
	HTTP      *http.Client
	MaxAnswer int64 // bound of an answer in bytes; a longer answer is an error
}

// Refusal is an answer with a status other than 200.
type Refusal struct {
	Code   int
	Status string
	Body   []byte
}

// Error returns the status.
func (r *Refusal) Error() string { return r.Status }

// Do sends a request for the URL http:// + target, and returns the body of the answer. If the
// status is not 200, the error is a *Refusal. Any other error comes from the connection, and its
// text omits the URL.
func (c Client) Do(ctx context.Context, method, target string, header http.Header, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+target, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("prepare the request: %w", err)
	}

	if header != nil {
		req.Header = header
	}

	resp, err := c.HTTP.Do(req)
	if err != nil {
		if named := (*url.Error)(nil); errors.As(err, &named) {
			err = named.Err
		}
		return nil, err
	}
	defer resp.Body.Close()

	b, err := io.ReadAll(io.LimitReader(resp.Body, c.MaxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", err)
	case int64(len(b)) > c.MaxAnswer:
		return nil, fmt.Errorf("the answer has more than %d bytes", c.MaxAnswer)
	case resp.StatusCode != http.StatusOK:
		return nil, &Refusal{resp.StatusCode, resp.Status, b}
	}

	return b, nil
}
