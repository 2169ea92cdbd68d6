package diff

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/test/check"
)

// shortSecret is one that is hidden as a whole value only.
const shortSecret = "Zq7!"

// TestNoSecretIsShown plants forty marked secrets on both sides and looks for them in all forms of the
// report, and in what is left on the disk.
func TestNoSecretIsShown(t *testing.T) {
	t.Parallel()
	python(t)
	count := 0
	secret := func() string { count++; return fmt.Sprintf("M4RK-%02d-zqx", count) }
	tree := func() map[string]string {
		cipher := "-----BEGIN PGP MESSAGE-----\n\n" + base64.StdEncoding.EncodeToString([]byte(secret())) + "\n-----END PGP MESSAGE-----"
		hidden := secret()
		return map[string]string{
			"top.sls": "base:\n  '*': [plain, jinja, gpg, texts, again, listed, vault, broken, broken2, macro, short]\n",
			"plain.sls": fmt.Sprintf("db: {password: %s, user: x}\nkey: %s\napi_token: [%s, {a: %s}]\nsecrets: {deep: {er: %s}}\n",
				secret(), secret(), secret(), secret(), secret()),
			"jinja.sls": fmt.Sprintf("{%% set x = '%s' %%}\nhost_passwd: {{ x }}-{{ grains.os }}\n", secret()),
			"gpg.sls":   "#!yaml|gpg\nsealed: |\n  " + strings.ReplaceAll(cipher, "\n", "\n  ") + "\nbeside: " + secret() + "\n",
			"texts.sls": fmt.Sprintf("url: https://admin:%s@example.org/x\nargs: --password=%s --port 1\nheader: 'Authorization: Bearer %s'\npem: |\n  -----BEGIN RSA PRIVATE KEY-----\n  %s\n  -----END RSA PRIVATE KEY-----\n",
				secret(), secret(), secret(), secret()),
			"again.sls":    fmt.Sprintf("my_password: %s\ncopied: x-%s-y\nencoded: {{ '%s' | base64_encode }}\n%s: name\n", hidden, hidden, hidden, hidden),
			"listed.sls":   fmt.Sprintf("users: [{name: a, password: %s}, {name: b, password: %s}]\n", secret(), secret()),
			"vault.sls":    fmt.Sprintf("# from vault\nordinary: %s\n", secret()),
			"macro.sls":    "{% from 'macros.jinja' import value %}\nordinary2: {{ value }}\n",
			"macros.jinja": fmt.Sprintf("{# from vault #}{%% set value = '%s' %%}\n", secret()),
			"short.sls":    fmt.Sprintf("pin_password: %[1]s\ncopied_pin: [%[1]s, ' %[1]s ', %[2]d]\n", shortSecret, count),
			"broken.sls":   fmt.Sprintf("{{ raise('%s') }}\n", secret()),
			"broken2.sls":  fmt.Sprintf("password: [%s\n", secret()),
		}
	}

	before, after := tree(), tree()
	if count < 40 {
		after["more.sls"] = ""
		for count < 40 {
			after["more.sls"] += fmt.Sprintf("more%d_secret: %s\n", count, secret())
		}
		after["top.sls"] += "  'os:Debian': [{match: grain}, more]\n"
	}

	for _, trusted := range []bool{false, true} {
		s, root := newService(t, before, manyMinions(3), func(c *Config) { c.Trusted = trusted })
		report := compareFolder(t, s, root, after)
		junit, err := report.JUnit()
		check.Must(t, err)
		all := report.Text(false) + report.Text(true) + junit + fmt.Sprint(report.Data())
		if at := strings.Index(all, "M4RK"); at >= 0 {
			t.Errorf("trusted %v: a secret is shown: %q", trusted, all[max(0, at-200):at+20])
		}
		if strings.Contains(all, shortSecret) {
			t.Errorf("trusted %v: a short secret is shown:\n%s", trusted, all)
		}
		encoded := base64.StdEncoding.EncodeToString([]byte("M4RK-"))[:5]
		if strings.Contains(all, encoded) {
			t.Errorf("trusted %v: a secret is shown in base64", trusted)
		}
		for _, want := range []string{"ordinary2", "copied_pin", "db:password", "sealed", "copied", "host_passwd"} {
			if !strings.Contains(all, want) {
				t.Errorf("trusted %v: the report lacks %s: %s", trusted, want, report.Text(false))
			}
		}

		check.Must(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			planted := strings.HasPrefix(path, root+"/served") || strings.HasPrefix(path, root+"/other")
			if err != nil || d.IsDir() || planted {
				return err
			}
			if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), "M4RK") {
				t.Errorf("%s has a secret", path)
			}
			return nil
		}))
	}
}

// TestReasonsOfRefusalsShowNoSecrets: a template may compute the name of what it calls.
func TestReasonsOfRefusalsShowNoSecrets(t *testing.T) {
	t.Parallel()
	python(t)
	s, root := newService(t, with(served, "common.sls", "db_password: M4RK-1-zqx\n"), manyMinions(1), nil)
	report := compareFolder(t, s, root, with(served,
		"top.sls", "base:\n  '*': [common, called, asked]\n",
		"common.sls", "db_password: M4RK-2-zqx\n",
		"called.sls", "called: {{ salt['M4RK-1-zqx.' ~ 'x']() }}\n",
		"asked.sls", "asked: {{ salt['pillar.get']('9M4RK-2-zqx') }}\n"))
	junit, err := report.JUnit()
	check.Must(t, err)
	all := report.Text(false) + junit + fmt.Sprint(report.Data())
	if strings.Contains(all, "M4RK") || !strings.Contains(all, "called calls what the template computes") || !strings.Contains(all, "asked asks for a key that") {
		t.Error(all)
	}
}

// TestTemplatesOfARefSeeNoSecrets: what a template may read it can show under another name, in
// whatever form.
func TestTemplatesOfARefSeeNoSecrets(t *testing.T) {
	t.Parallel()
	python(t)
	s, root := newService(t, with(served, "secrets.yaml", "password: M4RK-file\n"), manyMinions(1), func(c *Config) {
		elsewhere := write(t, t.TempDir(), map[string]string{"other/secrets.yaml": "password: M4RK-file\n"})
		c.Pillar.Roots["base"] = append(c.Pillar.Roots["base"], elsewhere)
	})
	report := compareFolder(t, s, root, with(served,
		"common.sls", "{% import_yaml 'secrets.yaml' as s %}\nshown: {{ s.password | reverse }}\n",
		"deb.sls", "{% import_yaml '../../served/secrets.yaml' as s %}\nshown2: {{ s.password | reverse }}\n"))
	if text := report.Text(false); strings.Contains(text, "elif-") {
		t.Errorf("a template shows a file that is not its own:\n%s", text)
	}
}

// TestErrorsShowNoSecrets: an error may quote a secret of an SLS that nobody knows, because the SLS fails.
func TestErrorsShowNoSecrets(t *testing.T) {
	t.Parallel()
	python(t)
	const begin = "{% set password = 'M4RK-zqx' %}\npassword: {{ password }}\n"
	s, root := newService(t, served, manyMinions(1), nil)
	report := compareFolder(t, s, root, with(served,
		"common.sls", begin+"a: {{ {}[password] }}\n",
		"deb.sls", begin+"a: {{ salt[password]() }}\n"))
	junit, err := report.JUnit()
	check.Must(t, err)
	all := report.Text(false) + junit + fmt.Sprint(report.Data())
	if strings.Contains(all, "M4RK") || !strings.Contains(all, "has no attribute (hidden)") || !strings.Contains(all, "deb calls what the template computes") {
		t.Error(all)
	}
}

// TestSecretsOfOverriddenValues: a secret that another SLS overrides is hidden where the first one has copied it.
func TestSecretsOfOverriddenValues(t *testing.T) {
	t.Parallel()
	s, root := newService(t, served, manyMinions(2), nil)
	report := compareFolder(t, s, root, with(served,
		"common.sls", "db_password: M4RK-zqx\nurl: ldap://x?M4RK-zqx\n",
		"deb.sls", "db_password: other\n"))
	if text := report.Text(false); strings.Contains(text, "M4RK") || !strings.Contains(text, "url") {
		t.Error(text)
	}
}

// TestSecretsByTheirForm: what nobody has named a secret is hidden where its form or what is beside it says so,
// and wherever else it occurs.
func TestSecretsByTheirForm(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	secret := func() string { return fmt.Sprintf("M4RK%08x", random.Uint32()) }
	forms := []string{
		"[{name: DB_PASSWORD, value: %s}]", "{name: password, value: %s}", "[{key: api_token, content: {deep: [%s]}}]",
		"{secret: {Name: x, Value: y}, pairs: [{Key: ACCESS_KEY, Value: %s}]}", "{snmp: {community: %s}}", "{communities: [public, %s]}",
		"{smtp: {host: x, auth: 'user:%s'}}", "{smtp: {auth: [user, %s]}}", "[tool, --password, %s, -v]", "[tool, -token, %s]",
		"mysql -uroot -p%s db", "curl -u me:%s https://host/", "eyJhbGciOiJIUzI1NiJ9.%s.c2lnbmF0dXJl", "$6$rounds=5000$salt$%s",
		"$2b$12$%s", "$1$salt$%s", "$5$salt$%s", "$y$j9T$salt$%s", "$argon2id$v=19$m=65536,t=3,p=4$c2FsdA$%s", "[PASSWORD=%s, X=1]",
	}
	tree := func() map[string]string {
		text := "auth: {method: ldap}\n"
		for i, form := range forms {
			text += fmt.Sprintf("open%d: "+form+"\n", i, secret())
		}
		return map[string]string{"top.sls": "base: {'*': [a]}\n", "a.sls": text}
	}

	s, root := newService(t, tree(), manyMinions(1), nil)
	report := compareFolder(t, s, root, tree())
	added := compareFolder(t, s, root, with(tree(), "a.sls", strings.ReplaceAll(tree()["a.sls"], "open", "other")))
	text := report.Text(false) + added.Text(false) + fmt.Sprint(added.Data())
	if at := strings.Index(text, "M4RK"); at >= 0 {
		t.Errorf("a secret is shown: %q", text[max(0, at-200):at+20])
	}
	for i := range forms {
		if !strings.Contains(text, fmt.Sprintf("~ open%d", i)) {
			t.Errorf("the change of %s is not shown", forms[i])
		}
	}
}
