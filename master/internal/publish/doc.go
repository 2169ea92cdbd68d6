// Package publish sends jobs to minions. It seals a load with the publish key, signs it, wraps it
// and hands it to the PUB socket (salt/channel/server.py, PubServerChannel.wrap_payload).
//
// A load is encrypted and signed once, however many minions there are. Minions drop a load whose
// serial is not above the last one they saw under the same key, so loads reach the socket in the
// order of their serials, although they are signed in parallel.
//
// The last publishes are remembered for a while, so that a minion whose connection was cut can get
// what it missed; see Recent and Resend. This package sends nothing again by itself.
package publish
