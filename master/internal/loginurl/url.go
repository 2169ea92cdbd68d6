// Package loginurl checks log-ins by asking an address: external_auth's system rest.
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
	// System is the name in external_auth.
	System = "rest"
	// maxTime bounds a question, maxAnswer its answer in bytes, maxKept the connections that are
	// kept for the next.
	maxTime   = 20 * time.Second
	maxAnswer = 32 << 10
	maxKept   = 16
)

// URL is an address that checks log-ins. It may be used concurrently.
type URL struct {
	address string
	section *value.Map
	client  *http.Client
}

// New reads the section of external_auth. It refuses one with which nobody could log in. Redirects
// are not followed, so that no password goes elsewhere.
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

// Login posts a name and a password as a form. Status 200 means a log-in, and the body is a list of
// permissions, which is added to those of the user's own entry in the section. When there are
// neither, permissions is nil.
func (u *URL) Login(ctx context.Context, user, password string) (ok bool, permissions []any, err error) {
	said, ok, err := u.askPermissions(ctx, user, password)
	own := acl.Named(u.section, user)
	if err != nil || !ok || len(own)+len(said) == 0 {
		return ok, nil, err
	}
	return true, append(own[:len(own):len(own)], said...), nil
}

// askPermissions returns the permissions in the answer of the address, if it accepts the user.
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

	said, err := value.ParseJSON(b)
	if err != nil {
		return nil, false, fmt.Errorf("read the answer of the address in ^url: %w", err)
	}

	switch said := said.(type) {
	case bool:
		return nil, said, nil // False is Salt's refusal
	case []any:
		return said, true, nil
	}

	return nil, true, nil // as Salt: what is no list grants nothing
}

// withoutAddress returns an error without the URL, which may hold a secret.
func withoutAddress(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}
