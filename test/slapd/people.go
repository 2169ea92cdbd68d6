package slapd

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// Base64Line is a line of an LDIF whose value may be any text.
func Base64Line(name, value string) string {
	return name + ":: " + base64.StdEncoding.EncodeToString([]byte(value)) + "\n"
}

// People is a directory with users and groups of all kinds that Salt knows. The password
// of a user is "secret of " and his name. The service account is cn=reader,dc=example,dc=com
// with the password "reader secret".
//
//	ou=People  ann, bob, eve, carl (no group), "Ünï ö", and names with the characters of filters and
//	           distinguished names: a*, a(b, a\b, "x, y", "x=y", "x+y", ann2; mallory's cn is "admins"
//	ou=Groups  posixGroup ops (ann, bob, a*), devs (bob), "ann" (ann: his own), "all hands" (everybody)
//	ou=Teams   groupOfNames admins (ann), web (ann, bob), with memberOf in the users
//	ou=Servers computers WEB1, web2.example.com, db1, "*", "bad name"
func People() string {
	var b strings.Builder
	add := func(dn string, lines ...string) {
		b.WriteString(Base64Line("dn", dn) + strings.Join(lines, "") + "\n")
	}
	add(Suffix, "objectClass: dcObject\nobjectClass: organization\no: Example\ndc: example\n")
	add("cn=reader,"+Suffix,
		"objectClass: organizationalRole\nobjectClass: simpleSecurityObject\ncn: reader\nuserPassword: reader secret\n")

	for _, ou := range []string{"People", "Groups", "Teams", "Servers", "Elsewhere"} {
		add("ou="+ou+","+Suffix, "objectClass: organizationalUnit\nou: "+ou+"\n")
	}

	for i, u := range Users() {
		cn := u + " cn"
		if u == "mallory" {
			cn = "admins"
		}

		add("uid="+escape(u)+",ou=People,"+
			Suffix, "objectClass: inetOrgPerson\nobjectClass: posixAccount\n", Base64Line("uid", u), Base64Line("cn", cn), "sn: x\n",
			fmt.Sprintf("uidNumber: %d\ngidNumber: 100\nhomeDirectory: /x\n", 1000+
				i), Base64Line("userPassword", "secret of "+u))
	}

	add("uid=twice,ou=Elsewhere,"+Suffix,
		"objectClass: inetOrgPerson\nuid: twice\ncn: twice\nsn: x\nuserPassword: secret of twice\n")
	for i, g := range []struct{ name, users string }{
		{"ops", "ann|bob|a*"},
		{"devs", "bob"},
		{"all hands", strings.Join(ascii(Users()), "|")},
		{"nobody", ""},
	} {
		members := ""
		for _, u := range strings.Split(g.users, "|") {
			if u != "" {
				members += Base64Line("memberUid", u)
			}
		}

		add("cn="+g.name+",ou=Groups,"+Suffix, "objectClass: posixGroup\n", Base64Line("cn", g.name),
			fmt.Sprintf("gidNumber: %d\n", 2000+i), members)
	}

	for name, users := range map[string][]string{
		"admins": {"ann"},
		"web":    {"ann", "bob", "x, y"},
		"db":     {"bob", "Ünï ö", "a(b"},
	} {
		members := ""
		for _, u := range users {
			members += Base64Line("member", "uid="+escape(u)+",ou=People,"+Suffix)
		}
		add("cn="+name+",ou=Teams,"+Suffix, "objectClass: groupOfNames\n", Base64Line("cn", name), members)
	}

	for _, c := range []string{"WEB1", "web2.example.com", "db1", "*", "bad name"} {
		add("cn="+c+",ou=Servers,"+Suffix, "objectClass: computer\n", Base64Line("cn", c))
	}

	return b.String()
}

// Users are those of [People] who may log in.
func Users() []string {
	return []string{"ann", "ann2", "bob", "eve", "carl", "mallory", "twice", "Ünï ö", "a*", "a(b", `a\b`,
		"x, y", "x=y", "x+y"}
}

func ascii(names []string) (out []string) {
	for _, n := range names {
		if !strings.ContainsFunc(n, func(r rune) bool { return r > 127 }) {
			out = append(out, n)
		}
	}
	return out
}

// escape makes one value of a distinguished name (RFC 4514).
func escape(s string) string {
	for _, c := range []string{`\`, `"`, "+", ",", ";", "<", ">", "="} {
		s = strings.ReplaceAll(s, c, `\`+c)
	}
	return s
}
