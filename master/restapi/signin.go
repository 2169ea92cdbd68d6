package restapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"saltern/master/internal/acl"
	"saltern/master/internal/oidc"
	"saltern/master/restapi/internal/console"
)

// openOIDC prepares sign-ins with an OpenID provider. It does nothing unless auth.oidc.redirect is
// set.
func (s *Server) openOIDC(o oidc.Options, cfg *console.Config) (err error) {
	if o.Redirect == "" {
		return nil
	}
	if s.oidc, err = oidc.New(o, s.quiet, s.now); err != nil {
		return fmt.Errorf("read the options of external_auth's oidc: %w", err)
	}
	cfg.SignIn.Provider, cfg.SignIn.Address = s.oidc.Place()
	return nil
}

// providerFailed logs a fault of the provider or of a setting, and returns the answer for the user.
func (p *pages) providerFailed(err error) error {
	p.s.quiet.Warn("a sign-in with the OpenID provider failed", "error", err)
	return &console.Refusal{
		Code: http.StatusServiceUnavailable,
		Text: "The provider cannot be asked now; the log of salt-api says why. Other ways to log in are not concerned.",
	}
}

// BeginSignIn implements [console.Master].
func (p *pages) BeginSignIn(ctx context.Context, secret string) (string, error) {
	at, err := p.s.oidc.Begin(ctx, secret)
	if err != nil {
		return "", p.providerFailed(err)
	}
	return at, nil
}

// SignIn implements [console.Master]. The ID token serves as a password, and the master decides
// about the log-in.
func (p *pages) SignIn(ctx context.Context, secret string, answer url.Values) (console.Login, error) {
	signIn, err := p.finish(ctx, secret, answer)
	if err != nil {
		return console.Login{}, err
	}

	login, err := p.LogIn(ctx, signIn.User, signIn.Token, "oidc")
	if r, refused := errors.AsType[*console.Refusal](err); refused && r.Code == http.StatusUnauthorized &&
		!p.hasGrant(signIn) {
		// The user's name is no secret here: the provider has shown it to the user already.
		return console.Login{}, &console.Refusal{
			Code: http.StatusForbidden,
			Text: "You are signed in as " + signIn.User +
				", but this account has no permission here. Ask an administrator of the master.",
		}
	}

	return login, err
}

// hasGrant reports whether external_auth grants anything to the user who signed in.
func (p *pages) hasGrant(signIn oidc.SignIn) bool {
	return acl.Grants(p.s.granted(owner{name: signIn.User, system: "oidc", groups: signIn.Groups}))
}

// finish gets the ID token from the provider. It counts an invalid answer of the browser as a wrong
// password.
func (p *pages) finish(ctx context.Context, secret string, answer url.Values) (oidc.SignIn, error) {
	s := p.s
	g, err := s.startGuess(ctx, p.q, "", "")
	if err != nil {
		return oidc.SignIn{}, refusal(err)
	}

	signIn, err := s.oidc.Finish(ctx, secret, answer)
	switch {
	case oidc.Refused(err):
		g.noteWrong()
		s.quiet.Info("a sign-in with the OpenID provider is refused", "peer", p.q.from, "error", err)
		s.loginRefused(ctx, "UNKNOWN", "oidc")
		return signIn, &console.Refusal{
			Code: http.StatusUnauthorized,
			Text: "The provider did not let you in, or the sign-in was too old or not begun in this browser. Try again.",
		}
	case err != nil:
		g.noteUnseen()
		return signIn, p.providerFailed(err)
	}

	g.noteRight()
	return signIn, nil
}
