//go:build boot

package image

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/image/bundle"
	"saltern/test/lab"
)

// alone are answers for a node that keeps everything on its system disk.
const alone = "mode: form\ncluster_id: blue\nnode: vm-1\nstorage: {kind: local}\n"

// facts are said of each node that serves.
const facts = "systemctl --failed --no-legend --plain; findmnt -no FSTYPE /; [ -d /sys/firmware/efi ] && echo EFI; free -m; df -m /data; systemd-analyze; " +
	`sudo sh -c 'cat /proc/$(pgrep -xo salt-master)/attr/current /proc/$(pgrep -xo saltern-lb)/attr/current; aa-status 2>/dev/null | grep -c saltern-; journalctl -k --no-pager | grep "apparmor=.DENIED"'; true`

// TestBoot: by either firmware the disk becomes a node that serves, in 1 GiB,
// with answers from a cidata disk; it renders templates, and its clock follows
// the server that they name.
func TestBoot(t *testing.T) {
	timeServer(t)
	for i, name := range []string{"BIOS", "UEFI"} {
		t.Run(name, func(t *testing.T) {
			v := newVM(t,
				vmOptions{
					number:  1 + i,
					uefi:    i == 1,
					answers: alone + "network: {method: dhcp, ntp: [" + host + "]}\n",
				})

			began := time.Now()
			v.start(t)
			v.wait(t, "HEALTHY", "applianced status")
			t.Logf("serving %d s after the start", int(time.Since(began).Seconds()))
			v.run(t,
				`sudo sh -c 'cd /var/lib/saltern/cluster/srv/pillar && echo "base: {\"*\": [p]}" >top.sls && echo "answer: {{ 6 * 7 }}" >p.sls'`)
			v.wait(t, "42", "sudo salt-run pillar.show_pillar") // by the image's own Python
			v.sound(t)
			v.wait(t, `"clock": "synced"`, "applianced status --json")

			if out := v.run(t, "applianced status; chronyc -n sources"); strings.Contains(out, "SCA-601") ||
				!strings.Contains(out, "^* "+host) {
				t.Errorf("the clock is right, and its server known: %s", out)
			}
		})
	}
}

// sound looks at a system that runs.
func (v *vm) sound(t *testing.T) {
	t.Helper()
	out := v.wait(t, "", facts)
	t.Log(out)
	if !strings.Contains(out, "salt-master (enforce)") || !strings.Contains(out, "saltern-lb (enforce)") ||
		strings.Contains(out, "DENIED") {
		t.Errorf("AppArmor: %s", out)
	}
	if !strings.Contains(out, "squashfs") || strings.Contains(out, "failed") || strings.Contains(out, "EFI") != v.uefi {
		t.Errorf("system: %s", out)
	}
}

// TestPowerCut cuts the power at several moments of the first boot; the next
// boot must bring the node up all the same.
func TestPowerCut(t *testing.T) {
	for _, mark := range []string{"Linux version", "init-bottom", "Saltern node"} {
		t.Run(mark, func(t *testing.T) {
			v := newVM(t, vmOptions{number: 3, answers: alone})
			v.start(t)
			lab.Eventually(t, patience, mark+" on the serial line", func() error {
				b, err := os.ReadFile(v.dir + "/serial.log")
				if err != nil || !bytes.Contains(b, []byte(mark)) && !bytes.Contains(b, []byte("set-up")) &&
					!bytes.Contains(b, []byte("HEALTHY")) {
					return fmt.Errorf("not yet (%v)", err)
				}
				return nil
			})

			v.cut()
			v.start(t)
			v.wait(t, "HEALTHY", "applianced status")
		})
	}
}

// TestUpgrade: a good version, fetched by HTTP, is kept; a broken one, from a
// file, is left by itself.
func TestUpgrade(t *testing.T) {
	for i, name := range []string{"BIOS", "UEFI"} {
		t.Run(name, func(t *testing.T) {
			upgrade(t, newVM(t, vmOptions{number: 4 + i, uefi: i == 1, anew: i == 1, answers: alone}))
		})
	}
}

func upgrade(t *testing.T, v *vm) {
	v.start(t)
	v.wait(t, "HEALTHY", "applianced status")
	files := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(dist(t, "saltern-cloud.upgrade")))))
	defer files.Close()

	_, port, err := net.SplitHostPort(files.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}

	v.run(t, "sudo applianced upgrade --allow-http http://"+net.JoinHostPort(host, port)+"/saltern-cloud.upgrade")
	v.away("sudo systemctl reboot")
	v.wait(t, "slot=b", "cat /proc/cmdline; applianced status >/dev/null; true")

	// The supervisor, closed off as it is, can look whether this is a trial.
	v.wait(t, "slot=", `sudo sh -c 'nsenter -m -t $(systemctl show -P MainPID applianced) cat /efi/grub/grubenv'`)
	if out := v.run(t, "sudo cat /run/initramfs/e2fsck.log"); !strings.Contains(out, "clean") ||
		strings.Contains(out, "recover") {
		t.Errorf("after a restart the partition data was not clean: %s", out)
	}

	out := v.wait(t, "running, known to be good", "sudo applianced upgrade status")
	if !strings.Contains(out, "slot b") {
		t.Errorf("%s", out)
	}

	v.send(t, broken(t))
	v.run(t, "sudo applianced upgrade /data/new.upgrade && sudo rm /data/new.upgrade")
	v.away("sudo systemctl reboot")

	// Two tries panic; then slot b is back, and nothing is on trial.
	v.wait(t, "slot=b", "grep -v saltern.try /proc/cmdline")
	v.wait(t, "HEALTHY", "applianced status")
	v.gaveUp(t, "a", "broken")
}

// gaveUp looks at a machine that has left version, which is in slot, by itself: both commands say so.
func (v *vm) gaveUp(t *testing.T, slot, version string) {
	t.Helper()
	text := v.wait(t, "running", "sudo applianced upgrade status")
	for line := range strings.Lines(text) {
		given := strings.HasPrefix(line, "slot "+slot)
		if given != strings.Contains(line, "left by itself") || given == strings.Contains(line, "running") ||
			strings.Contains(line, "next boot") {
			t.Errorf("upgrade status of a machine that went back: %s", text)
		}
	}

	out := v.wait(t, "SCA-243", "applianced status")
	if !strings.Contains(out, "went back from version "+version+" by itself") {
		t.Errorf("status of a machine that went back: %s", out)
	}

	t.Log(text, out)
}

// TestUpgradeNotWell: a version that boots, but whose node does not serve, is left after two
// tries: one that a power cut ends, and one of ten minutes. The machine says so until the
// slot is filled anew (F15).
func TestUpgradeNotWell(t *testing.T) {
	v := newVM(t, vmOptions{number: 8, answers: alone})
	v.start(t)
	v.wait(t, "HEALTHY", "applianced status")

	// What is on trial has no supervisor.
	const condition = "[Unit]\\nConditionKernelCommandLine=!saltern.try\\n"
	v.run(t,
		"sudo sh -c 'mkdir /etc/systemd/system/applianced.service.d && printf \""+condition+
			"\" >/etc/systemd/system/applianced.service.d/never-on-trial.conf'")
	v.send(t, dist(t, "saltern-cloud.upgrade"))
	v.run(t, "sudo applianced upgrade /data/new.upgrade")
	version := strings.TrimSpace(v.run(t, "sudo cat /efi/b/version"))
	v.away("sudo systemctl reboot")
	v.wait(t, "on trial", "sudo applianced upgrade status")
	v.cut()
	v.start(t)
	v.wait(t, "on trial", "sudo applianced upgrade status")
	v.wait(t, "slot=a", "grep -v saltern.try /proc/cmdline")
	v.wait(t, "HEALTHY", "applianced status")
	v.gaveUp(t, "b", version)

	v.run(t, "sudo rm -r /etc/systemd/system/applianced.service.d")
	v.run(t, "sudo applianced upgrade /data/new.upgrade")
	if out := v.run(t, "sudo applianced upgrade status"); strings.Contains(out, "by itself") {
		t.Errorf("the slot was filled anew: %s", out)
	}

	v.away("sudo systemctl reboot")
	v.wait(t, "slot b", "sudo applianced upgrade status | grep 'running, known to be good'")
	if out := v.run(t, "applianced status"); strings.Contains(out, "SCA-243") {
		t.Errorf("the version was taken in the end: %s", out)
	}
}

// send puts a version on the machine, as /data/new.upgrade.
func (v *vm) send(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if out, err := v.ssh(f, "sudo sh -c 'cat >/data/new.upgrade'"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// broken is a signed version whose root file system is none.
func broken(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile(dist(t, "key.pem"))
	if err != nil {
		t.Fatal(err)
	}

	key, err := bundle.PrivateKey(text)
	if err != nil {
		t.Fatal(err)
	}

	whole := dist(t, "saltern-cloud.upgrade")
	tool(t, "tar", "-xf", whole, "-C", dir)
	if err := os.WriteFile(dir+"/root.squashfs", make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}

	out, err := os.Create(dir + "/broken.upgrade")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()

	m := bundle.Manifest{Version: "broken", Flavour: "cloud", Created: time.Now().UTC().Truncate(time.Second)}
	if err := bundle.Create(out, m, []string{dir + "/vmlinuz", dir + "/initrd", dir + "/root.squashfs"},
		key); err != nil {
		t.Fatal(err)
	}

	return out.Name()
}
