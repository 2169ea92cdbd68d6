package console

import (
	"context"
	"errors"
	"net/http"
)

// SignIn describes the log-in by an OpenID provider.
type SignIn struct {
	Provider string // name of the provider for users; "" for none
	Address  string // URL of the page at which a sign-in begins; it may contain another name of this host
}

// signInPath is the path at which a sign-in begins. The provider redirects back to signInPath +
// "/done".
const signInPath = "/oidc"

// beginSignIn redirects a browser to the provider. Nothing in the request determines the provider's
// URL, or the page after the sign-in.
func beginSignIn(c *Console, ctx context.Context, v *visit) (Answer, error) {
	if _, err := v.Master.Session(ctx, c.cookieOf(v, sessionCookie)); err == nil {
		return c.redirect("/", nil), nil
	}

	secret := newSecret()
	at, err := v.Master.BeginSignIn(ctx, secret)
	if r, ok := errors.AsType[*Refusal](err); ok {
		return c.logInForm(v, r.Code, r.Text, logInPage{})
	}
	if err != nil {
		return Answer{}, err
	}

	a := Answer{
		Code:   http.StatusSeeOther,
		Header: http.Header{"Location": {at}, "Content-Type": {"text/plain; charset=utf-8"}},
		Body:   "See the provider.\n",
	}

	a.Header.Add("Set-Cookie", c.cookie(signInCookie, secret, formLife))
	return a, nil
}

// endSignIn logs in by the answer of the provider that the browser brings. It then shows a page of
// the console that sends the browser on: in a redirect from another site the browser does not send
// the session's cookie, which is SameSite=Strict.
func endSignIn(c *Console, ctx context.Context, v *visit) (Answer, error) {
	l, err := v.Master.SignIn(ctx, c.cookieOf(v, signInCookie), v.query)
	over := c.cookie(signInCookie, "", 0)
	if r, ok := errors.AsType[*Refusal](err); ok {
		a, err := c.logInForm(v, r.Code, r.Text, logInPage{})
		a.Header.Add("Set-Cookie", over)
		return a, err
	}

	if err != nil {
		return Answer{}, err
	}

	a, err := c.render(v, "signedin", http.StatusOK, page{Title: "Signed in", Next: c.base + "/"})
	if err != nil {
		return a, err
	}

	a.Header.Add("Set-Cookie", c.cookie(sessionCookie, l.Token, l.Expires.Sub(c.cfg.Now())))
	a.Header.Add("Set-Cookie", over)
	return a, nil
}
