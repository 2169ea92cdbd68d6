package main

import (
	"strings"
	"testing"
	"time"

	"saltern/lbproxy"
)

// TestLimitedSources: `lb status` lists who is limited under one heading.
func TestLimitedSources(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	limited := func(s string) []lbproxy.LimitedSource {
		return []lbproxy.LimitedSource{{Source: s, Sessions: 7, Refused: 12, Last: now.Add(-time.Minute)}}
	}
	var b strings.Builder
	err := writeBalancer(&b, lbproxy.Status{Frontends: []lbproxy.FrontendStatus{
		{Name: "publish"}, {
			Name:    "request",
			Limited: limited("203.0.113.9"),
		}, {Name: "other", Limited: limited("2001:db8::/64")}}}, now)
	if err != nil || strings.Count(b.String(), "LIMITED SOURCE") != 1 ||
		!strings.Contains(b.String(), "203.0.113.9") || !strings.Contains(b.String(), "2001:db8::/64") {
		t.Errorf("%v\n%s", err, b.String())
	}
}
