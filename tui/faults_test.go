package tui

import (
	"maps"
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"charm.land/huh/v2"

	"saltern/supervisor/setup"
)

// The keys that lead to pages where the network is not ours.
var (
	// with a network that is ours
	toFixed   = append([]string{"enter", "enter", "down", "down", "enter"}, clearFixed...)
	toAdmin   = []string{"enter"}
	toForm    = []string{"enter", "enter", "enter", "enter"}
	toStorage = append(slices.Clone(toForm), "=c", "enter", "enter", "enter", "enter")
	toVirtual = append(slices.Clone(toStorage), "enter")
	toShared  = append(slices.Clone(toStorage), "down", "down", "enter")
	toErase   = append(slices.Clone(toStorage), "down", "down", "down", "enter")
	toHow     = []string{"down", "enter", "enter", "enter", "enter"}
	toString  = append(slices.Clone(toHow), "enter", "enter", "enter")
	toPeers   = append(slices.Clone(toHow), "down", "enter", "enter", "enter")
)

// clearFixed clears what the page of a fixed address has filled in.
var clearFixed = []string{"ctrl+u", "tab", "ctrl+u", "tab", "ctrl+u", "tab", "ctrl+u", "shift+tab",
	"shift+tab", "shift+tab"}

// fieldFaults are all wrong inputs that a field tells apart, with its words.
var fieldFaults = []struct {
	name, field string
	managed     bool
	to, typed   []string
	message     string
}{
	{"address", "network.address", true, toFixed,
		[]string{"=bad", "enter", "enter", "enter", "enter", "enter"},
		`! "bad" is not an address with a prefix length`},
	{"address-of-many", "network.address", true, toFixed,
		[]string{"=224.0.0.1/24", "enter", "enter", "enter", "enter", "enter"},
		"! 224.0.0.1/24 is not the address of one machine"},
	{"no-address", "network.address", true, toFixed, []string{"enter", "enter", "enter", "enter", "enter"},
		`! is missing: an address with a prefix length`},
	{"gateway", "network.gateway", true, toFixed,
		[]string{"=10.0.0.9/24", "enter", "=bad", "enter", "enter", "enter", "enter"},
		`! "bad" is not an IP address`},
	{"gateway-elsewhere", "network.gateway", true, toFixed,
		[]string{"=10.0.0.9/24", "enter", "=10.1.0.1", "enter", "enter", "enter", "enter"},
		"! 10.1.0.1 is not another machine of the network"},
	{"dns", "network.dns", true, toFixed,
		[]string{"=10.0.0.9/24", "enter", "enter", "=10.0.0.1, bad", "enter", "enter", "enter"},
		`! "bad" is not an IP address`},
	{"search", "network.search", true, toFixed,
		[]string{"=10.0.0.9/24", "enter", "enter", "enter", "=a_b", "enter", "enter"},
		`! "a_b" is not a domain`},
	{"ntp", "network.ntp", true, toFixed,
		[]string{"=10.0.0.9/24", "enter", "enter", "enter", "enter", "=a:123", "enter"},
		`! "a:123" is not an address or host name`},
	{"key", "admin.ssh_keys", false, toAdmin, []string{"=ssh-dss AAAA", "enter", "enter", "enter"},
		"is not a public key"},
	{"password", "admin.password", false, toAdmin, []string{"enter", "=short", "enter", "=short", "enter"},
		"! has to have 8 to 256 characters"},
	{"passwords-differ", "again", false, toAdmin, []string{"enter", "=one", "enter", "=two", "enter"},
		"! the two passwords differ"},
	{"locked-out", "admin.ssh_keys", false, toAdmin, []string{"enter", "enter", "enter"},
		"! give a key or a password: nobody could log in"},
	{"cluster", "cluster_id", false, toForm, []string{"=a b", "enter", "enter", "enter", "enter"},
		`! "a b" is not a plain name`},
	{"node", "node", false, toForm, []string{"=c", "enter", "ctrl+u", "=-bad", "enter", "enter", "enter"},
		`! "-bad" is not a host name`},
	{"node-localhost", "node", false, toForm,
		[]string{"=c", "enter", "ctrl+u", "=localhost", "enter", "enter", "enter"},
		"! localhost is every machine's name"},
	{"peer-address", "address", false, toForm, []string{"=c", "enter", "enter", "=10.0.0", "enter", "enter"},
		`! "10.0.0" is not an IP address`},
	{"peer-address-any", "address", false, toForm,
		[]string{"=c", "enter", "enter", "=0.0.0.0", "enter", "enter"},
		"! 0.0.0.0 is not the address of one machine"},
	{"peer-address-elsewhere", "address", false, toForm,
		[]string{"=c", "enter", "enter", "=192.0.2.9", "enter", "enter"},
		"! this machine does not have 192.0.2.9; it has 10.0.0.11"},
	{"secret", "secret", false, toForm, []string{"=c", "enter", "enter", "enter", "=short", "enter"},
		"! is shorter than 16 characters"},
	{"secret-blank", "secret", false, toForm,
		[]string{"=c", "enter", "enter", "enter", "=correct horse battery", "enter"}, "! holds a blank"},
	{"secret-long", "secret", false, toForm,
		[]string{"=c", "enter", "enter", "enter", "=" + strings.Repeat("x", 129), "enter"},
		"! is longer than 128 characters"},
	{"join-node", "node", false, toHow, []string{"enter", "ctrl+u", "=a/b", "enter", "enter"},
		`! "a/b" is not a host name`},
	{"join-address", "address", false, toHow, []string{"enter", "enter", "=x", "enter"}, `! "x" is not an IP address`},
	{"join-string", "join", false, toString, []string{"=sca1.bad", "enter"}, "! is not a join string"},
	{"join-string-typo", "join", false, toString,
		[]string{"=" + strings.Replace(join, "secret", "sceret", 1), "enter"},
		"! has a typing error after the third dot (the secret)"},
	{"join-string-cut", "join", false, toString, []string{"=" + join[:len(join)-4], "enter"},
		"! has a typing error after the @"},
	{"join-string-missing", "join", false, toString, []string{"enter"}, "! is missing"},
	{"join-string-secret", "join", false, toString,
		[]string{"=sca1." + strings.Repeat("0123456789abcdef", 4) + ".short@10.0.0.12", "enter"},
		"! its secret is shorter than 16 characters"},
	{"join-cluster", "cluster_id", false, toPeers,
		[]string{"=a b", "enter", "=10.0.0.12", "enter", "=mosaic-kettle-fern", "enter"},
		`! "a b" is not a plain name`},
	{"peers", "peers", false, toPeers,
		[]string{"=c", "enter", "=a:b:4521", "enter", "=mosaic-kettle-fern", "enter"}, "without a port"},
	{"peers-missing", "peers", false, toPeers,
		[]string{"=c", "enter", "enter", "=mosaic-kettle-fern", "enter"},
		"! is missing: the address of a node"},
	{"peers-own", "peers", false, toPeers,
		[]string{"=c", "enter", "=10.0.0.11", "enter", "=mosaic-kettle-fern", "enter"},
		"! 10.0.0.11 is this machine"},
	{"join-secret-missing", "secret", false, toPeers,
		[]string{"=c", "enter", "=10.0.0.12", "enter", "enter"}, "! is missing: that of the cluster"},
	{"join-secret-short", "secret", false, toPeers,
		[]string{"=c", "enter", "=10.0.0.12", "enter", "=short", "enter"},
		"! is shorter than 16 characters"},
	{"directory", "storage", false, toShared, []string{"=srv", "enter"}, `! "srv" is not an absolute path`},
	{"directory-missing", "storage", false, toShared, []string{"enter"}, "! is missing: the directory"},
	{"not-erased", "erase_data_disk", false, toErase, []string{"enter"}, "! /dev/vdc is not empty"},
	{"virtual", "virtual_address", false, toVirtual, []string{"=bad", "enter"}, `! "bad" is not an IP address`},
	{"virtual-own", "virtual_address", false, toVirtual, []string{"=10.0.0.11", "enter"},
		"! is this node's own address"},
	{"virtual-elsewhere", "virtual_address", false, toVirtual, []string{"=192.0.2.20", "enter"},
		"! 192.0.2.20 is in none of this node's networks"},
	{"virtual-network", "virtual_address", false, toVirtual, []string{"=10.0.0.255", "enter"},
		"! 10.0.0.255 stands for the whole network 10.0.0.0/24"},
	{"virtual-ipv6", "virtual_address", false, toVirtual, []string{"=fd00::20", "enter"},
		"! has to be of the same kind as the address for the other nodes"},
}

// TestFieldFaults: wrong input in every field shows that field's message on a
// recorded screen, and the page stays.
func TestFieldFaults(t *testing.T) {
	for _, tt := range fieldFaults {
		t.Run(tt.name, func(t *testing.T) {
			s := newScripted()
			s.facts.Managed = tt.managed
			s.facts.LockedOut = tt.name == "locked-out"
			inBubble(t, s, func(p *pump) {
				p.keys(tt.to...)
				before := strings.SplitN(p.screen(), "\n", 2)[0]
				p.keys(tt.typed...)
				p.wait(holdFor) // a join string may go on
				p.has(tt.message, "marked with an exclamation mark")

				if after := strings.SplitN(p.screen(), "\n", 2)[0]; after != before {
					t.Errorf("the page changed from %s to %s", before, after)
				}

				p.golden("faults/" + tt.name)
			})
		})
	}
}

// TestAllFaultsAtOnce: a page marks everything that is wrong on it. (m3)
func TestAllFaultsAtOnce(t *testing.T) {
	for _, x := range []struct {
		name  string
		keys  []string
		marks []string
	}{
		{"fixed address",
			append(slices.Clone(toFixed), "enter", "=10.66.0.300/24", "enter", "=x, 10.0.0.1, y", "enter",
				"=a_b", "enter", "=a:123", "enter"),
			[]string{`! is missing: an address`, `! "10.66.0.300/24" is not an IP address`,
				`"x" is not an IP address`, `"y" is not an IP address`, `! "a_b" is not a domain`,
				`! "a:123" is not an address`}},
		{"passwords", append(slices.Clone(toAdmin), "=ssh-dss AAAA", "enter", "=short", "enter", "=other", "enter"),
			[]string{"is not a public key", "! has to have 8 to 256 characters", "! the two passwords differ"}},
		{"cluster",
			append(slices.Clone(toForm), "=a b", "enter", "ctrl+u", "=-bad", "enter", "=10.0.0", "enter",
				"=short", "enter"),
			[]string{`! "a b" is not a plain name`, `! "-bad" is not a host name`,
				`! "10.0.0" is not an IP address`, "! is shorter than 16 characters"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := newScripted()
			s.facts.Managed = x.name == "fixed address"
			inBubble(t, s, func(p *pump) {
				p.send(tea.WindowSizeMsg{Width: 80, Height: 50})
				p.keys(x.keys...)
				p.has(x.marks...)
			})
		})
	}
}

// TestFaultGoesWithItsText: a fault stays while its text is corrected. When the cursor leaves the
// corrected text, only the faults of other fields are left.
func TestFaultGoesWithItsText(t *testing.T) {
	s := newScripted()
	s.facts.Managed = false
	inBubble(t, s, func(p *pump) {
		p.keys(append(slices.Clone(toAdmin), "=ssh-dss AAAA", "enter", "=short", "enter", "=other", "enter")...)
		const ofKey, ofPassword = "is not a public key", "! has to have 8 to 256 characters"

		p.keys("tab", "shift+tab")
		p.has(ofKey, ofPassword) // nothing was changed

		p.keys("=A")
		p.has(ofKey, ofPassword)

		p.keys("tab")
		p.has("one line that begins with ssh-ed25519", ofPassword)
		if strings.Contains(p.screen(), ofKey) {
			t.Errorf("the fault of a text that is no more:\n%s", p.screen())
		}
	})
}

// TestEveryFieldHasItsFault: of all fields into which something is typed none
// is without a message of its own.
func TestEveryFieldHasItsFault(t *testing.T) {
	tested, typed := map[string]bool{}, map[string]bool{}
	for _, tt := range fieldFaults {
		tested[tt.field] = true
	}

	for _, mode := range []setup.Mode{setup.Form, setup.Join} {
		w := NewWizard(t.Context(), newScripted(), "tty1")
		w.facts = newScripted().facts
		w.draft = newDraft(w.facts)
		w.draft.mode = string(mode)

		for _, p := range wizardPages() {
			f, ok := p.(*formPage)
			if !ok {
				continue
			}

			for _, x := range f.fields(w, &fieldMaker{f}) {
				if _, line := x.(*huh.Input); line {
					typed[x.GetKey()] = true
				}
			}
		}
	}

	for _, f := range slices.Sorted(maps.Keys(typed)) {
		if !tested[f] {
			t.Errorf("no wrong input is tried in %s", f)
		}
	}

	if len(typed) < 14 {
		t.Errorf("only %d fields found", len(typed))
	}
}
