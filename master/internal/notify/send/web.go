package send

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	"saltern/internal/release"
	"saltern/master/internal/notify/alert"
	"saltern/master/internal/notify/form"
	"saltern/master/internal/notify/rules"
	"saltern/master/internal/webclient"
)

// web posts messages to a web hook.
type web struct{ to *rules.Web }

// Send posts a message. A web hook accepts it by a status from 200 to 299. Send follows no
// redirect: only the administrator chooses the address.
func (w *web) Send(ctx context.Context, m *alert.Message) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	request, err := w.request(ctx, m)
	if err != nil {
		return err
	}

	config, err := webclient.TLS("", w.to.CA)
	if err != nil {
		return err
	}
	client := webclient.New(config) // messages are rare, so no connection is kept
	defer client.CloseIdleConnections()

	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("post to the web hook: %w", webclient.WithoutEcho(err))
	}
	defer answer.Body.Close()

	return judgeAnswer(answer)
}

func (w *web) request(ctx context.Context, m *alert.Message) (*http.Request, error) {
	text, err := w.to.URL.Read()
	if err != nil {
		return nil, err
	}
	to, err := rules.ParseURL(text)
	if err != nil {
		return nil, fmt.Errorf("read the url of a web hook: %w", err)
	}
	body, err := form.Body(m, w.to.Form)
	if err != nil {
		return nil, err
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make a request for a web hook: %w", webclient.WithoutURL(err))
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "Saltern/"+release.Version())
	request.Header.Set(form.KeyHeader, m.ID)
	if !w.to.Token.IsSet() {
		return request, nil
	}

	token, err := w.to.Token.Read()
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	return request, nil
}

// judgeAnswer returns nil for an answer that accepts a message. Its error does not quote the body:
// many servers name the path in it, which may be secret.
func judgeAnswer(answer *http.Response) error {
	status := answer.StatusCode
	err := fmt.Errorf("the web hook answers with %d %s", status, http.StatusText(status))
	switch {
	case status >= 200 && status < 300:
		return nil
	case status >= 300 && status < 400:
		return fmt.Errorf("the web hook answers with %d, a redirect, which is not followed: set url to the address that counts", status)
	case status == http.StatusBadRequest, status == http.StatusRequestEntityTooLarge, status == http.StatusUnprocessableEntity:
		return fmt.Errorf("%w: %w", ErrRefused, err)
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		if pause := webclient.PauseOf(answer); pause > 0 {
			return &LaterError{Err: err, After: pause}
		}
	}
	return err
}
