package ldap

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/test/authority"
	"saltern/test/slapd"
)

// Ways to log in to the directory of the tests.
func template1(s *slapd.Server) Options {
	return Options{URI: s.URI, BaseDN: slapd.Suffix, BindDN: "uid={{ username }},ou=People," + slapd.Suffix}
}

func service(s *slapd.Server) Options {
	return Options{
		URI:          s.URI,
		BaseDN:       slapd.Suffix,
		BindDN:       "cn=reader," + slapd.Suffix,
		BindPassword: "reader secret",
		Filter:       "uid={{ username }}",
	}
}

func activeDirectory(o Options) Options {
	o.ActiveDirectory = true
	o.AccountAttribute = "uid"
	o.GroupClass = "groupOfNames"
	return o
}

func freeIPA(o Options) Options {
	o.FreeIPA = true
	o.GroupBaseDN = "ou=Teams," + slapd.Suffix
	o.GroupFilter = "(member=uid={{ username }},ou=People," + slapd.Suffix + ")"
	o.AccountAttribute = "member"
	return o
}

func listsOfUsers(o Options) Options {
	ou := "People"
	o.GroupOU = &ou
	o.AccountAttribute = "uid"
	o.GroupClass = "inetOrgPerson"
	return o
}

func anonymous(o Options) Options {
	o.Anonymous = true
	o.BindDN = ""
	o.BindPassword = ""
	return o
}

func open(t testing.TB, o Options) *Directory {
	t.Helper()
	d, err := New(o, slog.New(slog.DiscardHandler), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestLogin(t *testing.T) {
	s := slapd.Start(t, slapd.People())
	for name, c := range map[string]struct {
		o      Options
		groups map[string]string // of those who are in some
	}{
		"by template": {template1(s),
			map[string]string{"ann": "all hands,ops", "bob": "all hands,devs,ops", "a*": "all hands,ops"}},
		"by search": {service(s),
			map[string]string{"ann": "all hands,ops", "bob": "all hands,devs,ops", "a*": "all hands,ops"}},
		"by search of nobody": {anonymous(service(s)),
			map[string]string{"ann": "all hands,ops", "bob": "all hands,devs,ops", "a*": "all hands,ops"}},
		"by template, Active Directory": {activeDirectory(template1(s)),
			map[string]string{"ann": "admins,web", "bob": "db,web", "x, y": "web", "Ünï ö": "db", "a(b": "db"}},
		"by search, Active Directory": {activeDirectory(service(s)),
			map[string]string{"ann": "admins,web", "bob": "db,web", "x, y": "web", "Ünï ö": "db", "a(b": "db"}},
		"by search, FreeIPA": {freeIPA(service(s)),
			map[string]string{"ann": "admins,web", "bob": "db,web", "Ünï ö": "db", "a(b": "db"}},
		"by template, groups of entries": {listsOfUsers(template1(s)),
			map[string]string{"ann": "admins,web", "bob": "db,web", "x, y": "web", "Ünï ö": "db", "a(b": "db"}},
		"by search, groups of entries": {listsOfUsers(service(s)),
			map[string]string{"ann": "admins,web", "bob": "db,web", "x, y": "web", "Ünï ö": "db", "a(b": "db"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, c.o)
			for _, u := range slapd.Users() {
				name, groups, err := d.Login(t.Context(), u, "secret of "+u)
				ok := name != ""
				if u == "twice" && d.plan.way == bySearch {
					if ok || err == nil || !strings.Contains(err.Error(), "auth.ldap.filter narrower") {
						t.Errorf("a user who is two entries: %v, %v", ok, err)
					}
					continue
				}

				want, listed := c.groups[u]
				if !listed && strings.Contains(c.groups["ann"], "all hands") && u != "Ünï ö" {
					want = "all hands"
				}

				if got := strings.Join(groups, ","); !ok || err != nil || got != want {
					t.Errorf("%s: %v, %q, %v; want groups %q", u, ok, got, err, want)
				}

				for _, wrong := range []string{"wrong", "secret of nobody", "secret of " + u + " ",
					strings.Repeat("x", maxPassword+1)} {
					if name, groups, err := d.Login(t.Context(), u, wrong); name != "" || groups != nil || err != nil {
						t.Errorf("%s with %.30q: %v, %v, %v", u, wrong, ok, groups, err)
					}
				}
			}

			for _, u := range []string{"nobody", "", "\x00", "ann\n", strings.Repeat("a", maxName+1), "\xff"} {
				if name, _, err := d.Login(t.Context(), u, "secret of "+u); name != "" || err != nil {
					t.Errorf("%.20q: %v, %v", u, name, err)
				}
			}
		})
	}
}

// TestAttack38EmptyPassword: to a name without a password the server of the test
// answers with success, as many do; it is no log-in.
func TestAttack38EmptyPassword(t *testing.T) {
	s := slapd.Start(t, slapd.People())
	for name, o := range map[string]Options{
		"template": template1(s),
		"search":   service(s),
		"nobody":   anonymous(service(s)),
	} {
		d := open(t, o)
		if user, groups, err := d.Login(t.Context(), "ann", ""); user != "" || groups != nil || err != nil {
			t.Errorf("%s: %v, %v, %v", name, user, groups, err)
		}

		session, err := d.dialAny(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer session.sayGoodbye()

		if err := session.bindAs("uid=ann,ou=People,"+slapd.Suffix, ""); err == nil {
			t.Error("a session sends an empty password")
		}

		if err := session.sendBind("uid=ann,ou=People,"+slapd.Suffix, ""); err != nil {
			t.Fatal(err)
		}

		if err := session.awaitBound(); err != nil {
			t.Errorf("the server refuses what the test is about: %v", err)
		}
	}
}

// TestAttack38Injection: a name is a value, whatever it holds, in filters and in
// distinguished names. mallory knows her own password only.
func TestAttack38Injection(t *testing.T) {
	s := slapd.Start(t, slapd.People())
	const password = "secret of mallory"
	names := []string{"*", "mall*", "*mallory", "mallory)(uid=*", "*)(uid=mallory", "mallory)(|(uid=*",
		"x)(|(uid=mallory)", `mallory\`, `mallor\79`, "mallory\x00", "mallory))(&(uid=ann",
		"(uid=mallory)", "mallory,ou=People", "ann,uid=mallory", "mallory+uid=ann", "ann+cn=admins", "#6d616c6c6f7279", `"mallory"`, "mallory,ou=People," + slapd.Suffix,
		"uid=mallory", "mallory;x", "<mallory>", " mallory,ou=x"}

	for kind, o := range map[string]Options{
		"template":                template1(s),
		"search":                  service(s),
		"nobody":                  anonymous(service(s)),
		"search with parentheses": func() Options { o := service(s); o.Filter = "(&(uid={{ username }})(objectClass=person))"; return o }(),
	} {
		for _, groups := range []func(Options) Options{func(o Options) Options { return o }, activeDirectory,
			freeIPA, listsOfUsers} {
			d := open(t, groups(o))
			for _, n := range names {
				if name, groups, err := d.Login(t.Context(), n, password); name != "" || groups != nil || err != nil {
					t.Errorf("%s: %q: %v, %v, %v", kind, n, name, groups, err)
				}
			}

			if name, groups, err := d.Login(t.Context(), "mallory", password); name == "" || err != nil ||
				slices.Contains(groups, "admins") {
				t.Errorf("%s: mallory herself: %v, %v, %v", kind, name, groups, err)
			}
		}
	}
}

// TestAttack38TLS: a server proves by its certificate who it is before anything is said.
func TestAttack38TLS(t *testing.T) {
	s := slapd.Start(t, slapd.People())
	with := func(change func(o *Options)) Options {
		o := service(s)
		o.CA = s.CA
		change(&o)
		return o
	}

	for name, c := range map[string]struct {
		o     Options
		fault string
	}{
		"ldaps":    {with(func(o *Options) { o.URI = s.SecureURI }), ""},
		"starttls": {with(func(o *Options) { o.StartTLS = true }), ""},
		"ldaps of another": {with(func(o *Options) { o.URI, o.CA = s.SecureURI, authority.New(t).File }),
			"unknown authority"},
		"starttls of another": {with(func(o *Options) { o.StartTLS, o.CA = true, authority.New(t).File }),
			"unknown authority"},
		"the system's authorities": {with(func(o *Options) { o.URI, o.CA = s.SecureURI, "" }), "unknown authority"},
		"another name": {with(func(o *Options) { o.URI = strings.Replace(s.SecureURI, "127.0.0.1", "localhost", 1) }),
			"match localhost"},
		"not verified": {with(func(o *Options) {
			o.URI = s.SecureURI
			o.CA = ""
			o.NoVerify = true
		}), ""},
		"no file of authorities": {with(func(o *Options) {
			o.URI = s.SecureURI
			o.CA = "/nowhere.pem"
		}), "read saltern_ldap_ca"},
		"TLS to a port without": {with(func(o *Options) { o.URI = strings.Replace(s.URI, "ldap:", "ldaps:", 1) }),
			"TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			name, _, err := open(t, c.o).Login(t.Context(), "ann", "secret of ann")
			ok := name != ""
			if c.fault == "" && (!ok || err != nil) ||
				c.fault != "" && (ok || err == nil || !strings.Contains(err.Error(), c.fault)) {
				t.Errorf("%v, %v; want %q", ok, err, c.fault)
			}
		})
	}
}

// TestServers: a server that is away or silent is passed over, and who answered last is
// asked first; when none answers, that is no wrong password.
func TestServers(t *testing.T) {
	s := slapd.Start(t, slapd.People())
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()

	o := service(s)
	o.URI = "ldap://127.0.0.1:1 " + o.URI + ",ldap://" + silent.Addr().String()
	d := open(t, o)
	if name, _, err := d.Login(t.Context(), "ann", "secret of ann"); name == "" || err != nil ||
		d.preferred.Load() != 1 {
		t.Errorf("the first is away: %v, %v, then %d first", name, err, d.preferred.Load())
	}

	s.Stop()
	d.loginTime = 300 * time.Millisecond
	name, _, err := d.Login(t.Context(), "ann", "secret of ann")
	ok := name != ""
	if ok || err == nil || !strings.Contains(err.Error(), "it does not answer in time") {
		t.Errorf("all are away or silent: %v, %v", ok, err)
	}

	s.Resume()
	d.preferred.Store(1)
	d.loginTime = loginTime
	if name, _, err := d.Login(t.Context(), "ann", "secret of ann"); name == "" || err != nil {
		t.Errorf("after the server is back: %v, %v", ok, err)
	}

	s.Freeze()
	d.loginTime = 300 * time.Millisecond
	began := time.Now()
	if name, _, err := d.Login(t.Context(), "ann", "secret of ann"); name != "" || err == nil {
		t.Errorf("it hangs: %v, %v", ok, err)
	}

	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("a server that hangs took %v", took)
	}

	s.Thaw()
	o.BindPassword = "wrong"
	o.URI = s.URI
	if name, _, err := open(t, o).Login(t.Context(), "ann", "secret of ann"); name != "" || err == nil ||
		!strings.Contains(err.Error(), "service account") {
		t.Errorf("the service account is refused: %v, %v", ok, err)
	}
}

// TestAttack38HostileServer: what a server announces and does not send costs nothing,
// and what it sends is bounded.
func TestAttack38HostileServer(t *testing.T) {
	for name, answer := range map[string][]byte{
		"2 GiB":                  {0x30, 0x84, 0x7f, 0xff, 0xff, 0xff},
		"endless length":         {0x30, 0x80, 0, 0},
		"no LDAP":                []byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"an answer to another":   {0x30, 0x0c, 0x02, 0x01, 0x09, 0x61, 0x07, 0x0a, 0x01, 0, 0x04, 0, 0x04, 0},
		"success of a search":    {0x30, 0x0c, 0x02, 0x01, 0x01, 0x65, 0x07, 0x0a, 0x01, 0, 0x04, 0, 0x04, 0},
		"part is longer":         {0x30, 0x0c, 0x02, 0x01, 0x01, 0x61, 0x7f, 0x0a, 0x01, 0, 0x04, 0, 0x04, 0},
		"nothing":                {},
		"notice of disconnect":   {0x30, 0x0c, 0x02, 0x01, 0x00, 0x78, 0x07, 0x0a, 0x01, 0x34, 0x04, 0, 0x04, 0},
		"a stream of references": []byte(strings.Repeat("\x30\x05\x02\x01\x00\x73\x00", 200_000)),
	} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}

			done := make(chan struct{})
			go func() {
				defer close(done)
				c, err := ln.Accept()
				if err != nil {
					return
				}

				_, _ = c.Read(make([]byte, 1024))
				for range 20 {
					if _, err := c.Write(answer); err != nil {
						break
					}
				}

				_ = c.Close()
			}()

			d := open(t, Options{URI: "ldap://" + ln.Addr().String(), BindDN: "uid={{ username }}"})
			d.loginTime = 5 * time.Second
			name, _, err := d.Login(t.Context(), "ann", "x")
			ok := name != ""
			if ok || err == nil || errors.Is(err, errMore) {
				t.Errorf("%v, %v", ok, err)
			}

			_ = ln.Close()
			<-done
		})
	}
}

// TestAttack38StartTLS: who takes TLS out of the way hears no password, neither the
// user's nor that of the service account.
func TestAttack38StartTLS(t *testing.T) {
	for name, answer := range map[string]string{
		"refused":        "\x30\x0c\x02\x01\x01\x78\x07\x0a\x01\x02\x04\x00\x04\x00",
		"another answer": "\x30\x0c\x02\x01\x01\x61\x07\x0a\x01\x00\x04\x00\x04\x00",
		"success without TLS": "\x30\x0c\x02\x01\x01\x78\x07\x0a\x01\x00\x04\x00\x04\x00" +
			"\x30\x0c\x02\x01\x02\x61\x07\x0a\x01\x00\x04\x00\x04\x00",
		"success to a bind":     "\x30\x0c\x02\x01\x01\x78\x07\x0a\x01\x00\x04\x00\x04\x00\x15\x03\x03\x00\x02\x02\x28",
		"an end of connections": "",
	} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}

			heard := make(chan []byte, 1)
			go func() {
				defer close(heard)
				c, err := ln.Accept()
				if err != nil {
					return
				}
				defer c.Close()

				b := make([]byte, 1024)
				n, _ := c.Read(b)
				_, _ = c.Write([]byte(answer))
				if answer != "" {
					_ = c.SetReadDeadline(time.Now().Add(time.Second))
					rest, _ := io.ReadAll(c)
					heard <- append(b[:n], rest...)
				}
			}()

			d := open(t,
				Options{
					URI:          "ldap://" + ln.Addr().String(),
					StartTLS:     true,
					BindDN:       "cn=reader",
					BindPassword: "reader secret",
					Filter:       "uid={{ username }}",
				})

			d.connectTime = 300 * time.Millisecond
			if name, _, err := d.Login(t.Context(), "ann", "ann secret"); name != "" || err == nil {
				t.Errorf("%v, %v", name, err)
			}

			_ = ln.Close()
			if b := <-heard; strings.Contains(string(b), "secret") || strings.Contains(string(b), "reader") {
				t.Errorf("heard %q", b)
			}
		})
	}
}

// BenchmarkLogin is a log-in with service account, search, bind and groups; the
// figure that counts is the time of the processor in docs/performance.md.
func BenchmarkLogin(b *testing.B) {
	s := slapd.Start(b, slapd.People())
	plain, secure := service(s), service(s)
	secure.URI, secure.CA = s.SecureURI, s.CA
	for name, o := range map[string]Options{"plain": plain, "TLS": secure} {
		b.Run(name, func(b *testing.B) {
			d := open(b, o)
			began := processor(b)
			for b.Loop() {
				if name, _, err := d.Login(b.Context(), "ann", "secret of ann"); name == "" || err != nil {
					b.Fatal(name, err)
				}
			}

			b.ReportMetric(float64(processor(b)-began)/float64(b.N)/1e6, "cpu-ms/op")
		})
	}
}
