package tui

import (
	"strconv"

	"saltern/supervisor/setup"
)

// Names, in a handed-over draft, of those answers that are not texts.
const (
	handedAPI     = "api"
	handedFixed   = "fixed."
	handedStorage = "storage"
)

// textAnswers returns the answers that another terminal may get, by name. Passwords, the secret,
// the join string and the consent to erase a disk stay on the terminal where the user typed them.
func (d *draft) textAnswers() map[string]*string {
	return map[string]*string{
		"mode":                  &d.mode,
		"interface":             &d.iface,
		"method":                &d.method,
		handedFixed + "address": &d.fixed.address,
		handedFixed + "gateway": &d.fixed.gateway,
		handedFixed + "dns":     &d.fixed.dns,
		handedFixed + "search":  &d.fixed.search,
		handedFixed + "ntp":     &d.fixed.ntp,
		"ssh_key":               &d.sshKey,
		"cluster":               &d.cluster,
		"node":                  &d.node,
		"address":               &d.peerAddress,
		"hostname":              &d.hostname,
		"how":                   &d.how,
		"peers":                 &d.peers,
		handedStorage:           &d.storage,
		"directory":             &d.sharedDir,
		"virtual":               &d.virtual,
	}
}

// handed returns the answers for the terminal that takes over.
func (d *draft) handed() setup.Draft {
	out := setup.Draft{handedAPI: strconv.FormatBool(d.api)}
	for name, text := range d.textAnswers() {
		out[name] = *text
	}
	return out
}

// takeHandedOver replaces this terminal's answers by handed, the answers of the terminal that led
// before. If handed is empty, it returns false.
func (d *draft) takeHandedOver(handed setup.Draft) bool {
	if len(handed) == 0 {
		return false
	}
	for name, text := range d.textAnswers() {
		if value, ok := handed[name]; ok {
			*text = value
		}
	}
	if handed[handedStorage] != "" {
		d.erase = false
	}
	d.api = handed[handedAPI] == strconv.FormatBool(true)
	return true
}
