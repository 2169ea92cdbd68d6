package newest

import (
	"context"
	"net/netip"

	"saltern/master/internal/request"
	"saltern/master/value"
)

// Noting is a request.Auth that reports the sign-ins of minions to a Service.
type Noting struct {
	request.Auth
	Service *Service
	Known   func(minion string) bool // reports whether a minion has a key
}

// SignIn implements request.Auth.
func (n Noting) SignIn(ctx context.Context, load *value.Map, version int64, from netip.AddrPort) any {
	answer := n.Auth.SignIn(ctx, load, version, from)
	if id := load.Str("id"); n.Known(id) {
		n.Service.SignedIn(id)
	}
	return answer
}
