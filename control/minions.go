package control

import (
	"math"
	"time"
)

// Minions is what a master knows of all minions that have a key.
type Minions struct {
	Minions []Minion `json:"minions"`
	// Subscriptions counts, by address, the connections on the publish port that
	// came without a name.
	Subscriptions map[string]int `json:"subscriptions"`
}

// Minion is a key and what the master saw of its minion.
type Minion struct {
	ID        string `json:"id"`
	Key       string `json:"key"`       // accepted, pending, rejected, denied
	Connected bool   `json:"connected"` // subscribed under its own name
	Address   string `json:"address"`   // from where it was last heard; empty: never
	// Seen is when it was last heard, Unix time in seconds; 0: not by this
	// master in this life.
	Seen   float64 `json:"seen"`
	Finger string  `json:"finger,omitempty"` // of the key, if it was asked for
}

// Heard returns Seen as a time in UTC, to the millisecond; nil if there is none.
func (m Minion) Heard() *time.Time {
	if !(m.Seen > 0 && m.Seen < 1e11) {
		return nil
	}
	sec, part := math.Modf(m.Seen)
	t := time.Unix(int64(sec), int64(part*1e9)).UTC().Truncate(time.Millisecond)
	return &t
}
