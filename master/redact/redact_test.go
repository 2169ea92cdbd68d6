package redact

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/master/conf"
	"saltern/master/value"
)

const mark = "hunter2Xyz"

// TestSecretArguments: a secret is hidden at every place in the arguments where a name marks it as
// secret, and the arguments themselves do not change.
func TestSecretArguments(t *testing.T) {
	m, l := value.NewMap, func(v ...any) []any { return v }
	for name, c := range map[string]struct {
		fun   string
		args  []any
		named *value.Map
	}{
		"named":       {"x.y", nil, m("password", mark)},
		"capitals":    {"x.y", nil, m("DB_Password", mark)},
		"camels":      {"x.y", nil, m("apiKey", mark, "authToken", mark)},
		"key":         {"x.y", nil, m("key", mark)},
		"ends in key": {"x.y", nil, m("signing-key", mark, "hmac_key", mark)},
		"code":        {"x.y", nil, m("otp", mark, "passcode", mark)},
		"option of the master": {"x.y", nil,
			m("conf", m("auth.ldap.bindpw", mark, "key_pass", mark, "sharedsecret", mark))},
		"below a secret's name": {"x.y", nil, m("credentials", m("a", l(m("b", mark))))},
		"nested": {"state.orchestrate", l("mods"),
			m("pillar", m("db", l(m("user", "x", "password", mark))))},
		"positional map":         {"x.y", l(m("token", mark)), nil},
		"positional assignment":  {"x.y", l("password=" + mark + " with blanks"), nil},
		"assignment in a text":   {"x.y", l("mysql --password=" + mark + " -e x"), nil},
		"option in a text":       {"salt.cmd", l("test.arg", "tool --api-token "+mark+" run"), nil},
		"short option in a text": {"x.y", l("tool -password '" + mark + " y'"), nil},
		"option in a list":       {"salt.cmd", l("cmd.run", l("mysql", "--password", mark, "-e", "x")), nil},
		"option as an argument":  {"x.y", l("-token", mark), nil},
		"JSON in a text":         {"x.y", l(`{"a": {"password": "` + mark + ` \" z"}}`), nil},
		"JSON in JSON":           {"x.y", l(`{"x": "{\"password\": \"` + mark + ` y\"}"}`), nil},
		"YAML in a text":         {"x.y", l("a: 1\npassword: " + mark + "\nb: 2\n"), nil},
		"Python in a text":       {"x.y", l("{'password': '" + mark + "', 'x': 1}"), nil},
		"an open quote":          {"x.y", l(`password="` + mark + ` and more`), nil},
		"URL":                    {"x.y", l("https://git:" + mark + "@host/x"), nil},
		"URL with a token":       {"x.y", l("https://" + mark + "@host/x"), nil},
		"query of a URL":         {"x.y", l("url=https://host/x?a=b&token=" + mark), nil},
		"header":                 {"x.y", l("curl -H 'Authorization: Bearer " + mark + "'"), nil},
		"cookie":                 {"x.y", l("Cookie: a=b; c=" + mark), nil},
		"token of JSON":          {"x.y", l("X-Auth eyJhbGciOiJIUzI1NiJ9." + mark + ".c2lnbmF0dXJl"), nil},
		"MySQL":                  {"x.y", l("mysqldump -u root -p" + mark + " db"), nil},
		"MySQL, quoted":          {"x.y", l("cd /; mariadb --host x -p'" + mark + " y' db"), nil},
		"sshpass":                {"x.y", l("sshpass -p " + mark + " ssh host"), nil},
		"Redis":                  {"x.y", l("redis-cli -h x -a " + mark + " ping"), nil},
		"LDAP":                   {"x.y", l("ldapsearch -x -D cn=a -w " + mark), nil},
		"curl":                   {"x.y", l("curl -s -u me:" + mark + " https://host/"), nil},
		"curl, joined":           {"x.y", l("curl -ume:" + mark + " https://host/"), nil},
		"curl, long":             {"x.y", l("curl --user 'me:" + mark + "' https://host/"), nil},
		"hash of crypt":          {"x.y", l("root:$6$rounds=5000$salt$" + mark + ":19000:0"), nil},
		"hash of yescrypt":       {"x.y", l("$y$j9T$" + mark), nil},
		"hash of bcrypt":         {"x.y", l("user:$2b$12$" + mark), nil},
		"hash of Argon2":         {"x.y", l("$argon2id$v=19$m=65536,t=3,p=4$c2FsdA$" + mark), nil},
		"PEM": {"x.y",
			l("-----BEGIN RSA PRIVATE KEY-----\n" + mark + "\n-----END RSA PRIVATE KEY-----"), nil},
		"bytes": {"x.y", l([]byte("token: " + mark)), m("secret", []byte(mark))},
		"log-in": {"auth.mk_token", nil,
			m("username", "ann", "eauth", "pam", "password", mark, "what", mark)},
		"token by its place": {"auth.del_token", l(mark), nil},
		"deep":               {"x.y", l(nest(mark, 200)), nil},
	} {
		t.Run(name, func(t *testing.T) {
			before := value.Repr(c.args) + value.Repr(c.named)
			got := Of(c.fun, c.args, c.named)
			if shown := value.Repr(got.FunArgs()); strings.Contains(shown, mark) || !got.Found() {
				t.Errorf("shown: %.300s", shown)
			}

			if value.Repr(c.args)+value.Repr(c.named) != before {
				t.Error("the arguments were changed")
			}

			again := Of(c.fun, got.Args, got.Named)
			if value.Repr(again.FunArgs()) != value.Repr(got.FunArgs()) {
				t.Errorf("hidden twice it is another thing: %.300s", value.Repr(again.FunArgs()))
			}

			if text := value.Repr(got.Result(m("args", c.args, "kwargs", c.named))); strings.Contains(text, mark) {
				t.Errorf("in the result: %.300s", text)
			}

			if text := got.Text("cannot use " + value.Repr(c.args) +
				value.Repr(c.named)); strings.Contains(text, mark) {
				t.Errorf("in the error: %s", text)
			}
		})
	}
}

func nest(v any, depth int) any {
	for range depth {
		v = []any{v}
	}
	return v
}

// TestHarmlessArguments: arguments that are not secret are shown, and a result does not change.
func TestHarmlessArguments(t *testing.T) {
	m, l := value.NewMap, func(v ...any) []any { return v }
	for _, c := range []struct {
		fun   string
		args  []any
		named *value.Map
	}{
		{"test.arg", l("a", int64(1), nil, true, 1.5, "x=y", "key value", "the token expires"), m("b", l(m("c", "d")))},
		{"x.y", l(l("tool", "--no-password", "--verbose", "-x", "y"), "--tokens", "--", "password", "z"), nil},
		{"jobs.list_jobs", nil, m("search_function", "test.*", "token_expire", int64(5))},
		{"config.get", l("file_roots"), m("key", "file_roots")},
		{"cache.fetch", l("grains"), m("bank", "x", "key", "y")},
		{"x.y", l("password: true", "http://host:80/x", "git@host:x.git", "awk '{print $1$2}'", "mysql -p db", "mysql --port 1 -P 2", "curl -u me https://host:1/", "a:b", "pass it on"),
			m("password", "", "token", nil, "secret", m(), "key_cache", "sched")},
		{"auth.mk_token", nil, m("username", "ann", "eauth", "pam")},
	} {
		got := Of(c.fun, c.args, c.named)
		want := append([]any{}, c.args...)
		if c.named.Len() > 0 {
			want = append(want, c.named)
		}

		if value.Repr(got.FunArgs()) != value.Repr(want) || got.Found() {
			t.Errorf("%s: %s, want %s", c.fun, value.Repr(got.FunArgs()), value.Repr(want))
		}
	}

	// A short secret takes no letters out of a result, and none its numbers.
	got := Of("x.y", nil, m("password", "a", "otp", int64(0)))
	ret := m("data", "a banana", "retcode", int64(0), "same", "a")
	if text := value.Repr(got.Result(ret)); text != value.Repr(m("data", "a banana", "retcode", int64(0),
		"same", conf.Hidden)) {
		t.Errorf("a result with short secrets: %s", text)
	}
}

// TestManySecrets: if a call has too many secrets, its whole result is hidden.
func TestManySecrets(t *testing.T) {
	var all []any
	for i := range 2 * maxSecrets {
		all = append(all, fmt.Sprint("secret", i))
	}
	got := Of("x.y", nil, value.NewMap("tokens", all))
	if got.Result("secret1999") != conf.Hidden || strings.Contains(got.Text("x secret1999"), "secret1999") {
		t.Error("the last secret is shown")
	}
}

// TestEventsOfOthers: the secrets are removed from an event about a run that Salt's own tools have
// fired, and from its result. No other event is changed.
func TestEventsOfOthers(t *testing.T) {
	data := value.NewMap("fun", "runner.auth.mk_token", "fun_args",
		[]any{value.NewMap("username", "ann", "password", mark)}, "return", "made by "+mark)
	got := Of("x.y", nil, value.NewMap("password", mark))
	if text := got.Text("cannot log in with " + mark); strings.Contains(text, mark) {
		t.Error(text)
	}

	for _, tag := range []string{"salt/run/20260101000000000000/new", "salt/run/20260101000000000000/ret",
		"salt/wheel/20260101000000000000/new"} {
		if text := value.Repr(Event(tag, data)); strings.Contains(text, mark) || !strings.Contains(text, "ann") {
			t.Errorf("%s: %s", tag, text)
		}
	}

	for _, tag := range []string{"salt/job/20260101000000000000/new", "my/tag", "salt/runner", ""} {
		if Event(tag, data) != data {
			t.Errorf("%s was changed", tag)
		}
	}

	for _, d := range []*value.Map{nil, value.NewMap(), value.NewMap("fun_args", "x"),
		value.NewMap("fun", int64(1), "fun_args", []any{"a"})} {
		if Event("salt/run/x/new", d) != d {
			t.Errorf("%v was changed", d)
		}
	}
}

// TestTimeOfTexts: the processor time for a hostile text grows only in proportion to its length.
func TestTimeOfTexts(t *testing.T) {
	spent := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}

	for _, piece := range []string{"token_dir=", "password=", `password="`, "--token ", "secret", `\"`, "a:",
		"https://", "-----BEGIN PRIVATE KEY-----", "x='", "mysql ", "mysql -p", "curl -u ", "eyJaaaaa.", "$1$", "ldapx -w "} {
		text := strings.Repeat(piece, 64<<10/len(piece))
		before := spent()
		Of("x.y", []any{text}, nil)
		if took := spent() - before; took > 10*time.Second {
			t.Errorf("%q: %s", piece, took)
		}
	}
}

// FuzzCall puts a secret into random arguments in ways that people use, and looks for the secret in
// the public view.
func FuzzCall(f *testing.F) {
	f.Add(uint64(1), "db_password", "a b")
	f.Add(uint64(7), "token", `x"y'z\`)
	f.Add(uint64(11), "api_key", "ä=&;{}")
	f.Fuzz(func(t *testing.T, seed uint64, name, more string) {
		if !conf.IsSecret(name) || strings.ContainsFunc(name, func(r rune) bool {
			return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_", r)
		}) {
			t.Skip()
		}

		secret := mark + more
		js, err := json.Marshal(secret)
		if err != nil {
			t.Fatal(err)
		}

		r := rand.New(rand.NewPCG(seed, 1))
		var arg any
		switch r.IntN(6) {
		case 0:
			arg = value.NewMap(name, secret)
		case 1:
			arg = value.NewMap("x", []any{"y", value.NewMap(name, []any{secret})})
		case 2:
			arg = name + "=" + secret
		case 3:
			arg = fmt.Sprintf(`{"a": 1, %q: %s}`, name, js)
		case 4:
			arg = "run --" + name + " " + string(js) + " now"
		case 5:
			arg = "a: 1\n" + name + ": " + string(js) + "\nb: 2"
		}

		c := Of("x.y", []any{arg}, nil)
		if text := value.Repr(c.FunArgs()); strings.Contains(text, mark) {
			t.Errorf("%v is shown as %s", arg, text)
		}

		Event("salt/run/x/ret", value.NewMap("fun", "runner.x.y", "fun_args", []any{arg}, "return", arg))
	})
}
