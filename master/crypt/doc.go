// Package crypt holds the cryptography of the Salt wire protocol: the shared
// AES blob ("crypticle"), the RSA schemes named in requests, the X9.31
// private operation of tokens and sign-in digests, and the PEM files of keys.
//
// The primitives are those of Salt's crypt.py and utils/rsax931.py; two of
// them are of another age (SHA-1, X9.31, AES-CBC with a separate MAC). They
// are what every minion speaks, so they are implemented carefully rather than
// replaced: the MAC is checked first and in constant time, all failures of
// Open look alike, private operations outside the standard library are
// blinded and verified, and public keys from outside are bounded before any
// arithmetic is done with them.
//
// Never run a master with GODEBUG=fips140=only: the protocol's defaults are
// OAEP-SHA1 and PKCS1v15-SHA1, which that mode answers with a panic.
//
// The package has no state; every function and method may be called
// concurrently.
package crypt
