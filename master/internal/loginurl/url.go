// Package loginurl checks log-ins by sending them to a URL: the system "rest" of external_auth.
//
// Source: salt/auth/rest.py, salt/utils/http.py (query).
package loginurl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"saltern/master/internal/acl"
	"saltern/master/value"
)

const (
	// System is the name of this log-in system in the option external_auth.
	System = "rest"
	// maxTime bounds the time of a request, maxAnswer the size of its answer in bytes, and maxKept
	// the number of idle connections.
	maxTime   = 20 * time.Second
	maxAnswer = 32 << 10
	maxKept   = 16
)

// URL is a URL that checks log-ins. It is safe for concurrent use.
type URL struct {
	address string
	section *value.Map
	client  *http.Client
}

// New reads the section of external_auth. It returns an error if nobody could log in with that
// section. The returned URL does not follow redirects, so that no password is sent elsewhere.
func New(section *value.Map) (*URL, error) {
	address := section.Str("^url")
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, errors.New("rest: name an address with https:// in ^url")
	}

	return &URL{address, section, &http.Client{
		Timeout: maxTime,
		Transport: &http.Transport{
			MaxResponseHeaderBytes: 64 << 10,
			IdleConnTimeout:        30 * time.Second,
			MaxIdleConns:           maxKept,
			MaxIdleConnsPerHost:    maxKept,
			ForceAttemptHTTP2:      true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Login posts a name and a password as a form. The status 200 means that the password is right.
// Login returns the permissions in the body and those of the user's entry in the section of
// external_auth, or nil if there are none at all. ok is false if the URL refuses the user.
func (u *URL) Login(ctx context.Context, user, password string) (ok bool, permissions []any, err error) {
	answer, ok, err := u.askPermissions(ctx, user, password)
	own := acl.Named(u.section, user)
	if err != nil || !ok || len(own)+len(answer) == 0 {
		return ok, nil, err
	}
	return true, append(own[:len(own):len(own)], answer...), nil
}

// askPermissions returns the permissions in the answer of the URL. ok is false if the URL refuses
// the user.
func (u *URL) askPermissions(ctx context.Context, user, password string) (permissions []any, ok bool, err error) {
	form := url.Values{"username": {user}, "password": {password}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.address, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, false, fmt.Errorf("ask the address in ^url: %w", withoutAddress(err))
	}

	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	r, err := u.client.Do(req)
	if err != nil {
		return nil, false, fmt.Errorf("ask the address in ^url: %w", withoutAddress(err))
	}
	defer r.Body.Close()

	b, err := io.ReadAll(io.LimitReader(r.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("read the answer of the address in ^url: %w", err)
	case r.StatusCode >= 500 || r.StatusCode >= 300 && r.StatusCode < 400:
		return nil, false, fmt.Errorf("ask the address in ^url: it answered %s", r.Status)
	case r.StatusCode != http.StatusOK:
		return nil, false, nil
	case len(b) > maxAnswer:
		return nil, false, fmt.Errorf("read the answer of the address in ^url: it has more than %d bytes", maxAnswer)
	}

	answer, err := value.ParseJSON(b)
	if err != nil {
		return nil, false, fmt.Errorf("read the answer of the address in ^url: %w", err)
	}

	switch said := answer.(type) {
	case bool:
		return nil, said, nil // False is a refusal, as in Salt
	case []any:
		return said, true, nil
	}

	return nil, true, nil // a body in another form than a list grants nothing, as in Salt
}

// withoutAddress returns err without the URL in it, because the URL may contain a secret.
func withoutAddress(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}
