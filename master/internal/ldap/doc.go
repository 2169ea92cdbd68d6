// Package ldap proves users to a directory and reads their groups, as Salt's
// external authentication "ldap" does, and resolves ldap(…) targets of
// external_auth to minions.
//
//	Directory.Login ── dial (servers in turn, TLS) ── session: bind, search
//	                └─ groups: memberUid and memberOf, Active Directory, FreeIPA
//	Directory.Expand ─ the computers below an entry, remembered for a minute
//
// A session is one connection, used by one goroutine, with a deadline; there are no
// others. What the directory sends is bounded before it is read. Text that users
// choose is escaped before it becomes part of a filter or a name.
//
// Sources: salt/auth/ldap.py for what is asked for; RFC 4511 (protocol), 4513 (log-ins),
// 4514 (names), 4515 (filters), 2696 (pages).
package ldap
