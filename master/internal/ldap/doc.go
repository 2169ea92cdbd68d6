// Package ldap checks users' passwords against a directory and reads the users' groups, as Salt's
// external authentication "ldap" does. It also resolves the ldap(…) targets of external_auth to
// minions.
//
//	Directory.Login ── dial (one server after the other, TLS) ── session: bind, search
//	                └─ groups: memberUid and memberOf, Active Directory, FreeIPA
//	Directory.Expand ─ the computers below an entry, cached for a minute
//
// A session is one connection with a deadline, used by one goroutine; there are no other
// connections. The size of the directory's messages is bounded before they are read. Text from
// users is escaped before it becomes part of a filter or a name.
//
// Sources: salt/auth/ldap.py for the queries; RFC 4511 (protocol), 4513 (log-ins), 4514 (names),
// 4515 (filters), 2696 (pages).
package ldap
