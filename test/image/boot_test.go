//go:build boot

package image

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"saltern/image/bundle"
	"saltern/test/lab"
)

// patience is for one boot: without KVM, on a machine that does other things,
// it takes minutes.
const patience = 20 * time.Minute

// vm is a virtual machine that runs the built disk.
type vm struct {
	disk, log, key string
	port           int
	firmware       []string
	seed           string
	cmd            *exec.Cmd
	ended          chan struct{}
}

func dist(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(os.Getenv("SALTERN_DIST"), name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v (make test-boot builds it)", err)
	}
	return path
}

func tool(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
}

// newVM prepares a machine with answers on a cidata disk; uefi chooses the
// firmware.
func newVM(t testing.TB, uefi bool) *vm {
	t.Helper()
	dir := t.TempDir()
	v := &vm{disk: dir + "/disk.qcow2", log: dir + "/serial.log", key: dir + "/key", seed: dir + "/seed.iso"}
	tool(t, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", dist(t, "saltern-cloud.qcow2"), v.disk, "10G")
	tool(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", v.key)
	pub, err := os.ReadFile(v.key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	lab.WriteTree(t, dir+"/seed", map[string]string{"meta-data": "", "user-data": fmt.Sprintf(
		"#cloud-config\nsaltern:\n  mode: form\n  cluster_id: blue\n  node: vm-1\n  storage: {kind: local}\n  admin: {ssh_keys: [%q]}\n", strings.TrimSpace(string(pub)))})
	tool(t, "xorriso", "-as", "mkisofs", "-quiet", "-V", "CIDATA", "-J", "-r", "-o", v.seed, dir+"/seed")
	if uefi {
		// A fresh variable store: one of another machine boots into its shell.
		vars := dir + "/vars.fd"
		tool(t, "cp", "/usr/share/OVMF/OVMF_VARS_4M.fd", vars)
		v.firmware = []string{"-machine", "q35", "-drive", "if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd", "-drive", "if=pflash,format=raw,file=" + vars}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v.port = ln.Addr().(*net.TCPAddr).Port
	ln.Close()
	return v
}

// start switches it on; at the end of the test the power is cut.
func (v *vm) start(t testing.TB) {
	t.Helper()
	accel := "tcg,thread=multi"
	if f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); err == nil && os.Getenv("SALTERN_KVM") != "" {
		f.Close()
		accel = "kvm"
	}
	args := append(v.firmware, "-accel", accel, "-m", "1024", "-smp", "2", "-nodefaults", "-display", "none", "-serial", "file:"+v.log, "-device", "virtio-rng-pci",
		"-drive", "file="+v.disk+",format=qcow2,if=virtio,cache=writeback", "-drive", "file="+v.seed+",format=raw,if=virtio,readonly=on",
		"-netdev", fmt.Sprintf("user,id=n0,hostfwd=tcp:127.0.0.1:%d-:22", v.port), "-device", "virtio-net-pci,netdev=n0")
	v.cmd = exec.Command("qemu-system-x86_64", args...)
	var stderr bytes.Buffer
	v.cmd.Stderr = &stderr
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	v.ended = make(chan struct{})
	go func(c *exec.Cmd, ended chan struct{}) { _ = c.Wait(); close(ended) }(v.cmd, v.ended)
	t.Cleanup(func() {
		v.cut()
		if t.Failed() {
			t.Logf("qemu: %s\nserial line:\n%s", &stderr, lab.Tail(v.log, 60))
		}
	})
}

// cut is a power cut.
func (v *vm) cut() {
	_ = v.cmd.Process.Kill()
	<-v.ended
}

// ssh runs a command as admin.
func (v *vm) ssh(stdin *os.File, command string) (string, error) {
	ctx, stop := context.WithTimeout(context.Background(), lab.Limit(5*time.Minute))
	defer stop()
	cmd := exec.CommandContext(ctx, "ssh", "-i", v.key, "-p", strconv.Itoa(v.port), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
		"-o", "ConnectTimeout=60", "-o", "BatchMode=yes", "admin@127.0.0.1", command)
	if stdin != nil {
		cmd.Stdin = stdin
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (v *vm) wait(t testing.TB, words, command string) string {
	t.Helper()
	var out string
	lab.Eventually(t, patience, fmt.Sprintf("%q says %q", command, words), func() error {
		var err error
		out, err = v.ssh(nil, command)
		if err != nil || !strings.Contains(out, words) {
			time.Sleep(time.Second) // each try costs the guest a lot
			return fmt.Errorf("%v: %s", err, out)
		}
		return nil
	})
	return out
}

// TestBoot: by either firmware the disk becomes a node that serves, in 1 GiB.
func TestBoot(t *testing.T) {
	for name, uefi := range map[string]bool{"BIOS": false, "UEFI": true} {
		t.Run(name, func(t *testing.T) {
			v := newVM(t, uefi)
			began := time.Now()
			v.start(t)
			v.wait(t, "HEALTHY", "applianced status")
			t.Logf("serving %d s after the start", int(time.Since(began).Seconds()))
			out := v.wait(t, "", "systemctl --failed --no-legend --plain; findmnt -no FSTYPE /; [ -d /sys/firmware/efi ] && echo EFI; free -m; df -m /data; systemd-analyze")
			t.Log(out)
			if !strings.Contains(out, "squashfs") || strings.Contains(out, "failed") || strings.Contains(out, "EFI") != uefi {
				t.Errorf("system: %s", out)
			}
		})
	}
}

// TestPowerCut cuts the power at several moments of the first boot; the next
// boot must bring the node up all the same.
func TestPowerCut(t *testing.T) {
	for _, mark := range []string{"Linux version", "init-bottom", "Saltern node"} {
		t.Run(mark, func(t *testing.T) {
			v := newVM(t, false)
			v.start(t)
			lab.Eventually(t, patience, mark+" on the serial line", func() error {
				b, err := os.ReadFile(v.log)
				if err != nil || !bytes.Contains(b, []byte(mark)) && !bytes.Contains(b, []byte("set-up")) {
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

// TestUpgrade: a good version is kept, a broken one is left by itself.
func TestUpgrade(t *testing.T) {
	v := newVM(t, false)
	v.start(t)
	v.wait(t, "HEALTHY", "applianced status")
	install := func(path string) {
		t.Helper()
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if out, err := v.ssh(f, "sudo sh -c 'cat >/data/new.upgrade'"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if out, err := v.ssh(nil, "sudo applianced upgrade /data/new.upgrade && sudo rm /data/new.upgrade"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		_, _ = v.ssh(nil, "sudo systemctl reboot") // the connection ends with it
	}
	install(dist(t, "saltern-cloud.upgrade"))
	v.wait(t, "slot=b", "cat /proc/cmdline; applianced status >/dev/null; true")
	out := v.wait(t, "running, known to be good", "sudo applianced upgrade status")
	if !strings.Contains(out, "slot b") {
		t.Errorf("%s", out)
	}
	install(broken(t))
	// Two tries panic; then slot b is back, and nothing is on trial.
	v.wait(t, "slot=b", "grep -v saltern.try /proc/cmdline")
	v.wait(t, "HEALTHY", "applianced status")
	lines := strings.Split(v.wait(t, "running", "sudo applianced upgrade status"), "\n")
	if !strings.Contains(lines[1], "running") || strings.Contains(lines[0], "next boot") {
		t.Errorf("after a broken version: %q", lines)
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
	if err := bundle.Create(out, m, []string{dir + "/vmlinuz", dir + "/initrd", dir + "/root.squashfs"}, key); err != nil {
		t.Fatal(err)
	}
	return out.Name()
}
