package browser

import (
	"testing"

	"saltern/test/lab"
	"saltern/test/oidcprovider"
)

// TestSignIn: somebody signs in at an OpenID provider, which is another site, and is at the
// overview without a further click; after he has logged out the same browser is let in again.
func TestSignIn(t *testing.T) {
	t.Parallel()
	const addr = "127.88.1.9"
	const base = "http://" + addr + ":14001"
	issuer := oidcprovider.Start(t, base+"/console/oidc/done")
	n := lab.StartNode(t, lab.NodeConfig{Addr: addr, Options: map[string]any{
		"auth.oidc.issuer": issuer, "auth.oidc.client_id": oidcprovider.ClientID, "auth.oidc.client_secret": oidcprovider.Secret,
		"auth.oidc.username_claim": "preferred_username", "auth.oidc.redirect": base,
		"external_auth": map[string]any{"oidc": map[string]any{"ops%": []any{".*", "@runner", "@wheel"}}}}})

	if at := serve(t, n, "  console: true\n"); at != base {
		t.Fatal(at)
	}

	b := open(t, base, 1280, 900)
	for range 2 {
		b.see("/console/", `a.button`)
		b.has("Sign in with")
		b.picture("console-signin")
		b.do("go to the provider", click(`a.button`), there(`input[name="password"]`))
		b.do("sign in", typed(`input[name="username"]`, "ann"),
			typed(`input[name="password"]`, "secret of ann"),
			click(`button[type="submit"], input[type="submit"]`), there(`form.who`))
		b.has("ann (admin)")

		if at := get[string](b, `document.location.pathname + document.location.search`); at != "/console/" {
			t.Errorf("at %s", at)
		}

		b.do("log out", click(`form.who button`), there(`a.button`))
	}
}
