package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// secretsNode is a node with a place for keys, and an administrator's own gpg.
type secretsNode struct {
	t    *testing.T
	dir  string
	home string
}

func newSecretsNode(t *testing.T) *secretsNode {
	t.Helper()
	if _, err := exec.LookPath("gpg"); err != nil {
		t.Skip("NOT TESTED: there is no gpg")
	}

	dir, err := os.MkdirTemp("", "s") // short: a socket's path holds 107 bytes
	if err != nil {
		t.Fatal(err)
	}

	n := &secretsNode{t, dir, dir + "/admin"}
	t.Cleanup(func() {
		for _, home := range []string{n.home, n.keys()} {
			_ = exec.Command("gpgconf", "--homedir", home, "--kill", "all").Run()
		}
		_ = os.RemoveAll(dir)
	})

	for _, d := range []string{n.home, dir + "/run", dir + "/shared/etc", dir + "/shared/pki"} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}

	text := fmt.Sprintf("data_dir: %[1]s/data\nruntime_dir: %[1]s/run\nstorage: {path: %[1]s/shared}\n", dir)
	if err := os.WriteFile(dir+"/appliance.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	return n
}

func (n *secretsNode) keys() string { return filepath.Join(n.dir, "shared/etc/gpgkeys") }

// export makes a key and exports it.
func (n *secretsNode) export(user string) string {
	n.t.Helper()
	n.gpg("", "--passphrase", "", "--quick-gen-key", user, "future-default", "default", "never")
	return n.gpg("", "--armor", "--export-secret-keys", user)
}

func (n *secretsNode) gpg(in string, args ...string) string {
	n.t.Helper()
	cmd := exec.Command("gpg",
		append([]string{"--homedir", n.home, "--batch", "--quiet", "--trust-model", "always"}, args...)...)
	cmd.Stdin = strings.NewReader(in)
	out, err := cmd.Output()
	if err != nil {
		n.t.Fatalf("gpg %v: %v", args, err)
	}
	return string(out)
}

func (n *secretsNode) applianced(in string, args ...string) (string, error) {
	n.t.Helper()
	cmd := rootCommand()
	var out bytes.Buffer
	cmd.SetIn(strings.NewReader(in))
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(append([]string{"--config", n.dir + "/appliance.yaml"}, args...))
	err := cmd.ExecuteContext(n.t.Context())
	return out.String(), err
}

func (n *secretsNode) must(in string, args ...string) string {
	n.t.Helper()
	out, err := n.applianced(in, args...)
	if err != nil {
		n.t.Fatalf("applianced %v: %v\n%s", args, err, out)
	}
	return out
}

// TestSecrets goes the way of docs/secrets.md.
func TestSecrets(t *testing.T) {
	n := newSecretsNode(t)
	if out := n.must("", "secrets", "list", "--json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("without keys: %s", out)
	}

	file := n.dir + "/key.asc"
	if err := os.WriteFile(file, []byte(n.export("salt@example.com")), 0o600); err != nil {
		t.Fatal(err)
	}

	if out := n.must("", "secrets", "import", file); !strings.Contains(out, "salt@example.com") {
		t.Errorf("import: %s", out)
	}

	out := n.must("a value: \"with\" signs\n", "secrets", "encrypt", "--name", "db_password")
	if !strings.HasPrefix(out, "db_password: |\n    -----BEGIN PGP MESSAGE-----\n") {
		t.Errorf("encrypt: %s", out)
	}

	var sls map[string]string
	if err := yaml.Unmarshal([]byte(out), &sls); err != nil {
		t.Fatal(err)
	}

	if got := n.gpg(sls["db_password"], "--decrypt"); got != "a value: \"with\" signs\n" {
		t.Errorf("opened: %q", got)
	}

	// Elsewhere the public key is all that is needed.
	if out := n.must("", "secrets", "public"); !strings.HasPrefix(out, "-----BEGIN PGP PUBLIC KEY BLOCK-----\n") {
		t.Errorf("public: %s", out)
	}

	n.must(n.export("second@example.com"), "secrets", "import", "-")
	var usage *usageError
	if out, err := n.applianced("x", "secrets", "encrypt"); !errors.As(err, &usage) ||
		!strings.Contains(err.Error(), "secrets list") {
		t.Errorf("two keys: %v %s", err, out)
	}

	n.must("x", "secrets", "encrypt", "--key", "second@")
	var keys []struct {
		Fingerprint, State string
		Here               bool
	}

	if err := json.Unmarshal([]byte(n.must("", "secrets", "list", "--json")), &keys); err != nil ||
		len(keys) != 2 || keys[1].State != "ready" || !keys[1].Here {
		t.Errorf("%+v %v", keys, err)
	}

	if out := n.must("", "secrets", "list"); strings.Count(out, "ready") != 2 {
		t.Errorf("list: %s", out)
	}

	if out := n.must("", "__complete", "secrets", "public", ""); !strings.Contains(out, keys[0].Fingerprint) {
		t.Errorf("completion: %s", out)
	}

	for _, c := range []struct {
		in   string
		args []string
		want string
	}{
		{"", []string{"encrypt", "--key", "second@"}, "there is no value"},
		{"x", []string{"encrypt", "--key", "third@"}, "no key is called"},
		{"", []string{"import", n.dir + "/nothing"}, "no such file"},
		{"no key", []string{"import", "-"}, "no key in it"},
		{"", []string{"public", "ab"}, "no key is called"},
	} {
		if out, err := n.applianced(c.in, append([]string{"secrets"}, c.args...)...); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v %s", c.args, err, out)
		}
	}

	if err := os.RemoveAll(n.dir + "/shared/etc"); err != nil {
		t.Fatal(err)
	}

	if _, err := n.applianced("", "secrets", "list"); err == nil ||
		!strings.Contains(err.Error(), "shared storage is not there") {
		t.Errorf("without the storage: %v", err)
	}
}

// TestMain is applianced itself for commands of a document.
func TestMain(m *testing.M) {
	if os.Getenv("SALTERN_TEST_APPLIANCED") != "" {
		os.Exit(run(context.Background(), os.Args[1:]))
	}
	os.Exit(m.Run())
}

// asProgram gives a folder with applianced in it, for this node.
func (n *secretsNode) asProgram() string {
	n.t.Helper()
	self, err := os.Executable()
	if err != nil {
		n.t.Fatal(err)
	}
	bin := n.t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nSALTERN_TEST_APPLIANCED=1 exec %s --config %s/appliance.yaml \"$@\"\n",
		self, n.dir)
	if err := os.WriteFile(bin+"/applianced", []byte(script), 0o755); err != nil {
		n.t.Fatal(err)
	}
	return bin
}

// TestSecretsManual runs what docs/secrets.md tells people to type.
func TestSecretsManual(t *testing.T) {
	n := newSecretsNode(t)
	text, err := os.ReadFile("../../docs/secrets.md")
	if err != nil {
		t.Fatal(err)
	}

	bin := n.asProgram()
	if err := os.WriteFile(n.dir+"/password.txt", []byte("a value\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	ran := 0
	for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```").FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(block[1], "salt web1") || strings.Contains(block[1], "applianced readers") {
			continue // there is no master here
		}

		ran += strings.Count(block[1], "\n")
		cmd := exec.Command("sh", "-ec", block[1])
		cmd.Dir = n.dir
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "GNUPGHOME="+n.home)
		cmd.Stdin = strings.NewReader("a value")

		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s\n%v\n%s", block[1], err, out)
		}
	}

	if ran < 12 {
		t.Errorf("only %d commands were tried", ran)
	}
}
