package oidc

import (
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/test/oidcprovider"
)

const home = "http://localhost:1/salt" // where browsers are led back to; nobody is there

// atProvider makes a Provider of one that is real.
func atProvider(t *testing.T, change func(*Options)) *Provider {
	t.Helper()
	o := Options{
		Issuer:    oidcprovider.Start(t, home+Callback),
		ClientID:  oidcprovider.ClientID,
		Secret:    oidcprovider.Secret,
		UserClaim: "preferred_username",
		Redirect:  home + "/",
	}

	if change != nil {
		change(&o)
	}

	p, err := New(o, slog.New(slog.DiscardHandler), time.Now)
	if err != nil {
		t.Fatal(err)
	}

	return p
}

// begun is the answer of the provider to a sign-in of somebody.
func begun(t *testing.T, p *Provider, secret, user string) url.Values {
	t.Helper()
	begin, err := p.Begin(t.Context(), secret)
	if err != nil {
		t.Fatal(err)
	}
	back := oidcprovider.Answer(t, begin, user)
	if !strings.HasPrefix(back.String(), home+Callback+"?") {
		t.Fatalf("the provider leads to %s", back)
	}
	return back.Query()
}

// TestSignIn: somebody signs in at a real provider with a browser, and the ID token logs
// him in at a master, as often as it is good; nobody else, and not with another name.
func TestSignIn(t *testing.T) {
	t.Parallel()
	p := atProvider(t, nil)
	answer := begun(t, p, "a secret", "ann")
	who, err := p.Finish(t.Context(), "a secret", answer)
	if err != nil || who.User != "ann" {
		t.Fatalf("%q, %v", who.User, err)
	}

	for range 2 {
		ok, groups, err := p.Login(t.Context(), "ann", who.Token)
		if !ok || err != nil || !slices.Equal(groups, []string{"ops", "all hands"}) {
			t.Errorf("ann: %v %q %v", ok, groups, err)
		}
	}

	for _, name := range []string{"bob", "Ann", "", "id of ann"} {
		if ok, _, err := p.Login(t.Context(), name, who.Token); ok || err != nil {
			t.Errorf("%q by the token of ann: %v %v", name, ok, err)
		}
	}

	if _, err := p.Finish(t.Context(), "a secret", answer); !Refused(err) {
		t.Errorf("a code for the second time: %v", err)
	}

	later, err := New(p.opts, p.log, func() time.Time { return time.Now().Add(maxAge + time.Minute) })
	if err != nil {
		t.Fatal(err)
	}

	if ok, _, err := later.Login(t.Context(), "ann", who.Token); ok || err != nil {
		t.Errorf("an hour later: %v %v", ok, err)
	}
}

// TestAttack70CodeOfOthers: a code is of use to the browser that began alone.
func TestAttack70CodeOfOthers(t *testing.T) {
	t.Parallel()
	p := atProvider(t, nil)
	answer := begun(t, p, "of the victim", "bob")
	with := func(name, value string) url.Values {
		v := url.Values{}
		for k := range answer {
			v.Set(k, answer.Get(k))
		}
		v.Set(name, value)
		return v
	}

	for name, try := range map[string]struct {
		secret string
		answer url.Values
	}{
		"another browser":             {"of somebody", answer},
		"no cookie":                   {"", answer},
		"no cookie, and its state":    {"", with("state", derive("", "state"))},
		"a code with one's own state": {"of somebody", with("state", derive("of somebody", "state"))},
		"no state":                    {"of the victim", with("state", "")},
		"another provider":            {"of the victim", with("iss", "https://evil.example.com")},
		"the provider refused":        {"of the victim", with("error", "access_denied")},
		"no code":                     {"of the victim", with("code", "")},
		"an endless code":             {"of the victim", with("code", strings.Repeat("x", maxCode+1))},
		"a code that nobody gave out": {"of the victim", with("code", "guessed")},
		"a code that brings parameters": {"of the victim",
			with("code", answer.Get("code")+"&redirect_uri=https://evil.example.com")},
	} {
		if who, err := p.Finish(t.Context(), try.secret, try.answer); !Refused(err) || who.Token != "" {
			t.Errorf("%s: %+v, %v", name, who.User, err)
		}
	}
}

// TestWrongSecret: a setting is at fault, not the browser.
func TestWrongSecret(t *testing.T) {
	t.Parallel()
	p := atProvider(t, func(o *Options) { o.Secret = "wrong" })
	_, err := p.Finish(t.Context(), "s", begun(t, p, "s", "ann"))
	if err == nil || Refused(err) || !strings.Contains(err.Error(), "invalid_client") {
		t.Errorf("%v", err)
	}
}

// TestEmail: the claims of a real provider name the user.
func TestEmail(t *testing.T) {
	t.Parallel()
	p := atProvider(t, func(o *Options) { o.UserClaim = "email" })
	if who, err := p.Finish(t.Context(), "s", begun(t, p, "s", "ann")); err != nil || who.User != "ann@example.com" {
		t.Errorf("ann: %v, %v", who.User, err)
	}
}
