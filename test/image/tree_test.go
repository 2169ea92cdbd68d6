//go:build nspawn

package image

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"saltern/image/profile"
)

// read gives a file of the tree.
func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(tree(t), path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestTreeHasNoIdentity: nothing in the image would make two machines the
// same, nothing tells of the machine that built it, and nothing is there that
// only costs time.
func TestTreeHasNoIdentity(t *testing.T) {
	root := tree(t)
	for _, pattern := range []string{"etc/ssh/ssh_host_*", "var/lib/glusterd/glusterd.info",
		"var/lib/systemd/random-seed", "var/lib/dhcp/*", "var/log/*", "var/lib/apt/lists/*",
		"var/cache/apt/*", "root/.bash_history", "root/.ssh/*", "etc/saltern/appliance.yaml", "var/lib/saltern/*", "etc/apt/sources.list.d/*", "tmp/*", "usr/lib/*/glusterfs/gsyncd"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) > 0 {
			t.Errorf("%s: %v %v", pattern, found, err)
		}
	}

	if read(t, "etc/machine-id") != "" {
		t.Error("/etc/machine-id is not empty")
	}

	for link, want := range map[string]string{
		"var/lib/dbus/machine-id":   "/etc/machine-id",
		"etc/resolv.conf":           "../run/systemd/resolve/stub-resolv.conf",
		"etc/salt":                  "/var/lib/saltern/etc/salt",
		"usr/lib/ssl/glusterfs.pem": "/etc/ssl/glusterfs.pem",
		"usr/lib/ssl/glusterfs.key": "/etc/ssl/glusterfs.key",
	} {
		if got, err := os.Readlink(filepath.Join(root, link)); err != nil || got != want {
			t.Errorf("%s leads to %q (%v)", link, got, err)
		}
	}

	host, _ := os.Hostname()
	for _, f := range []string{"etc/hostname", "etc/hosts", "etc/mailname"} {
		if b, err := os.ReadFile(filepath.Join(root, f)); err == nil && host != "" &&
			strings.Contains(string(b), host) && host != "localhost" {
			t.Errorf("/%s names the machine that built the image", f)
		}
	}
}

// TestTreeHelps: who logs in is told where to begin, has the manual, and Tab
// completes.
func TestTreeHelps(t *testing.T) {
	if motd := read(t, "etc/motd"); strings.Count(motd, "\n") != 3 || !strings.Contains(motd, "applianced status") {
		t.Errorf("motd: %q", motd)
	}

	for path, want := range map[string]string{
		"usr/share/bash-completion/completions/applianced": "__start_applianced",
		"usr/share/man/man8/applianced-reset.8":            ".SH",
	} {
		if !strings.Contains(read(t, path), want) {
			t.Errorf("%s has no %s", path, want)
		}
	}

	out, err := exec.Command("chroot", tree(t), "bash", "-ec",
		". /usr/share/bash-completion/bash_completion; _completion_loader applianced || true; complete -p applianced; man applianced-reset | head -3").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "-F __start_applianced applianced") ||
		!strings.Contains(string(out), "APPLIANCED-RESET") {
		t.Errorf("%v %s", err, out)
	}
}

// TestTreeAccounts: no password works, ours have fixed numbers and no shell.
func TestTreeAccounts(t *testing.T) {
	for line := range strings.Lines(read(t, "etc/shadow")) {
		f := strings.Split(line, ":")
		if !strings.HasPrefix(f[1], "!") && !strings.HasPrefix(f[1], "*") {
			t.Errorf("%s has a password", f[0])
		}
	}

	passwd := read(t, "etc/passwd")
	for _, want := range []string{`(?m)^saltern-master:x:801:801:.*:/usr/sbin/nologin$`,
		`(?m)^saltern-lb:x:802:802:.*:/usr/sbin/nologin$`,
		`(?m)^admin:x:1000:1000:.*:/var/home/admin:/bin/bash$`} {
		if !regexp.MustCompile(want).MatchString(passwd) {
			t.Errorf("no %s in\n%s", want, passwd)
		}
	}

	for line := range strings.Lines(passwd) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if shell := f[6]; f[0] != "root" && f[0] != "admin" && f[0] != "sync" &&
			!strings.HasSuffix(shell, "nologin") && !strings.HasSuffix(shell, "false") {
			t.Errorf("%s has shell %s", f[0], shell)
		}
	}
}

// TestTreeFiles: modes; programs with more rights than their caller are the
// known ones.
func TestTreeFiles(t *testing.T) {
	root := tree(t)
	overlay, err := profile.Overlay()
	if err != nil {
		t.Fatal(err)
	}

	for _, f := range overlay {
		fi, err := os.Stat(filepath.Join(root, f.Path))
		if err != nil || fi.Mode().Perm() != f.Mode {
			t.Errorf("%s: %v %v, want %v", f.Path, fi, err, f.Mode)
		}
	}

	var more []string
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		fi, err := d.Info()
		if err != nil {
			return err
		}

		rel := strings.TrimPrefix(p, root)
		if fi.Mode().IsRegular() && fi.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
			more = append(more, rel)
		}

		if fi.Mode()&fs.ModeSymlink == 0 && fi.Mode().Perm()&0o002 != 0 &&
			fi.Mode()&(fs.ModeSticky|fs.ModeDevice|fs.ModeCharDevice) == 0 {
			t.Errorf("everybody may write %s (%v)", rel, fi.Mode())
		}

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	known := []string{"chage", "chfn", "chsh", "expiry", "gpasswd", "mount", "newgrp", "passwd", "ssh-agent",
		"su", "sudo", "umount", "unix_chkpwd",
		"dbus-daemon-launch-helper", "ssh-keysign", "fusermount", "fusermount3", "fusermount-glusterfs"}
	for _, p := range more {
		if !slices.Contains(known, filepath.Base(p)) {
			t.Errorf("%s has more rights than its caller", p)
		}
	}
}

// TestTreeSettings: what the system is set to, as its own programs read it.
func TestTreeSettings(t *testing.T) {
	root := tree(t)
	chroot := func(args ...string) string {
		out, err := exec.Command("unshare", append([]string{"--mount", "--net", "chroot", root}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
		return string(out)
	}

	key := t.TempDir() + "/key"
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err == nil {
		script := fmt.Sprintf("mount -t tmpfs t %[1]s/run && mkdir %[1]s/run/sshd && cp %[2]s %[1]s/run/key && exec chroot %[1]s /usr/sbin/sshd -T -h /run/key",
			root, key)
		out, err = exec.Command("unshare", "--mount", "sh", "-c", script).CombinedOutput()
		if err != nil {
			t.Fatalf("sshd -T: %v: %s", err, out)
		}

		for _, want := range []string{"permitrootlogin no", "passwordauthentication no",
			"kbdinteractiveauthentication no", "x11forwarding no", "permitemptypasswords no",
			"authenticationmethods publickey"} {
			if !strings.Contains(string(out), want+"\n") {
				t.Errorf("sshd: no %q", want)
			}
		}
	} else {
		t.Logf("sshd -T NOT TESTED: no ssh-keygen here: %s", out)
	}

	chroot("nft", "-c", "-f", "/etc/nftables.conf")
	chroot("visudo", "-c", "-q")
	for _, p := range []string{"salt-master", "salt-api", "saltern-lb", "saltern-keepalived"} {
		chroot("apparmor_parser", "--skip-kernel-load", "--skip-cache", "/etc/apparmor.d/"+p)
	}

	for _, s := range []string{"kernel.kptr_restrict = 2", "kernel.dmesg_restrict = 1",
		"kernel.unprivileged_bpf_disabled = 1", "net.ipv4.conf.all.rp_filter = 2"} {
		if !strings.Contains(read(t, "etc/sysctl.d/60-saltern.conf"), s+"\n") {
			t.Errorf("sysctl: no %s", s)
		}
	}

	enabled := strings.Fields(chroot("sh", "-c",
		"systemctl list-unit-files --state=enabled --no-legend | cut -d' ' -f1"))
	for _, u := range []string{"applianced.service", "nftables.service", "ssh.service",
		"saltern-firewall.path", "saltern-firewall.timer", "saltern-guards.timer", "saltern-pam.socket",
		"systemd-networkd.service", "chrony.service"} {
		if !slices.Contains(enabled, u) {
			t.Errorf("%s is off", u)
		}
	}

	for _, u := range []string{"glusterd.service", "apt-daily.timer", "apt-daily-upgrade.timer",
		"systemd-networkd-wait-online.service", "rpcbind.service", "cron.service"} {
		if slices.Contains(enabled, u) {
			t.Errorf("%s is on", u)
		}
	}

	for _, script := range []string{"/usr/libexec/saltern/console", "/usr/libexec/saltern/seed",
		"/etc/initramfs-tools/hooks/saltern", "/etc/initramfs-tools/scripts/init-bottom/saltern",
		"/etc/initramfs-tools/scripts/init-premount/saltern"} {
		chroot("dash", "-n", script)
	}
}

// TestTreeUnits: our units are right, and closed as far as they can be.
func TestTreeUnits(t *testing.T) {
	root := tree(t)
	units, err := filepath.Glob(filepath.Join(root, "usr/lib/systemd/system/saltern-*.service"))
	if err != nil || len(units) < 4 {
		t.Fatal(units, err)
	}

	units = append(units, filepath.Join(root, "usr/lib/systemd/system/applianced.service"))
	for _, u := range units {
		name := filepath.Base(u)
		out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--root="+root,
			"--threshold=30", "--no-pager", name).CombinedOutput()
		last := strings.TrimSpace(string(out[strings.LastIndex(strings.TrimSpace(string(out)), "\n")+1:]))
		if err != nil {
			t.Errorf("%s: more open than 3.0: %s", name, last)
		}

		t.Log(last)
		out, err = exec.Command("systemd-analyze", "verify", "--root="+root, "--man=no",
			"--recursive-errors=no", name).CombinedOutput()
		if err != nil || strings.Contains(string(out), filepath.Base(u)+":") {
			t.Errorf("%s: %v %s", name, err, out)
		}
	}
}

// TestTreePython: the renderers' library is complete, and compiled.
func TestTreePython(t *testing.T) {
	root := tree(t)
	if _, err := os.Stat(filepath.Join(root, "opt/saltern/python")); err != nil {
		t.Skip("SKIPPED: an image without Python")
	}

	code := "import salt.loader, salt.template, salt.pillar, salt.client.ssh, salt.runner, salt.version; print(salt.version.__version__)"
	out, err := exec.Command("unshare", "--mount", "sh", "-c",
		`mount -t proc proc "$1/proc" && exec chroot "$@"`, "sh", root, "env", "-i", "PATH=/usr/bin:/bin",
		"PYTHONDONTWRITEBYTECODE=1", "/opt/saltstack/salt/bin/python3", "-c", code).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "3008.3" {
		t.Errorf("%v: %s", err, out)
	}

	if found, _ := filepath.Glob(filepath.Join(root,
		"opt/saltern/python/lib/python3*/site-packages/salt/__pycache__/*.pyc")); len(found) < 10 {
		t.Errorf("%d compiled files", len(found))
	}
}
