package status

import (
	"fmt"
	"time"
)

// Upgrade describes how a node installs newer versions of its system without an administrator.
type Upgrade struct {
	Window string `json:"window"` // the window as in appliance.yaml, in UTC
	Open   bool   `json:"open"`
	// Until is when an open window closes, or when a closed window opens next.
	Until time.Time `json:"until"`
	// Doing is the node's present action in the window, or "".
	Doing string `json:"doing,omitempty"`
	// Result is the outcome of the node's last try, or "" if there was none.
	Result string `json:"result,omitempty"`
}

// oneLine returns one line of text about the upgrades.
func (u Upgrade) oneLine(now time.Time) string {
	text := u.Window + " UTC, opens in " + Age(u.Until.Sub(now))
	if u.Open {
		text = u.Window + " UTC, open for another " + Age(u.Until.Sub(now))
	}
	switch {
	case u.Doing != "":
		text += "; this node " + u.Doing
	case u.Result != "":
		text += fmt.Sprintf("; last: %s", u.Result)
	}
	return text
}
