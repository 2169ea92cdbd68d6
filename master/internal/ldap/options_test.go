package ldap

import (
	"bytes"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"
)

// processor is the time that this process has computed.
func processor(t testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestOptions(t *testing.T) {
	right := Options{BaseDN: "dc=x", BindDN: "cn=reader", BindPassword: "x", Filter: "(uid={{ username }})"}
	with := func(change func(o *Options)) Options { o := right; change(&o); return o }
	three := 3
	for name, c := range map[string]struct {
		o     Options
		fault string
	}{
		"a service account": {right, ""},
		"a template":        {Options{BindDN: "uid={{username}},dc=x"}, ""},
		"Active Directory":  {Options{BindDN: "{{ username }}@x.example"}, ""},
		"cases":             {Options{BindDN: "uid={{ username|lower }},ou={{- username | upper -}}"}, ""},
		"nobody searches":   {Options{Anonymous: true, Filter: "uid={{ username }}"}, ""},
		"several servers": {with(func(o *Options) { o.URI = "ldap://a ldaps://b:1,ldap://[::1]:2 ldapi://%2frun%2fslapd" }),
			""},
		"no name":                {Options{}, "auth.ldap.binddn is not set"},
		"no filter":              {with(func(o *Options) { o.Filter = "" }), "auth.ldap.filter is not set"},
		"a name without a place": {Options{BindDN: "cn=reader"}, "under any name"},
		"both kinds of TLS": {with(func(o *Options) {
			o.TLS = true
			o.StartTLS = true
		}), "choose one"},
		"a service account and nobody": {with(func(o *Options) { o.Anonymous = true }), "remove one"},
		"other Jinja": {with(func(o *Options) { o.Filter = "(uid={{ username.strip() }})" }),
			"of Jinja only"},
		"a statement of Jinja": {Options{BindDN: "{% if username %}uid={{ username }}{% endif %}"},
			"of Jinja only"},
		"a bad filter": {with(func(o *Options) { o.Filter = "(&(uid={{ username }})" }),
			"auth.ldap.filter: read the filter"},
		"a filter on several lines": {
			with(func(o *Options) { o.Filter = "(& (uid={{ username }})\n  (| (a=b)   (c=d e) ) )\n" }),
			""},
		"FreeIPA without a filter": {with(func(o *Options) { o.FreeIPA = true }), "auth.ldap.group_basedn"},
		"a scope":                  {with(func(o *Options) { o.Scope = &three }), "use 0, 1 or 2"},
		"no scheme":                {with(func(o *Options) { o.URI = "ldap.example.com" }), "not of the form"},
		"another scheme": {with(func(o *Options) { o.URI = "https://ldap.example.com" }),
			"not of the form"},
		"a password in a URI": {with(func(o *Options) { o.URI = "ldap://u:p@x" }), "not of the form"},
		"too many servers": {with(func(o *Options) { o.URI = strings.Repeat("ldap://x ", 17) }),
			"17 servers"},
		"blanks are no server":          {with(func(o *Options) { o.URI = " " }), "0 servers"},
		"a port that is none":           {with(func(o *Options) { o.Port = "x" }), "not of the form"},
		"an IPv6 address as the server": {with(func(o *Options) { o.Server = "::1" }), ""},
	} {
		err := Check(c.o)
		if c.fault == "" && err != nil || c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%s: %v, want %q", name, err, c.fault)
		}
	}
}

// What is possible and should not stay so is said at the start.
func TestWarnings(t *testing.T) {
	for name, c := range map[string]struct {
		o    Options
		want string
	}{
		"in the clear":      {Options{URI: "ldaps://a ldap://b.example"}, "server=ldap://b.example"},
		"by default":        {Options{Server: "b.example"}, "in the clear"},
		"any certificate":   {Options{URI: "ldaps://a", NoVerify: true}, "trust any certificate"},
		"no authorities":    {Options{URI: "ldaps://a", CA: "/nowhere.pem"}, "fail until this is fixed"},
		"TLS":               {Options{URI: "ldaps://a"}, ""},
		"starttls":          {Options{URI: "ldap://a", StartTLS: true}, ""},
		"this host":         {Options{URI: "ldap://127.0.0.1 ldap://[::1] ldapi://%2fx"}, ""},
		"this host, unsaid": {Options{}, ""},
	} {
		c.o.BindDN = "{{ username }}"
		var log bytes.Buffer
		if _, err := New(c.o, slog.New(slog.NewTextHandler(&log, nil)), time.Now); err != nil {
			t.Errorf("%s: %v", name, err)
		}

		if got := log.String(); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestTemplates(t *testing.T) {
	for _, c := range []struct{ template, name, want string }{
		{"uid={{ username }},dc=x", "ann", "uid=ann,dc=x"},
		{"uid={{ username }},dc=x", `a,b+c"d\e<f>;g `, `uid=a\,b\+c\"d\\e\<f\>\;g\ ,dc=x`},
		{"uid={{ username }},dc=x", "#00", `uid=\#00,dc=x`},
		{"{{username}}@x.example", "a,b", "a,b@x.example"},
		{`X\{{username|upper}}`, "ann", `X\ANN`},
		{"plain", "ann", "plain"},
		{"uid={{ username }},dc=x", "{{ username }}", "uid={{ username }},dc=x"},
	} {
		p, err := parseTemplate("x", c.template)
		if got := p.renderName(c.name); err != nil || got != c.want {
			t.Errorf("%s, %s: %q, %v; want %q", c.template, c.name, got, err, c.want)
		}
	}

	for in, want := range map[string]string{
		"ann": "ann", "uid=ann,ou=People": "ann", `cn=a\,b,dc=x`: "a,b", "cn=x=admins,dc=x": "x=admins", "cn=x+ou=admins,dc=x": "", "": "", "=": "", ",": "", "a,b": "", `cn=\`: "",
	} {
		if got := nameOf(in); got != want {
			t.Errorf("%q is called %q, want %q", in, got, want)
		}
	}
}
