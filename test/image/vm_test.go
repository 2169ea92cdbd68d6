//go:build boot

package image

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// patience is for one boot: without KVM, on a machine that does other things,
// it takes minutes.
const patience = 20 * time.Minute

// vmOptions say what a virtual machine has.
type vmOptions struct {
	number  int    // its ports are at 127.0.90.number of this host
	uefi    bool   // the firmware
	answers string // on a cidata disk, below "saltern:"; empty: it asks
	// disks returns the files of further disks by their label, for the key of admin.
	disks   func(public string) map[string]map[string]string
	data    string // size of a second, empty disk; empty: none
	segment string // a network that it shares with others, see newSegment; empty: none
	cpus    int    // 0: 2
	copyOf  string // the disk of another machine, which is off; empty: the built one
	uuid    string // the firmware's; empty: none
	// anew: when the machine restarts, QEMU does. Without KVM the firmware of
	// UEFI has hung in a restart, before anything of the disk was read. What it
	// says after that is in the log of the serial line only.
	anew bool
}

// vm is a virtual machine that runs the built disk.
type vm struct {
	vmOptions
	dir, disk, key, public string
	devices                []string
	cmd                    *exec.Cmd
	ended                  chan struct{}
	stderr                 bytes.Buffer
	line                   *line
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

// newVM makes a machine with a disk of its own; it is off.
func newVM(t testing.TB, o vmOptions) *vm {
	t.Helper()
	dir := t.TempDir()
	v := &vm{vmOptions: o, dir: dir, disk: dir + "/disk.qcow2", key: dir + "/key"}
	of := o.copyOf
	if of == "" {
		of = dist(t, "saltern-cloud.qcow2")
	}

	tool(t, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", of, v.disk, "10G")
	v.devices = []string{"-drive", "file=" + v.disk + ",format=qcow2,if=virtio,cache=writeback"}
	tool(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", v.key)
	b, err := os.ReadFile(v.key + ".pub")
	if err != nil {
		t.Fatal(err)
	}

	v.public = strings.TrimSpace(string(b))
	if o.data != "" {
		tool(t, "qemu-img", "create", "-q", "-f", "qcow2", dir+"/data.qcow2", o.data)
		v.devices = append(v.devices, "-drive", "file="+dir+"/data.qcow2,format=qcow2,if=virtio,cache=writeback")
	}

	if o.answers != "" {
		text := "#cloud-config\nsaltern:\n  admin: {ssh_keys: [" + v.public + "]}\n"
		for l := range strings.Lines(o.answers) {
			text += "  " + l
		}
		lab.WriteTree(t, dir+"/seed", map[string]string{"meta-data": "", "user-data": text})
		tool(t, "xorriso", "-as", "mkisofs", "-quiet", "-V", "CIDATA", "-J", "-r", "-o", dir+"/seed.iso", dir+"/seed")
		v.devices = append(v.devices, "-drive", "file="+dir+"/seed.iso,format=raw,if=virtio,readonly=on")
	}

	if o.disks != nil {
		for label, files := range o.disks(v.public) {
			name := dir + "/" + strings.ReplaceAll(label, " ", "-")
			lab.WriteTree(t, name, files)
			tool(t, "xorriso", "-as", "mkisofs", "-quiet", "-V", label, "-J", "-r", "-o", name+".iso", name)
			v.devices = append(v.devices, "-drive", "file="+name+".iso,format=raw,if=virtio,readonly=on")
		}
	}

	if o.uefi {
		// A fresh variable store: one of another machine boots into its shell.
		tool(t, "cp", "/usr/share/OVMF/OVMF_VARS_4M.fd", dir+"/vars.fd")
		v.devices = append(v.devices, "-machine", "q35", "-drive", "if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd",
			"-drive", "if=pflash,format=raw,file="+dir+"/vars.fd")
	}

	forward := ""
	for _, p := range []string{"2222-:22", "4505-:4505", "4506-:4506"} {
		forward += fmt.Sprintf(",hostfwd=tcp:%s:%s", v.address(), p)
	}

	v.devices = append(v.devices, "-netdev", "user,id=n0"+forward, "-device", "virtio-net-pci,netdev=n0,addr=0x10")
	if o.segment != "" {
		tap := fmt.Sprintf("%sv%d", o.segment, o.number)
		tool(t, "ip", "tuntap", "add", "dev", tap, "mode", "tap")
		t.Cleanup(func() { _ = exec.Command("ip", "link", "del", tap).Run() })
		tool(t, "ip", "link", "set", tap, "master", o.segment, "up")
		v.devices = append(v.devices, "-netdev", "tap,id=n1,script=no,downscript=no,ifname="+tap, "-device",
			fmt.Sprintf("virtio-net-pci,netdev=n1,addr=0x11,mac=52:54:00:90:00:%02x", o.number))
	}

	return v
}

// newSegment makes a network for several machines, a bridge of this host. One of
// QEMU's own, by multicast, loses what a busy machine does not fetch at once.
func newSegment(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("seg%d", os.Getpid()%10000)
	tool(t, "ip", "link", "add", name, "type", "bridge")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", name).Run() })
	tool(t, "ip", "link", "set", name, "up")
	return name
}

// address is where this host finds the machine's ports.
func (v *vm) address() string { return fmt.Sprintf("127.0.90.%d", v.number) }

// start switches it on; at the end of the test the power is cut.
func (v *vm) start(t testing.TB) {
	t.Helper()

	// Without KVM a processor of the oldest kind costs two and a half times as much:
	// programs leave its instructions for copying and cryptography alone.
	accel, model := "tcg,thread=multi", "max"
	if os.Getenv("SALTERN_KVM") != "" {
		accel, model = "kvm", "host"
	}

	cpus := v.cpus
	if cpus == 0 {
		cpus = 2
	}

	serial, monitor := v.dir+"/serial.sock", v.dir+"/monitor.sock"
	_ = os.Remove(serial)
	_ = os.Remove(monitor)
	anew, wait := v.anew && accel != "kvm", "on"
	if anew {
		wait = "off"
	}

	args := append([]string{"qemu-system-x86_64", "-accel", accel, "-cpu", model, "-m", "1024", "-smp",
		fmt.Sprint(cpus), "-nodefaults", "-display", "none", "-vga", "std", "-device", "virtio-rng-pci",
		"-chardev", "socket,id=s0,path=" + serial + ",server=on,wait=" + wait + ",logfile=" + v.dir +
			"/serial.log,logappend=on", "-serial", "chardev:s0",
		"-monitor", "unix:" + monitor + ",server=on,wait=off"}, v.devices...)

	if v.uuid != "" {
		args = append(args, "-uuid", v.uuid)
	}

	if anew { // the shell dies with the test, QEMU with the shell
		args = append([]string{"sh", "-c", `while setpriv --pdeathsig KILL "$@" -no-reboot; do :; done`, "sh"}, args...)
	}

	v.cmd = exec.Command(args[0], args[1:]...)
	v.cmd.Stderr = &v.stderr
	var err error
	if v.ended, err = startChild(v.cmd, v.cmd.Start); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		v.cut()
		if t.Failed() {
			t.Logf("vm %d: %s\nscreen:\n%s\nserial line:\n%s", v.number, &v.stderr, v.line.Screen(),
				lab.Tail(v.dir+"/serial.log", 60))
		}
	})

	v.line = dialLine(t, serial)
}

// cut is a power cut.
func (v *vm) cut() {
	_ = v.cmd.Process.Kill()
	<-v.ended
	if v.line != nil {
		v.line.close()
	}
	v.hangUp()
}

// shell is the beginning of an ssh command to the machine. Its commands share
// one connection: a key exchange is a second's work for a machine without KVM.
func (v *vm) shell(more ...string) []string {
	return append([]string{"-i", v.key, "-p", "2222", "-o", "StrictHostKeyChecking=no", "-o",
		"UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
		"-o", "ControlMaster=auto", "-o", "ControlPersist=120", "-o", "ControlPath=" + v.dir + "/ssh",
		"-o", "ConnectTimeout=60", "-o", "ServerAliveInterval=30", "-o", "ServerAliveCountMax=4", "-o", "BatchMode=yes"}, append(more, "admin@"+v.address())...)
}

// ssh runs a command as admin.
func (v *vm) ssh(stdin *os.File, command string) (string, error) {
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	cmd := exec.CommandContext(ctx, "ssh", append(v.shell(), command)...)
	if stdin != nil {
		cmd.Stdin = stdin
	}
	cmd.WaitDelay = 10 * time.Second // what holds the connection may hold the output too
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// hangUp ends the shared connection, as to a machine that is about to restart.
func (v *vm) hangUp() { _ = exec.Command("ssh", v.shell("-O", "exit")...).Run() }

// away runs a command that ends with the machine's restart, or its reset.
func (v *vm) away(command string) {
	_, _ = v.ssh(nil, command)
	v.hangUp()
}

// wait waits until a command ends with code 0 and says the words.
func (v *vm) wait(t testing.TB, words, command string) string {
	t.Helper()
	var out string
	lab.Eventually(t, patience, fmt.Sprintf("vm %d: %q says %q", v.number, command, words), func() error {
		var err error
		began := time.Now()
		out, err = v.ssh(nil, command)
		if err != nil || !strings.Contains(out, words) {
			// Each try costs the machine a lot; most of its time is for what is waited for.
			time.Sleep(min(max(time.Second, 3*time.Since(began)), 15*time.Second))
			return fmt.Errorf("%v: %s", err, out)
		}

		return nil
	})

	return out
}

// run runs a command that must succeed.
func (v *vm) run(t testing.TB, command string) string {
	t.Helper()
	out, err := v.ssh(nil, command)
	if err != nil {
		t.Fatalf("vm %d: %s: %v: %s", v.number, command, err, out)
	}
	return out
}
