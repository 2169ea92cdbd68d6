package status

import (
	"time"

	"saltern/internal/control"
)

// Minion describes one key, and what the nodes know of the minion that has it.
type Minion struct {
	ID string `json:"id"`
	// Key is accepted, pending, rejected or denied.
	Key string `json:"key"`
	// Connected reports whether the minion listens for jobs. Node names the node to which it is
	// connected.
	Connected bool   `json:"connected"`
	Node      string `json:"node,omitempty"`
	// Address is the address from which a master last received something from the minion, and Seen
	// is when that was. For a key that is not accepted, Address is the one from which the minion
	// offered the key. Address is empty if no master has received anything from the minion since
	// that master's start. Seen is nil if no master has received anything since [MinionView.Since].
	Address string     `json:"address,omitempty"`
	Seen    *time.Time `json:"seen,omitempty"`
	// Finger is the fingerprint of the key, if the request asked for it.
	Finger string `json:"finger,omitempty"`
	// Refused is the last sign-in or request that a master has refused since it received something else from
	// the minion. It may be nil: nothing was refused.
	Refused *control.Refused `json:"refused,omitempty"`
}

// MinionView holds what one master knows about its minions. A minion counts as connected only if it
// subscribed under its own name. The other subscriptions are counted by address, because a minion
// may send its requests to another master.
type MinionView struct {
	Minions       []Minion       `json:"minions"`
	Subscriptions map[string]int `json:"subscriptions"`
	// Since is the time from which Seen is complete. It may be nil: the master keeps no record.
	Since *time.Time `json:"since,omitempty"`
}

// MinionList holds what all nodes know about all keys.
type MinionList struct {
	Schema  int      `json:"schema"`
	Minions []Minion `json:"minions"` // sorted by the state of the key, accepted first, then by ID
	// Since is the time from which Seen is complete on every node that answered. It may be nil:
	// then Seen is incomplete.
	Since *time.Time `json:"since,omitempty"`
	// Unasked holds, for each node that did not answer, the reason. The list lacks what only such a
	// node knows.
	Unasked map[string]string `json:"unasked,omitempty"`
}

// MaxMinions is the greatest number of keys in a list.
const MaxMinions = 200_000
