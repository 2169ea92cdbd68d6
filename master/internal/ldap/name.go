package ldap

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	ldapv3 "github.com/go-ldap/ldap/v3"

	"saltern/master/internal/username"
)

// A directory treats ALICE and alice as the same user, but the lists of users in Salt's options are
// compared exactly. Therefore Login uses the spelling of the name in the user's entry.

// namePart matches the text of a template just before the placeholder for the user's name. It
// captures the attribute that is compared with the name, in a filter or in a distinguished name.
var namePart = regexp.MustCompile(`(?:^|[(,+])\s*([A-Za-z][A-Za-z0-9-]*)\s*=\s*$`)

// nameAttributes returns the attributes with which the options compare a user's name, or
// [noAttributes] if there is none.
func (d *Directory) nameAttributes() []string {
	t := d.plan.filter
	if d.plan.way == byTemplate {
		t = d.plan.bind
	}

	var names []string
	for i := range t.cases {
		after := t.parts[i+1]
		whole := after == "" || strings.ContainsAny(after[:1], "),+")
		if m := namePart.FindStringSubmatch(t.parts[i]); m != nil && whole {
			names = append(names, m[1])
		}
	}

	if d.plan.way == byTemplate && d.opts.ActiveDirectory {
		// In Active Directory users may log in as NAME@DOMAIN, so the template does not show the
		// attribute.
		names = append(names, d.opts.AccountAttribute)
	}

	if len(names) == 0 {
		return []string{noAttributes}
	}

	slices.Sort(names)
	return slices.Compact(names)
}

// readEntry reads the entry of a user who has logged in by a template, including the attributes
// with his names. The entry lacks attributes that the user may not read.
func (d *Directory) readEntry(s *session, dn, user string) (entry, error) {
	if d.nameAttributes()[0] == noAttributes {
		return entry{dn: dn}, nil
	}

	q := query{
		base:   dn,
		scope:  0,
		filter: "(objectClass=*)",
		attrs:  d.nameAttributes(),
		most:   1,
	}

	if _, err := ldapv3.ParseDN(dn); err != nil && d.opts.ActiveDirectory {
		q.base, q.scope = d.opts.BaseDN, 2
		q.filter = fmt.Sprintf("(&(%s=%s)(objectClass=%s))", d.opts.AccountAttribute,
			ldapv3.EscapeFilter(user), ldapv3.EscapeFilter(d.opts.PersonType))
	}

	found, err := s.search(q)
	_, refused := errors.AsType[*resultError](err)
	switch {
	case refused, errors.Is(err, errMore), err == nil && len(found) == 0:
		return entry{dn: dn}, nil
	case err != nil:
		return entry{}, fmt.Errorf("read the entry of %.200q: %w", user, err)
	}

	return found[0], nil
}

// nameIn returns the user's name as his entry spells it: the value that the directory treats as the
// same name as typed. typed is the name that he typed at log-in. If the entry contains no such
// value, nameIn returns typed.
func (d *Directory) nameIn(e entry, typed string) string {
	for _, attribute := range d.nameAttributes() {
		for _, v := range e.values(attribute) {
			if username.Same(v, typed) {
				return v
			}
		}
	}
	if v := nameOf(e.dn); username.Same(v, typed) {
		return v
	}
	return typed
}
