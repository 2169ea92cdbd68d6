package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"saltern/master/crypt"
)

// oldTree is what a master in Python has, with a key of gpg.
func oldTree(t *testing.T, n *secretsNode) string {
	t.Helper()
	n.export("old@example.com")
	dir := t.TempDir()
	key, err := crypt.GeneratePrivate(2048)
	if err != nil {
		t.Fatal(err)
	}

	private, err := crypt.PrivatePEM(key, "")
	if err != nil {
		t.Fatal(err)
	}

	public, err := crypt.PublicPEM(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}

	files := map[string]string{
		"etc/salt/master": "timeout: 7\ntcp_keepalive_idle: 9\n", "etc/salt/pki/master/master.pem": string(private), "etc/salt/pki/master/master.pub": public + "\n",
		"etc/salt/pki/master/minions/web1": public + "\n", "srv/salt/top.sls": "{}\n",
	}

	err = filepath.WalkDir(n.home, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		files["etc/salt/gpgkeys/"+strings.TrimPrefix(path, n.home+"/")] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	return dir
}

// imports runs the verb.
func (n *secretsNode) imports(in string, args ...string) (r importReport, out string, code int) {
	n.t.Helper()
	cmd := rootCommand()
	var b, e bytes.Buffer
	cmd.SetOut(&b)
	cmd.SetErr(&e)
	cmd.SetIn(strings.NewReader(in))
	cmd.SetArgs(append([]string{"--config", n.dir + "/appliance.yaml", "import"}, args...))
	err := cmd.ExecuteContext(n.t.Context())
	switch err := err.(type) {
	case nil:
	case exitError:
		code = int(err)
	default:
		code = 1
		e.WriteString(err.Error())
	}

	_ = json.Unmarshal(b.Bytes(), &r)
	return r, b.String() + e.String(), code
}

// The whole way with an archive on standard input: look, import, again, and with
// something else in place.
func TestImportVerb(t *testing.T) {
	n := newSecretsNode(t)
	old := oldTree(t, n)
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := w.AddFS(os.DirFS(old)); err != nil {
		t.Fatal(err)
	}

	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	storage := filepath.Join(n.dir, "shared")
	if _, out, code := n.imports(archive.String()[:archive.Len()/2], "-"); code != 1 ||
		!strings.Contains(out, "cut") || !strings.Contains(out, "nothing was changed") {
		t.Errorf("half an archive: %d %s", code, out)
	}

	r, out, code := n.imports(archive.String(), "--dry-run", "--json", "-")
	if code != 0 || r.Schema != 1 || !r.DryRun || r.Done || r.Fingerprint == "" || len(r.Notes) != 1 ||
		r.Notes[0].Line != 2 || r.Notes[0].File != "/etc/salt/master" {
		t.Fatalf("look: %d %s", code, out)
	}

	if _, err := os.Stat(filepath.Join(storage, "srv/salt/top.sls")); err == nil {
		t.Fatal("a look has written")
	}

	_, out, code = n.imports(archive.String(), "-")
	if code != 0 || !strings.Contains(out, "next: systemctl start applianced") || !strings.Contains(out, "imported:") {
		t.Fatalf("import: %d %s", code, out)
	}

	p, err := (&flags{config: n.dir + "/appliance.yaml"}).keyring()
	if err != nil {
		t.Fatal(err)
	}

	keys, err := p.List(t.Context())
	if err != nil || len(keys) != 1 || !slices.Contains(keys[0].Users, "old@example.com") || keys[0].State != "ready" {
		t.Errorf("keys of gpg: %v %v", keys, err)
	}

	r, out, code = n.imports(archive.String(), "--json", "-")
	if code != 0 || !r.Done || r.Bytes != 0 || r.Kept != "" {
		t.Errorf("again: %d %s", code, out)
	}

	for _, c := range r.Counts {
		if c.New+c.Other+c.Left > 0 {
			t.Errorf("again: %+v", c)
		}
	}

	if err := os.WriteFile(filepath.Join(storage, "srv/salt/top.sls"), []byte("base: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	if r, out, code := n.imports("", "--json", old); code != 1 || r.Done || len(r.Conflicts) != 1 ||
		r.Conflicts[0].File != "srv/salt/top.sls" {
		t.Errorf("conflict: %d %s", code, out)
	}

	if _, out, code := n.imports("", "--force", old); code != 0 ||
		!strings.Contains(out, "what was replaced is in "+storage+"/.before-import-") {
		t.Errorf("force: %d %s", code, out)
	}

	if left, _ := filepath.Glob(filepath.Join(storage, ".import-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
