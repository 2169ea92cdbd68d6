//go:build nspawn

package image

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// networkPage changes the network of a machine on its console page.
type networkPage struct {
	*pages
	m *machine
}

// try puts a fixed address with its prefix length in force, for as long as it
// is tried.
func (c *networkPage) try(t *testing.T, address, gateway string) {
	t.Helper()
	lab.Eventually(t, c.wait, "the console page", func() error {
		switch s := c.x.Screen(); {
		case strings.Contains(s, "c: change the network"):
			return nil
		case strings.Contains(s, ": choose"):
			c.x.Type(t, "3")
		}
		return fmt.Errorf("it shows\n%s", c.x.Screen())
	})

	c.page("c: change the network", "c")
	c.page("A change is tried first", down+down+"\r") // of the only interface; fixed

	// The fields hold what the machine has now.
	c.page("Address with prefix length", "\x15"+address+"\r\x15"+gateway+"\r\r\r\r")
	c.page("Network, on trial", "")
	c.page("     "+address, "") // it has it
}

// confirm keeps what is tried.
func (c *networkPage) confirm(t *testing.T) {
	t.Helper()
	c.page("KEEP IT", "\r")
	c.page("The network is as you confirmed it.", "")
}

// has waits until the machine has an address and a gateway ("": none), or no
// such address any more.
func (c *networkPage) has(t *testing.T, yes bool, address, gateway string) {
	t.Helper()
	lab.Eventually(t, 90*time.Second, fmt.Sprintf("%s has %s by %q: %v", c.m.Name, address, gateway, yes),
		func() error {
			out, err := c.m.try("sh", "-c", "ip -4 -o addr show host0; ip -4 route show default")
			switch {
			case err != nil:
				return fmt.Errorf("%w: %s", err, out)
			case strings.Contains(out, address+" ") != yes,
				yes && gateway != "" && !strings.Contains(out, "default via "+gateway+" "),
				yes && gateway == "" && strings.Contains(out, "default"):
				return fmt.Errorf("it has %s", out)
			}

			return nil
		})
}
