package probe

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"saltern/supervisor/status"
	"saltern/test/await"
)

// everyErrno is each errno of Linux.
func everyErrno() (list []syscall.Errno) {
	for errno := syscall.Errno(1); errno <= 133; errno++ {
		list = append(list, errno)
	}
	return list
}

// TestEveryErrnoOfAFile: a disk that is full is one thing, all else is another, and the cause
// names the errno.
func TestEveryErrnoOfAFile(t *testing.T) {
	for _, errno := range everyErrno() {
		f := FileFinding("/d", &fs.PathError{Op: "write", Path: "/d/x", Err: errno})
		want := status.StorageUnusable
		if errno == syscall.ENOSPC || errno == syscall.EDQUOT {
			want = status.DiskFull
		}
		if f.Code != want || f.Subject != "/d" || !strings.HasPrefix(f.Cause, "write /d/x: "+errno.Error()) {
			t.Errorf("%d: %+v", errno, f)
		}
	}
}

// TestEveryErrnoOfAPort: only a port that is taken is called so. (Finding F7: an address that the
// machine had lost was a port in use, and people hunted a program that was not there.)
func TestEveryErrnoOfAPort(t *testing.T) {
	const address = "192.0.2.7:4506"
	for _, errno := range everyErrno() {
		err := &net.OpError{Op: "listen", Err: os.NewSyscallError("bind", errno)}
		f := PortFinding(address, err)
		want := status.Finding{Code: status.PortRefused, Subject: address, Cause: ListenCause(err)}
		switch errno {
		case syscall.EADDRINUSE:
			want = status.Finding{Code: status.PortInUse, Subject: address, Cause: err.Error()}
		case syscall.EADDRNOTAVAIL:
			want = status.Finding{
				Code:    status.AddressMissing,
				Subject: "192.0.2.7",
				Cause:   "this machine has " + ownAddresses(),
			}
		}

		if f != want {
			t.Errorf("%d: got %+v, want %+v", errno, f, want)
		}

		if errno != syscall.EADDRNOTAVAIL && !strings.Contains(f.Cause, errno.Error()) {
			t.Errorf("%d: the cause does not say %v: %s", errno, errno, f.Cause)
		}
	}
}

// TestExplanationsAreOfOneErrno: no errno has two explanations.
func TestExplanationsAreOfOneErrno(t *testing.T) {
	for name, list := range map[string][]explanation{"disks": diskExplanations(), "listening": listenExplanations()} {
		var seen []syscall.Errno
		for _, e := range list {
			for _, errno := range e.errnos {
				if slices.Contains(seen, errno) {
					t.Errorf("%s: %v is explained twice", name, errno)
				}
				seen = append(seen, errno)
			}
		}
	}
}

// TestPortsOfThisMachine: the real errors of the kernel.
func TestPortsOfThisMachine(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()

	for address, want := range map[string]status.Code{
		taken.Addr().String():    status.PortInUse,
		"192.0.2.7:4506":         status.AddressMissing,
		"[2001:db8::7]:4506":     status.AddressMissing,
		"127.8.8.8:0":            "",
		"[fe80::1%nowhere]:4506": status.PortRefused,
	} {
		var got status.Code
		for _, f := range PortFindings(address) {
			got = f.Code
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", address, got, want)
		}
	}

	for _, here := range []string{"127.0.0.1", "127.8.8.8", "0.0.0.0", "no address"} {
		if f := AddressFinding(here); f != nil {
			t.Errorf("%s: %+v", here, *f)
		}
	}
}

// TestLostAddress: a lease that changes, and a cable that is pulled. (Finding F7.)
func TestLostAddress(t *testing.T) {
	const given, other = "10.99.3.3", "10.99.3.63"
	enterNetwork(t)
	ip := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v %s", args, err, out)
		}
	}

	ip("link", "set", "lo", "up")
	if f := AddressFinding(given); f == nil || f.Cause != "this machine has no address but those of the loopback" {
		t.Errorf("without an interface: %+v", f)
	}

	ip("link", "add", "d0", "type", "veth", "peer", "name", "d1")
	ip("addr", "add", given+"/24", "dev", "d0")
	if fault := LinkFault(given); fault != "d0, which has 10.99.3.3, is down" {
		t.Errorf("got %q", fault)
	}

	ip("link", "set", "d0", "up")
	ip("link", "set", "d1", "up")
	await.That(t, "that all is well", func() bool { return AddressFinding(given) == nil && LinkFault(given) == "" })
	ip("link", "set", "d1", "down")
	await.That(t, "the loss of the carrier",
		func() bool { return LinkFault(given) == "d0, which has 10.99.3.3, has no carrier" })
	ip("addr", "del", given+"/24", "dev", "d0")
	nonlocal := func(value string) error { // of this network
		return os.WriteFile("/proc/sys/net/ipv4/ip_nonlocal_bind", []byte(value), 0o600)
	}
	if err := nonlocal("1"); err != nil {
		t.Logf("NOT TESTED: where programs may listen on any address: %v", err)
	} else {
		if AddressFinding(given) == nil {
			t.Error("an address is not missed where programs may listen on any")
		}
		if err := nonlocal("0"); err != nil {
			t.Fatal(err)
		}
	}

	ip("addr", "add", other+"/24", "dev", "d0")
	for _, f := range append(PortFindings(given+":14505"), *AddressFinding(given)) {
		if f.Code != status.AddressMissing || f.Subject != given || f.Cause != "this machine has "+other+" on d0" {
			t.Errorf("got %+v", f)
		}
	}
}

// enterNetwork gives the test's thread a network of its own until the test ends.
func enterNetwork(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	before, err := os.Open("/proc/thread-self/ns/net")
	if err == nil {
		err = unix.Unshare(unix.CLONE_NEWNET)
	}

	if err != nil {
		runtime.UnlockOSThread()
		t.Skipf("NOT TESTED: a network namespace cannot be made: %v", err)
	}

	t.Cleanup(func() {
		defer before.Close()
		if err := unix.Setns(int(before.Fd()), unix.CLONE_NEWNET); err != nil {
			t.Fatalf("return to the network of before: %v", err) // the thread stays locked, and ends
		}
		runtime.UnlockOSThread()
	})
}

// TestIsOfDisk: what is of a disk is explained as such.
func TestIsOfDisk(t *testing.T) {
	var all []syscall.Errno
	for _, row := range diskErrnos() {
		all = append(all, row.errnos...)
	}

	for _, errno := range all {
		if err := (&fs.PathError{Op: "read", Path: "/x", Err: errno}); !IsOfDisk(err) || DiskCause(err) == err.Error() {
			t.Errorf("%v: %q", errno, DiskCause(err))
		}
	}

	for _, err := range []error{nil, fs.ErrNotExist, syscall.EACCES, errors.New("input/output error")} {
		if IsOfDisk(err) {
			t.Errorf("%v", err)
		}
	}
}
