// Package oidc authenticates users by ID tokens of an OpenID provider. It also implements the
// sign-in of browsers at the provider.
//
//	Provider.Login ───────── the ID token as a password: eauth of the master
//	Provider.Begin, Finish ─ code flow with PKCE: salt-api, for the console
//	        └─ view: the provider's metadata and keys, cached for minutes
//
// The package starts no goroutines: it fetches from the provider in the goroutine of the caller.
// The size of the provider's answers is bounded before they are read. The rate of requests to the
// provider is bounded, so that untrusted senders cannot raise it with tokens of any kind.
//
// Sources: OpenID Connect Core 1.0 and Discovery 1.0; RFC 7636 (PKCE), 9207 (iss in answers), 9700
// (best practice).
package oidc
