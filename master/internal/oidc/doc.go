// Package oidc proves users by ID tokens of an OpenID provider. It also guides browsers through a
// sign-in at the provider.
//
//	Provider.Login ───────── the ID token as a password: eauth of the master
//	Provider.Begin, Finish ─ code flow with PKCE: salt-api, for the console
//	        └─ view: the provider's metadata and keys, kept for minutes
//
// The package starts no goroutines: the caller's goroutine fetches. The provider's answers are
// bounded before they are read. The provider is asked at a limited rate, no matter which tokens
// strangers present.
//
// Sources: OpenID Connect Core 1.0 and Discovery 1.0; RFC 7636 (PKCE), 9207 (iss in answers), 9700
// (best practice).
package oidc
