package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Who may not read the master's configuration gets along with what an
// appliance puts beside it.
func TestConfigurationOfOthers(t *testing.T) {
	if dir := os.Getenv("SALTERN_TEST_CONF"); dir != "" { // the other user
		cfg, err := loadConf(dir)
		if err != nil {
			os.Stdout.WriteString("fault: " + err.Error() + "\n")
			os.Exit(0)
		}
		os.Stdout.WriteString("socket: " + cfg.SockDir + "\n")
		os.Exit(0)
	}

	dir := t.TempDir()
	write := func(mode os.FileMode, text string, name ...string) {
		t.Helper()
		path := filepath.Join(append([]string{dir}, name...)...)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}

	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}

	mode := os.FileMode(0o600)
	if os.Geteuid() != 0 {
		mode = 0 // nobody else at hand: we are the one who may not read it
	}

	write(mode, "sock_dir: /secret\n", "master")
	other := func() string {
		t.Helper()
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestConfigurationOfOthers$")
		cmd.Env, cmd.Dir = []string{"SALTERN_TEST_CONF=" + dir, "HOME=/"}, "/"
		if os.Geteuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}

		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}

		return string(out)
	}

	if got := other(); !strings.Contains(got, "permission denied") ||
		!strings.Contains(got, "only root, the master's user and its group") {
		t.Errorf("without a configuration for others: %s", got)
	}

	write(0o644, "sock_dir: /run/there\n", "client", "master")
	if got := other(); got != "socket: /run/there\n" {
		t.Errorf("with one: %s", got)
	}
}
