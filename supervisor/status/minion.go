package status

import "time"

// Minion is one key, and the nodes' knowledge of its minion.
type Minion struct {
	ID string `json:"id"`
	// Key is accepted, pending, rejected or denied.
	Key string `json:"key"`
	// Connected reports whether the minion listens for jobs. Node is the node where it does.
	Connected bool   `json:"connected"`
	Node      string `json:"node,omitempty"`
	// Address is where the minion was last heard from, and Seen when. For a key that is not
	// accepted, Address is where it came from. Address is empty if no master has heard it since
	// its start. Seen is nil if none has since [MinionView.Since].
	Address string     `json:"address,omitempty"`
	Seen    *time.Time `json:"seen,omitempty"`
	// Finger is the fingerprint of the key, if the request wanted it.
	Finger string `json:"finger,omitempty"`
}

// MinionView is the knowledge of one master. Its minions are connected only if they subscribed
// under their own name. The other subscriptions are counted by address, because a minion may send
// its requests to another master.
type MinionView struct {
	Minions       []Minion       `json:"minions"`
	Subscriptions map[string]int `json:"subscriptions"`
	// Since is the time from which Seen is complete. It may be nil: the master keeps no record.
	Since *time.Time `json:"since,omitempty"`
}

// MinionList is the knowledge of all nodes about all keys.
type MinionList struct {
	Schema  int      `json:"schema"`
	Minions []Minion `json:"minions"` // by key, accepted first, then by id
	// Since is the time from which Seen is complete on every node that answered. It may be nil:
	// then Seen is incomplete.
	Since *time.Time `json:"since,omitempty"`
	// Unasked are nodes that could not be asked, with the reason. Their knowledge is missing.
	Unasked map[string]string `json:"unasked,omitempty"`
}

// MaxMinions is the greatest number of keys in a list.
const MaxMinions = 200_000
