// Package gpg decrypts the secrets of pillars with the program gpg, as Salt's renderer gpg does
// (salt/renderers/gpg.py of 3006.28, 3007.15 and 3008.3): every PGP message in a text is replaced by
// what it says.
//
// A Decrypter runs one gpg for a message, and a few at once. Callers that need the same message at
// the same time share one run, and a caller that has waited uses what was decrypted since it came.
// Nothing is kept longer than somebody waits, unless gpg_cache is set. Decrypted texts are in this
// process's memory only: they are in no argument, environment, file, log or error.
package gpg
