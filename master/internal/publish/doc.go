// Package publish sends jobs to minions: it seals a load with the publish key,
// signs it, wraps it and hands it to the PUB socket (salt/channel/server.py,
// PubServerChannel.wrap_payload).
//
// A load is encrypted and signed once, however many minions there are. Minions
// drop a load whose serial is not above the last one they saw under the same
// key, so loads reach the socket in the order in which their serials were
// drawn, although they are signed side by side.
//
// The last publishes are remembered for a while, so that a minion whose
// connection was cut at the wrong moment can be given what it missed; see
// Recent and Resend. Nothing is sent again on its own account.
package publish
