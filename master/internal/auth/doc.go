// Package auth signs minions in and authenticates the senders of requests.
//
// Secrets holds the secrets of a master: the RSA identity that it presents to minions, the key that
// encrypts publishes, and the seed from which each minion's session key is derived. Service answers
// sign-ins (Salt's command _auth, salt/master.py AuthFuncs), opens encrypted requests and verifies
// the tokens in them.
//
// Three things differ from Salt, none of them visible to a minion:
//   - Session keys are not files. They are derived from a seed, the minion's
//     id, its accepted key and the time. So all masters that share the seed
//     agree at once, a restart changes nothing, and the master creates
//     nothing for an id that has no accepted key.
//   - The publish key survives a restart (Salt creates a new one, and all
//     minions sign in again). The master replaces it when it is older than
//     publish_session or when somebody asks, as salt-key does after deleting
//     a key.
//   - RSA work is bounded. Minions whose key is accepted never wait behind a
//     crowd of minions without an accepted key. Beyond the bounds a minion is
//     asked to sign in again later.
package auth
