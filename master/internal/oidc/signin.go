package oidc

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/oauth2"

	"saltern/internal/durable"
)

// Callback is the path below auth.oidc.redirect to which the provider redirects browsers.
const Callback = "/console/oidc/done"

// Bounds in bytes.
const (
	maxCode   = 4 << 10
	maxSecret = 4 << 10 // bytes of the file with the client's secret
)

// SignIn is a user who has signed in with a browser, and the ID token that authenticates him.
type SignIn struct {
	User, Token string
	Groups      []string
}

// derive returns one of the values of a sign-in. All of them are derived from the secret that the
// browser keeps. So only a browser with the secret can complete the sign-in, at any node.
func derive(secret, purpose string) string {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte("sign-in: " + purpose))
	return hex.EncodeToString(m.Sum(nil))
}

// Begin returns the URL at the provider to which salt-api redirects a browser for a sign-in. secret
// must be new for each sign-in, and only the browser may know it.
func (p *Provider) Begin(ctx context.Context, secret string) (string, error) {
	v, err := p.current(ctx, nil)
	if err != nil {
		return "", err
	}
	return v.oauth.AuthCodeURL(derive(secret, "state"),
		oauth2.SetAuthURLParam("nonce", derive(secret, "nonce")),
		oauth2.S256ChallengeOption(derive(secret, "verifier"))), nil
}

// Refused reports whether an error of Finish means that the browser sent invalid data. Otherwise
// the provider or an option is at fault.
func Refused(err error) bool {
	_, ok := errors.AsType[*refusal](err)
	return ok
}

// Finish checks the provider's answer, which the browser sends to Callback, and exchanges the code
// in it for the ID token.
func (p *Provider) Finish(ctx context.Context, secret string, answer url.Values) (SignIn, error) {
	code := answer.Get("code")
	switch iss := answer.Get("iss"); {
	case secret == "" || !hmac.Equal([]byte(answer.Get("state")), []byte(derive(secret, "state"))):
		return SignIn{}, refuse("it does not belong to a sign-in that this browser began")
	case iss != "" && iss != p.opts.Issuer:
		return SignIn{}, refuse("it is of another provider, %q", iss)
	case answer.Get("error") != "":
		return SignIn{}, refuse("the provider says %s: %s", answer.Get("error"), answer.Get("error_description"))
	case code == "" || len(code) > maxCode:
		return SignIn{}, refuse("it has no code, or one that is too long")
	}

	v, err := p.current(ctx, nil)
	if err != nil {
		return SignIn{}, err
	}

	token, err := p.exchange(ctx, v.oauth, code, derive(secret, "verifier"))
	if err != nil {
		return SignIn{}, err
	}

	id, err := p.proveToken(ctx, token, derive(secret, "nonce"))
	return SignIn{User: id.user, Token: token, Groups: id.groups}, err
}

// exchange sends a code to the provider and returns the ID token.
func (p *Provider) exchange(ctx context.Context, conf oauth2.Config, code, verifier string) (string, error) {
	const doing = "get the ID token from the provider"
	c, err := p.client()
	if err != nil {
		return "", err
	}

	if conf.ClientSecret, err = p.secret(); err != nil {
		return "", err
	}

	if conf.ClientSecret == "" {
		conf.Endpoint.AuthStyle = oauth2.AuthStyleInParams
	}

	got, err := conf.Exchange(context.WithValue(ctx, oauth2.HTTPClient, c), code, oauth2.VerifierOption(verifier))
	if e, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		cause := fmt.Errorf("%s: %s %s", e.Response.Status, e.ErrorCode, e.ErrorDescription)
		if e.ErrorCode == "invalid_grant" || e.ErrorCode == "" && e.Response.StatusCode == http.StatusBadRequest {
			return "", refuse("the provider does not take the code: %v", cause)
		}
		return "", foreign(doing, cause)
	}

	if err != nil {
		return "", foreign(doing, err)
	}

	token, _ := got.Extra("id_token").(string)
	if token == "" {
		return "", errors.New(doing + ": there is none in its answer")
	}

	return token, nil
}

// secret returns the client's secret, or "".
func (p *Provider) secret() (string, error) {
	if p.opts.SecretFile == "" {
		return p.opts.Secret, nil
	}
	b, err := durable.Read(p.opts.SecretFile, maxSecret)
	if err != nil {
		return "", fmt.Errorf("read auth.oidc.client_secret_file: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}
