package status

import (
	"fmt"
	"time"
)

// Upgrade is how a node takes newer versions of its system by itself.
type Upgrade struct {
	Window string `json:"window"` // as in appliance.yaml, in UTC
	Open   bool   `json:"open"`
	// Until is when the window closes, or opens next.
	Until time.Time `json:"until"`
	// Doing is what this node does in it at this moment; empty: nothing.
	Doing string `json:"doing,omitempty"`
	// Result is what came of the last try of this node; empty: there was none.
	Result string `json:"result,omitempty"`
}

// line words it in one line.
func (u Upgrade) line(now time.Time) string {
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
