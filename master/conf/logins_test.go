package conf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Load refuses sections of external_auth with which no user could log in by file or rest, unless
// the administrator has a module of that name.
func TestLoginSections(t *testing.T) {
	dir := t.TempDir()
	own := filepath.Join(dir, "auth")
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"file.py", "rest.py"} {
		if err := os.WriteFile(filepath.Join(own, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	for text, want := range map[string]string{
		"external_auth: {file: {ann: [.*]}}\n":                                     "^filename",
		"external_auth: {file: {^filename: /x, ^hashtype: sha1}}\n":                "^hashtype",
		"external_auth: {file: {^filename: /x, ^username_field: 2, ann: [.*]}}\n":  "",
		"external_auth: {rest: {ann: [.*]}}\n":                                     "^url",
		"external_auth: {rest: {^url: 'https://login.example.com/salt'}}\n":        "",
		"external_auth: {rest: {ann: [.*]}, file: {}}\nauth_dirs: [" + own + "]\n": "",
		"keep_acl_in_token: True\neauth_acl_module: mine\n":                        "",
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

		_, file := m.UserFile()
		_, rest := m.LoginURL()
		if plain := !strings.Contains(text, "auth_dirs"); file != (plain &&
			strings.Contains(text, "file:")) || rest != (plain && strings.Contains(text, "rest:")) {
			t.Errorf("%s: file %v, rest %v", text, file, rest)
		}

		if m.KeepACLInToken != (strings.HasPrefix(text, "keep") || strings.Contains(text, "rest:")) ||
			(m.EauthACLModule == "mine") != strings.HasPrefix(text, "keep") {
			t.Errorf("%s: %v %q", text, m.KeepACLInToken, m.EauthACLModule)
		}
	}
}
