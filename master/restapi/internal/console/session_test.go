package console

import (
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"saltern/internal/control"
	"saltern/master/value"
)

// form returns the fields of a form of the session, as its pages carry them.
func form(fields ...string) url.Values {
	f := url.Values{"form": {formToken(strings.Repeat("ab", 32))}}
	for i := 0; i+1 < len(fields); i += 2 {
		f.Set(fields[i], fields[i+1])
	}
	return f
}

// cookies returns those that an answer sets, by name.
func cookies(a Answer) map[string]*http.Cookie {
	out := map[string]*http.Cookie{}
	for _, c := range (&http.Response{Header: a.Header}).Cookies() {
		out[c.Name] = c
	}
	return out
}

// TestCookies: scripts and other sites get no cookie of the console, and none goes in the clear;
// the one of a sign-in goes to one page only, for the provider leads there from elsewhere.
func TestCookies(t *testing.T) {
	t.Parallel()
	secure := newConsole(t, "")
	plain, err := New(Config{Log: secure.cfg.Log, Now: now})
	if err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct {
		c          *Console
		name, want string
		path       string
		site       http.SameSite
	}{
		{secure, sessionCookie, "__Secure-" + sessionCookie, secure.base, http.SameSiteStrictMode},
		{secure, formCookie, "__Secure-" + formCookie, secure.base, http.SameSiteStrictMode},
		{secure, signInCookie, "__Secure-" + signInCookie, secure.base + signInPath, http.SameSiteLaxMode},
		{plain, sessionCookie, sessionCookie, plain.base, http.SameSiteStrictMode},
	} {
		set := cookies(Answer{Header: http.Header{"Set-Cookie": {tt.c.cookie(tt.name, "secret", time.Hour)}}})
		k := set[tt.want]
		if k == nil {
			t.Errorf("%s: %v", tt.want, set)
			continue
		}

		if !k.HttpOnly || k.Secure != tt.c.cfg.Secure || k.SameSite != tt.site || k.Path != tt.path ||
			k.MaxAge != 3600 {
			t.Errorf("%s: %+v", tt.want, k)
		}
	}

	if ended := secure.cookie(sessionCookie, "", 0); !strings.Contains(ended, "Max-Age=0") {
		t.Errorf("the end of a session: %s", ended)
	}
}

// TestFormsOfTheSession: a form is taken from the session that it was made for, and from no other.
func TestFormsOfTheSession(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		token string
		code  int
	}{
		"its own":             {formToken(strings.Repeat("ab", 32)), http.StatusSeeOther},
		"another session's":   {formToken(strings.Repeat("cd", 32)), http.StatusForbidden},
		"the session's token": {strings.Repeat("ab", 32), http.StatusForbidden},
		"that of nobody":      {formToken(""), http.StatusForbidden},
		"none":                {"", http.StatusForbidden},
	} {
		m := &recorded{answers: theAnswers()}
		f := form("name", "0123456789abcdef")
		f.Set("form", tt.token)
		a := ask(t, newConsole(t, ""), m, http.MethodPost, "/tokens", f)
		if a.Code != tt.code {
			t.Errorf("%s: %d", name, a.Code)
		}

		if done := strings.Contains(strings.Join(m.asked, " "), revokeTokens); done != (tt.code == http.StatusSeeOther) {
			t.Errorf("%s: asked %q", name, m.asked)
		}
	}
}

// TestLogOut: a log-out ends the token and takes the cookie back.
func TestLogOut(t *testing.T) {
	t.Parallel()
	a := ask(t, newConsole(t, ""), &recorded{}, http.MethodPost, "/logout", form())
	k := cookies(a)["__Secure-"+sessionCookie]
	if a.Code != http.StatusSeeOther || !strings.HasSuffix(a.Header.Get("Location"), "/login") || k == nil ||
		k.MaxAge >= 0 || k.Value != "" {
		t.Errorf("%d %v", a.Code, a.Header)
	}
}

// TestLogInForm: a log-in needs the form of this browser and a system of this master.
func TestLogInForm(t *testing.T) {
	t.Parallel()
	secret := strings.Repeat("12", 32)
	for name, tt := range map[string]struct {
		cookie, form, system string
		code                 int
	}{
		"right":            {secret, formToken(secret), "pam", http.StatusSeeOther},
		"no cookie":        {"", formToken(""), "pam", http.StatusForbidden},
		"another browser":  {strings.Repeat("34", 32), formToken(secret), "pam", http.StatusForbidden},
		"another system":   {secret, formToken(secret), "rest", http.StatusUnauthorized},
		"no system of two": {secret, formToken(secret), "", http.StatusUnauthorized},
	} {
		c := newConsole(t, "")
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://salt:8000"+c.base+"/login", nil)
		r.AddCookie(&http.Cookie{Name: "__Secure-" + formCookie, Value: tt.cookie})
		fields := url.Values{"form": {tt.form}, "username": {"alice"}, "password": {"secret"}, "eauth": {tt.system}}
		a := c.Serve(t.Context(), Request{
			HTTP:   r,
			Path:   "/login",
			Master: &recorded{},
			Form:   func() (url.Values, error) { return fields, nil },
		})

		session := cookies(a)["__Secure-"+sessionCookie]
		if a.Code != tt.code || (session != nil) != (tt.code == http.StatusSeeOther) {
			t.Errorf("%s: %d, session %v", name, a.Code, session)
		}

		if strings.Contains(a.Body, "secret") {
			t.Errorf("%s: the password is in the page", name)
		}
	}
}

// TestEndOfLogIns: who ends log-ins confirms which; the own one leads to the log-in page.
func TestEndOfLogIns(t *testing.T) {
	t.Parallel()
	c := newConsole(t, "")
	own := control.TokenName(strings.Repeat("ab", 32))
	for name, tt := range map[string]struct {
		field, text string
		may         bool
		confirm     int // the code of the page that asks
		to          string
	}{
		"one":                 {"name", "0123456789abcdef", true, http.StatusOK, "/tokens?done=1"},
		"the own":             {"name", own, true, http.StatusOK, "/login"},
		"all of a user":       {"user", "alice", true, http.StatusOK, "/login"},
		"one that is no more": {"name", "ffffffffffffffff", true, http.StatusNotFound, ""},
		"of nobody":           {"user", "carol", true, http.StatusNotFound, ""},
		"no name":             {"name", "../x", true, http.StatusBadRequest, ""},
		"without the right":   {"name", own, false, http.StatusForbidden, ""},
	} {
		m := &recorded{answers: theAnswers(), may: func(_, fun string) bool { return tt.may || fun != revokeTokens }}
		if a := ask(t, c, m, http.MethodGet, "/tokens/confirm?"+url.Values{tt.field: {tt.text}}.Encode(),
			nil); a.Code != tt.confirm {
			t.Errorf("%s: the page that asks: %d", name, a.Code)
		}

		a := ask(t, c, m, http.MethodPost, "/tokens", form(tt.field, tt.text))
		if tt.to == "" {
			if a.Code != tt.confirm {
				t.Errorf("%s: %d, want %d", name, a.Code, tt.confirm)
			}
			continue
		}

		if a.Code != http.StatusSeeOther || a.Header.Get("Location") != c.base+tt.to {
			t.Errorf("%s: %d %s", name, a.Code, a.Header.Get("Location"))
		}
	}
}

// TestAnswersOfAStrangeMaster: what a master answers in another form is an error of the master's,
// in bounds, and not a page.
func TestAnswersOfAStrangeMaster(t *testing.T) {
	t.Parallel()
	c := newConsole(t, "")
	odd := strings.Repeat("x", 10_000) + says
	for path, fun := range map[string]string{
		"/audit":  "audit.all",
		"/files":  "files.list",
		"/tokens": "token.list",
	} {
		for _, answer := range []any{odd, nil, int64(1), []any{}} {
			answers := theAnswers()
			answers[fun] = answer
			if fun == "token.list" {
				answers[fun] = wheel(answer)
			}

			a := ask(t, c, &recorded{answers: answers}, http.MethodGet, path, nil)
			if a.Code != http.StatusBadGateway || strings.Contains(a.Body, strings.Repeat("x", maxName+1)) ||
				strings.Contains(a.Body, says) {
				t.Errorf("%s with %.10v: %d, %d bytes", path, answer, a.Code, len(a.Body))
			}
		}
	}
}

// TestFoldersOfFiles: the way up from a folder leads through each folder above it, in its
// environment, and the number of names that are left out is said.
func TestFoldersOfFiles(t *testing.T) {
	t.Parallel()
	c := newConsole(t, "")
	a := ask(t, c, &recorded{answers: theAnswers()}, http.MethodGet, "/files?env=base&dir=/a/b/", nil)
	for _, want := range []string{
		`env=base">`, `dir=a&amp;env=base`, `dir=a%2Fb&amp;env=base`, `dir=a%2Fb%2Fweb&amp;env=base`, `path=a%2Fb%2Ftop.sls`,
	} {
		if !strings.Contains(a.Body, want) {
			t.Errorf("%s is not in the page", want)
		}
	}

	for _, path := range []string{"/files?dir=" + strings.Repeat("a/", 5000),
		"/files?env=" + strings.Repeat("é", 5000)} {
		if a := ask(t, c, &recorded{answers: theAnswers()}, http.MethodGet, path, nil); a.Code != http.StatusOK || len(a.Body) > 200_000 {
			t.Errorf("%.20s: %d, %d bytes", path, a.Code, len(a.Body))
		}
	}
}

// TestRemotesOfFiles: of what a master says of git remotes, a bounded part is shown; other masters
// are named when they serve something else.
func TestRemotesOfFiles(t *testing.T) {
	t.Parallel()
	m := value.NewMap()
	for i := range maxRemotes + 7 {
		refs, others := value.NewMap(), value.NewMap()
		for j := range maxRefs + i {
			refs.Set("branch"+string(rune('a'+j)), strings.Repeat("0", 40))
			others.Set("m"+string(rune('a'+j)), value.NewMap("same", j%2 == 0))
		}
		m.Set("https://git.example/"+string(rune('a'+i)), value.NewMap("refs", refs, "other_masters", others))
	}

	got, more := remotesOf(m, now())
	if len(got) != maxRemotes || more != 7 {
		t.Errorf("%d remotes, %d more", len(got), more)
	}

	for i, r := range got {
		if len(r.Refs) != maxRefs || r.MoreRefs != int64(i) || len(r.Differs) > maxRefs ||
			len(r.Differs) == 0 || len(r.Refs[0].Commit) != 12 {
			t.Errorf("remote %d: %d refs, %d more, %d differ", i, len(r.Refs), r.MoreRefs, len(r.Differs))
		}
	}

	if got, more := remotesOf(nil, now()); len(got) != 0 || more != 0 {
		t.Errorf("of nothing: %v, %d", got, more)
	}
}

// TestAgo: how long ago something was, in its largest unit.
func TestAgo(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Hour:          "in 1 h",
		-3 * 24 * time.Hour: "in 3 days",
		-9 * time.Second:    "just now",
		9 * time.Second:     "just now",
		59 * time.Second:    "59 s ago",
		time.Minute:         "1 min ago",
		119 * time.Minute:   "2 h ago",
		47 * time.Hour:      "47 h ago",
		50 * time.Hour:      "2 days ago",

		// A span is rounded, and never to sixty of a unit. Days are whole ones.
		59*time.Second + 499*time.Millisecond: "59 s ago",
		59*time.Second + 500*time.Millisecond: "1 min ago",
		89 * time.Second:                      "1 min ago",
		90 * time.Second:                      "2 min ago",
		59*time.Minute + 29*time.Second:       "59 min ago",
		59*time.Minute + 30*time.Second:       "1 h ago",
		170 * time.Minute:                     "3 h ago",
		47*time.Hour + 29*time.Minute:         "47 h ago",
		47*time.Hour + 30*time.Minute:         "2 days ago",
		71 * time.Hour:                        "2 days ago",
		72 * time.Hour:                        "3 days ago",
		-(23*time.Hour + 31*time.Minute):      "in 24 h",
		-(59*time.Minute + 45*time.Second):    "in 1 h",
		math.MaxInt64:                         "106751 days ago",
		math.MinInt64:                         "in 106751 days",
		400 * 24 * time.Hour:                  "400 days ago",
	} {
		if got := agoWord(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

// TestWhen: past an hour a time has its time of day, and its date when that is of another day in UTC.
func TestWhen(t *testing.T) {
	t.Parallel()
	east := time.FixedZone("", 14*3600)
	for _, tt := range []struct {
		at   time.Time
		want string
	}{
		{now(), "just now"},
		{now().Add(-59 * time.Minute), "59 min ago"},
		{now().Add(59 * time.Minute), "in 59 min"},
		{now().Add(-time.Hour), "15:00 (1 h ago)"},
		{now().Add(time.Hour), "17:00 (in 1 h)"},
		{now().Add(-16 * time.Hour).In(east), "00:00 (16 h ago)"},
		{now().Add(-16*time.Hour - time.Minute), "23 Nov 23:59 (16 h ago)"},
		{now().Add(8 * time.Hour), "25 Nov 00:00 (in 8 h)"},
		{now().Add(-400 * 24 * time.Hour), "2025-10-20 16:00 (400 days ago)"},
		{now().Add(90 * 24 * time.Hour), "2027-02-22 16:00 (in 90 days)"},
		{time.Time{}, ""},
	} {
		m := momentAt(now(), tt.at)
		if got := strings.ReplaceAll(m.When, "\u00a0", " "); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.at, got, tt.want)
		}
	}
}

// TestPager: a page is within the list, whatever the query asks for, and leads to its neighbours.
func TestPager(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		n            int
		query        string
		lo, hi, page int
		prev, next   bool
	}{
		{0, "", 0, 0, 1, false, false},
		{10, "", 0, 10, 1, false, false},
		{25, "", 0, 10, 1, false, true},
		{25, "page=2&q=x", 10, 20, 2, true, true},
		{25, "page=3", 20, 25, 3, true, false},
		{25, "page=4", 20, 25, 3, true, false},
		{25, "page=-1", 0, 10, 1, false, true},
		{25, "page=99999999999999999999", 0, 10, 1, false, true},
		{20, "page=2", 10, 20, 2, true, false},
	} {
		q, _ := url.ParseQuery(tt.query)
		lo, hi, p := pageOf(tt.n, 10, "/x", q)
		if lo != tt.lo || hi != tt.hi || p.Page != tt.page || (p.Prev != "") != tt.prev || (p.Next != "") != tt.next {
			t.Errorf("%d with %q: %d to %d, %+v", tt.n, tt.query, lo, hi, p)
		}

		if p.Next != "" && q.Get("q") != "" && !strings.Contains(p.Next, "q=x") {
			t.Errorf("%q forgets the rest of the query: %s", tt.query, p.Next)
		}
	}
}

// FuzzBounds: a foreign text is cut between characters, within the bounds of its page, and what is
// left out is counted.
func FuzzBounds(f *testing.F) {
	f.Add("text", 3)
	f.Add(strings.Repeat("é", 100), 7)
	f.Add("\xff\xfe\x80", 1)
	f.Fuzz(func(t *testing.T, text string, n int) {
		n = max(0, n%1000)
		cut := cutText(text, n)
		if len(cut) > n || !strings.HasPrefix(text, cut) || utf8.ValidString(text) && !utf8.ValidString(cut) {
			t.Errorf("%q cut to %d: %q", text, n, cut)
		}

		b := newBudget()
		var shown int
		for range 20 {
			bounded := b.boundedText(text)
			shown += len(text) - bounded.Cut
		}

		if shown > maxPageText+20*200 {
			t.Errorf("%d bytes are shown of texts of %d", shown, len(text))
		}
	})
}

// TestLines: lines of a field, without those that are empty.
func TestLines(t *testing.T) {
	t.Parallel()
	if got := textLines(" a \r\n\r\n\tb\n\nc"); strings.Join(got, "|") != "a|b|c" {
		t.Errorf("%q", got)
	}
	if got := countWord(1, "key", "keys") + countWord(0, "key", "keys"); got != "1 key0 keys" {
		t.Errorf("%q", got)
	}
}
