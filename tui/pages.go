package tui

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"charm.land/huh/v2"

	"saltern/supervisor/setup"
	"saltern/supervisor/status"
)

func forming(w *Wizard) bool { return w.draft.mode == string(setup.Form) }

// namesMachine reports whether the wizard asks for the host name. On an appliance the host name is
// the node's name unless the user types another one.
func namesMachine(w *Wizard) bool { return w.facts.Appliance }

// wizardPages returns the pages of the wizard in their order.
func wizardPages() []page {
	return []page{
		&formPage{name: "Welcome", fields: modeFields, facts: unusedLines,
			intro: "This machine becomes a node of a Salt master that keeps working when a node is lost. " +
				"Until you confirm the last page only keyboard and network change."},
		networkPage(), fixedPage(),
		&trialPage{},
		&formPage{name: "Administrator", fields: adminFields, check: adminFaults,
			intro: "How you log in later as admin: over SSH with a key, on the console with a password. SSH " +
				"takes keys only. If you cannot paste one here, give a password, and add keys later on the " +
				"console page, also from a web address."},
		&formPage{name: "Cluster", fields: formFields, when: forming},
		&formPage{name: "Cluster", fields: joinHowFields, when: func(w *Wizard) bool { return !forming(w) }},
		&formPage{
			name:       "Join string",
			fields:     joinStringFields,
			unfinished: joinUnfinished,
			places:     map[string]string{"peers": "join", "secret": "join"},
			when:       func(w *Wizard) bool { return !forming(w) && w.draft.how == byString },
		},
		&formPage{
			name:   "Nodes and secret",
			fields: joinPeersFields,
			when:   func(w *Wizard) bool { return !forming(w) && w.draft.how == byPeers },
		},
		storagePage("Keys, files and pillars of the cluster are kept on every node, best on a disk of their own.",
			forming),
		storagePage("The cluster decides where keys, files and pillars are: in copies on disks of its nodes, "+
			"or in a directory that all nodes share. The checks say which. A disk given here is for a copy.",
			func(w *Wizard) bool { return !forming(w) && !w.draft.arbiter() }),
		storagePage("An arbiter keeps no data, only the names of the files on the cluster's shared volume: "+
			"up to 4 KiB for each, 1 GiB is plenty. They cannot be on the root file system.",
			func(w *Wizard) bool { return w.draft.arbiter() }),
		&formPage{
			name:   "Erase the disk",
			fields: eraseFields,
			when:   eraseNeeded,
			places: map[string]string{"data_disk": "erase_data_disk"},
		},
		&formPage{
			name:   "Shared directory",
			fields: sharedFields,
			when:   func(w *Wizard) bool { return w.draft.storage == sharedDir && !w.draft.arbiter() },
		},
		&formPage{
			name:   "Virtual address",
			fields: virtualFields,
			when:   func(w *Wizard) bool { return forming(w) && !w.facts.EC2 },
			intro: "An address that moves to another node when the one that has it is lost. Leave it empty " +
				"when minions know all nodes, or when a load balancer or DNS of yours points to them.",
		},
		&formPage{name: "Salt's API", fields: apiFields, when: func(w *Wizard) bool { return !w.draft.arbiter() },
			intro: "A console for your browser, and Salt's API for programs, over HTTPS at port 8000 of this " +
				"node. Nobody can log in there before the master's external_auth says who may."},
		&preflightPage{},
		&reviewPage{},
		&progressPage{},
	}
}

func storagePage(intro string, when func(w *Wizard) bool) page {
	return &formPage{
		name:   "Storage",
		fields: storageFields,
		when:   when,
		places: map[string]string{"storage.kind": "data_disk"},
		intro:  intro,
	}
}

func networkPage() page {
	return &formPage{
		name:   "Network",
		fields: networkFields,
		facts:  presentNetwork,
		when:   func(w *Wizard) bool { return w.facts.Managed },
		intro:  "A change is tried first, and taken back after 60 seconds if not confirmed.",
	}
}

func fixedPage() page {
	return &formPage{
		name:    "Fixed address",
		fields:  staticFields,
		prepare: prefill,
		when:    func(w *Wizard) bool { return w.facts.Managed && w.draft.method == methodStatic },
	}
}

func modeFields(w *Wizard, f *fieldMaker) []huh.Field {
	mode := f.choice("mode", "What shall this machine do?", "", &w.draft.mode,
		huh.NewOption("form a new cluster (this is its first node, or its only one)", string(setup.Form)),
		huh.NewOption("join an existing cluster", string(setup.Join)),
		huh.NewOption("join as arbiter of two nodes (keeps no data, serves no minions)", joinAsArbiter))

	if w.keys == nil {
		return []huh.Field{mode}
	}

	var layouts []huh.Option[string]
	for _, l := range w.keys.Layouts() {
		layouts = append(layouts, huh.NewOption(l.Title, l.Name))
	}

	return []huh.Field{mode,
		f.choice("keyboard", "Keyboard",
			fmt.Sprintf("%d layouts to choose from; arrows change it at once", len(layouts)),
			&w.draft.layout, layouts...)}
}

// unusedLines describes the first of the settings that came with this machine and were not used.
// The description tells the person who prepared the machine why the wizard asks.
func unusedLines(w *Wizard) []string {
	unused := w.progress.Unused
	if len(unused) == 0 {
		return nil
	}

	width := w.size.bodySize().width
	const shown = 2
	lines := wrapWords("Not used: "+unused[0], width)
	if len(lines) > shown {
		lines = lines[:shown]
		lines[shown-1] = clipLine(lines[shown-1]+" ...", width)
	}

	if len(lines) > shown-1 || len(unused) > 1 {
		lines = append(lines, clipLine(fmt.Sprintf("All of it (%d): applianced setup progress", len(unused)), width))
	}

	return lines
}

// presentNetwork describes the current addresses of the chosen interface.
func presentNetwork(w *Wizard) []string {
	for _, i := range w.facts.Interfaces {
		if i.Name == w.draft.iface {
			return interfaceLines("Now  ", i, w.facts)
		}
	}
	return []string{"This machine has no network interface."}
}

func networkFields(w *Wizard, f *fieldMaker) []huh.Field {
	var options []huh.Option[string]
	for _, i := range w.facts.Interfaces {
		line := cleanLine(i.Name) + "  " + cleanLine(i.MAC)
		switch {
		case len(i.Addresses) > 0:
			line += "  " + cleanLine(strings.Join(i.Addresses, ", "))
		case !i.Up:
			line += "  no cable"
		}

		options = append(options, huh.NewOption(clipLine(line, 70), i.Name))
	}

	method := f.choice("network.method", "Addresses", "", &w.draft.method,
		huh.NewOption("leave as it is", methodKeep),
		huh.NewOption("from a DHCP server", methodDHCP),
		huh.NewOption("fixed", methodStatic))

	if len(options) < 2 {
		return []huh.Field{method}
	}

	return []huh.Field{f.choice("network.interface", "Interface", "", &w.draft.iface, options...), method}
}

// prefill puts the interface's current address into the fields of a fixed address, unless the user
// has changed them.
func prefill(w *Wizard) {
	d := &w.draft
	if d.fixed != d.offered {
		return
	}
	d.offered = presentAddress(w.facts, d.iface)
	d.fixed = d.offered
	if d.fixed.address != "" {
		w.message = "The fields hold what this machine has now."
	}
}

// presentAddress returns the current address of an interface.
func presentAddress(f setup.Facts, iface string) (now fixedAddress) {
	for _, i := range f.Interfaces {
		if i.Name == iface {
			now.address, now.gateway = mainAddress(i.Addresses), i.Gateway
		}
	}
	if now.address == "" {
		return fixedAddress{}
	}
	now.dns = strings.Join(slices.DeleteFunc(slices.Clone(f.DNS), isLoopback), ", ")
	now.search = strings.Join(f.Search, ", ")
	return now
}

// mainAddress returns the first address of an interface that has a network, IPv4 if there is one.
func mainAddress(all []string) (main string) {
	for _, s := range all {
		p, err := netip.ParsePrefix(s)
		if err != nil || p.IsSingleIP() || p.Addr().IsLinkLocalUnicast() {
			continue
		}
		if p.Addr().Is4() {
			return s
		}
		if main == "" {
			main = s
		}
	}
	return main
}

func isLoopback(address string) bool {
	a, err := netip.ParseAddr(address)
	return err == nil && a.IsLoopback()
}

func staticFields(w *Wizard, f *fieldMaker) []huh.Field {
	return []huh.Field{
		f.newInput("network.address", "Address with prefix length", "for example 10.0.0.11/24", &w.draft.fixed.address),
		f.newInput("network.gateway", "Gateway", "for example 10.0.0.1; empty: none", &w.draft.fixed.gateway),
		f.newInput("network.dns", "Name servers", "addresses, separated by commas; empty: none", &w.draft.fixed.dns),
		f.newInput("network.search", "Search domains",
			"for names without dots, for example example.org; empty: none", &w.draft.fixed.search),
		f.newInput("network.ntp", "Time servers",
			"addresses or names, separated by commas; empty: those of the image", &w.draft.fixed.ntp),
	}
}

func adminFields(w *Wizard, f *fieldMaker) []huh.Field {
	without := "may be empty when there is a key"
	if !w.facts.LockedOut {
		without = "all empty: no change"
	}
	return []huh.Field{
		f.newInput("admin.ssh_keys", "SSH public key",
			"one line that begins with ssh-ed25519, ssh-rsa or ecdsa-...; may be empty", &w.draft.sshKey),
		f.secret("admin.password", "Password", "for the console, at least 8 characters; "+without, &w.draft.password),
		f.secret("again", "Password once more", "", &w.draft.again),
	}
}

func adminFaults(w *Wizard) (faults []setup.Fault) {
	d := &w.draft
	if d.password != d.again {
		faults = append(faults, setup.Fault{Field: "again", Message: "the two passwords differ"})
	}
	if w.facts.LockedOut && d.password == "" && strings.TrimSpace(d.sshKey) == "" {
		faults = append(faults,
			setup.Fault{
				Field:   "admin.ssh_keys",
				Message: "give a key or a password: nobody could log in to this machine",
			})
	}
	return faults
}

func (w *Wizard) nodeFields(f *fieldMaker) []huh.Field {
	fields := []huh.Field{
		f.newInput("node", "Name of this node",
			"unique in the cluster, for example salt-1; it cannot be changed later", &w.draft.node),
		f.newInput("address", "Address for the other nodes",
			"an IP address of this machine; empty: "+w.defaultAddress(), &w.draft.peerAddress),
	}
	if namesMachine(w) {
		fields = append(fields,
			f.newInput("network.hostname", "Host name of this machine", "empty: the name of this node",
				&w.draft.hostname))
	}
	return fields
}

// defaultAddress describes the address that is used if the user enters none.
func (w *Wizard) defaultAddress() string {
	if a := setup.DefaultAddress(w.draft.network(), w.facts); a != "" {
		return cleanLine(a)
	}
	return "that of the default route"
}

func formFields(w *Wizard, f *fieldMaker) []huh.Field {
	first := f.newInput("cluster_id", "Name of the cluster",
		"for example prod-eu; it cannot be changed later; empty: saltern", &w.draft.cluster)
	return append(append([]huh.Field{first}, w.nodeFields(f)...),
		f.secret("secret", "Secret of the cluster", "empty: one is generated, and shown at the end", &w.draft.secret))
}

func joinHowFields(w *Wizard, f *fieldMaker) []huh.Field {
	return append([]huh.Field{f.choice("how", "What do you have from the cluster?", "", &w.draft.how,
		huh.NewOption("a join string (on one of its nodes: applianced join-string)", byString),
		huh.NewOption("addresses of its nodes and its secret", byPeers))}, w.nodeFields(f)...)
}

func joinStringFields(w *Wizard, f *fieldMaker) []huh.Field {
	return []huh.Field{f.secret("join", "Join string",
		"begins with sca2.; not shown while you type or paste", &w.draft.joinString)}
}

// joinUnfinished reports whether the join string is still incomplete.
func joinUnfinished(w *Wizard) bool {
	_, err := setup.ParseJoin(w.draft.joinString)
	return err != nil && w.draft.joinString != ""
}

func joinPeersFields(w *Wizard, f *fieldMaker) []huh.Field {
	return []huh.Field{
		f.newInput("cluster_id", "Name of the cluster", "as it was given on its first node; empty: any",
			&w.draft.cluster),
		f.newInput("peers", "Nodes of the cluster", "addresses or names, separated by commas; one is enough",
			&w.draft.peers),
		f.secret("secret", "Secret of the cluster", "not shown while you type", &w.draft.secret),
	}
}

func storageFields(w *Wizard, f *fieldMaker) []huh.Field {
	hint := ""
	if len(w.facts.Disks) == 0 {
		hint = "no further disk was found; attach one, then restart the wizard (Ctrl-C)"
	}
	return []huh.Field{f.choice("data_disk", "Where", hint, &w.draft.storage, storageChoices(w)...)}
}

func storageChoices(w *Wizard) []huh.Option[string] {
	var options, full []huh.Option[string]
	for _, d := range w.facts.Disks {
		line := fmt.Sprintf("disk %s, %s %s", cleanLine(d.Path), status.Size(d.Size), cleanLine(d.Model))
		if d.Empty {
			options = append(options, huh.NewOption(clipLine(strings.TrimSpace(line), 72), d.Path))
			continue
		}
		line += " (not empty: " + cleanLine(d.Why) + ")"
		full = append(full, huh.NewOption(clipLine(line, 72), d.Path))
	}

	system := "the system disk (for trials and small clusters)"
	if w.draft.arbiter() {
		words := "the system disk"
		if w.facts.NoBricks != "" {
			words += ": it cannot hold them; attach another one"
		}
		return append(append(options, huh.NewOption(words, systemDisk)), full...)
	}

	switch {
	case forming(w) && (!w.facts.Volume || w.facts.NoBricks != ""):
		system = "the system disk of this machine alone: no other node can join"
	case w.facts.NoBricks != "":
		system = "the system disk, if the cluster keeps no copies on its nodes' disks"
	case !forming(w):
		system = "the system disk, if the cluster keeps copies; else none"
	}

	directory := "a directory that all nodes share already, for example by NFS"
	if !forming(w) {
		directory = "a directory that all nodes share, at another place than on the others"
	}

	options = append(options, huh.NewOption(system, systemDisk), huh.NewOption(directory, sharedDir))
	return append(options, full...) // these come last, because they are rarely meant
}

// eraseNeeded reports whether the chosen disk must be erased first.
func eraseNeeded(w *Wizard) bool {
	for _, d := range w.facts.Disks {
		if d.Path == w.draft.storage {
			return !d.Empty
		}
	}
	return false
}

func eraseFields(w *Wizard, f *fieldMaker) []huh.Field {
	why := "something"
	for _, d := range w.facts.Disks {
		if d.Path == w.draft.storage {
			why = cleanLine(d.Why)
		}
	}
	return []huh.Field{f.yesNo("erase_data_disk", "Erase "+cleanLine(w.draft.storage)+"?",
		"It has on it: "+why+". All of it would be lost.", &w.draft.erase)}
}

func sharedFields(w *Wizard, f *fieldMaker) []huh.Field {
	return []huh.Field{f.newInput("storage", "Directory", "an absolute path, mounted on all nodes", &w.draft.sharedDir)}
}

func virtualFields(w *Wizard, f *fieldMaker) []huh.Field {
	return []huh.Field{f.newInput("virtual_address", "Virtual address",
		"a free IP address of the same network; empty: none", &w.draft.virtual)}
}

func apiFields(w *Wizard, f *fieldMaker) []huh.Field {
	return []huh.Field{f.yesNo("api", "Shall this node serve them (salt-api)?", "", &w.draft.api)}
}
