package proctree

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

func TestLookSeesDescendants(t *testing.T) {
	alone, err := Look(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}

	if alone.PSS <= 0 || alone.RSS < alone.PSS || alone.Threads < 1 || alone.Descriptors < 1 {
		t.Errorf("this process: %+v", alone)
	}

	sh := exec.Command("sh", "-c", "sleep 60 & wait")
	if err := sh.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		pids, err := Pids(sh.Process.Pid)
		if err != nil {
			t.Error(err)
		}

		for _, p := range pids {
			if p, err := os.FindProcess(p); err == nil {
				_ = p.Kill()
			}
		}

		_ = sh.Wait()
	})

	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		with, err := Look(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if with.Procs == alone.Procs+2 && with.RSS > alone.RSS {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("before %+v, with two more %+v", alone, with)
		}
	}

	pids, err := Pids(os.Getpid())
	if err != nil || pids[0] != os.Getpid() || !slices.Contains(pids, sh.Process.Pid) {
		t.Errorf("the tree is %v, %v", pids, err)
	}
}

func TestLookAtNobody(t *testing.T) {
	for _, pid := range []int{0, -1, 1 << 30} {
		if u, err := Look(pid); err == nil {
			t.Errorf("process %d: %+v", pid, u)
		}
	}
}
