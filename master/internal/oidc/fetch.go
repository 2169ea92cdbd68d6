package oidc

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	gooidc "github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"golang.org/x/oauth2"

	"saltern/internal/durable"
	"saltern/internal/printable"
)

// Bounds of the provider's answers, and of the time that they take.
const (
	// fetchTime bounds the time of one request, and of the requests for metadata and keys together.
	fetchTime = 10 * time.Second
	maxAnswer = 512 << 10 // bytes of one answer
	maxKeys   = 64        // number of keys of a provider; further keys are ignored
	maxCA     = 4 << 20   // bytes of the file of certificate authorities
)

// Bounds of RSA keys in bits: shorter keys are weak, and longer ones are slow.
const (
	minRSA = 2048
	maxRSA = 8192
)

// client returns an HTTP client for requests to the provider. The client does not follow redirects,
// and closes each connection after its request.
func (p *Provider) client() (*http.Client, error) {
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if p.opts.CA != "" {
		b, err := durable.Read(p.opts.CA, maxCA)
		if err != nil {
			return nil, fmt.Errorf("read auth.oidc.ca: %w", err)
		}

		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(b) {
			return nil, fmt.Errorf("read auth.oidc.ca: %s holds no certificate in PEM", p.opts.CA)
		}
	}

	t := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		TLSClientConfig:        secure,
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: 64 << 10,
		ForceAttemptHTTP2:      true,
	}

	return &http.Client{
		Transport: bounded{t},
		Timeout:   fetchTime,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("it leads elsewhere: write the provider's own address in auth.oidc.issuer")
		},
	}, nil
}

// bounded is a transport that returns an error for an answer that is too large.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	}
	return resp, err
}

// view contains the provider's metadata and keys at one time. It never changes.
type view struct {
	oauth oauth2.Config // without the client's secret
	keys  []jose.JSONWebKey
	at    time.Time
}

// fetchView fetches the provider's metadata and keys.
func (p *Provider) fetchView(ctx context.Context) (*view, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	c, err := p.client()
	if err != nil {
		return nil, err
	}

	found, err := gooidc.NewProvider(gooidc.ClientContext(ctx, c), p.opts.Issuer)
	if err != nil {
		return nil, foreign("ask the provider "+p.opts.Issuer, err)
	}

	var more struct {
		JWKS    string   `json:"jwks_uri"`
		Methods []string `json:"token_endpoint_auth_methods_supported"`
	}

	if err := found.Claims(&more); err != nil {
		return nil, foreign("read what the provider says of itself", err)
	}

	v := &view{
		at: p.now(),
		oauth: oauth2.Config{
			ClientID:    p.opts.ClientID,
			Endpoint:    found.Endpoint(),
			RedirectURL: p.opts.Redirect + Callback,
			Scopes:      p.opts.Scopes,
		},
	}

	v.oauth.Endpoint.AuthStyle = oauth2.AuthStyleInHeader
	if len(more.Methods) > 0 && !slices.Contains(more.Methods, "client_secret_basic") {
		v.oauth.Endpoint.AuthStyle = oauth2.AuthStyleInParams
	}

	for name, address := range map[string]string{
		"jwks_uri":               more.JWKS,
		"authorization_endpoint": v.oauth.Endpoint.AuthURL,
		"token_endpoint":         v.oauth.Endpoint.TokenURL,
	} {
		if err := checkAddress(address); err != nil {
			return nil, fmt.Errorf("read what the provider says of itself: %s: %w", name, err)
		}
	}

	v.keys, err = keysOf(ctx, c, more.JWKS)
	return v, err
}

// keysOf returns the signing keys of a provider. It ignores keys for other purposes.
func keysOf(ctx context.Context, c *http.Client, address string) ([]jose.JSONWebKey, error) {
	const doing = "read the keys of the provider"
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, foreign(doing, err)
	}

	resp, err := c.Do(r)
	if err != nil {
		return nil, foreign(doing, err)
	}
	defer resp.Body.Close()

	if resp.StatusCode != http.StatusOK {
		return nil, foreign(doing, errors.New(resp.Status))
	}

	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	b, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(b, &set)
	}

	if err != nil {
		return nil, foreign(doing, err)
	}

	var keys []jose.JSONWebKey
	for _, raw := range set.Keys[:min(len(set.Keys), maxKeys)] {
		var k jose.JSONWebKey
		if json.Unmarshal(raw, &k) == nil && (k.Use == "" || k.Use == "sig") && signatureCounts(k.Key) {
			keys = append(keys, k)
		}
	}

	if len(keys) == 0 {
		return nil, foreign(doing, errors.New("there is none that can be used"))
	}

	return keys, nil
}

// signatureCounts reports whether a key is a public key of an accepted type and size. Signatures of
// other keys are invalid.
func signatureCounts(key any) bool {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return k.N.BitLen() >= minRSA && k.N.BitLen() <= maxRSA
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return true
	}
	return false
}

// foreign returns an error with the text of err after the prefix doing. The text of err may come
// from the provider, so foreign shortens it and makes it safe for a log.
func foreign(doing string, err error) error {
	return fmt.Errorf("%s: %s", doing, printable.Brief(err.Error(), 300))
}
