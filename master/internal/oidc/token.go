package oidc

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	gooidc "github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"saltern/internal/printable"
)

// Bounds of a token and its claims.
const (
	maxToken  = 16 << 10 // bytes of a token
	maxName   = 256      // bytes of a user's or group's name
	maxGroups = 1024     // number of groups; further groups are ignored
	// maxAge bounds the age of a token since it was issued, even if the token states a later
	// expiry.
	maxAge = time.Hour
	leeway = 5 * time.Minute // the greatest accepted lead of the provider's clock
)

// refusal is the reason why a token, or the answer that a browser sends to Callback, is not
// accepted.
type refusal struct{ why string }

func (r *refusal) Error() string { return r.why }

func refuse(format string, args ...any) error {
	return &refusal{printable.Brief(fmt.Sprintf(format, args...), 300)}
}

// algorithms returns the accepted signature algorithms. Algorithms with a shared secret and "none"
// are not accepted.
func algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
		jose.ES256, jose.ES384, jose.ES512, jose.EdDSA}
}

// identity is the user that a token identifies.
type identity struct {
	user   string
	groups []string
}

// Login checks the ID token of a user. ok is false if the token is invalid or belongs to another
// user. An error means that the provider did not answer.
func (p *Provider) Login(ctx context.Context, user, token string) (ok bool, groups []string, err error) {
	id, err := p.proveToken(ctx, token, "")
	if err == nil && id.user != user {
		err = refuse("the token is of %q", id.user)
	}
	if _, refused := errors.AsType[*refusal](err); refused {
		p.log.Info("an ID token is refused", "user", user, "error", err)
		return false, nil, nil
	}
	return err == nil, id.groups, err
}

// proveToken verifies an ID token (OpenID Connect Core, 3.1.3.7) and returns the user that the
// token identifies. nonce is the nonce of the browser's sign-in, or "" if there was none.
func (p *Provider) proveToken(ctx context.Context, token, nonce string) (identity, error) {
	if len(token) == 0 || len(token) > maxToken {
		return identity{}, refuse("a token of %d bytes; 1 to %d are possible", len(token), maxToken)
	}

	var lacking *view
	for {
		v, err := p.current(ctx, lacking)
		if err != nil {
			return identity{}, err
		}

		keys := keyring{view: v}
		conf := gooidc.Config{ClientID: p.opts.ClientID, Now: p.now}
		for _, a := range algorithms() {
			conf.SupportedSigningAlgs = append(conf.SupportedSigningAlgs, string(a))
		}

		t, err := gooidc.NewVerifier(p.opts.Issuer, &keys, &conf).Verify(ctx, token)
		if err == nil {
			return p.identity(t, nonce)
		}
		if !keys.unknown || lacking == v {
			return identity{}, refuse("%v", err)
		}

		lacking = v // the provider may have a new key
	}
}

// keyring verifies signatures with the keys of a view.
type keyring struct {
	view    *view
	unknown bool // the view lacks the key that the token names
}

// VerifySignature implements [gooidc.KeySet].
func (k *keyring) VerifySignature(_ context.Context, token string) ([]byte, error) {
	jws, err := jose.ParseSignedCompact(token, algorithms())
	if err != nil {
		return nil, err
	}

	head := jws.Signatures[0].Header
	if kind, ok := head.ExtraHeaders[jose.HeaderType]; ok {
		if text, _ := kind.(string); !strings.EqualFold(text, "JWT") {
			return nil, fmt.Errorf("it is of the type %v, no ID token", kind)
		}
	}

	k.unknown = true
	for _, key := range k.view.keys {
		if head.KeyID != "" && key.KeyID != head.KeyID || key.Algorithm != "" && key.Algorithm != head.Algorithm {
			continue
		}
		k.unknown = false
		if payload, err := jws.Verify(&key); err == nil {
			return payload, nil
		}
	}

	return nil, errors.New("no key of the provider has signed it")
}

// identity returns the user in the claims of a verified token.
func (p *Provider) identity(t *gooidc.IDToken, nonce string) (identity, error) {
	var claims map[string]json.RawMessage
	if err := t.Claims(&claims); err != nil {
		return identity{}, refuse("read the claims: %v", err)
	}

	now := p.now()
	party, split := claims["azp"]
	switch {
	case nonce != "" && subtle.ConstantTimeCompare([]byte(nonce), []byte(t.Nonce)) != 1:
		return identity{}, refuse("its nonce is that of another sign-in")
	case split && textClaim(party) != p.opts.ClientID, !split && len(t.Audience) > 1:
		return identity{}, refuse("it was given to another client (azp %s)", party)
	case now.Sub(t.IssuedAt) > maxAge:
		return identity{}, refuse("it was issued at %v, more than %v ago", t.IssuedAt, maxAge)
	case t.IssuedAt.Sub(now) > leeway:
		return identity{}, refuse("it will be issued at %v: compare the clocks", t.IssuedAt)
	case claims["events"] != nil:
		return identity{}, refuse("it tells of a log-out (events)")
	}

	id := identity{user: textClaim(claims[p.opts.UserClaim]), groups: p.groups(claims)}
	if !plausible(id.user) {
		return identity{}, refuse("auth.oidc.username_claim: %q is no name: %s", p.opts.UserClaim,
			claims[p.opts.UserClaim])
	}

	if verified, said := claims["email_verified"]; p.opts.UserClaim == "email" && said &&
		string(verified) != "true" && textClaim(verified) != "true" {
		return identity{}, refuse("the provider has not verified the address %s", id.user)
	}

	return id, nil
}

// groups returns the groups claim, which is a list of names or a single name. It drops invalid
// names; without them the user can only have fewer rights.
func (p *Provider) groups(claims map[string]json.RawMessage) []string {
	raw := claims[p.opts.GroupsClaim]
	if raw == nil {
		var elsewhere map[string]json.RawMessage
		// Ignore the error: a claim in another form names no groups.
		_ = json.Unmarshal(claims["_claim_names"], &elsewhere)
		if elsewhere[p.opts.GroupsClaim] != nil {
			p.log.Warn("the provider leaves the groups of a user out, since they are too many: have it send those of this client alone",
				"claim", p.opts.GroupsClaim)
		}
		return nil
	}

	if one := textClaim(raw); one != "" {
		raw = json.RawMessage(`[` + string(raw) + `]`)
	}

	var list []any
	if err := json.Unmarshal(raw, &list); err != nil {
		p.log.Warn("the groups of a user cannot be read: the claim is neither text nor a list", "claim",
			p.opts.GroupsClaim)
		return nil
	}

	var names []string
	for _, g := range list {
		if name, _ := g.(string); plausible(name) && len(names) < maxGroups {
			names = append(names, name)
		}
	}

	return names
}

// textClaim returns the value of a claim that is a text, or "" for other claims.
func textClaim(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s) // on an error s is ""
	return s
}

// plausible reports whether a text may be the name of a user or a group.
func plausible(name string) bool {
	return name != "" && len(name) <= maxName && utf8.ValidString(name) &&
		!strings.ContainsFunc(name, unicode.IsControl)
}
