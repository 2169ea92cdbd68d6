package oidc

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"saltern/test/await"
)

// hostile is a provider whose answers are made by hand, and a Provider that asks it.
type hostile struct {
	*Provider
	t       *testing.T
	key     *rsa.PrivateKey
	doc     map[string]any
	jwks    any
	away    atomic.Bool
	asked   atomic.Int64
	elapsed atomic.Int64 // of the Provider's clock
}

func newHostile(t *testing.T) *hostile {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}

	h := &hostile{t: t, key: key}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	h.doc = map[string]any{
		"issuer":                                s.URL,
		"jwks_uri":                              s.URL + "/keys",
		"authorization_endpoint":                s.URL + "/auth",
		"token_endpoint":                        s.URL + "/token",
		"id_token_signing_alg_values_supported": []string{"RS256", "HS256", "none"},
	}

	h.jwks = map[string]any{"keys": []any{jose.JSONWebKey{
		Key:       &key.PublicKey,
		KeyID:     "k1",
		Use:       "sig",
		Algorithm: "RS256",
	}}}

	now := func() time.Time { return time.Now().Add(time.Duration(h.elapsed.Load())) }
	if h.Provider, err = New(Options{Issuer: s.URL, ClientID: "salt"}, slog.New(slog.DiscardHandler), now); err != nil {
		t.Fatal(err)
	}

	return h
}

func (h *hostile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.asked.Add(1)
	if h.away.Load() {
		http.Error(w, "away\x1b[2J", http.StatusBadGateway)
		return
	}

	var v any = h.doc
	if r.URL.Path == "/keys" {
		v = h.jwks
	}

	w.Header().Set("Content-Type", "application/json")
	if f, ok := v.(func(http.ResponseWriter)); ok {
		f(w)
		return
	}

	_ = json.NewEncoder(w).Encode(v)
}

// claims are those of a good token of ann, with changes; nil takes one away.
func (h *hostile) claims(changes map[string]any) map[string]any {
	now := h.now().Unix()
	c := map[string]any{"iss": h.opts.Issuer, "sub": "ann", "aud": "salt", "exp": now + 60, "iat": now}
	maps.Copy(c, changes)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

func (h *hostile) sign(alg jose.SignatureAlgorithm, key any, kind, kid string, claims map[string]any) string {
	h.t.Helper()
	o := (&jose.SignerOptions{}).WithHeader("kid", kid)
	if kind != "" {
		o = o.WithType(jose.ContentType(kind))
	}

	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, o)
	if err != nil {
		h.t.Fatal(err)
	}

	b, _ := json.Marshal(claims)
	jws, err := s.Sign(b)
	if err != nil {
		h.t.Fatal(err)
	}

	token, err := jws.CompactSerialize()
	if err != nil {
		h.t.Fatal(err)
	}

	return token
}

func (h *hostile) token(changes map[string]any) string {
	return h.sign(jose.RS256, h.key, "JWT", "k1", h.claims(changes))
}

// TestAttack71Tokens: only what the provider has signed for this client, now, lets
// somebody in.
func TestAttack71Tokens(t *testing.T) {
	t.Parallel()
	h := newHostile(t)
	good := h.token(nil)
	if ok, _, err := h.Login(t.Context(), "ann", good); !ok || err != nil {
		t.Fatalf("a good token: %v %v", ok, err)
	}

	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}

	part := strings.Split(good, ".")
	encode := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	public, _ := json.Marshal(h.key.PublicKey)
	own := jose.JSONWebKey{Key: &other.PublicKey, KeyID: "k1"}
	ownJSON, _ := json.Marshal(own)
	now := time.Now().Unix()
	for name, token := range map[string]string{
		"nothing":                   "",
		"no token":                  "secret of ann",
		"none":                      encode(`{"alg":"none","typ":"JWT"}`) + "." + part[1] + ".",
		"none, in capitals":         encode(`{"alg":"NONE"}`) + "." + part[1] + ".",
		"no signature":              part[0] + "." + part[1] + ".",
		"other claims":              part[0] + "." + encode(`{"sub":"ann"}`) + "." + part[2],
		"HS256 with the public key": h.sign(jose.HS256, public, "JWT", "k1", h.claims(nil)),
		"HS256 with the secret":     h.sign(jose.HS256, []byte(strings.Repeat("s", 32)), "JWT", "k1", h.claims(nil)),
		"another algorithm":         h.sign(jose.PS256, h.key, "JWT", "k1", h.claims(nil)),
		"another key":               h.sign(jose.RS256, other, "JWT", "k1", h.claims(nil)),
		"another key, unnamed":      h.sign(jose.RS256, other, "JWT", "", h.claims(nil)),
		"a key that it brings": encode(`{"alg":"RS256","kid":"k1","jwk":`+string(ownJSON)+`}`) + "." +
			part[1] + "." + part[2],
		"two signatures": `{"payload":"` + part[1] + `","signatures":[{"protected":"` + part[0] +
			`","signature":"` + part[2] + `"},{"protected":"` + part[0] + `","signature":"` + part[2] + `"}]}`,
		"another form": `{"payload":"` + part[1] + `","protected":"` + part[0] +
			`","signature":"` + part[2] + `"}`,
		"an access token":            h.sign(jose.RS256, h.key, "at+jwt", "k1", h.claims(nil)),
		"a token of a log-out":       h.sign(jose.RS256, h.key, "logout+jwt", "k1", h.claims(nil)),
		"events of a log-out":        h.token(map[string]any{"events": map[string]any{}}),
		"another issuer":             h.token(map[string]any{"iss": "https://evil.example.com"}),
		"no issuer":                  h.token(map[string]any{"iss": nil}),
		"another audience":           h.token(map[string]any{"aud": "other"}),
		"no audience":                h.token(map[string]any{"aud": nil}),
		"an audience that begins so": h.token(map[string]any{"aud": []string{"salted"}}),
		"several, without a party":   h.token(map[string]any{"aud": []string{"salt", "other"}}),
		"of another party":           h.token(map[string]any{"azp": "other"}),
		"a party that is no text":    h.token(map[string]any{"azp": 1}),
		"expired":                    h.token(map[string]any{"exp": now - 1}),
		"no end":                     h.token(map[string]any{"exp": nil}),
		"not yet":                    h.token(map[string]any{"nbf": now + 3600}),
		"issued later":               h.token(map[string]any{"iat": now + 3600}),
		"issued long ago":            h.token(map[string]any{"iat": now - 2*3600}),
		"issued never":               h.token(map[string]any{"iat": nil}),
		"no subject":                 h.token(map[string]any{"sub": nil}),
		"a subject that is a list":   h.token(map[string]any{"sub": []string{"ann"}}),
		"too long":                   h.token(map[string]any{"x": strings.Repeat("x", maxToken)}),
	} {
		if ok, groups, err := h.Login(t.Context(), "ann", token); ok || err != nil || groups != nil {
			t.Errorf("%s: %v %q %v", name, ok, groups, err)
		}
	}

	for _, user := range []string{"", "a\nb", "ann\x00", strings.Repeat("a", maxName+1), "\xff"} {
		if ok, _, _ := h.Login(t.Context(), user, h.token(map[string]any{"sub": user})); ok {
			t.Errorf("%q is a name", user)
		}
	}

	if _, err := h.proveToken(t.Context(), h.token(map[string]any{"nonce": "another"}), "mine"); !Refused(err) {
		t.Errorf("another nonce: %v", err)
	}

	if _, err := h.proveToken(t.Context(), good, "mine"); !Refused(err) {
		t.Errorf("no nonce: %v", err)
	}

	if ok, _, err := h.Login(t.Context(), "ann",
		h.token(map[string]any{"aud": []string{"other", "salt"}, "azp": "salt"})); !ok || err != nil {
		t.Errorf("several audiences and the party: %v %v", ok, err)
	}
}

// TestAttack71Email: an address counts as a name unless the provider says that it has not
// verified it: users may write there what they like.
func TestAttack71Email(t *testing.T) {
	t.Parallel()
	h := newHostile(t)
	h.opts.UserClaim = "email"
	for _, tt := range []struct {
		verified any
		want     bool
	}{{nil, true}, {true, true}, {"true", true}, {false, false}, {"false", false}, {"", false}, {1, false}} {
		ok, _, err := h.Login(t.Context(), "ann@example.com",
			h.token(map[string]any{"email": "ann@example.com", "email_verified": tt.verified}))
		if ok != tt.want || err != nil {
			t.Errorf("%#v: %v %v", tt.verified, ok, err)
		}
	}
}

// TestAttack72Groups: a groups claim of any form gives the names that it holds, bounded.
func TestAttack72Groups(t *testing.T) {
	t.Parallel()
	h := newHostile(t)
	for _, tt := range []struct {
		claim any
		want  []string
	}{
		{nil, nil},
		{"ops", []string{"ops"}},
		{[]any{"ops", "devs"}, []string{"ops", "devs"}},
		{[]any{1, nil, []string{"admins"}, map[string]any{"admins": true}, "a\nb", "", strings.Repeat("x", maxName+1), "devs"},
			[]string{"devs"}},
		{"a\nb", nil},
		{map[string]any{"admins": true}, nil},
		{7, nil},
		{slices.Repeat([]string{"a"}, 2500), slices.Repeat([]string{"a"}, maxGroups)},
	} {
		ok, groups, err := h.Login(t.Context(), "ann", h.token(map[string]any{"groups": tt.claim}))
		if !ok || err != nil || !slices.Equal(groups, tt.want) {
			t.Errorf("%.60v: %v %d %.60q %v", tt.claim, ok, len(groups), groups, err)
		}
	}

	h.opts.UserClaim = "name"
	for _, name := range []string{"ops%", "*"} { // names that mean something in external_auth
		if ok, groups, err := h.Login(t.Context(), name, h.token(map[string]any{"name": name})); !ok ||
			err != nil || groups != nil {
			t.Errorf("%s: %v %q %v", name, ok, groups, err)
		}
	}
}

// TestAttack73Provider: whatever a provider answers, it is bounded, and nobody gets in.
func TestAttack73Provider(t *testing.T) {
	t.Parallel()
	endless := func(w http.ResponseWriter) {
		_, _ = w.Write([]byte(`{"keys":[`))
		chunk := []byte(strings.Repeat(" ", 1<<16))
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}

	for name, change := range map[string]func(h *hostile){
		"of another issuer":  func(h *hostile) { h.doc["issuer"] = "https://evil.example.com" },
		"keys in the clear":  func(h *hostile) { h.doc["jwks_uri"] = "http://evil.example.com/keys" },
		"keys in a file":     func(h *hostile) { h.doc["jwks_uri"] = "file:///etc/shadow" },
		"tokens elsewhere":   func(h *hostile) { h.doc["token_endpoint"] = "http://evil.example.com/" },
		"no endpoint":        func(h *hostile) { delete(h.doc, "authorization_endpoint") },
		"a script":           func(h *hostile) { h.doc["authorization_endpoint"] = "javascript:alert(1)" },
		"endless keys":       func(h *hostile) { h.jwks = endless },
		"no keys":            func(h *hostile) { h.jwks = map[string]any{"keys": []any{}} },
		"keys of other form": func(h *hostile) { h.jwks = []any{1} },
		"a shared key": func(h *hostile) {
			h.jwks = map[string]any{"keys": []any{jose.JSONWebKey{Key: []byte("0123456789abcdef"), KeyID: "k1"}}}
		},
		"a key for encryption": func(h *hostile) {
			h.jwks = map[string]any{"keys": []any{jose.JSONWebKey{Key: &h.key.PublicKey, KeyID: "k1", Use: "enc"}}}
		},
		"redirects": func(h *hostile) {
			h.jwks = func(w http.ResponseWriter) {
				w.Header().Set("Location", "http://127.0.0.1:1/")
				w.WriteHeader(http.StatusFound)
			}
		},
		"away": func(h *hostile) { h.away.Store(true) },
	} {
		h := newHostile(t)
		change(h)
		ok, _, err := h.Login(t.Context(), "ann", h.token(nil))
		if ok || err == nil || Refused(err) || strings.Contains(err.Error(), "\x1b") || len(err.Error()) > 600 {
			t.Errorf("%s: %v %v", name, ok, err)
		}

		if _, err := h.Begin(t.Context(), "s"); err == nil {
			t.Errorf("%s: a browser is sent there", name)
		}
	}

	h := newHostile(t)
	keys := []any{map[string]any{"kty": "new"}, 1}
	for range 500 {
		keys = append(keys, jose.JSONWebKey{Key: &h.key.PublicKey, KeyID: "k1"})
	}

	h.jwks = map[string]any{"keys": keys}
	if ok, _, err := h.Login(t.Context(), "ann", h.token(nil)); !ok || err != nil {
		t.Errorf("odd keys beside: %v %v", ok, err)
	}

	if n := len(h.lastView.Load().keys); n > maxKeys {
		t.Errorf("%d keys are kept", n)
	}
}

// TestAttack74FetchStorm: tokens of keys that do not exist, and a provider that is away, have
// the provider asked seldom; a new key counts soon, one that is gone not for long.
func TestAttack74FetchStorm(t *testing.T) {
	t.Parallel()
	h := newHostile(t)
	storm := func() {
		for i := range 50 {
			if ok, _, _ := h.Login(t.Context(), "ann",
				h.sign(jose.RS256, h.key, "JWT", fmt.Sprint("unknown", i), h.claims(nil))); ok {
				t.Fatal("let in")
			}
		}
	}

	wants := func(when string, most int64) {
		t.Helper()
		if n := h.asked.Swap(0); n > most {
			t.Errorf("%s: asked %d times, at most %d", when, n, most)
		}
	}

	storm()
	wants("at the start", 2)
	h.elapsed.Add(int64(unknownKeyPause))
	storm()
	wants("later", 2)
	next, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}

	old := h.key
	h.jwks = map[string]any{"keys": []any{jose.JSONWebKey{Key: &next.PublicKey, KeyID: "k2"}}}
	h.elapsed.Add(int64(unknownKeyPause))
	if ok, _, err := h.Login(t.Context(), "ann", h.sign(jose.RS256, next, "JWT", "k2", h.claims(nil))); !ok ||
		err != nil {
		t.Errorf("the new key: %v %v", ok, err)
	}

	if ok, _, _ := h.Login(t.Context(), "ann", h.sign(jose.RS256, old, "JWT", "k1", h.claims(nil))); ok {
		t.Error("the old key counts")
	}

	h.asked.Store(0)
	h.away.Store(true)
	h.elapsed.Add(int64(viewFresh))
	for range 20 {
		if ok, _, err := h.Login(t.Context(), "ann", h.sign(jose.RS256, next, "JWT", "k2", h.claims(nil))); !ok || err != nil {
			t.Fatalf("with a provider that is away, by keys that are known: %v %v", ok, err)
		}
	}

	wants("away", 1)
	h.elapsed.Add(int64(viewStale))
	for range 20 {
		if ok, _, err := h.Login(t.Context(), "ann", h.sign(jose.RS256, next, "JWT", "k2", h.claims(nil))); ok || err == nil {
			t.Fatalf("by keys that are too old: %v %v", ok, err)
		}
	}

	wants("away for long", 1)
	h.away.Store(false)
	h.elapsed.Add(int64(failedPause))
	if ok, _, err := h.Login(t.Context(), "ann", h.sign(jose.RS256, next, "JWT", "k2", h.claims(nil))); !ok ||
		err != nil {
		t.Errorf("back: %v %v", ok, err)
	}
}

// TestAttack74Silent: a provider that says nothing holds up who asks it, and others
// neither when they give up nor when something is known.
func TestAttack74Silent(t *testing.T) {
	t.Parallel()
	h := newHostile(t)
	release := make(chan struct{})
	keys := h.jwks
	h.jwks = func(http.ResponseWriter) { <-release }
	done := make(chan error)
	go func() {
		_, _, err := h.Login(t.Context(), "ann", h.token(nil))
		done <- err
	}()

	await.That(t, "a question to the provider", func() bool { return h.asked.Load() == 2 })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()

	if ok, _, err := h.Login(ctx, "ann", h.token(nil)); ok || err == nil {
		t.Errorf("who gave up: %v %v", ok, err)
	}

	start := time.Now()
	if ok, _, err := h.Login(t.Context(), "ann", h.token(nil)); ok || err == nil ||
		time.Since(start) > othersPatience+fetchTime/2 {
		t.Errorf("who waited: %v %v", ok, err)
	}

	release <- struct{}{}
	if err := <-done; err == nil {
		t.Error("no error of an empty answer")
	}

	silent := h.jwks
	h.jwks = keys
	h.elapsed.Add(int64(failedPause))
	if ok, _, err := h.Login(t.Context(), "ann", h.token(nil)); !ok || err != nil {
		t.Fatalf("it answers: %v %v", ok, err)
	}

	h.jwks = silent
	h.elapsed.Add(int64(viewFresh))
	h.asked.Store(0)
	go func() {
		_, _, err := h.Login(t.Context(), "ann", h.token(nil))
		done <- err
	}()

	await.That(t, "another question to the provider", func() bool { return h.asked.Load() == 2 })
	if ok, _, err := h.Login(t.Context(), "ann", h.token(nil)); !ok || err != nil {
		t.Errorf("by what is known: %v %v", ok, err)
	}

	release <- struct{}{}
	if err := <-done; err != nil {
		t.Errorf("who asked, by what is known: %v", err)
	}
}
