package status

import "time"

// Minion is one key and what the nodes know of its minion.
type Minion struct {
	ID string `json:"id"`
	// Key is accepted, pending, rejected or denied.
	Key string `json:"key"`
	// Connected reports whether it listens for jobs; Node is where.
	Connected bool   `json:"connected"`
	Node      string `json:"node,omitempty"`
	// Address is from where it was last heard, Seen when; of a key that is not
	// accepted, from where it came. Address is empty when no master has heard it since
	// its start, Seen when none has since [MinionView.Since].
	Address string     `json:"address,omitempty"`
	Seen    *time.Time `json:"seen,omitempty"`
	// Finger is the fingerprint of the key, when it was asked for.
	Finger string `json:"finger,omitempty"`
}

// MinionView is what one master knows. Its minions are connected only if they
// subscribed under their own name; the other subscriptions are counted by their
// address, since a minion's requests may be at another master.
type MinionView struct {
	Minions       []Minion       `json:"minions"`
	Subscriptions map[string]int `json:"subscriptions"`
	// Since is from when on Seen is whole; nil: the master keeps no record.
	Since *time.Time `json:"since,omitempty"`
}

// MinionList is what all nodes know of all keys.
type MinionList struct {
	Schema  int      `json:"schema"`
	Minions []Minion `json:"minions"` // by key, accepted first, then by id
	// Since is from when on Seen is whole, by all nodes that were asked; nil: it is not.
	Since *time.Time `json:"since,omitempty"`
	// Unasked are nodes that could not be asked, with the reason: what they
	// know is missing.
	Unasked map[string]string `json:"unasked,omitempty"`
}

// MaxMinions is the greatest number of keys in a list.
const MaxMinions = 200_000
