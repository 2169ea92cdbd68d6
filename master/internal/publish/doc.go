// Package publish sends jobs to minions. It encrypts a load with the publish key, signs it, wraps it
// and passes it to the PUB socket (salt/channel/server.py, PubServerChannel.wrap_payload).
//
// A load is encrypted and signed only once, for any number of minions. Minions drop a load whose
// serial is not above the last one they saw under the same key. So loads reach the socket in the
// order of their serials, although they are signed in parallel.
//
// The last publishes are remembered for some time, so that a minion whose connection was cut can get
// what it missed; see Recent and Resend. The caller decides what is sent again.
package publish
