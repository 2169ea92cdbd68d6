package console

import (
	"context"
	"errors"
	"net/http"
)

// SignIn is the way to log in that leads through an OpenID provider.
type SignIn struct {
	Provider string // what people know it by; "" for none
	Address  string // of the page where it begins; it may be at another name of this host
}

// signInPath is where a sign-in begins; the provider leads back to /done below it.
const signInPath = "/oidc"

// beginSignIn leads a browser to the provider. Nothing of the request decides where that
// is, or where the browser ends up.
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

// endSignIn takes what the provider has a browser bring. The browser goes on by a page
// of ours: where it comes from another site it does not show the session's cookie, which
// is Strict, until then.
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
