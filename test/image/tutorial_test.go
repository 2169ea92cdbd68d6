//go:build nspawn

package image

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
	"saltern/test/tutorial"
)

// minionFiles are what a machine needs besides the plain tree to have Salt's minion, as
// the package of Salt would leave it.
func minionFiles(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{"usr/lib/systemd/system/salt-minion.service": "[Service]\nType=notify\nNotifyAccess=all\nExecStart=/usr/bin/salt-minion\n[Install]\nWantedBy=multi-user.target\n"}
	for _, name := range []string{"salt-minion", "salt-call"} {
		files["usr/bin/"+name] = "#!/bin/sh\nexec " + filepath.Join(lab.Venv(t, lab.Newest), name) + ` "$@"` + "\n"
	}
	return files
}

// typed is a machine for a tutorial: its commands are typed by root in /root.
type typed struct{ m *machine }

func (x typed) Run(ctx context.Context, command string) (string, error) {
	cmd := exec.CommandContext(ctx, "nsenter", "-t", strconv.Itoa(x.m.pid), "-a", "timeout", "600", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", "bash", "-o", "pipefail", "-c", "cd; "+command)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (x typed) Put(path, text string) error {
	cmd := exec.Command("nsenter", "-t", strconv.Itoa(x.m.pid), "-a", "sh", "-c",
		`mkdir -p "$(dirname "$1")" && cat >"$1"`, "sh", path)
	cmd.Stdin = strings.NewReader(text)
	return cmd.Run()
}

// typePage boots the machines of a page, by name and number in 192.0.2.0/24, and types
// the page on them. Those in minions have Salt's minion, the others our packages.
func typePage(t *testing.T, page string, masters, minions map[string]int) (took time.Duration) {
	t.Helper()
	dir := os.Getenv("SALTERN_PACKAGES")
	if dir == "" {
		t.Skip("NOT TESTED: by hand: make test-tutorials")
	}

	text, err := os.ReadFile("../../" + page)
	if err != nil {
		t.Fatal(err)
	}

	steps, err := tutorial.Read(string(text))
	if err != nil {
		t.Fatalf("%s: %v", page, err)
	}

	// TestTutorialEC2 types them
	steps = slices.DeleteFunc(steps, func(s tutorial.Step) bool { return slices.Equal(s.On, []string{"aws"}) })
	debs := map[string]string{}
	found, err := filepath.Glob(filepath.Join(dir, "saltern-*.deb"))
	if err != nil || len(found) != 4 {
		t.Fatalf("%s has %v (%v)", dir, found, err)
	}

	for _, f := range found {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		debs["root/"+filepath.Base(f)] = string(b)
	}

	n := newNetwork(t)
	n.base = "192.0.2." // the addresses of the pages
	machines := map[string]tutorial.Machine{}
	start := func(name string, number int, files map[string]string, ready string) {
		files = maps.Clone(files)
		files["etc/hostname"] = name + "\n"
		m := boot(t, n, number, files)
		m.wait(t, 120*time.Second, "active", "systemctl", "is-active", "multi-user.target")
		m.run(t, "sh", "-c", "hostname "+name+"; "+ready)
		machines[name] = typed{m}
	}

	for name, number := range masters {
		start(name, number, debs, "true")
	}

	for name, number := range minions {
		start(name, number, minionFiles(t),
			"chmod 0755 /usr/bin/salt-minion /usr/bin/salt-call; systemctl daemon-reload")
	}

	began := time.Now()
	err = tutorial.Type(t.Context(), steps, machines, func(where, command string, times int, took time.Duration) {
		t.Logf("%6.1f s  %s$ %s (%d)", took.Seconds(), where, command, times)
	})
	if err != nil {
		for name, m := range machines {
			t.Logf("%s:\n%s", name, m.(typed).m.journal())
		}
		t.Fatalf("%s: %v", page, err)
	}

	return time.Since(began)
}

// TestTutorialReadme: from packages to the first answer of a minion.
func TestTutorialReadme(t *testing.T) {
	took := typePage(t, "README.md", map[string]int{"master": 10}, map[string]int{"web1": 21})
	t.Logf("README: from the packages to the first answer of a minion: %.1f s", took.Seconds())
}

// TestTutorialHotMasters: three masters of one cluster, and minions while one is away.
func TestTutorialHotMasters(t *testing.T) {
	took := typePage(t, "docs/tutorials/hot-masters.md",
		map[string]int{"sca-1": 11, "sca-2": 12, "sca-3": 13}, map[string]int{"web1": 21, "web2": 22})
	t.Logf("hot masters: %.0f s", took.Seconds())
}

// TestTutorialFailover: two masters alone, and a minion that goes to the second.
func TestTutorialFailover(t *testing.T) {
	took := typePage(t, "docs/tutorials/failover-ec2.md", map[string]int{"salt-a": 11, "salt-b": 12},
		map[string]int{"web1": 21})
	t.Logf("failover: %.0f s", took.Seconds())
}
