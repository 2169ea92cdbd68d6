// Package crypt holds the cryptography of the Salt wire protocol: the shared
// AES blob ("crypticle"), the RSA schemes named in requests, the X9.31
// private operation of tokens and sign-in digests, and the PEM files of keys.
//
// The primitives are those of Salt's crypt.py and utils/rsax931.py; some of them are outdated
// (SHA-1, X9.31, AES-CBC with a separate MAC). Every minion uses them, so this package implements
// them carefully instead of replacing them: the MAC is checked first and in constant time, all
// failures of Open look alike, private operations outside the standard library are blinded and
// verified, and public keys from outside are bounded before any arithmetic is done with them.
//
// Never run a master with GODEBUG=fips140=only: the protocol's defaults are OAEP-SHA1 and
// PKCS1v15-SHA1, which panic in that mode.
//
// The package has no state; every function and method may be called
// concurrently.
package crypt
