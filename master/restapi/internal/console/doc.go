// Package console is the web console of a master: pages for people, on the listener
// of Salt's API.
//
//	browser ── restapi.Server ── Console.Serve ── route ── session ── page
//	                                  └── Master (one command of the API each) ── the master decides
//
// The console renders pages from Go templates; they work without scripts. One small script
// refreshes the live parts from the stream of events. The console has no rights: every page and
// every action is a command of the API with the session's token, so the master decides as it does
// for programs. The console reads external_auth only to hide what the master would refuse.
//
// A session is a token of the master in a cookie that only the console uses. The API does not
// accept this cookie, and no other site can make a browser send it. Each form carries a token that
// is derived from the session's.
//
// All that comes from minions is hostile: html/template escapes it, package printable removes
// characters that change how a text reads, and each text and list has a bound (bounds.go).
package console
