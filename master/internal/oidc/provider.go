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

// How long a view counts, and when the provider is asked.
const (
	viewFresh       = 10 * time.Minute // then the provider is asked again
	viewStale       = 6 * viewFresh    // then the view does not count, even if the provider does not answer
	unknownKeyPause = 30 * time.Second // least time between questions for a token whose key is not known
	failedPause     = 5 * time.Second  // after a failed question

	othersPatience = 2 * time.Second // how long to wait for a question of somebody else
)

// Provider is an OpenID provider. It is safe for concurrent use.
type Provider struct {
	opts Options
	log  *slog.Logger
	now  func() time.Time

	lastView  atomic.Pointer[view]
	turn      chan struct{} // held while asking; guards the following fields
	lastAsked time.Time
	failed    error
}

// New returns a Provider without asking it anything. The error says which option is wrong. log
// takes lines that strangers can cause.
func New(o Options, log *slog.Logger, now func() time.Time) (*Provider, error) {
	if err := Check(o); err != nil {
		return nil, err
	}
	return &Provider{opts: o.withDefaults(), log: log, now: now, turn: make(chan struct{}, 1)}, nil
}

// Place returns where sign-ins with a browser happen: the host of the provider, and the address at
// which they begin.
func (p *Provider) Place() (host, begin string) {
	if u, err := url.Parse(p.opts.Issuer); err == nil {
		host = u.Host
	}
	return host, p.opts.Redirect + strings.TrimSuffix(Callback, "/done")
}

// current returns the view of the provider. lacking is a view without the key of a token, or nil.
// While one caller asks, the others take the view that there is, or wait for a moment: each wait
// holds one of the log-ins that may be under way.
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

		// A caller that hangs up must not fail the question for those that wait.
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
