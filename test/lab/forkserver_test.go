package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// minionPair returns two minions of a release without a master, on a host of a network where net is
// not nil: one is forked, the other a program of its own.
func minionPair(t *testing.T, version string, net *Network, host string) (forked, program *Minion) {
	t.Helper()
	one := func(id string) *Minion {
		m := &Minion{
			ID:      id,
			Version: version,
			Dir:     Dir(t),
			bin:     Venv(t, version),
			net:     net,
			host:    host,
		}

		m.prepare(t, map[string]any{"master": "127.0.0.1", "master_port": 1})
		return m
	}

	forked, program = one("m"), one("m")
	forked.Launch(t)
	program.launchProgram(t)
	for _, m := range []*Minion{forked, program} {
		Eventually(t, 120*time.Second, "the minion makes its keys", func() error {
			text, err := os.ReadFile(m.Log)
			if err == nil && !strings.Contains(string(text), "Generating keys") {
				err = fmt.Errorf("it printed %q", text)
			}
			return err
		})
	}

	return forked, program
}

// processes describes the processes of a minion as the rest of the system sees them.
func processes(t *testing.T, m *Minion) string {
	t.Helper()
	read := func(pid, name string) string {
		text, err := os.ReadFile(filepath.Join("/proc", pid, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}

	first := fmt.Sprint(m.PID())
	second := strings.TrimSpace(read(first, "task/"+first+"/children"))
	var out strings.Builder
	for _, pid := range []string{first, second} {
		fmt.Fprintf(&out, "arguments %q\n", strings.TrimRight(strings.ReplaceAll(read(pid, "cmdline"), "\x00", " "), " "))
		for l := range strings.Lines(read(pid, "status")) {
			key, _, _ := strings.Cut(l, ":")
			if slices.Contains([]string{"Name", "Umask", "Uid", "Gid", "SigBlk", "SigIgn", "NoNewPrivs", "CapEff"}, key) {
				out.WriteString(l)
			}
		}

		for _, name := range []string{"cwd", "exe", "fd/0", "fd/1", "fd/2", "ns/net"} {
			target, err := os.Readlink(filepath.Join("/proc", pid, name))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&out, "%s %s\n", name, target)
		}

		for l := range strings.Lines(read(pid, "mountinfo")) {
			if f := strings.Fields(l); f[4] == "/sys" {
				fmt.Fprintf(&out, "/sys %s\n", strings.Join(f[5:], " "))
			}
		}

		id := m.PID()
		_, _ = fmt.Sscan(pid, &id)
		group, err := syscall.Getpgid(id)
		fmt.Fprintf(&out, "of the group of the first %t %v\n", group == m.PID(), err)
	}

	return strings.ReplaceAll(out.String(), m.Dir, "DIR")
}

// TestForkedMinion: to the rest of the system a forked minion is like one that is a program of its
// own, it ends with what it was ended by, and nothing of it is left.
func TestForkedMinion(t *testing.T) {
	for _, version := range Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			if _, err := os.Stat(filepath.Join(cacheDir(t), "salt-"+version)); err != nil {
				t.Skipf("NOT TESTED: Salt %s is not installed: make deps", version)
			}

			forked, program := minionPair(t, version, nil, "")
			a, b := processes(t, forked), processes(t, program)
			if a != b {
				t.Errorf("forked:\n%s\na program:\n%s", a, b)
			}

			if err := syscall.Kill(forked.PID(), syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}

			if !forked.Running() {
				t.Error("a stopped minion does not run")
			}

			forked.Kill()
			var status forkStatus
			if forked.Running() || !errors.As(forked.err, &status) || !syscall.WaitStatus(status).Signaled() {
				t.Errorf("killed: running %t, %v", forked.Running(), forked.err)
			}

			if left := forked.Left(); len(left) > 0 {
				t.Errorf("processes %v are left", left)
			}

			forked.Launch(t)
			if pid := forked.PID(); !forked.Running() || syscall.Kill(pid, 0) != nil {
				t.Errorf("started again: process %d does not run", pid)
			}
		})
	}
}

// TestForkedMinionOnNetwork: a forked minion enters a namespace as "ip netns exec" does.
func TestForkedMinionOnNetwork(t *testing.T) {
	if _, err := os.Stat(filepath.Join(cacheDir(t), "salt-"+Newest)); err != nil {
		t.Skipf("NOT TESTED: Salt %s is not installed: make deps", Newest)
	}

	net := NewNetwork(t, "frk", "10.61")
	forked, program := minionPair(t, Newest, net, net.Host(t, 1))
	a, b := processes(t, forked), processes(t, program)
	if a != b || !strings.Contains(a, "/sys") {
		t.Errorf("forked:\n%s\na program:\n%s", a, b)
	}
}
