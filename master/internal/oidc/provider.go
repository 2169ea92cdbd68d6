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

// How long what a provider said counts.
const (
	viewFresh       = 10 * time.Minute // then it is asked again
	viewStale       = time.Hour        // then it does not count, even if the provider does not answer
	unknownKeyPause = 30 * time.Second // for a token whose key is not known; not sooner after the last time
	failedPause     = 5 * time.Second  // after a question that failed

	othersPatience = 2 * time.Second // with somebody else's question
)

// Provider is an OpenID provider. It is safe for concurrent use.
type Provider struct {
	opts Options
	log  *slog.Logger
	now  func() time.Time

	lastView  atomic.Pointer[view]
	turn      chan struct{} // held by who asks, and around what follows
	lastAsked time.Time
	failed    error
}

// New makes a Provider and asks it nothing. The error says which option is wrong. log is for
// lines that strangers can cause.
func New(o Options, log *slog.Logger, now func() time.Time) (*Provider, error) {
	if err := Check(o); err != nil {
		return nil, err
	}
	return &Provider{opts: o.withDefaults(), log: log, now: now, turn: make(chan struct{}, 1)}, nil
}

// Place is where sign-ins with a browser are: the host of the provider, and the address at
// which they begin.
func (p *Provider) Place() (host, begin string) {
	if u, err := url.Parse(p.opts.Issuer); err == nil {
		host = u.Host
	}
	return host, p.opts.Redirect + strings.TrimSuffix(Callback, "/done")
}

// current returns what is known of the provider. lacking is a view that did not have
// the key of a token; nil for none. While somebody asks already, others take what is
// known, or wait for a moment: each wait holds one of the log-ins that may be under way.
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

		// Who hangs up must not have it fail for those who wait.
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
