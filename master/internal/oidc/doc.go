// Package oidc proves users by ID tokens of an OpenID provider, and leads browsers
// through a sign-in there.
//
//	Provider.Login ───────── the ID token as a password: eauth of the master
//	Provider.Begin, Finish ─ code flow with PKCE: salt-api, for the console
//	        └─ view: what the provider says of itself, and its keys, kept for minutes
//
// There are no goroutines: who asks fetches. What the provider sends is bounded before
// it is read, and it is asked at most so often, whatever tokens strangers show.
//
// Sources: OpenID Connect Core 1.0 and Discovery 1.0; RFC 7636 (PKCE), 9207 (iss in
// answers), 9700 (best practice).
package oidc
