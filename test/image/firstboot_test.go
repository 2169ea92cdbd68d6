//go:build boot

package image

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// memory lists who has how much of his own, in KiB, and what is left.
const memory = `sudo sh -c 'for s in /proc/[0-9]*/status; do awk "/^RssAnon/ {a=\$2} /^Pid:/ {p=\$2} END {if (a) printf \"%6d %s \", a, p}" $s; tr "\0" " " <${s%status}cmdline | cut -c1-90; done 2>/dev/null | sort -rn | head -40'; free -m; cat /proc/meminfo`

// TestWizard: the wizard is driven over the serial line until the node is
// ready; then the node is reset, and asks again as if it were new.
func TestWizard(t *testing.T) {
	v := newVM(t, vmOptions{number: 6, uefi: true, data: "6G"})
	v.start(t)
	p := &pages{t: t, x: v.line, wait: patience}
	p.form(v.public, "vm-1", "")
	v.wait(t, "HEALTHY", "applianced status")
	p.page("This node is ready", "\r")
	p.page("minions use", "") // the console page
	screen{v}.shoot(t, "console")
	v.sound(t)
	t.Log(v.run(t, memory))
	t.Log(v.run(t, "sudo gluster volume info; findmnt /srv/cluster; sudo nft list ruleset | head -60"))
	v.wait(t, "xfs", "findmnt -no SOURCE,FSTYPE /var/lib/saltern/bricks")
	before := v.run(t, "cat /etc/ssh/ssh_host_ed25519_key.pub /etc/machine-id; sudo ls -A /var/lib/saltern")

	v.away("sudo applianced reset --yes")
	p.lead()
	if out, err := v.ssh(nil, "true"); err == nil || strings.Contains(out, "refused") {
		t.Errorf("after a reset the administrator's key is taken: %v %s", err, out)
	}

	p = &pages{t: t, x: v.line, wait: patience}
	p.page("What shall this machine do?", "\r")
	p.network()
	p.page("How you log in later", v.public+"\r\r\r")
	p.page("Name of the cluster", "green\r\x15vm-2\r\rgreen-host\r\r")
	p.page("> the system disk", "\r") // the data disk is not empty
	p.page("Virtual address", "\r")
	p.page("Shall this node serve", "\r")
	p.page("The set-up can go on", "\r")
	p.page("START THE SET-UP", "s")
	p.page("This node is ready", "\r")
	out := v.wait(t, "cluster green", "applianced status")

	if name := v.run(t, "hostname"); strings.TrimSpace(name) != "green-host" {
		t.Errorf("the machine is called %q, not as it was typed", name)
	}

	after := v.run(t, "cat /etc/ssh/ssh_host_ed25519_key.pub /etc/machine-id; sudo ls -A /var/lib/saltern")
	if after == before || strings.Contains(out, "blue") {
		t.Errorf("after a reset: %s%s, before: %s", out, after, before)
	}
}

// TestScreen: the same by keyboard and screen; SALTERN_SHOTS names a folder
// for pictures of all pages.
func TestScreen(t *testing.T) {
	v := newVM(t, vmOptions{number: 7, data: "6G"})
	v.start(t)
	s := screen{v}
	p := &pages{t: t, x: s, wait: patience, each: func(n int) { s.shoot(t, fmt.Sprintf("%02d", n)) }}
	p.form("ssh-ed25519 "+strings.Fields(v.public)[1]+" ops", "vm-1", "")
	v.wait(t, "HEALTHY", "applianced status")
	p.page("This node is ready", "\r")
	p.page("choose", "")
	s.shoot(t, "console")

	if out, err := v.ssh(nil, "applianced status"); err != nil {
		t.Errorf("status: %v %s", err, out)
	}

	if dir := os.Getenv("SALTERN_SHOTS"); dir != "" {
		if _, err := os.Stat(dir + "/console.png"); err != nil {
			t.Error(err)
		}
	}
}
