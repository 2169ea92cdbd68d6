package ldap

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	ldapv3 "github.com/go-ldap/ldap/v3"
)

// Bounds on a user's groups, which are stored in the file of his token. Further groups are dropped,
// and the log reports that.
const (
	maxGroups     = 1024
	maxGroupBytes = 32 << 10 // bytes of all names
	maxGroupName  = 256
)

// groups returns the names of a user's groups, found as the options require (salt/auth/ldap.py
// groups). If the directory refuses the search, groups returns no names and logs a warning.
func (d *Directory) groups(s *session, user string) ([]string, error) {
	read := d.groupsListing
	switch {
	case d.opts.ActiveDirectory:
		read = d.memberOf
	case d.opts.FreeIPA:
		read = d.freeIPA
	}

	names, err := read(s, user)
	_, refused := errors.AsType[*resultError](err)
	switch {
	case refused:
		d.log.Warn("the groups of a user cannot be read from the directory; he counts as being in none",
			"user", user, "error", err)
		return nil, nil
	case err != nil && !errors.Is(err, errMore):
		return nil, fmt.Errorf("read the groups of %.200q: %w", user, err)
	}

	names, all := bounded(names)
	if err != nil || !all {
		d.log.Warn("a user is in more groups than are accepted; the others do not count", "user", user,
			"groups", len(names))
	}

	return names, nil
}

// bounded returns the sorted names, as many as the bounds allow. all is false if it has dropped
// names.
func bounded(names []string) (kept []string, all bool) {
	slices.Sort(names)
	size := 0
	for _, n := range slices.Compact(names) {
		if n == "" {
			continue
		}
		if size += len(n); len(n) > maxGroupName || size > maxGroupBytes || len(kept) == maxGroups {
			return kept, false
		}
		kept = append(kept, n)
	}
	return kept, true
}

// groupsListing returns the groups that list the user's name (posixGroup with memberUid). If
// auth.ldap.groupclass also matches the user's own entry, it also returns the groups in the
// memberOf of that entry. Unlike Salt it does not count the user's own entry as a group, because in
// many directories users may change the cn of their entry.
func (d *Directory) groupsListing(s *session, user string) ([]string, error) {
	o := d.opts
	filter := fmt.Sprintf("(&(%s=%s)(objectClass=%s))", o.AccountAttribute, ldapv3.EscapeFilter(user),
		ldapv3.EscapeFilter(o.GroupClass))
	found, err := s.search(query{
		base:   d.plan.groupBase,
		scope:  2,
		filter: filter,
		attrs:  []string{o.AccountAttribute, "cn", o.GroupAttribute, "objectClass"},
		most:   maxGroups,
	})
	if err != nil && !errors.Is(err, errMore) {
		return nil, err
	}

	var names []string
	for _, e := range found {
		if !d.isPerson(e) && slices.Contains(e.values(o.AccountAttribute), user) {
			names = append(names, firstOf(e.values("cn"))...)
		}

		if nameOf(e.dn) == user {
			for _, g := range e.values(o.GroupAttribute) {
				names = append(names, nameOf(g))
			}
		}
	}

	return names, err
}

func (d *Directory) isPerson(e entry) bool {
	return slices.ContainsFunc(e.values("objectClass"), func(c string) bool {
		return slices.ContainsFunc([]string{"person", "posixAccount", d.opts.PersonType},
			func(p string) bool { return strings.EqualFold(c, p) })
	})
}

// memberOf returns the groups that list the user's entry as a member, in Active Directory or by
// groupOfNames. If the user has several entries, it returns no groups.
func (d *Directory) memberOf(s *session, user string) ([]string, error) {
	o := d.opts
	filter := fmt.Sprintf("(&(%s=%s)(objectClass=%s))", o.AccountAttribute, ldapv3.EscapeFilter(user),
		ldapv3.EscapeFilter(o.PersonType))
	found, err := s.search(query{
		base:   o.BaseDN,
		scope:  2,
		filter: filter,
		attrs:  []string{noAttributes},
		most:   1,
	})
	if errors.Is(err, errMore) {
		d.log.Warn("several entries of the directory are one user; he counts as being in no group", "user",
			user, "filter", filter)
		return nil, nil
	}

	if err != nil || len(found) == 0 {
		return nil, err
	}

	filter = fmt.Sprintf("(&(member=%s)(objectClass=%s))", ldapv3.EscapeFilter(found[0].dn),
		ldapv3.EscapeFilter(o.GroupClass))
	found, err = s.search(query{
		base:   o.BaseDN,
		scope:  2,
		filter: filter,
		attrs:  []string{"cn"},
		most:   maxGroups,
	})
	if err != nil && !errors.Is(err, errMore) {
		return nil, err
	}

	var names []string
	for _, e := range found {
		names = append(names, firstOf(e.values("cn"))...)
	}

	return names, err
}

// freeIPA returns the groups that match the filter and list the user in
// auth.ldap.accountattributename or auth.ldap.groupattribute.
func (d *Directory) freeIPA(s *session, user string) ([]string, error) {
	o := d.opts
	found, err := s.search(query{
		base:   o.GroupBaseDN,
		scope:  2,
		filter: d.plan.groupFilter.render(user, ldapv3.EscapeFilter),
		attrs:  []string{o.AccountAttribute, o.GroupAttribute, "cn"},
		most:   maxGroups,
	})
	if err != nil && !errors.Is(err, errMore) {
		return nil, err
	}

	var names []string
	for _, e := range found {
		for _, member := range slices.Concat(e.values(o.AccountAttribute), e.values(o.GroupAttribute)) {
			if nameOf(member) == user {
				names = append(names, nameOf(e.dn))
				break
			}
		}
	}

	return names, err
}

// firstOf returns a list with the first value, or an empty list if there is no value.
func firstOf(values []string) []string { return values[:min(1, len(values))] }

// nameOf returns the value of the first part of a distinguished name: "ann" for uid=ann,ou=people.
// If s is not a distinguished name, nameOf returns s. It returns "" if the first part has several
// values, or a value that cannot be read. (Salt cuts s at the first comma and at the last equals
// sign before that comma, so that a group "x=admins" becomes "admins".)
func nameOf(s string) string {
	if !strings.ContainsAny(s, "=,") {
		return s
	}
	dn, err := ldapv3.ParseDN(s)
	if err != nil || len(dn.RDNs) == 0 || len(dn.RDNs[0].Attributes) != 1 {
		return ""
	}
	return dn.RDNs[0].Attributes[0].Value
}
