package memlimit

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCgroupLimit(t *testing.T) {
	root := t.TempDir()
	put := func(path, text string) {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	put("self", "0::/system.slice/salt-master.service\n")
	put("system.slice/memory.max", "max\n")
	if n := cgroupLimit(root+"/self", root); n != 0 {
		t.Errorf("no limit: %d", n)
	}

	put("system.slice/salt-master.service/memory.max", "805306368\n")
	if n := cgroupLimit(root+"/self", root); n != 805306368 {
		t.Errorf("own limit: %d", n)
	}

	put("system.slice/memory.max", "536870912\n")
	if n := cgroupLimit(root+"/self", root); n != 536870912 {
		t.Errorf("limit above: %d", n)
	}

	put("self", "12:memory:/old\n")
	if n := cgroupLimit(root+"/self", root); n != 0 {
		t.Errorf("version 1 without a limit: %d", n)
	}

	put("memory/memory.limit_in_bytes", "9223372036854771712\n") // as the kernel writes "none"
	put("memory/old/memory.limit_in_bytes", "402653184\n")
	put("self", "3:cpuset:/x\n12:cpu,memory:/old/below\n0::/\n")
	if n := cgroupLimit(root+"/self", root); n != 402653184 {
		t.Errorf("version 1: %d", n)
	}

	put("meminfo", "MemFree: 1 kB\nMemTotal:        1014932 kB\n")
	if n := machineMemory(root + "/meminfo"); n != 1014932<<10 || machineMemory(root+"/none") != 0 {
		t.Errorf("the machine's: %d", n)
	}

	if lowerLimit(0, 5) != 5 || lowerLimit(5, 0) != 5 || lowerLimit(3, 5) != 3 || lowerLimit(5, 3) != 3 {
		t.Error("0 is not without a limit")
	}

	if n := cgroupLimit(root+"/none", root); n != 0 {
		t.Errorf("no file: %d", n)
	}
}
