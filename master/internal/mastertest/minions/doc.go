// Package minions tests how a master handles messages of minions and of untrusted senders:
// sign-ins, requests, events and returns, honest and forged.
package minions
