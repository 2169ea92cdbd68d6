package control

import (
	"math"
	"time"
)

// Minions lists all minions that have a key at a master.
type Minions struct {
	Minions []Minion `json:"minions"`
	// Subscriptions counts, by address, the connections on the publish port that
	// came without a name.
	Subscriptions map[string]int `json:"subscriptions"`
	// Since is from when on all is known of who was heard, Unix time in seconds; 0: the
	// master keeps no record.
	Since float64 `json:"since,omitempty"`
}

// Minion is a key, and when and where its minion was seen.
type Minion struct {
	ID        string `json:"id"`
	Key       string `json:"key"`       // accepted, pending, rejected, denied
	Connected bool   `json:"connected"` // subscribed under its own name
	Address   string `json:"address"`   // from where it was last heard; empty: never
	// Seen is when it was last heard, Unix time in seconds, in earlier lives of the
	// master as well, of which Address is not known; 0: never, since [Minions.Since].
	Seen   float64 `json:"seen"`
	Finger string  `json:"finger,omitempty"` // of the key, if it was asked for
}

// Heard returns Seen as a time in UTC, to the millisecond; nil if there is none.
func (m Minion) Heard() *time.Time { return timeOf(m.Seen) }

// Began returns Since as a time in UTC; nil if there is none.
func (m Minions) Began() *time.Time { return timeOf(m.Since) }

func timeOf(unix float64) *time.Time {
	if !(unix > 0 && unix < 1e11) {
		return nil
	}
	sec, part := math.Modf(unix)
	t := time.Unix(int64(sec), int64(part*1e9)).UTC().Truncate(time.Millisecond)
	return &t
}
