// Package minions tests how a master handles messages of minions and strangers: sign-ins, requests,
// events and returns, honest and forged.
package minions
