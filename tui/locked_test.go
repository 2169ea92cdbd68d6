package tui

import (
	"testing"

	"saltern/supervisor/setup"
)

// TestFinding24ConsoleLogin: a page that wants the administrator asks for
// nothing and does nothing: no key ends in a restart, a shutdown, a change of
// the network or a bundle.
func TestFinding24ConsoleLogin(t *testing.T) {
	for _, locked := range []bool{true, false} {
		c := NewConsole(t.Context(), nil, nil)
		if locked {
			c.Lock()
		}

		c.facts = setup.Facts{Managed: true}
		for _, keys := range [][]string{{"4"}, {"6"}, {"5", "1"}, {"5", "2"}, {"5", "3"}} {
			c.ask, c.message = nil, ""
			c.showView(overview)
			for _, k := range keys {
				c.handleKey(k)
			}

			if (c.ask == nil) != locked || (c.message == lockedText) != locked {
				t.Errorf("locked %v: %v: asks %v, says %q", locked, keys, c.ask, c.message)
			}

			c.ask = nil
			c.handleKey("y")
			if locked && c.Action() != Leave {
				t.Errorf("%v: ends with %v", keys, c.Action())
			}
		}

		c.ask = nil
		c.message = ""
		c.view = network
		if locked {
			if cmd := c.handleKey("c"); cmd != nil || c.message != lockedText {
				t.Errorf("the network: %q", c.message)
			}
		}
	}
}
