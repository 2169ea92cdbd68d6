package firewall

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test runs itself again in namespaces of the network; roleEnv says what
// as.
const roleEnv = "SALTERN_FIREWALL_ROLE"

func TestMain(m *testing.M) {
	switch role, addr, _ := strings.Cut(os.Getenv(roleEnv), " "); role {
	case "listen":
		listen()
	case "flood":
		flood(addr)
	case "member", "joiner":
		dialOften(addr)
	case "same64":
		same64(addr)
	default:
		os.Exit(m.Run())
	}
}

// listen takes connections until its input ends.
func listen() {
	ln, err := net.Listen("tcp", "[::]:4521")
	if err != nil {
		fmt.Println(err)
		return
	}

	fmt.Println("listening")
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()

	_, _ = io.Copy(io.Discard, os.Stdin)
}

func dialFrom(ctx context.Context, from, to string) (retransmitted uint32, err error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(to, "4521"))
	if err != nil {
		return 0, err
	}
	defer c.Close()

	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0, err
	}

	var info *unix.TCPInfo
	var failed error
	if err := raw.Control(func(fd uintptr) {
		info, failed = unix.GetsockoptTCPInfo(int(fd),
			syscall.IPPROTO_TCP, unix.TCP_INFO)
	}); err != nil || failed != nil {
		return 0, fmt.Errorf("%v %v", err, failed)
	}

	return info.Total_retrans, nil
}

// flood begins connections from many addresses, several hundred a second, until
// its input ends. None is finished: the sender is gone before the answer.
func flood(to string) {
	fmt.Println("flooding")
	end := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(end) }()
	for i := 0; ; i++ {
		select {
		case <-end:
			return
		case <-time.After(3 * time.Millisecond):
		}

		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			continue
		}

		_ = unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_FREEBIND, 1)
		_ = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{10, 9, 1, byte(1 + i%60)}})
		_ = unix.Connect(fd, &unix.SockaddrInet4{Port: 4521, Addr: [4]byte(net.ParseIP(to).To4())})
		_ = unix.Close(fd)
	}
}

// dialOften makes connections one after the other and says how many had to ask
// more than once.
func dialOften(arg string) {
	from, to, _ := strings.Cut(arg, " ")
	late := 0
	for range 20 {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		n, err := dialFrom(ctx, from, to)
		cancel()
		if err != nil || n > 0 {
			late++
			break // one is enough to know
		}
	}
	fmt.Println("late:", late)
}

// same64 asks from 60 addresses of one /64 at once.
func same64(to string) {
	got := make(chan bool)
	ctx, cancel := context.WithTimeout(context.Background(), 900*time.Millisecond)
	defer cancel()

	for i := range 60 {
		go func() {
			_, err := dialFrom(ctx, fmt.Sprintf("fd09::1:%x", 1+i), to)
			got <- err == nil
		}()
	}

	n := 0
	for range 60 {
		if <-got {
			n++
		}
	}

	fmt.Println("connected:", n)
}

// TestFinding16MembersBeforeStrangers: 300 connections a second of 60 strangers
// at the node API, through the image's rules. A member's connections are made at
// the first try, and so are those of a machine that joins from an address that
// has not asked before. A /64 counts as one stranger.
func TestFinding16MembersBeforeStrangers(t *testing.T) {
	for _, tool := range []string{"nft", "unshare", "ip"} {
		if _, err := exec.LookPath(tool); err != nil || os.Geteuid() != 0 {
			t.Skipf("SKIPPED: needs root and %s", tool)
		}
	}

	rules, err := os.ReadFile("../../image/profile/overlay/usr/lib/saltern/nftables.conf")
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	text := string(rules) + "\nadd element inet saltern peers { 10.9.0.2 }\n"
	if err := os.WriteFile(dir+"/rules", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	script := `
mkdir -p /run/netns; mount -t tmpfs none /run/netns
ip netns add node; ip netns add lan
ip link add n0 netns node type veth peer name l0 netns lan
ip -n node addr add 10.9.0.1/16 dev n0; ip -n node addr add fd09::1/16 dev n0 nodad
ip -n lan addr add 10.9.0.2/16 dev l0; ip -n lan addr add 10.9.0.3/16 dev l0
for i in $(seq 60); do ip -n lan addr add 10.9.1.$i/16 dev l0; ip -n lan addr add $(printf fd09::1:%x $i)/16 dev l0 nodad; done
ip -n node link set n0 up; ip -n lan link set l0 up; ip -n node link set lo up
ip netns exec node nft -c -f ` + dir + `/rules
ip netns exec node nft -f ` + dir + `/rules
me() { ns=$1; shift; ` + roleEnv + `="$*" ip netns exec $ns ` + os.Args[0] + `; }
mkfifo ` + dir + `/a ` + dir + `/b
(me node listen <` + dir + `/a >` + dir + `/listen) & exec 8>` + dir + `/a
until grep -q listening ` + dir + `/listen; do sleep 0.05; done
(me lan flood 10.9.0.1 <` + dir + `/b >` + dir + `/flood) & exec 9>` + dir + `/b
until grep -q flooding ` + dir + `/flood; do sleep 0.05; done
sleep 1
echo member $(me lan member 10.9.0.2 10.9.0.1)
echo joiner $(me lan joiner 10.9.0.3 10.9.0.1)
exec 9>&-
echo six $(me lan same64 fd09::1)
exec 8>&-
wait
`

	out, err := exec.Command("timeout", "-k", "5", "120", "unshare", "--net", "--mount", "--propagation",
		"private", "sh", "-ec", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	if !strings.Contains(string(out), "member late: 0\n") || !strings.Contains(string(out), "joiner late: 0\n") {
		t.Errorf("connections had to be asked for again:\n%s", out)
	}

	var six int
	if _, after, ok := strings.Cut(string(out), "six connected: "); !ok {
		t.Errorf("no answer:\n%s", out)
	} else if _, err := fmt.Sscan(after, &six); err != nil || six == 0 || six > 45 {
		t.Errorf("of 60 addresses in one /64, %d were served (%v)", six, err)
	}
}
