package vip

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"saltern/packaging"
	"saltern/test/await"
)

// lines is what a child writes.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// TestPIDFilesLeftBehind: keepalived starts although the pid files of an earlier life name a
// process that runs and is another one (S2).
func TestPIDFilesLeftBehind(t *testing.T) {
	if _, err := Program(); err != nil || os.Getuid() != 0 {
		t.Skipf("NOT TESTED: %v, or not root", err)
	}

	d := &Daemon{Dir: t.TempDir(), Log: &lines{}}
	conf := "vrrp_instance saltern {\n state BACKUP\n interface lo\n virtual_router_id 7\n priority 1\n}\n"
	if err := os.WriteFile(d.Conf(), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}

	other := exec.Command("sleep", "300")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()

	for _, name := range pidFiles {
		if err := os.WriteFile(filepath.Join(d.Dir, name), fmt.Appendln(nil, other.Process.Pid), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx, func(int) {}) }()
	out := d.Log.(*lines)
	await.That(t, "keepalived",
		func() bool { return out.has("Starting VRRP child process") || out.has("already running") })
	stop()
	<-ended

	if out.has("already running") {
		t.Errorf("it does not start:\n%s", &out.text)
	}
}

// TestPIDFilesOfTheUnit: with the unit they are where systemd removes them at each end.
func TestPIDFilesOfTheUnit(t *testing.T) {
	unit := string(packaging.Virtual)
	for _, want := range []string{"--pid /run/saltern-vip/keepalived.pid ",
		"--vrrp_pid /run/saltern-vip/vrrp.pid\n", "\nRuntimeDirectory=saltern-vip "} {
		if !strings.Contains(unit, want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(unit, "RuntimeDirectoryPreserve") {
		t.Error("they stay")
	}
}
