//go:build e2e

package storage

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/supervisor/secrets"
	"saltern/test/lab"
)

// TestLongSecrets: administrators on two nodes give the cluster a key each at the
// same moment; every node has both, the third opens a secret with its copy, and
// nothing of gpg's own comes onto the volume.
func TestLongSecrets(t *testing.T) {
	if _, err := exec.LookPath("gpg"); err != nil {
		t.Skip("NOT TESTED: there is no gpg")
	}

	h := grown(t)
	admin := lab.Dir(t)
	t.Cleanup(func() { _ = exec.Command("gpgconf", "--homedir", admin, "--kill", "all").Run() })
	gpg := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("gpg",
			append([]string{"--homedir", admin, "--batch", "--quiet", "--no-permission-warning",
				"--trust-model", "always"},
				args...)...).Output()
		if err != nil {
			t.Fatalf("gpg %v: %v", args, err)
		}

		return string(out)
	}

	var wg sync.WaitGroup
	for i := 1; i <= 2; i++ {
		user, file := fmt.Sprintf("key%d@example.com", i), filepath.Join(admin, fmt.Sprint(i))
		gpg("--passphrase", "", "--quick-gen-key", user, "future-default", "default", "never")
		if err := os.WriteFile(file, []byte(gpg("--export-secret-keys", user)), 0o600); err != nil {
			t.Fatal(err)
		}

		wg.Go(func() {
			var keys []secrets.Key
			if err := h.ask(i, &keys, "secrets", "import", "--json", file); err != nil || len(keys) != 1 {
				t.Errorf("node%d: %+v %v", i, keys, err)
			}
		})
	}

	wg.Wait()
	for i := 1; i <= 3; i++ {
		lab.Eventually(t, 40*time.Second, fmt.Sprintf("both keys on node%d", i), func() error {
			var keys []secrets.Key
			if err := h.ask(i, &keys, "secrets", "list", "--json"); err != nil {
				return err
			}
			if len(keys) != 2 || !keys[0].Here || !keys[1].Here || keys[0].State != secrets.Ready ||
				keys[1].State != secrets.Ready {
				return fmt.Errorf("%+v", keys)
			}

			return nil
		})
	}

	value := filepath.Join(admin, "value")
	if err := os.WriteFile(value, []byte("hidden"), 0o600); err != nil {
		t.Fatal(err)
	}

	message := gpg("--armor", "--output", "-", "--recipient", "key1@example.com", "--encrypt", value)
	file := filepath.Join(admin, "message")
	if err := os.WriteFile(file, []byte(message), 0o600); err != nil {
		t.Fatal(err)
	}

	const node = "/data/saltern/mirror/" + secrets.Dir
	if out := h.on(t, 3, "sh", "-c", "gpg --homedir "+node+" --quiet --no-tty -d "+file+
		" 2>/dev/null"); out != "hidden" {
		t.Errorf("%q", out)
	}

	h.on(t, 3, "gpgconf", "--homedir", node, "--kill", "all")
	shared := strings.Fields(h.on(t, 3, "find", "/srv/cluster/"+secrets.Dir, "-mindepth", "1", "-printf", "%P\n"))
	for _, name := range shared {
		if !secrets.Part(name) && name != ".lock" {
			t.Errorf("%s is on the volume", name)
		}
	}

	if len(shared) < 6 {
		t.Errorf("%v", shared)
	}
}
