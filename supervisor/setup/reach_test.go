package setup

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"saltern/test/await"
)

// responder is a server over UDP; answer gives nil for what it does not answer.
func responder(t *testing.T, answer func(question []byte) []byte) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if a := answer(buf[:n]); a != nil {
				_, _ = conn.WriteTo(a, from)
			}
		}
	}()

	t.Cleanup(func() { _ = conn.Close(); <-ended })
	return conn.LocalAddr().String()
}

// TestServersAnswer: name servers and time servers are told by an answer of theirs, and
// by nothing else. (m5)
func TestServersAnswer(t *testing.T) {
	refused := func(q []byte) []byte { return append([]byte{q[0], q[1], 0x81, 0x05}, q[4:]...) } // of recursion
	clock := func(q []byte) []byte {
		a := make([]byte, 48)
		a[0] = 4<<3 | 4
		copy(a[24:], q[40:48])
		return a
	}

	mute := func([]byte) []byte { return nil }
	echo := func(q []byte) []byte { return q }
	short := func([]byte) []byte { return []byte{1} }
	second := 0
	for name, x := range map[string]struct {
		ask    func(context.Context, string) error
		answer func([]byte) []byte
		want   error
	}{
		"a name server that refuses": {nameServerAnswers, refused, nil},
		"a mute name server":         {nameServerAnswers, mute, errSilent},
		"an echo, not a name server": {nameServerAnswers, echo, errSilent},
		"a short answer":             {nameServerAnswers, short, errSilent},
		"a question that is lost": {nameServerAnswers, func(q []byte) []byte {
			second++
			if second < 2 {
				return nil
			}
			return refused(q)
		}, nil},
		"a time server":              {timeServerAnswers, clock, nil},
		"an echo, not a time server": {timeServerAnswers, echo, errSilent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()

			if x.want == nil {
				ctx = t.Context()
			}

			if err := x.ask(ctx, responder(t, x.answer)); !errors.Is(err, x.want) {
				t.Errorf("%v", err)
			}
		})
	}

	nobody := responder(t, mute)
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	closed := conn.LocalAddr().String()
	_ = conn.Close()
	if err := nameServerAnswers(t.Context(), closed); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a closed port: %v", err)
	}

	if err := timeServerAnswers(t.Context(), "no-such-name.invalid:123"); err == nil || errors.Is(err, errSilent) {
		t.Errorf("a name that there is not: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := nameServerAnswers(ctx, nobody); !errors.Is(err, errSilent) {
		t.Errorf("when the trial has ended: %v", err)
	}
}

// TestTimeServersOfTheSystem: those of the network are asked before those of the image;
// what is no name is none.
func TestTimeServersOfTheSystem(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}

	chrony := write("chrony.conf",
		"# a comment\npool 2.debian.pool.ntp.org iburst\nserver 10.0.0.9\nserver -x\ndriftfile /x\n")
	for name, x := range map[string]struct {
		networkd string
		want     []string
	}{
		"of the network": {write("state", "OPER_STATE=routable\nNTP=10.0.0.1 ntp.example.org\nNTP=$(x)\n"),
			[]string{"10.0.0.1", "ntp.example.org"}},
		"of the image": {write("none", "OPER_STATE=routable\n"), []string{"2.debian.pool.ntp.org", "10.0.0.9"}},
		"no networkd":  {filepath.Join(dir, "missing"), []string{"2.debian.pool.ntp.org", "10.0.0.9"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := timeServers(x.networkd, chrony); !reflect.DeepEqual(got, x.want) {
				t.Errorf("%v, not %v", got, x.want)
			}
		})
	}

	if got := gatewayOf("b", []Interface{{Name: "a", Gateway: "10.0.0.1"}, {Name: "b"}}); got != "" {
		t.Errorf("gateway %q of another interface", got)
	}
}

// TestGatewayAnswers: a machine on the other end of a cable is there, one that nobody is
// does not answer, and one behind no cable cannot. (m5)
func TestGatewayAnswers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: it needs root, for a network of its own")
	}
	done := make(chan string, 1)
	go func() { // its thread has the other network, and ends with it
		runtime.LockOSThread()
		done <- gatewayAnswers(t)
	}()
	if fault := <-done; fault != "" {
		t.Error(fault)
	}
}

func gatewayAnswers(t *testing.T) string {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err.Error()
	}

	peer := exec.Command("sleep", "60")
	peer.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := peer.Start(); err != nil {
		return err.Error()
	}
	defer func() { _ = peer.Process.Kill(); _ = peer.Wait() }()

	pid := strconv.Itoa(peer.Process.Pid)
	for _, command := range []string{
		"ip link add name e0 type veth peer name e1",
		"ip link set e1 netns " + pid,
		"ip addr add 192.0.2.10/24 dev e0", "ip addr add fd00::10/64 dev e0 nodad", "ip link set e0 up",
		"nsenter -t " + pid + " -n ip addr add 192.0.2.1/24 dev e1",
		"nsenter -t " + pid + " -n ip addr add fd00::1/64 dev e1 nodad",
		"nsenter -t " + pid + " -n ip link set e1 up",
	} {
		words := strings.Fields(command)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return command + ": " + string(out)
		}
	}

	if !await.Within(5*time.Second, func() bool {
		out, err := exec.Command("ip", "link", "show", "e0").Output()
		return err == nil && strings.Contains(string(out), "state UP")
	}) {
		return "the link does not come up"
	}

	for address, want := range map[string]error{
		"192.0.2.1":    nil,
		"fd00::1":      nil,
		"192.0.2.99":   errSilent,
		"198.51.100.1": syscall.ENETUNREACH,
	} {
		patience := 20 * time.Second
		if want != nil {
			patience = 700 * time.Millisecond
		}

		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := neighbourAnswers(ctx, address)
		cancel()
		if !errors.Is(err, want) {
			return address + ": " + errText(err)
		}
	}

	return ""
}

func errText(err error) string {
	if err == nil {
		return "answers"
	}
	return err.Error()
}
