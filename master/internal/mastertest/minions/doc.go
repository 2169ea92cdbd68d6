// Package minions tests what a master does with what minions and strangers send: sign-ins,
// requests, events and returns, honest and forged.
package minions
