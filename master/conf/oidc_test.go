package conf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// If oidc is in use, Load refuses options with which no user could log in by oidc.
func TestOIDCOptions(t *testing.T) {
	dir := t.TempDir()
	const use = "external_auth: {oidc: {ann: [.*]}}\n"
	const right = use + "auth.oidc.issuer: https://sso.example.com/realms/x\nauth.oidc.client_id: salt\n"
	for text, want := range map[string]string{
		use: "auth.oidc.issuer is not set",
		use + "auth.oidc.issuer: https://sso.example.com\n":                                "auth.oidc.client_id is not set",
		use + "auth.oidc.issuer: http://sso.example.com\nauth.oidc.client_id: salt\n":      "does not begin with https://",
		use + "auth.oidc.issuer: https://a@sso.example.com\nauth.oidc.client_id: salt\n":   "is not of the form",
		use + "auth.oidc.issuer: https://sso.example.com?x=1\nauth.oidc.client_id: salt\n": "question mark",
		right + "auth.oidc.redirect: http://salt.example.com:8000\n":                       "auth.oidc.redirect",
		right + "auth.oidc.client_secret: a\nauth.oidc.client_secret_file: /b\n":           "exclude each other",
		right:                   "",
		"auth.oidc.issuer: x\n": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, "master"), []byte("id: m\nroot_dir: "+dir+"\n"+text),
			0o600); err != nil {
			t.Fatal(err)
		}

		m, err := Load(filepath.Join(dir, "master"))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}

		if err != nil {
			continue
		}

		if o, asks := m.OIDCOptions(); asks != strings.HasPrefix(text, use) || asks && o.ClientID != "salt" {
			t.Errorf("%s: %v %+v", text, asks, o)
		}
	}
}
