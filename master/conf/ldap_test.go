package conf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// If ldap is in use, Load refuses options with which no user could log in by ldap. The values of
// valid options reach LDAPOptions.
func TestLDAPOptions(t *testing.T) {
	dir := t.TempDir()
	load := func(text string) (*Master, error) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "master"), []byte("id: m\nroot_dir: "+dir+"\n"+text),
			0o600); err != nil {
			t.Fatal(err)
		}
		return Load(filepath.Join(dir, "master"))
	}

	const use = "external_auth: {ldap: {ann: [{'ldap(ou=x,dc=y)': [test.ping]}]}}\n"
	for text, want := range map[string]string{
		use: "auth.ldap.binddn is not set",
		use + "auth.ldap.binddn: uid={{ username }}\nauth.ldap.tls: true\nauth.ldap.starttls: true\n": "choose one",
		use + "auth.ldap.binddn: uid={{ username }}\nauth.ldap.uri: ldap.example.com\n":               "not of the form",
		use + "auth.ldap.binddn: uid={{ username }}\nauth.ldap.scope: 7\n":                            "use 0, 1 or 2",
		use + "auth.ldap.binddn: uid={{ username }}\n":                                                "",
		"auth.ldap.binddn: cn=x\n": "",
	} {
		_, err := load(text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}

	m, err := load(use + "auth.ldap.binddn: uid={{ username }}\nauth.ldap.port: 1389\nauth.ldap.groupou: ''\nauth.ldap.scope: '1'\nauth.ldap.minion_stripdomains: [.x]\n")
	if err != nil {
		t.Fatal(err)
	}

	o, asks := m.LDAPOptions()
	if !asks || o.Port != "1389" || o.GroupOU == nil || *o.GroupOU != "" || o.Scope == nil || *o.Scope != 1 ||
		len(o.StripDomains) != 1 {
		t.Errorf("%v, %+v", asks, o)
	}

	own := filepath.Join(m.ExtensionModules, "auth")
	if err := os.MkdirAll(own, 0o755); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(filepath.Join(own, "ldap.py"), nil, 0o644); err != nil {
		t.Fatal(err)
	}

	if m, err = load(use); err != nil {
		t.Errorf("a module of the administrator: %v", err)
	} else if _, asks := m.LDAPOptions(); asks {
		t.Error("a module of the administrator is not asked")
	}
}
