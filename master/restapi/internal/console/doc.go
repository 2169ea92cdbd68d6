// Package console is the web console of a master: pages for people, on the listener
// of Salt's API.
//
//	browser ── restapi.Server ── Console.Serve ── route ── session ── page
//	                                  └── Master (one command of the API each) ── the master decides
//
// Pages are Go templates that are rendered here and work without scripts; one small
// script refreshes what is live from the stream of events. The console has no right
// of its own: each thing that a page shows or does is a command of the API with the
// token of the session, so that the master decides as it does for programs. What a
// user may do is asked of external_auth beforehand only to hide what would be refused.
//
// A session is a token of the master in a cookie of the console's own, which the API
// does not take and which no other site can have sent. Each form carries a token that
// is derived from the session's.
//
// All that comes from minions is hostile: html/template escapes it, package printable
// takes out what changes how it reads, and each text and list has a bound (bounds.go).
package console
