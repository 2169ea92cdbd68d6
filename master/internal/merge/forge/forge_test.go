package forge

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"saltern/master/internal/merge/options"
	"saltern/master/internal/notify/rules"
	"saltern/test/check"
)

const secret = "T0K3N-1234"

// client returns a Client of a server that answers by handler.
func client(t *testing.T, form options.Form, handler http.HandlerFunc) *Client {
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	check.Must(t, err)
	return New(&options.Report{Form: form, URL: u, Project: "a/b", Token: rules.NewSecret(secret)})
}

var status = Status{Commit: strings.Repeat("a", 40), State: Success, Description: "x", Context: "saltern"}

// TestAnswers: which answers are final, and which are tried again; none gets into the error.
func TestAnswers(t *testing.T) {
	for code, want := range map[int]error{
		201: nil, 400: ErrRefused, 403: ErrForbidden, 404: ErrGone, 410: ErrGone, 409: ErrRefused, 422: ErrRefused,
	} {
		c := client(t, options.Gitea, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, r.Header.Get("Authorization"))
		})
		if err := c.SetStatus(t.Context(), status); !errors.Is(err, want) {
			t.Errorf("%d: %v", code, err)
		}
	}

	for _, code := range []int{302, 401, 403, 429, 500, 502, 503} {
		elsewhere := false
		c := client(t, options.Gitea, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/elsewhere" {
				elsewhere = true
				return
			}
			w.Header().Set("Location", "/elsewhere")
			w.Header().Set("Retry-After", "99999999999")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, r.Header.Get("Authorization"))
		})
		err := c.SetStatus(t.Context(), status)
		if err == nil || errors.Is(err, ErrRefused) || errors.Is(err, ErrGone) || errors.Is(err, ErrForbidden) || strings.Contains(err.Error(), secret) || elsewhere {
			t.Errorf("%d: %v", code, err)
		}
		var later *LaterError
		if errors.As(err, &later) && later.After > 10*time.Minute {
			t.Errorf("%d: a pause of %v", code, later.After)
		}
	}
}

// TestGitLabRepeats: GitLab refuses a state that the status has; any other refusal counts.
func TestGitLabRepeats(t *testing.T) {
	text := ""
	c := client(t, options.GitLab, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("PRIVATE-TOKEN") != secret || r.URL.EscapedPath() != "/api/v4/projects/a%2Fb/statuses/"+status.Commit {
			t.Errorf("asked %s", r.URL)
		}
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, text)
	})
	for answer, set := range map[string]bool{
		`{"message":"Cannot transition status via :succeed from :success"}`: true,
		`{"message":"Cannot transition status via :succeed from :failed"}`:  false,
		`{"message":"nonsense from :success"}`:                              false,
	} {
		text = answer
		if err := c.SetStatus(t.Context(), status); (err == nil) != set {
			t.Errorf("%s: %v", answer, err)
		}
	}
}

// TestHostileServer: endless answers, lists that never end, other types.
func TestHostileServer(t *testing.T) {
	pages := 0
	c := client(t, options.GitHub, func(w http.ResponseWriter, r *http.Request) {
		pages++
		_, _ = io.WriteString(w, "["+strings.TrimSuffix(strings.Repeat(`{"number": 1, "head": {"sha": "x"}},`, 50), ",")+"]")
	})
	if all, err := c.Merges(t.Context()); err != nil || pages != maxMerges/pageSize || len(all) != maxMerges {
		t.Errorf("%d pages, %d requests, %v", pages, len(all), err)
	}

	for _, body := range []string{strings.Repeat("x", maxAnswer+1), `{"number": "` + secret + `"}`, "", "null]"} {
		c := client(t, options.GitHub, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, body) })
		if _, err := c.Merges(t.Context()); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%.30q: %v", body, err)
		}
		if id, err := c.Comment(t.Context(), 1, 0, "x"); id != 0 || err != nil && len(body) <= maxAnswer {
			t.Errorf("a comment with the answer %.30q: %d, %v", body, id, err)
		}
	}
}

// TestLongDescriptions: merge requests with long descriptions are listed in smaller pages; one that is longer
// than any answer may be is left out.
func TestLongDescriptions(t *testing.T) {
	long := strings.Repeat("x", maxAnswer/2)
	c := client(t, options.GitLab, func(w http.ResponseWriter, r *http.Request) {
		size, _ := strconv.Atoi(r.FormValue("per_page"))
		page, _ := strconv.Atoi(r.FormValue("page"))
		list := []any{}
		for number := (page-1)*size + 1; number <= min(page*size, 7); number++ {
			description := long
			if number == 3 {
				description += long
			}
			list = append(list, map[string]any{"iid": number, "sha": "x", "description": description})
		}
		_ = json.NewEncoder(w).Encode(list)
	})
	all, err := c.Merges(t.Context())
	if err != nil || len(all) != 6 || all[2].Number != 4 {
		t.Errorf("got %v, %v", all, err)
	}
}
