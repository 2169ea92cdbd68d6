package loginurl

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"saltern/master/value"
)

// answers serves what somebody of that name is told.
func answers(t *testing.T, of map[string]http.HandlerFunc) (address string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost ||
			r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" || r.URL.RawQuery != "" {
			t.Errorf("%s %s %s", r.Method, r.URL, r.Header.Get("Content-Type"))
		}

		if h := of[r.PostFormValue("username")]; h != nil && r.PostFormValue("password") == "a&b=c é" {
			h(w, r)
			return
		}

		w.WriteHeader(http.StatusUnauthorized)
	}))

	t.Cleanup(s.Close)
	return s.URL
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestLogin(t *testing.T) {
	address := answers(t, map[string]http.HandlerFunc{
		"list": says(200, `["test.*", {"web*": ["state.apply"]}]`), "fred": says(200, `["@runner"]`), "null": says(200, "null"), "none": says(200, "[]"),
		"false": says(200, "false"), "map": says(200, `{"a": 1}`), "made": says(201, "[]"), "gone": says(404, "[]"), "broken": says(500, "[]"), "text": says(200, "welcome"),
	})

	u, err := New(value.NewMap("^url", address, "fred", []any{".*"}))
	if err != nil {
		t.Fatal(err)
	}

	for user, want := range map[string]string{
		"list": "['test.*', {'web*': ['state.apply']}]", "fred": "['.*', '@runner']", "null": "[]", "none": "[]", "map": "[]",
		"false": "no", "made": "no", "gone": "no", "eve": "no", "broken": "fault", "text": "fault",
	} {
		ok, permissions, err := u.Login(t.Context(), user, "a&b=c é")
		got := value.Repr(permissions)
		switch {
		case err != nil:
			got = "fault"
		case !ok:
			got = "no"
		case permissions == nil:
			got = "[]"
		}

		if got != want {
			t.Errorf("%s: %s, %v; want %s", user, got, err, want)
		}
	}

	if ok, _, err := u.Login(t.Context(), "list", "wrong"); ok || err != nil {
		t.Errorf("a wrong password: %v, %v", ok, err)
	}

	for _, bad := range []any{nil, "", "x", "ftp://host/", "https://", int64(1)} {
		if _, err := New(value.NewMap("^url", bad)); err == nil {
			t.Errorf("%v is an address", bad)
		}
	}
}

// TestAttack87Answers: who stands in the place of the address, or behind it, gets no password
// by leading elsewhere, holds nobody, and lets nobody in by an answer that is none.
func TestAttack87Answers(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked: %s", r.URL) }))
	defer elsewhere.Close()
	stop := make(chan struct{})
	address := answers(t, map[string]http.HandlerFunc{
		"leads": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		},
		"moved": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL,
				http.StatusFound)
		},
		"endless": says(200, `["`+strings.Repeat("x", maxAnswer)+`"]`),
		"deep":    says(200, strings.Repeat("[", 10_000)),
		"two":     says(200, `[] []`),
		"html":    says(200, "<html>"),
		"mute": func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-stop:
			case <-r.Context().Done():
			}
		},
	})
	defer close(stop)

	u, err := New(value.NewMap("^url", address))
	if err != nil {
		t.Fatal(err)
	}

	for _, user := range []string{"leads", "moved", "endless", "deep", "two", "html"} {
		if ok, permissions, err := u.Login(t.Context(), user, "a&b=c é"); ok || permissions != nil || err == nil {
			t.Errorf("%s: %v %v %v", user, ok, permissions, err)
		}
	}

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if ok, _, err := u.Login(ctx, "mute", "a&b=c é"); ok || err == nil {
		t.Errorf("mute: %v %v", ok, err)
	}

	closed, err := New(value.NewMap("^url", "http://127.0.0.1:1/login?secret=hidden"))
	if err != nil {
		t.Fatal(err)
	}

	if _, _, err := closed.Login(t.Context(), "ann", "x"); err == nil || strings.Contains(err.Error(), "hidden") {
		t.Errorf("an address with a secret: %v", err)
	}
}

// TestNamesThatAreNone: who has the name of a group's entry, of everybody's or of an option
// in external_auth gets nothing by it (finding 20 of the second audit: a user named admins%
// had the rights of the group).
func TestNamesThatAreNone(t *testing.T) {
	of := map[string]http.HandlerFunc{}
	names := []string{"admins%", "*", "^url", "%", "admins%%", "^other"}
	for _, name := range names {
		of[name] = says(200, `["test.ping"]`)
	}

	section := value.NewMap("admins%", []any{".*", "@runner"}, "admins%%", []any{".*"}, "%", []any{".*"},
		"*", []any{"sys.doc"}, "^url", answers(t, of), "^other", []any{".*"})
	u, err := New(section)
	if err != nil {
		t.Fatal(err)
	}

	for _, name := range names {
		ok, permissions, err := u.Login(t.Context(), name, "a&b=c é")
		if err != nil || !ok || value.Repr(permissions) != "['test.ping']" {
			t.Errorf("%s: %v, %s, %v", name, ok, value.Repr(permissions), err)
		}
	}
}
