// Package publish sends jobs to minions. It encrypts a load with the publish key, signs and packs
// it, and passes the payload to the PUB socket (salt/channel/server.py,
// PubServerChannel.wrap_payload).
//
// A load is encrypted and signed only once, for any number of minions. A minion drops a load whose
// serial is not greater than the last serial that it received under the same key. So loads are
// passed to the socket in the order of their serials, although they are signed in parallel.
//
// The last publishes are stored for some time, so that they can be sent again to a minion whose
// connection was lost, see Recent and Resend. The caller decides which publishes are sent again.
package publish
