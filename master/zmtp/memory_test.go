package zmtp

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// connections returns how many connections a test may open: want, or the number that the descriptor
// limit allows.
func connections(t *testing.T, want int) int {
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		t.Fatal(err)
	}
	if room := (int(lim.Cur) - 200) / 2; room < want {
		t.Logf("descriptor limit: %d connections instead of %d", room, want)
		want = room
	}
	if testing.Short() {
		want = min(want, 200)
	}
	return want
}

// memory returns the bytes that the Go runtime uses for heap objects and stacks.
func memory() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// An idle connection costs at most 8 KiB in all. The clients run in another process.
func TestIdleConnectionMemory(t *testing.T) {
	if addr := os.Getenv("ZMTP_TEST_CLIENT"); addr != "" {
		idleClients(t, addr)
		return
	}

	n := connections(t, 4000)
	if raceBuild { // which measures nothing
		n = min(n, 400)
	}

	for _, role := range []string{"REQ", "SUB"} {
		t.Run(role, func(t *testing.T) {
			r, p := router(t, RouterConfig{}), publisher(t, PubConfig{})
			addr, conns := r.Addr(), func() int { return int(r.Stats().Conns) }
			if role == "SUB" {
				addr, conns = p.Addr(), func() int { return len(p.Subscribers()) }
			}

			before := memory()
			cmd := exec.Command(os.Args[0], "-test.run=TestIdleConnectionMemory$", "-test.v")
			cmd.Env = append(os.Environ(), "ZMTP_TEST_CLIENT="+addr.String(),
				"ZMTP_TEST_ROLE="+role, "ZMTP_TEST_N="+strconv.Itoa(n))
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}

			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}

			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = stdin.Close(); _ = cmd.Wait() }()

			ok := false
			for sc := bufio.NewScanner(stdout); sc.Scan(); {
				if ok = strings.Contains(sc.Text(), "clients idle"); ok {
					break
				}
			}

			if !ok || conns() != n {
				t.Fatalf("%d of %d clients came", conns(), n)
			}

			each := (memory() - before) / uint64(n)
			t.Logf("%d idle %s connections after use: %d bytes each", n, role, each)
			if n >= 1000 && !raceBuild && each > 8<<10 {
				t.Errorf("%d bytes per idle connection", each)
			}
		})
	}
}

// idleClients is the body of the other process: it connects, sends one request on each connection,
// and waits.
func idleClients(t *testing.T, addr string) {
	n, _ := strconv.Atoi(os.Getenv("ZMTP_TEST_N"))
	role := os.Getenv("ZMTP_TEST_ROLE")
	a, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}

	for range n {
		c := shake(t, a, role)
		if role == "REQ" {
			c.send(appendMessage(nil, nil, make([]byte, 1000)))
			c.frame()
			c.frame()
		} else {
			c.send(appendCommand(nil, "SUBSCRIBE", nil))
			c.send(appendCommand(nil, "PING", make([]byte, 2)))
			c.frame()
		}
	}

	fmt.Println("clients idle")
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the parent is done
}
