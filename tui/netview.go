package tui

import (
	"fmt"
	"strings"

	"saltern/supervisor/setup"
)

// networkLines describes the current network of the machine.
func networkLines(f setup.Facts) []string {
	lines := []string{"Host name  " + cleanLine(f.Hostname), ""}
	for _, i := range f.Interfaces {
		lines = append(lines, interfaceLines("", i, f)...)
	}
	if len(f.Interfaces) == 0 {
		lines = append(lines, "No interfaces are known.")
	}
	if !f.Managed {
		lines = append(lines, "", "The network of this machine is managed elsewhere.")
	}
	return lines
}

// interfaceLines describes one interface. label precedes the first line.
func interfaceLines(label string, i setup.Interface, f setup.Facts) []string {
	state := "no cable"
	if i.Up {
		state = "up"
	}

	if i.Default {
		state += ", default route"
	}

	indent := strings.Repeat(" ", len(label)+11)
	line := func(text string) string { return clipLine(text, minWidth-2) }
	lines := []string{line(fmt.Sprintf("%s%-10s %s  MTU %d  %s", label, cleanLine(i.Name), cleanLine(i.MAC),
		i.MTU, state))}
	for n, a := range i.Addresses {
		how := ""
		switch {
		case n > 0:
		case i.DHCP:
			how = "  by DHCP"
		default:
			how = "  fixed"
		}

		lines = append(lines, line(indent+cleanLine(a)+how))
	}

	if len(i.Addresses) == 0 {
		lines = append(lines, indent+"no address")
	}

	if !i.Default {
		return lines
	}

	gateway := "none"
	if i.Gateway != "" {
		gateway = cleanLine(i.Gateway)
	}

	lines = append(lines, line(indent+"gateway "+gateway))
	if len(f.DNS) > 0 {
		lines = append(lines, line(indent+"name servers "+cleanLine(strings.Join(f.DNS, ", "))))
	}

	if len(f.Search) > 0 {
		lines = append(lines, line(indent+"search domains "+cleanLine(strings.Join(f.Search, ", "))))
	}

	return lines
}
