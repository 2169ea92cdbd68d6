package control

import (
	"math"
	"time"
)

// Minions lists all minions that have a key at a master.
type Minions struct {
	Minions []Minion `json:"minions"`
	// Subscriptions counts, by address, the connections on the publish port that did not name their
	// minion.
	Subscriptions map[string]int `json:"subscriptions"`
	// Since is the time from which Minion.Seen is complete, in Unix seconds. 0 means that the master
	// keeps no record.
	Since float64 `json:"since,omitempty"`
}

// Minion is a key, and when and where its minion was last seen.
type Minion struct {
	ID  string `json:"id"`
	Key string `json:"key"` // accepted, pending, rejected, denied
	// Connected is whether the minion has a subscription that is not counted in [Minions.Subscriptions]: under
	// its own name, or from another address than Address.
	Connected bool   `json:"connected"`
	Address   string `json:"address"` // source of the minion's last message; empty: unknown
	// Seen is when the minion last sent something, in Unix seconds, even if that was before the
	// master's last start. 0: it has sent nothing since [Minions.Since].
	Seen   float64 `json:"seen"`
	Finger string  `json:"finger,omitempty"` // fingerprint of the key; empty unless it was requested
	// Refused lists what the master has refused since then. It may be nil: nothing.
	Refused *Refused `json:"refused,omitempty"`
}

// Refused is the last sign-in or request of a minion that a master has refused.
type Refused struct {
	SignIn bool      `json:"sign_in,omitempty"` // it was a sign-in
	Why    string    `json:"why"`               // at most MaxRefused bytes
	At     time.Time `json:"at"`
	From   string    `json:"from,omitempty"` // address
	Count  int       `json:"count"`          // refused requests from that address
}

// MaxRefused bounds [Refused.Why], in bytes.
const MaxRefused = 300

// Heard returns Seen as a time in UTC, to the millisecond, or nil if Seen is 0.
func (m Minion) Heard() *time.Time { return timeOf(m.Seen) }

// Began returns Since as a time in UTC, or nil if Since is 0.
func (m Minions) Began() *time.Time { return timeOf(m.Since) }

func timeOf(unix float64) *time.Time {
	if !(unix > 0 && unix < 1e11) {
		return nil
	}
	sec, part := math.Modf(unix)
	t := time.Unix(int64(sec), int64(part*1e9)).UTC().Truncate(time.Millisecond)
	return &t
}
