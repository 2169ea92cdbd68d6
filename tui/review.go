package tui

import (
	"cmp"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"saltern/supervisor/setup"
	"saltern/supervisor/status"
)

func pageOf(n, all int) string { return fmt.Sprintf("  (%d of %d)", n, all) }

// reviewPage shows all answers once more. Only this page starts the set-up.
type reviewPage struct {
	faults []setup.Fault
	valid  bool
}

type startedMsg struct {
	turn int
	err  error
}

func (p *reviewPage) heading() string        { return "Review" }
func (p *reviewPage) applies(w *Wizard) bool { return true }

func (p *reviewPage) opened(w *Wizard) tea.Cmd {
	p.faults, p.valid = nil, false
	return w.validate()
}

func (p *reviewPage) update(w *Wizard, msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case validated:
		p.faults, p.valid = msg.faults, msg.err == nil && len(msg.faults) == 0
		if msg.err != nil {
			w.message = "The answers could not be checked: " + cleanLine(msg.err.Error())
		}
	case startedMsg:
		if msg.turn != w.turn {
			return nil
		}

		w.busy = ""
		if msg.err != nil {
			w.message = "Not started: " + cleanLine(msg.err.Error())
			return nil
		}

		w.began = true
		w.draft.secret = ""
		w.draft.joinString = ""
		w.draft.password = ""
		w.draft.again = ""

		return w.pollSetup(setup.Begin, false)
	case tea.KeyPressMsg:
		switch {
		case w.busy != "":
		case msg.String() == "esc":
			return w.goBack()
		// not Enter: Enter leads through all pages and would start the set-up by accident
		case msg.String() == "enter" && p.valid:
			w.message = "Press s to start the set-up."
		case p.valid && (msg.String() == "s" || msg.String() == "S"):
			w.busy = "Starting ..."
			turn, a := w.turn, w.draft.answers()
			return func() tea.Msg { return startedMsg{turn, w.api.SetupStart(w.ctx, a)} }
		case msg.String() == "enter":
			return w.validate()
		}
	}

	return nil
}

func (p *reviewPage) render(w *Wizard) string {
	width := w.size.bodySize().width
	if len(p.faults) > 0 {
		lines := []string{"", "These answers contradict each other:", ""}
		for _, f := range p.faults {
			lines = append(lines, paragraph("  ! ", f.Field+": "+f.Message, width))
		}
		return strings.Join(lines, "\n")
	}
	lines := []string{"", bold.Render("This will be done:"), ""}
	for _, r := range summary(w.checked, &w.draft, w.facts) {
		lines = append(lines, paragraph(fmt.Sprintf("  %-22s", r[0]), r[1], width))
	}
	return strings.Join(lines, "\n")
}

// summary returns the answers as rows of name and value, without secrets.
func summary(a setup.Answers, d *draft, f setup.Facts) (rows [][2]string) {
	row := func(name, value string) {
		if value != "" {
			rows = append(rows, [2]string{name, value})
		}
	}

	if a.Mode == setup.Form {
		row("Form the cluster", a.Cluster)
	} else {
		name := a.Cluster
		name = cmp.Or(name, "that of the join string")
		row("Join the cluster", name)
		row("through", strings.Join(a.Peers, ", "))
	}

	row("Name of this node", a.Node)
	row("Host name", a.Network.Hostname)
	row("Address for nodes", a.Address)
	if d.arbiter() {
		row("Role", "arbiter: it keeps no data and serves no minions")
	} else if front := strings.Join(a.Front, ", "); strings.Contains(front, "0.0.0.0") {
		row("Minions connect to", "any address of this machine")
	} else {
		row("Minions connect to", front)
	}

	row("Virtual address", a.Virtual)
	if a.API {
		row("Salt's API", "served by this node")
	} else if !d.arbiter() {
		row("Salt's API", "not served by this node")
	}

	row(storageOf(a, d, f))

	switch {
	case a.Mode == setup.Form && d.secret == "":
		row("Secret", "generated, and shown at the end")
	default:
		row("Secret", "as given")
	}

	row("Time zone", "UTC, on every node")
	for _, k := range a.Admin.SSHKeys {
		row("SSH key of admin", keyName(k))
	}

	if d.password != "" {
		row("Password of admin", "as given")
	}

	if len(a.Admin.SSHKeys) == 0 && d.password == "" {
		row("Administrator", "unchanged")
	}

	switch a.Network.Method {
	case methodDHCP:
		row("Network", a.Network.Interface+" by DHCP")
	case methodStatic:
		row("Network", a.Network.Interface+" "+a.Network.Address+", gateway "+a.Network.Gateway)
	}

	return rows
}

// storageOf returns the name and the value of the row about storage.
func storageOf(a setup.Answers, d *draft, f setup.Facts) (name, value string) {
	switch {
	case a.DataDisk != "" && a.EraseDisk:
		return "Data disk", wordDisk(a.DataDisk, f) + ": ALL DATA ON IT IS ERASED"
	case a.DataDisk != "":
		return "Data disk", wordDisk(a.DataDisk, f) + ": will be formatted"
	case a.Storage.Kind == "directory":
		return "Shared directory", a.Storage.Path
	case d.arbiter():
		return "Names of files", "on the system disk"
	default:
		return "Storage", "on the system disk"
	}
}

// wordDisk returns a disk's path with its size and model.
func wordDisk(path string, f setup.Facts) string {
	for _, d := range f.Disks {
		if d.Path == path {
			return strings.TrimSpace(path + ", " + status.Size(d.Size) + " " + d.Model)
		}
	}
	return path
}

// keyName returns the fingerprint and comment of an SSH public key.
func keyName(line string) string {
	k, err := setup.ParseSSHKey(line)
	if err != nil {
		return clipLine(err.Error(), 48)
	}
	return strings.TrimSpace(k.Fingerprint + " " + clipLine(k.Comment, 24))
}

func (p *reviewPage) keyHelp(w *Wizard) string {
	if !p.valid {
		return footer("Enter: check again", helpKeys, "Esc: back", "Ctrl-C: leave")
	}
	return footer("s: START THE SET-UP", helpKeys, "Esc: back", "Ctrl-C: leave")
}
