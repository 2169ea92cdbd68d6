package tui

import (
	"strings"

	"charm.land/huh/v2"
)

// help is the text of each page's help: a paragraph for each of its fields or keys.
var help = map[string][]string{
	"Welcome": {
		"Form a new cluster on the first machine. It generates the cluster's key and secret, and serves " +
			"minions at once. One node alone works; a second one can join at any time.",
		"Join on every further machine. It needs the join string that any node of the cluster prints: " +
			"applianced join-string.",
		"Join as arbiter on a small third machine when two nodes keep copies on their disks. It keeps no " +
			"data and serves no minions; it keeps the two working when either of them is lost, since it " +
			"decides which copy is right. A cluster needs one at most, and none with three nodes.",
		"Keyboard is asked for at the machine's own screen only. Over a serial line or SSH the layout is " +
			"that of the machine you sit at.",
	},
	"Network": {
		"Leave the network as it is when the address that the page shows will stay: it is fixed, or the DHCP " +
			"server always gives the same one. Nodes know each other by their addresses.",
		"Fixed asks for address, gateway, name servers, search domains and time servers on the next page.",
		"Every change is tried first. If you do not confirm it within 60 seconds, because the terminal is " +
			"cut off for example, the machine goes back by itself.",
	},
	"Fixed address": {
		"Address: with the length of the network's prefix; 255.255.255.0 is /24.",
		"Gateway: the router of this network. Without one only this network is reached.",
		"Name servers and search domains: needed for host names of time servers, Git remotes and the like. " +
			"Addresses work without.",
		"Time servers: clocks of the nodes must agree within 30 seconds. If you give none, the " +
			"machine uses those of the image.",
	},
	"Administrator": {
		"SSH public key: the whole line of a file such as ~/.ssh/id_ed25519.pub. SSH takes keys only. If you " +
			"cannot paste here, give a password and add the key later from the console page.",
		"Password: for a login at this console and for the console in a browser. " +
			"Ctrl-T shows what you typed, which helps when the keyboard has another layout than you think.",
	},
	"Cluster": {
		"Name of the cluster: for people and for checks. It cannot be changed later.",
		"Name of this node: as it stands in lists and logs. No two nodes may have the same.",
		"Address: an address of this machine by which all other nodes reach it. It cannot be changed while " +
			"the node is part of the cluster.",
		"Host name: what the machine calls itself in prompts, in the system's log and towards the DHCP " +
			"server. Later: sudo hostnamectl set-hostname NAME",
		"Secret: whoever has it can make a machine a node. Leave it empty and one is generated; it is part " +
			"of the join string.",
		"To join, prefer the join string: it also proves the cluster to this machine.",
	},
	"Join string": {
		"Print it on any node of the cluster with: applianced join-string. It begins with sca2. and holds a " +
			"check, the hash of the cluster's key, the secret, and addresses of nodes.",
		"Line breaks do no harm. Ctrl-T shows it. If it cannot be pasted here, go one page back and give " +
			"address and secret, or make this terminal one that can: ssh, a serial line.",
	},
	"Nodes and secret": {
		"Nodes of the cluster: the address of one node that runs is enough.",
		"Secret: the part of a join string from the third dot to the @. Without the join string's hash the " +
			"secret alone proves the cluster.",
	},
	"Storage": {
		"A disk: it is formatted and holds this node's copy of the shared volume. Take one when the machine " +
			"has it; it can be enlarged later.",
		"The system disk: fine for trials and small clusters.",
		"A directory that all nodes share already: then the appliance keeps no copies, and the server of " +
			"that directory has to be as available as the cluster should be.",
	},
	"Erase the disk": {"No goes no further: press Esc and choose another disk. Yes formats it when the " +
		"set-up starts; nothing is erased before."},
	"Shared directory": {"Mount it on this machine first, writable for root (no_root_squash with NFS), and " +
		"at the same place on all nodes."},
	"Virtual address": {
		"An address that no machine has, in the same network as this node. Minions use it as their master; " +
			"it moves to another node within seconds.",
		"Leave it empty when minions know the addresses of all nodes, or when a load balancer or DNS of " +
			"yours points to the nodes. Later: applianced virtual-address.",
	},
	"Salt's API": {
		"The console shows keys, minions, jobs and nodes. The master's option external_auth lists who may log " +
			"in; set it after the set-up. The console's log-in page shows the lines that let admin in.",
		"Salt's API (salt-api, rest_cherrypy) is for programs such as pepper, Jenkins or SaltGUI: they run " +
			"jobs and receive events through it. An authority of the cluster's own signs the certificate, " +
			"unless rest_cherrypy names another one.",
		"It can be switched on and off later, on each node: api.enabled in appliance.yaml, then applianced reload.",
	},
	"Network, on trial": {
		"The new network is in force now. Enter keeps it. It is taken back when the time is over, at Esc, " +
			"and when this terminal goes away: you cannot lock yourself out.",
		"What stands below the addresses was tried with this network. A gateway, name server or time server " +
			"that does not answer may be wrong, or switched off, or may answer nobody it does not know.",
	},
	"Checks": {
		"pass: as it should be. warn: the set-up can go on, and what it says deserves a look. fail: it must " +
			"be fixed first. skip: it could not be checked, for the reason given. later: the set-up tries it " +
			"when the cluster has admitted this machine.",
		"r checks everything again, for example after a firewall was opened. Esc goes back to the answers; " +
			"none is lost.",
	},
	"Review": {
		"Nothing has been changed yet, except the keyboard, and the network if you confirmed it. s starts; Esc goes back to the answers.",
		"Once started, the set-up continues by itself, also when this terminal is closed or the power fails. " +
			"Until other nodes know of this one, its answers can still be changed if it fails.",
	},
	progressTitle: {
		"The steps are done in this order. The one under way says what it waits for. When one fails, the " +
			"cause and what to check stand below; r tries it again.",
		"When the node is ready: copy the lines for your minions and keep the join string. The console page " +
			"shows both later, too.",
	},
	followingTitle: {
		"One terminal at a time answers the questions, so that two people do not answer them differently. " +
			"The one that is typed at first leads; the others show how it goes.",
		"t takes over, with what was answered so far, but for passwords, the secret and the join string. The " +
			"other terminal can take it back in the same way.",
	},
	"Administrator's password": {
		"The password of the administrator's account, which was given when this machine was set up. Whoever " +
			"stands at this console can restart the machine, but not act as its administrator.",
		"Without a password, log in over SSH and use: applianced join-string, applianced keys.",
	},
	"New password": {
		"It is for a login at this console and for the console in a browser. Ctrl-T shows what you typed, which helps " +
			"when the keyboard has another layout than you think.",
		"Who has forgotten it and has an SSH key logs in with that, then: sudo passwd admin",
	},
	"Add an SSH key": {
		"Type or paste the whole line of a public key, or give the https address of a page with nothing but " +
			"such lines. GitHub has them at https://github.com/NAME.keys, GitLab in the same way.",
	},
}

// typing reports whether keys go into a text field.
func (w *Wizard) typing() bool {
	p, ok := w.pages[w.at].(*formPage)
	if !ok {
		return false
	}
	_, line := p.form.GetFocusedField().(*huh.Input)
	return line
}

// helpKeys names the keys that open the help on every page. Browsers and terminal windows use F1
// themselves, so there is a second key.
const helpKeys = "F1, Ctrl-G: help"

// isHelp reports whether a key opens the help. While the user is typing text, a question mark may
// be part of it.
func isHelp(key string, typing bool) bool {
	return key == "f1" || key == "ctrl+g" || key == "?" && !typing
}

// asksHelp reports whether a key opens the help of the current page.
func (w *Wizard) asksHelp(key string) bool {
	return w.at >= 0 && len(help[w.helpTitle()]) > 0 && isHelp(key, !w.following() && w.typing())
}

// followingTitle is the title of the page on a terminal that does not lead.
const followingTitle = "Following"

// helpTitle returns the title under which the help of the current page is found.
func (w *Wizard) helpTitle() string {
	if w.following() {
		return followingTitle
	}
	return w.pages[w.at].heading()
}

// helpText returns the help of a page, in lines of at most width.
func helpText(title string, width int) string {
	var b strings.Builder
	for _, text := range help[title] {
		b.WriteString("\n" + paragraph("", text, width) + "\n")
	}
	return b.String()
}

// renderPage returns the texts of the current page, or of its help: its position among the pages,
// its body and its keys.
func (w *Wizard) renderPage() (where, body, keys string) {
	p := w.pages[w.at]
	if w.helping {
		title := w.helpTitle()
		return "Help: " + title, helpText(title, w.size.bodySize().width), "any key: back to the page"
	}
	return w.wordPlace(p), p.render(w), p.keyHelp(w)
}

// consoleHelp is the text of the help for each view of the console page.
var consoleHelp = map[consoleView][]string{
	overview: {
		"The page shows whether this node serves, its addresses, the nodes of the cluster, what is wrong " +
			"and what to do. It is read again by itself. HEALTHY: minions are served, and notes are only worth knowing. " +
			"DEGRADED: somebody should act. NOT SERVING: minions are not served.",
		"The star marks this node. MASTER, LB and lb: salt-master and the load balancer in front of it. VERSION is that of Saltern.",
		"A number or letter chooses from the menu; 5 and 6 ask before they do anything. Esc leads back here from everywhere. Ctrl-L draws the " +
			"page again when something has written over it.",
		"m shows what a minion is configured with. k accepts the keys of new minions, j shows how the next " +
			"node joins: both want the administrator's password, unless you have logged in here.",
	},
	details: {"All of the status, with each cause and the next step. applianced status prints the same. " +
		"Codes (SCA-nnn) are explained in the documentation, under Troubleshooting."},
	logs: {"The last lines of salt-master (1) or of the load balancer (2). All of them: applianced logs " +
		"master, applianced logs lb."},
	network: {"The network as it is. c changes it: the change is tried first, and taken back after 60 " +
		"seconds unless you confirm it."},
	restarts: {"Minions reconnect by themselves, to another node if there is one. Nothing that was " +
		"acknowledged is lost."},
	minionConf: {
		"Put these lines into /etc/salt/minion.d/master.conf on each minion, and restart salt-minion. With " +
			"master_finger a minion trusts this cluster's key only.",
		"Then accept the minion's key: k on this page, or applianced keys accept.",
	},
	keysView: {
		"Compare the fingerprint with that of the minion before you accept its key: salt-call --local " +
			"key.finger. The address proves nothing.",
		"Keys are rejected and deleted with: applianced keys reject, applianced keys delete.",
	},
	joining: {"Paste or type the string on the new machine, in its wizard or with: applianced join. It " +
		"changes when a node is removed and when the secret is rotated."},
}
