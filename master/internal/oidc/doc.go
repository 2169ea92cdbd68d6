// Package oidc proves users by ID tokens of an OpenID provider, and leads browsers through a
// sign-in there.
//
//	Provider.Login ───────── the ID token as a password: eauth of the master
//	Provider.Begin, Finish ─ code flow with PKCE: salt-api, for the console
//	        └─ view: the provider's metadata and keys, kept for minutes
//
// There are no goroutines: the caller fetches. Answers of the provider are bounded before they are
// read, and it is asked at a limited rate, whatever tokens strangers show.
//
// Sources: OpenID Connect Core 1.0 and Discovery 1.0; RFC 7636 (PKCE), 9207 (iss in answers), 9700
// (best practice).
package oidc
