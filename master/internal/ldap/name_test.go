package ldap

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"saltern/test/slapd"
)

// TestNameIsTheDirectorys: whoever logs in has the name that his entry has, however he
// writes it, and the groups of that name (finding 22 of the second audit: ALICE was another
// user than alice to all lists).
func TestNameIsTheDirectorys(t *testing.T) {
	s := slapd.Start(t, slapd.People())
	for name, c := range map[string]struct {
		o      Options
		groups string // of ann
	}{
		"by template":                   {template1(s), "all hands,ops"},
		"by search":                     {service(s), "all hands,ops"},
		"by search of nobody":           {anonymous(service(s)), "all hands,ops"},
		"by template, Active Directory": {activeDirectory(template1(s)), "admins,web"},
		"by search, Active Directory":   {activeDirectory(service(s)), "admins,web"},
		"by search, small letters": {with(service(s), "(&(objectClass=person)(uid={{ username|lower }}))"),
			"all hands,ops"},
		"by search, several attributes": {with(service(s), "(|(cn={{ username }} cn)(uid={{ username }}))"),
			"all hands,ops"},
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, c.o)
			for _, wrote := range []string{"ann", "ANN", "Ann", "aNN"} {
				got, groups, err := d.Login(t.Context(), wrote, "secret of ann")
				if got != "ann" || strings.Join(groups, ",") != c.groups || err != nil {
					t.Errorf("%q is %q in %q, %v", wrote, got, groups, err)
				}
			}

			for _, u := range slapd.Users() {
				if u == "twice" || u == "Ünï ö" && strings.Contains(name, "small letters") {
					continue
				}

				wrote := strings.ToUpper(u)
				got, _, err := d.Login(t.Context(), wrote, "secret of "+u)
				if got != u || err != nil {
					t.Errorf("%q is %q, %v", wrote, got, err)
				}
			}
		})
	}
}

func with(o Options, filter string) Options {
	o.Filter = filter
	return o
}

func TestNameAttributes(t *testing.T) {
	const suffix = ",dc=example,dc=com"
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{BindDN: "uid={{ username }},ou=People" + suffix}, "uid"},
		{Options{BindDN: "uid={{username|upper}}+cn=x" + suffix}, "uid"},
		{Options{BindDN: "cn=x+uid={{ username }}" + suffix}, "uid"},
		{Options{BindDN: "uid=x{{ username }}" + suffix}, "1.1"},
		{Options{BindDN: "uid={{ username }}x" + suffix}, "1.1"},
		{Options{BindDN: "{{ username }}@example.com"}, "1.1"},
		{Options{BindDN: "{{ username }}@example.com", ActiveDirectory: true, AccountAttribute: "sAMAccountName"},
			"sAMAccountName"},
		{Options{BindDN: "cn=reader" + suffix, BindPassword: "x", Filter: "uid={{ username }}"}, "uid"},
		{Options{BindDN: "cn=reader" + suffix, BindPassword: "x", Filter: "(&(objectClass=person)(|( mail = {{ username }})(sAMAccountName={{ username }})(uid={{ username }})))"},
			"mail,sAMAccountName,uid"},
		{Options{BindDN: "cn=reader" + suffix, BindPassword: "x", Filter: "(cn=*{{ username }}*)"}, "1.1"},
		{Options{BindDN: "cn=reader" + suffix, BindPassword: "x", Filter: "(uid>={{ username }})"}, "1.1"},
	} {
		c.o.URI, c.o.BaseDN = "ldap://127.0.0.1:1", "dc=example,dc=com"
		got := open(t, c.o).nameAttributes()
		if strings.Join(got, ",") != c.want {
			t.Errorf("%+v: %q, want %q", c.o.BindDN+" "+c.o.Filter, got, c.want)
		}
	}
}

// FuzzNameIn: a directory, or who writes names into it, makes nobody another user than one
// whose name he wrote.
func FuzzNameIn(f *testing.F) {
	f.Add("ann", "ANN", "uid=Ann,dc=example,dc=com")
	f.Add("ann", "root", "uid=root,dc=example,dc=com")
	f.Add("", "\xff", "=")
	d, err := New(Options{URI: "ldap://127.0.0.1:1", BindDN: "uid={{ username }},dc=x"},
		slog.New(slog.DiscardHandler), nil)
	if err != nil {
		f.Fatal(err)
	}

	f.Fuzz(func(t *testing.T, wrote, value, dn string) {
		got := d.nameIn(entry{dn: dn, attrs: map[string][]string{"uid": {value}}}, wrote)
		if !slices.Contains([]string{wrote, value, nameOf(dn)}, got) {
			t.Errorf("%q is %q", wrote, got)
		}
	})
}
