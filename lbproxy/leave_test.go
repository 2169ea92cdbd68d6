package lbproxy

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// ownNetwork runs the test again in a network of its own and reports whether
// this is that run.
func ownNetwork(t *testing.T) bool {
	t.Helper()
	const mark = "SALTERN_TEST_OWN_NETWORK"
	if os.Getenv(mark) != "" {
		return true
	}

	if _, err := exec.LookPath("ip"); err != nil {
		t.Skipf("NOT TESTED: %v", err)
	}

	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), mark+"=1")
	own := func(id int) []syscall.SysProcIDMap {
		return []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: own(os.Getuid()),
		GidMappings: own(os.Getgid()),
	}

	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		t.Skipf("NOT TESTED: no network of its own: %v", err)
	}

	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}

	return false
}

// Sessions to an address that leaves the machine are cut without anybody
// asking for it; those to another one go on, and so do those whose address is
// taken away and given back.
func TestAddressLeaves(t *testing.T) {
	if !ownNetwork(t) {
		return
	}

	ip := func(args string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v %s", args, err, out)
		}
	}

	ip("link set lo up")
	for _, a := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"} {
		ip("addr add " + a + "/32 dev lo")
	}

	b := newFake(t, "127.0.0.1:0", echo)
	cfg := testConfig(Publish, b)
	cfg.Frontends[0].Bind = []string{"0.0.0.0:0"}
	p, addr := start(t, cfg)
	upPorts(t, p, 1)
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}

	stays, goes, flaps := dial(t, "192.0.2.1:"+port), dial(t, "192.0.2.2:"+port), dial(t, "192.0.2.3:"+port)
	for _, c := range []net.Conn{stays, goes, flaps} {
		ask(t, c, "x")
	}

	ip("addr del 192.0.2.3/32 dev lo")
	ip("addr add 192.0.2.3/32 dev lo")
	ip("addr del 192.0.2.2/32 dev lo")
	eventually(t, "the session to the address that is gone is cut", func() bool { return p.Status().Sessions == 2 })
	ask(t, stays, "x")
	ask(t, flaps, "x")
}
