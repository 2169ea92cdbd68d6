package console

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"time"
)

// Cookies of the console. The API does not accept them, and the console does not accept the cookie
// of the API. No other site can cause a browser to send a cookie of the console.
const (
	sessionCookie = "saltern_console" // this cookie holds a token of the master
	formCookie    = "saltern_form"    // secret of the log-in form, while there is no session
	signInCookie  = "saltern_signin"  // secret of a sign-in, while the browser is at the provider
	formLife      = 10 * time.Minute
)

// cookie returns the text of a Set-Cookie header. Scripts cannot read the cookie, other sites'
// requests do not carry it, and with TLS browsers never send it in the clear. Only the cookie of a
// sign-in is sent when the provider redirects back, and only to that page.
func (c *Console) cookie(name, text string, age time.Duration) string {
	k := http.Cookie{
		Name:     c.cookieName(name),
		Value:    text,
		Path:     c.base,
		MaxAge:   int(age / time.Second),
		HttpOnly: true,
		Secure:   c.cfg.Secure,
		SameSite: http.SameSiteStrictMode,
	}

	if name == signInCookie {
		k.Path, k.SameSite = c.base+signInPath, http.SameSiteLaxMode
	}

	if age <= 0 {
		k.MaxAge = -1
	}

	return k.String()
}

// cookieName returns the name of a cookie. With TLS the name has a prefix that forbids browsers to
// accept the cookie from a page in the clear.
func (c *Console) cookieName(name string) string {
	if c.cfg.Secure {
		return "__Secure-" + name
	}
	return name
}

func (c *Console) cookieOf(v *visit, name string) string {
	k, err := v.HTTP.Cookie(c.cookieName(name))
	if err != nil {
		return ""
	}
	return k.Value
}

// Token returns the token in the cookie of a request, unchecked, or "".
func (c *Console) Token(r *http.Request) string {
	k, err := r.Cookie(c.cookieName(sessionCookie))
	if err != nil {
		return ""
	}
	return k.Value
}

// session verifies the session's token and sets v.login.
func (c *Console) session(ctx context.Context, v *visit) error {
	l, err := v.Master.Session(ctx, c.cookieOf(v, sessionCookie))
	if err != nil {
		return err
	}
	v.login = l
	return nil
}

// formToken returns the token that forms of a session must contain. Nobody can compute it without
// the session's token, and it does not reveal that token. Any node of a cluster can check it.
func formToken(secret string) string {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte("form of the console"))
	return hex.EncodeToString(m.Sum(nil))
}

var errForm = &Refusal{http.StatusForbidden,
	"The form does not belong to this session, and nothing was done. Go back, reload the page and send it again."}

// checkForm reads the form of a request. It returns an error unless the form belongs to the
// session.
func checkForm(v *visit) error { return checkFormOf(v, v.login.Token) }

func checkFormOf(v *visit, secret string) error {
	form, err := v.Form()
	if err != nil {
		return err
	}
	if secret == "" || !hmac.Equal([]byte(form.Get("form")), []byte(formToken(secret))) {
		return errForm
	}
	return nil
}

// logInPage is the data of the log-in page.
type logInPage struct {
	Form         string
	User, System string
	Systems      []string
	SignIn       SignIn
}

func askLogIn(c *Console, ctx context.Context, v *visit) (Answer, error) {
	if c.cookieOf(v, sessionCookie) != "" {
		if _, err := v.Master.Session(ctx, c.cookieOf(v, sessionCookie)); err == nil {
			return c.redirect("/", nil), nil
		}
	}
	return c.logInForm(v, http.StatusOK, "", logInPage{})
}

// logInForm returns the log-in page, and sets the cookie that its form needs.
func (c *Console) logInForm(v *visit, code int, problem string, d logInPage) (Answer, error) {
	secret := c.cookieOf(v, formCookie)
	if b, err := hex.DecodeString(secret); err != nil || len(b) != 32 {
		secret = newSecret()
	}
	d.Form = formToken(secret)
	d.Systems = c.cfg.Systems
	d.SignIn = c.cfg.SignIn
	a, err := c.render(v, "login", code, page{Title: "Log in", Problem: problem, Data: d})
	if err != nil {
		return a, err
	}
	a.Header.Add("Set-Cookie", c.cookie(formCookie, secret, formLife))
	return a, nil
}

// newSecret returns a random secret.
func newSecret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // rand.Read never fails
	return hex.EncodeToString(b)
}

// logIn gets a token from the master for the form's name and password, and revokes the token that
// the browser had before.
func logIn(c *Console, ctx context.Context, v *visit) (Answer, error) {
	form, err := v.Form()
	if err != nil {
		return Answer{}, err
	}

	d := logInPage{User: cutText(form.Get("username"), maxName), System: cutText(form.Get("eauth"), maxName)}
	if err := checkFormOf(v, c.cookieOf(v, formCookie)); err != nil {
		return c.logInForm(v, http.StatusForbidden,
			"The form was too old, or your browser takes no cookies of this page. Try again.", d)
	}

	system := form.Get("eauth")
	if system == "" && len(c.cfg.Systems) == 1 {
		system = c.cfg.Systems[0]
	}

	if !slices.Contains(c.cfg.Systems, system) {
		return c.logInForm(v, http.StatusUnauthorized, "Choose the account source that knows your password.", d)
	}

	l, err := v.Master.LogIn(ctx, form.Get("username"), form.Get("password"), system)
	if err != nil {
		r, ok := errors.AsType[*Refusal](err)
		if !ok {
			return Answer{}, err
		}

		text := r.Text
		if r.Code == http.StatusUnauthorized {
			text = "The name, the password or the account source is wrong, or you may not log in from here."
		}

		return c.logInForm(v, r.Code, text, d)
	}

	if old := c.cookieOf(v, sessionCookie); old != "" {
		if _, err := v.Master.Session(ctx, old); err == nil {
			if err := v.Master.LogOut(ctx, old); err != nil {
				c.cfg.Log.Warn("a session that was replaced is not ended", "error", err)
			}
		}
	}

	a := c.redirect("/", nil)
	a.Header.Add("Set-Cookie", c.cookie(sessionCookie, l.Token, l.Expires.Sub(c.cfg.Now())))
	a.Header.Add("Set-Cookie", c.cookie(formCookie, "", 0))
	return a, nil
}

// logOut revokes the session's token, on all masters.
func logOut(c *Console, ctx context.Context, v *visit) (Answer, error) {
	if err := v.Master.LogOut(ctx, v.login.Token); err != nil {
		return Answer{}, err
	}
	a := c.redirect("/login", nil)
	a.Header.Add("Set-Cookie", c.cookie(sessionCookie, "", 0))
	return a, nil
}
