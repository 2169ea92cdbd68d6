//go:build attack

package attack

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const (
	memoryLimit = 512 << 20 // what the master may have, its Python included
	apiLimit    = 256 << 20 // what salt-api may have: a fourth of a machine of 1 GiB
)

// memory is the control group of a program.
type memory struct {
	dir                string
	limit, peak, kills string // names of its files
	first              bool   // the first version of control groups
}

// newMemory makes a group with a limit for a program. The test fails where none can be
// made: without the limit it would show nothing.
func newMemory(t *testing.T, program string, most int) *memory {
	t.Helper()
	name := fmt.Sprintf("saltern-attack-%s-%d", program, os.Getpid())
	var tried []string
	for _, m := range []*memory{
		{dir: "/sys/fs/cgroup/" + name, limit: "memory.max", peak: "memory.peak", kills: "memory.events"},
		{
			dir:   "/sys/fs/cgroup/memory/" + name,
			limit: "memory.limit_in_bytes",
			peak:  "memory.max_usage_in_bytes",
			kills: "memory.oom_control",
			first: true,
		},
	} {
		if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); !m.first && err != nil {
			tried = append(tried, err.Error())
			continue
		}

		if !m.first {
			_ = os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+memory"), 0)
		} else if _, err := os.Stat("/sys/fs/cgroup/memory/memory.limit_in_bytes"); err != nil {
			tried = append(tried, err.Error())
			continue
		}

		err := os.Mkdir(m.dir, 0o755)
		if err == nil {
			t.Cleanup(func() { _ = os.Remove(m.dir) })
			err = os.WriteFile(filepath.Join(m.dir, m.limit), []byte(strconv.Itoa(most)), 0)
		}

		if err != nil {
			tried = append(tried, err.Error())
			continue
		}

		for _, swap := range []string{"memory.memsw.limit_in_bytes", "memory.swap.max"} { // where there is swap
			n := strconv.Itoa(most)
			if swap == "memory.swap.max" {
				n = "0"
			}
			_ = os.WriteFile(filepath.Join(m.dir, swap), []byte(n), 0)
		}

		return m
	}

	t.Fatalf("the memory of programs cannot be limited here (root and the memory controller of control groups are needed): %s",
		strings.Join(tried, "; "))
	return nil
}

// wrapper writes a program that runs another one in the group from its first
// instruction.
func (m *memory) wrapper(t *testing.T, dir, program string) string {
	t.Helper()
	text := fmt.Sprintf("#!/bin/sh\necho $$ > %s/cgroup.procs || exit 1\n", m.dir)
	path := filepath.Join(dir, filepath.Base(program))
	if err := os.WriteFile(path, []byte(text+"exec "+program+` "$@"`+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func (m *memory) number(file string) int64 {
	b, _ := os.ReadFile(filepath.Join(m.dir, file))
	n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n
}

// highest is in bytes, since reset where the system can forget, else since the
// start.
func (m *memory) highest() int64 { return m.number(m.peak) }
func (m *memory) reset()         { _ = os.WriteFile(filepath.Join(m.dir, m.peak), []byte("0"), 0) }

// killed is how many processes of the group the kernel has ended for want of
// memory.
func (m *memory) killed() (n int) {
	b, _ := os.ReadFile(filepath.Join(m.dir, m.kills))
	for l := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(l), "oom_kill "); ok {
			n, _ = strconv.Atoi(v)
		}
	}
	return n
}
