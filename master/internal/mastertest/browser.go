package mastertest

import (
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"saltern/test/check"
)

// Browser is a client of the console that stores cookies.
type Browser struct {
	*API
	Cookies map[string]string
}

// OpenBrowser returns a browser that is not logged in.
func (a *API) OpenBrowser() *Browser { return &Browser{a, map[string]string{}} }

// Send requests a page of the console. header holds alternating names and values. Send returns the
// status, the body and the header of the answer.
func (b *Browser) Send(method, path string, form url.Values, header ...string) (int, string, http.Header) {
	b.T.Helper()
	r, err := http.NewRequest(method, b.URL+"/console"+path, strings.NewReader(form.Encode()))
	check.Must(b.T, err)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}

	for k, v := range b.Cookies {
		r.AddCookie(&http.Cookie{Name: k, Value: v})
	}

	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}

	c := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := c.Do(r)
	check.Must(b.T, err)
	defer res.Body.Close()

	text, err := io.ReadAll(res.Body)
	check.Must(b.T, err)
	for _, k := range res.Cookies() {
		if k.MaxAge < 0 {
			delete(b.Cookies, k.Name)
		} else {
			b.Cookies[k.Name] = k.Value
		}
	}

	return res.StatusCode, string(text), res.Header
}

// Get requests a page of the console and returns its status and its body.
func (b *Browser) Get(path string) (int, string) {
	b.T.Helper()
	code, text, _ := b.Send("GET", path, nil)
	return code, text
}

// FormField matches the hidden field with a form's token.
var FormField = regexp.MustCompile(`name="form" value="([0-9a-f]{64})"`)

// FormToken returns the token in the hidden field of a page's forms.
func (b *Browser) FormToken(path string) string {
	b.T.Helper()
	_, text := b.Get(path)
	m := FormField.FindStringSubmatch(text)
	if m == nil {
		b.T.Fatalf("%s has no form: %.500s", path, text)
	}
	return m[1]
}

// LogIn logs a user in through the console's form.
func (b *Browser) LogIn(user string) *Browser {
	b.T.Helper()
	code, text, h := b.Send("POST", "/login",
		url.Values{"form": {b.FormToken("/login")}, "username": {user}, "password": {"right"}, "eauth": {"sharedsecret"}})
	if code != 303 || h.Get("Location") != "/console/" || b.Cookies["saltern_console"] == "" {
		b.T.Fatalf("log-in of %s: %d %s", user, code, text)
	}
	return b
}
