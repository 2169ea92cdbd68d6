package pillar

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/internal/pillar/renderer"
	"saltern/master/value"
	"saltern/test/await"
)

// keyring is a folder of gpg with one key for secrets.
type keyring struct {
	t    testing.TB
	home string
}

func newKeyring(t testing.TB) *keyring {
	t.Helper()
	if _, err := exec.LookPath("gpg"); err != nil {
		t.Skip("NOT TESTED: there is no gpg")
	}

	home, err := os.MkdirTemp("", "gpg") // short: a socket's path holds 107 bytes
	if err != nil {
		t.Fatal(err)
	}

	k := &keyring{t, home}
	t.Cleanup(func() {
		k.endAgent()
		_ = os.RemoveAll(home)
	})

	k.gpg("", "--batch", "--passphrase", "", "--quick-gen-key", "master", "future-default", "default", "never")
	return k
}

func (k *keyring) endAgent() { _ = exec.Command("gpgconf", "--homedir", k.home, "--kill", "all").Run() }

func (k *keyring) gpg(in string, args ...string) string {
	k.t.Helper()
	cmd := exec.Command("gpg", append([]string{"--homedir", k.home, "--quiet"}, args...)...)
	cmd.Stdin = strings.NewReader(in)
	var out, fault bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &fault
	if err := cmd.Run(); err != nil {
		k.t.Fatalf("gpg %v: %v: %s", args, err, &fault)
	}
	return out.String()
}

func (k *keyring) encrypt(text string) string {
	return k.gpg(text, "--batch", "--armor", "--trust-model", "always", "--encrypt", "-r", "master")
}

// agents counts the agents of the keyring, and waits so long for their end.
func (k *keyring) agents(patience time.Duration) (n int) {
	await.Within(patience, func() bool {
		n = 0
		found, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, f := range found {
			if b, _ := os.ReadFile(f); bytes.HasPrefix(b, []byte("gpg-agent")) && bytes.Contains(b, []byte(k.home)) {
				n++
			}
		}
		return n == 0
	})
	return n
}

// indented is an armoured block as it stands in an SLS.
func indented(armoured string) string {
	return "|\n    " + strings.ReplaceAll(strings.TrimSpace(armoured), "\n", "\n    ") + "\n"
}

// watchedGPG is a folder with a gpg that notes when it begins and ends.
func watchedGPG(t *testing.T) (path, log string) {
	t.Helper()
	dir := t.TempDir()
	real, err := exec.LookPath("gpg")
	if err != nil {
		t.Fatal(err)
	}
	log = filepath.Join(dir, "log")
	script := fmt.Sprintf("#!/bin/sh\necho + >>%[1]s\n%[2]s \"$@\"\nn=$?\necho - >>%[1]s\nexit $n\n", log, real)
	if err := os.WriteFile(filepath.Join(dir, "gpg"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir + ":" + os.Getenv("PATH"), log
}

// runs counts the processes of a log and how many there were at once, and empties it.
func runs(t *testing.T, log string) (all, atOnce int) {
	t.Helper()
	b, _ := os.ReadFile(log)
	now := 0
	for line := range strings.Lines(string(b)) {
		if line == "+\n" {
			all++
			now++
			atOnce = max(atOnce, now)
		} else {
			now--
		}
	}

	_ = os.Remove(log)
	return all, atOnce
}

const secretsInFile = 50

// TestSecrets compiles an SLS of 50 secrets for several minions at once, with a
// real gpg: as many processes as there are workers at a time, and with gpg_cache
// one for each secret and worker.
func TestSecrets(t *testing.T) {
	py, k := python(t), newKeyring(t)
	var sls strings.Builder
	sls.WriteString("#!yaml|gpg\n")
	for i := range secretsInFile {
		fmt.Fprintf(&sls, "s%03d: %s", i, indented(k.encrypt(fmt.Sprintf("secret %d", i))))
	}

	one := strings.ReplaceAll(strings.TrimSpace(k.encrypt("of the plain file")), "\n", `\n`)
	root := tree(t, map[string]string{
		"p/top.sls":     "base:\n  '*': [secrets, plain]\n  'min0': [own]\n",
		"p/secrets.sls": sls.String(),
		"p/plain.sls":   "deep:\n  enc: \"" + one + "\"\nother: 1\n",
		"p/own.sls":     "#!yaml|gpg\nmine: " + indented(k.encrypt("for min0 alone")),
	})

	path, log := watchedGPG(t)
	if k.agents(0) == 0 {
		t.Error("the agent that made the key is not seen")
	}

	k.endAgent()
	for _, cached := range []bool{false, true} {
		pool := renderer.New(renderer.Config{
			Python:     []string{py},
			MaxWorkers: 2,
			Env:        []string{"PATH=" + path, "HOME=/nonexistent", "LC_ALL=C.UTF-8"},
			Overrides: value.NewMap("id", "themaster", "root_dir", root, "cachedir", root+
				"/cache", "gpg_keydir", k.home, "gpg_cache", cached,
				"decrypt_pillar", []any{"deep"}, "pillar_roots", value.NewMap("base", []any{root + "/p"})),
		})

		t.Cleanup(pool.Close)
		c := New(Config{Roots: base(root + "/p"), Renderers: pool, Decrypt: true})
		minions := 2
		if cached {
			minions = 40
		}

		begun := time.Now()
		var wg sync.WaitGroup
		for i := range minions {
			wg.Go(func() {
				id := fmt.Sprintf("min%d", i)

				// Grains must not say where gpg reads its configuration.
				p := compile(t, c, Request{ID: id, Grains: value.NewMap("gpg_keydir", root)})
				for j := range secretsInFile {
					if got, want := p.Str(fmt.Sprintf("s%03d", j)), fmt.Sprintf("secret %d", j); got != want {
						t.Errorf("%s: secret %d is %.40q", id, j, got)
						return
					}
				}

				if got := p.Map("deep").Str("enc"); got != "of the plain file" {
					t.Errorf("%s: decrypt_pillar gives %q", id, got)
				}

				if _, has := p.Get("mine"); has != (i == 0) || len(p.List("_errors")) > 0 {
					t.Errorf("%s: its own secret: %v; %v", id, has, p.List("_errors"))
				}
			})
		}

		wg.Wait()
		all, atOnce := runs(t, log)
		t.Logf("gpg_cache %v: %d minions, %d gpg, %d at once, %v", cached, minions, all, atOnce,
			time.Since(begun).Round(time.Millisecond))
		want := minions*(secretsInFile+1) + 1
		if cached {
			want = 2 * (secretsInFile + 2)
		}

		pool.Close()
		if all > want || all < secretsInFile+2 || atOnce > 2 {
			t.Errorf("gpg_cache %v: %d gpg, %d at once; at most %d and 2", cached, all, atOnce, want)
		}
	}

	if k.agents(10*time.Second) > 0 {
		t.Error("an agent outlives the renderers")
	}

	if _, err := os.Stat(root + "/cache/gpg_cache"); err == nil {
		t.Error("secrets are in a file in clear")
	}
}

// TestAttack17Keyring: without gpg_keydir Salt's renderer asks grains
// for it, and the gpg.conf in such a folder names programs.
func TestAttack17Keyring(t *testing.T) {
	py, k := python(t), newKeyring(t)
	root := tree(t, map[string]string{
		"p/top.sls": "base:\n  '*': [x]\n",
		"p/x.sls":   "#!yaml|gpg\nx: " + indented(k.encrypt("hidden")),
	})

	for _, grain := range []string{k.home, ""} {
		over := value.NewMap("id", "themaster", "root_dir", root, "config_dir", root, "pillar_roots",
			value.NewMap("base", []any{root + "/p"}))
		grains := value.NewMap("gpg_keydir", grain)
		if grain == "" { // the folder beside the configuration
			if err := os.Symlink(k.home, root+"/gpgkeys"); err != nil {
				t.Fatal(err)
			}
			grains.Delete("gpg_keydir")
		}

		pool := renderer.New(renderer.Config{Python: []string{py}, MaxWorkers: 1, Overrides: over})
		t.Cleanup(pool.Close)
		p := compile(t, New(Config{Roots: base(root + "/p"), Renderers: pool}), Request{ID: "m", Grains: grains})
		if opened := p.Str("x") == "hidden"; opened != (grain == "") {
			t.Errorf("grain %q: %s", grain, plainText(p))
		}
	}
}
