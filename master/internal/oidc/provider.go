package oidc

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// How long a view is used, and how often it is fetched.
const (
	viewFresh = 10 * time.Minute // age at which the view is fetched again
	viewStale = 6 * viewFresh    // age from which the view is not used, even if fetching fails
	// unknownKeyPause is the least time between two fetches for tokens whose key is unknown.
	unknownKeyPause = 30 * time.Second
	failedPause     = 5 * time.Second // least time between a failed fetch and the next one

	othersPatience = 2 * time.Second // how long to wait for a fetch of another caller
)

// Provider is an OpenID provider. It is safe for concurrent use.
type Provider struct {
	opts Options
	log  *slog.Logger
	now  func() time.Time

	lastView atomic.Pointer[view]
	// turn is a lock: it holds a token while a caller fetches a view. It guards the fields below.
	turn      chan struct{}
	lastAsked time.Time
	failed    error
}

// New returns a Provider. It sends no request. If an option is invalid, it returns an error that
// names the option. log gets the lines that untrusted senders can provoke.
func New(o Options, log *slog.Logger, now func() time.Time) (*Provider, error) {
	if err := Check(o); err != nil {
		return nil, err
	}
	return &Provider{opts: o.withDefaults(), log: log, now: now, turn: make(chan struct{}, 1)}, nil
}

// Place returns the data for the sign-in link of a log-in page: host is the host of the provider,
// begin is the URL at which a sign-in begins.
func (p *Provider) Place() (host, begin string) {
	if u, err := url.Parse(p.opts.Issuer); err == nil {
		host = u.Host
	}
	return host, p.opts.Redirect + strings.TrimSuffix(Callback, "/done")
}

// current returns a view of the provider. lacking is a view that does not contain the key of a
// token, so that current returns another view. lacking may be nil: current returns any view. While
// one caller fetches a view, the other callers get the last view or wait for a short time only,
// because each of them occupies one of the slots for log-ins.
func (p *Provider) current(ctx context.Context, lacking *view) (*view, error) {
	v := p.lastView.Load()
	select {
	case p.turn <- struct{}{}:
	default:
		if v != nil && v != lacking && p.now().Sub(v.at) < viewStale {
			return v, nil
		}

		short, cancel := context.WithTimeout(ctx, othersPatience)
		defer cancel()
		select {
		case p.turn <- struct{}{}:
		case <-short.Done():
			return nil, fmt.Errorf("wait for the OpenID provider, which is being asked: %w", short.Err())
		}
	}

	defer func() { <-p.turn }()
	now := p.now()
	if v = p.lastView.Load(); v != nil && now.Sub(v.at) < viewFresh && (v != lacking || now.Sub(v.at) < unknownKeyPause) {
		return v, nil
	}

	if p.failed == nil || now.Sub(p.lastAsked) >= failedPause {
		p.lastAsked = now

		// Other callers may wait for this fetch, so it must not be cancelled when this caller
		// disconnects.
		got, err := p.fetchView(context.WithoutCancel(ctx))
		p.failed = err
		if err == nil {
			p.lastView.Store(got)
			return got, nil
		}

		p.log.Warn("the OpenID provider does not answer as it should", "error", err)
	}

	if v != nil && now.Sub(v.at) < viewStale {
		return v, nil
	}

	return nil, p.failed
}
