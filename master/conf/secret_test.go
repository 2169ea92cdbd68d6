package conf

import (
	"regexp"
	"strings"
	"testing"

	"saltern/master/msgpack"
	"saltern/master/value"
)

func plain(t *testing.T, v any) string {
	t.Helper()
	b, err := msgpack.Marshal(v, msgpack.Raw)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// secretOptions are those that the table says to be secrets.
func secretOptions() []string {
	var names []string
	for name, o := range builtin().options {
		if o.secrecy == "private" || o.secrecy == "secret" {
			names = append(names, name)
		}
	}
	return names
}

// Secrets of all forms, at any depth, and what looks like one and is none.
func TestFinding11HiddenOptions(t *testing.T) {
	const s = "TOPSECRET"
	m, l := value.NewMap, func(v ...any) []any { return v }
	for _, k := range append(secretOptions(),
		[]string{"gitfs_password", "git_pillar_passphrase", "ssh_passwd", "ssh_priv_passwd", "smtp.password",
			"mysql.pass", "redis.password", "vault_token", "slack.api_key", "apikey", "API-KEY", "private_key", "aws_secret_access_key", "returner.pw",
			"consul_token", "client_secret", "Authorization", "couchbase_credentials", "psk", "proxy_password", "my_pwd", "encryption_key"}...) {
		for _, v := range []any{s, l(s), m("x", s), int64(12345)} {
			for depth, opts := range []*value.Map{m(k, v), m("a", m("b", l(l(m(k, v)))))} {
				if depth > 0 && !secretName.MatchString(k) {
					continue // a name of the table
				}
				if text := plain(t, WithoutSecrets(opts)); strings.Contains(text, s) ||
					!strings.Contains(text, Hidden) {
					t.Errorf("%s: %v, depth %d: %q", k, v, depth, text)
				}
			}
		}
	}

	for name, opts := range map[string]*value.Map{
		"a URL": m("gitfs_remotes", l("https://git:TOPSECRET@host/x", "ssh://git@host/y")), "a URL as a key's value": m("x", m("url", "redis://:TOPSECRET@h/0")),
		"a token as user": m("x", "https://TOPSECRET@host/"), "a password with an @": m("x",
			"https://u:TOP@TOPSECRET@host/"),
		"ext_pillar": m("ext_pillar",
			l(m("cmd_yaml", "x -p TOPSECRET"), m("git", l("a", m("password", s))), "TOPSECRET")),
		"in a text": m("engine", "user=x password=TOPSECRET; z"), "a key": m("x",
			"-----BEGIN RSA PRIVATE KEY-----\nTOPSECRET\n-----END RSA PRIVATE KEY-----\n"),
		"remote with options": m("git_pillar", l(m("master https://h/x", l(m("user", "u"), m("password", s))))),
		"bytes":               m("x", []byte("token: TOPSECRET")),
	} {
		if text := plain(t, WithoutSecrets(opts)); strings.Contains(text, s) || !strings.Contains(text, Hidden) {
			t.Errorf("%s: %q", name, text)
		}
	}

	harmless := m("token_dir", "/x", "token_expire", int64(1), "token_file", "/y", "eauth_tokens", "localfs", "keep_acl_in_token", true, "cluster_secret", nil,
		"key_pass", "", "rotate_aes_key", true, "ssh_use_home_key", true, "pass_dir", "/p", "keysize", int64(4096), "publisher_acl", m("bob", l("test.ping")),
		"file_roots", m("base", l("/srv/salt")), "gitfs_remotes", l("git@host:x.git", "ssh://git@host/y"), "log_fmt_console", "%(asctime)s %(levelname)s: x",
		"saltern_cluster_empty_secret", false, "external_auth", m("pam", m("ann", l(m("web*", l("test.*"))))))
	if got := plain(t, WithoutSecrets(harmless)); got != plain(t, harmless) {
		t.Errorf("changed: %q", got)
	}

	if plain(t, m("a", m("password", s))) != plain(t,
		func() any { v := m("a", m("password", s)); WithoutSecrets(v); return v }()) {
		t.Error("the options themselves were changed")
	}

	deep := any(s)
	for range 200 {
		deep = l(deep)
	}

	if text := plain(t, WithoutSecrets(m("x", deep))); strings.Contains(text, s) {
		t.Error("what lies very deep is shown")
	}
}

// Every option of the table whose name looks like that of a secret is hidden, or known not to be
// secret.
func TestFinding11SaltsOptions(t *testing.T) {
	smells := regexp.MustCompile(`(?i)pass|secret|token|cred|pw|priv|bind|_key$|key_|\bkey`)
	none := strings.Fields(`allow_minion_key_revoke auth.ldap.binddn auth.oidc.client_secret_file eauth_tokens eauth_tokens.cache_driver eauth_tokens.cluster_id keep_acl_in_token key_cache key_logfile
		keys.cache_driver keysize master_pubkey_signature master_sign_key_name master_use_pubkey_signature pass_dir pass_gnupghome pass_strict_fetch pass_to_ext_pillars pass_variable_prefix resource_pillar_key
		rotate_aes_key saltern_cluster_empty_secret ssh_use_home_key token_dir token_expire token_expire_user_override token_file verify_master_pubkey_sign`)
	found := 0
	for n := range builtin().options {
		shown := strings.Contains(plain(t, WithoutSecrets(value.NewMap(n, "TOPSECRET"))), "TOPSECRET")
		known := strings.Contains(" "+strings.Join(none, " ")+" ", " "+n+" ")
		switch {
		case smells.MatchString(n) && shown && !known:
			t.Errorf("%s is shown", n)
		case known && !shown:
			t.Errorf("%s is hidden and no secret", n)
		case !shown:
			found++
		}

		if o := builtin().options[n]; o.secrecy != "arguments" && shown != (o.secrecy == "") {
			t.Errorf("%s is shown: %v, the table says %q", n, shown, o.secrecy)
		}
	}

	if found < 15 {
		t.Errorf("only %d options are hidden", found)
	}
}
