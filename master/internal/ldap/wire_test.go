package ldap

import (
	"bufio"
	"bytes"
	"testing"

	ldapv3 "github.com/go-ldap/ldap/v3"
)

// FuzzAnswer: whatever a directory sends, nothing fails and nothing is taken that is not
// there.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{
		"\x30\x0c\x02\x01\x01\x61\x07\x0a\x01\x00\x04\x00\x04\x00",
		"\x30\x84\x00\x00\x00\x10\x02\x01\x01\x61\x84\x00\x00\x00\x07\x0a\x01\x31\x04\x00\x04\x00",
		"\x30\x1b\x02\x01\x02\x64\x16\x04\x05uid=a\x30\x0d\x30\x0b\x04\x03uid\x31\x04\x04\x02an",
		"\x30\x2c\x02\x01\x02\x65\x07\x0a\x01\x00\x04\x00\x04\x00\xa0\x1e\x30\x1c\x04\x161.2.840.113556.1.4.319\x04\x02\x30\x00",
		"\x30\x80", "\x30\x84\xff\xff\xff\xff", "\x1f\x01\x00",
	} {
		f.Add([]byte(s))
	}

	f.Fuzz(func(t *testing.T, b []byte) {
		m, n, err := readMessage(bufio.NewReader(bytes.NewReader(b)), maxMessage)
		if err != nil {
			return
		}
		if n > len(b) || len(m.body) > n || len(m.controls) > n {
			t.Fatalf("%d bytes of %d", n, len(b))
		}

		_ = result(m.body)
		e, err := parseEntry(m.body)
		size := len(e.dn)
		for name, values := range e.attrs {
			size += len(name)
			for _, v := range values {
				size += len(v)
			}
		}

		if err == nil && size > 2*len(m.body) { // names in lower case may be longer
			t.Fatalf("an entry of %d bytes in %d", size, len(m.body))
		}

		_, _ = nextPage(m.controls)
	})
}

// FuzzName: a name in a filter is one value, and in a distinguished name too.
func FuzzName(f *testing.F) {
	for _, s := range []string{"ann", "*", "a)(uid=*", `a\2a`, "a,b=c", "a+b", " a ", "#61", `"x"`, "Ü",
		"{{ username }}"} {
		f.Add(s)
	}

	filter, err := parseFilter("x", "(&(uid={{ username }})(objectClass=person))")
	if err != nil {
		f.Fatal(err)
	}

	name, err := parseTemplate("x", "uid={{ username }},dc=x")
	if err != nil {
		f.Fatal(err)
	}

	f.Fuzz(func(t *testing.T, user string) {
		if !plausible(user) {
			return
		}

		p, err := ldapv3.CompileFilter(filter.render(user, ldapv3.EscapeFilter))
		if err != nil || len(p.Children) != 2 || p.Children[0].Tag != ldapv3.FilterEqualityMatch ||
			p.Children[0].Children[1].Data.String() != user {
			t.Errorf("%q in a filter: %v, %v", user, p, err)
		}

		dn, err := ldapv3.ParseDN(name.renderName(user))
		if err != nil || len(dn.RDNs) != 2 || len(dn.RDNs[0].Attributes) != 1 ||
			dn.RDNs[0].Attributes[0].Value != user {
			t.Errorf("%q in a name: %q, %v, %v", user, name.renderName(user), dn, err)
		}

		_ = nameOf(user)
	})
}
