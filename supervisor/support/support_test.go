package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/internal/command"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// canary gives a text that occurs nowhere else.
func canary(n int) string { return fmt.Sprintf("Canary%04dQx7zSecretWord", n) }

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func unpack(t *testing.T, b []byte) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}

	files := map[string]string{}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}

		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}

		_, name, _ := strings.Cut(h.Name, "/")
		files[name] = string(text)
	}
}

// TestAttack27CanariesInBundle plants a secret in every place a node keeps
// some, and in logs that repeat them in several forms, and finds none of them
// in the bundle.
func TestAttack27CanariesInBundle(t *testing.T) {
	dir := t.TempDir()
	s := settings.Default("n1")
	s.DataDir = filepath.Join(dir, "data")
	s.RuntimeDir = filepath.Join(dir, "run")
	s.Storage.Path = filepath.Join(dir, "cluster")
	n := 0
	var planted []string
	next := func() string {
		n++
		planted = append(planted, canary(n))
		return canary(n)
	}

	pem := func() string {
		return "-----BEGIN RSA PRIVATE KEY-----\n" + base64.StdEncoding.EncodeToString([]byte(next())) +
			"\n" + next() + "\n-----END RSA PRIVATE KEY-----\n"
	}

	secret, root, password, other, second := next(), next(), next(), next(), next()
	keys := []string{next(), next(), next(), next(), next(), next()}
	for path, text := range map[string]string{
		filepath.Join(s.PKIDir(), "master.pem"):       pem(),
		filepath.Join(s.PKIDir(), "cluster.pem"):      pem(),
		filepath.Join(s.PKIDir(), "session_seed"):     next(),
		filepath.Join(s.PKIDir(), ".aes"):             next(),
		filepath.Join(s.PKIDir(), "sessions", "web1"): next(),
		filepath.Join(s.CacheDir(), ".root_key"):      root,
		filepath.Join(s.CacheDir(), "tokens", "ab12"): next(),
		filepath.Join(s.DataDir, "setup", "secret"):   secret + "\n",
		filepath.Join(s.DataDir, "setup", "secrets.json"): `{"secret":"` + other + `","admin":{"hash":"` +
			next() + `"}}`,
		filepath.Join(s.DataDir, "node", "identity.pem"): pem(),
		filepath.Join(s.DataDir, "node", "secret"):       next() + "\n",
		filepath.Join(s.DataDir, "node", "secret.next"):  next() + "\n",
		filepath.Join(s.DataDir, "node", "cluster.pem"):  pem(),
		s.ClusterRecord(): fmt.Sprintf(
			`{"version":3,"members":[{"id":"kept-member"}],"key":%q,"prev_key":%q,"secret":%q,"next_secret":%q,"seed":%q,"of_tomorrow":%q}`,
			keys[0], keys[1], keys[2], keys[3], keys[4], keys[5]),
		filepath.Join(s.FileRoot(), "top.sls"):              "password: " + next(),
		filepath.Join(s.PillarRoot(), "web.sls"):            "db: {password: " + next() + "}",
		filepath.Join(s.CacheDir(), "jobs", "ab", "return"): next(),
		filepath.Join(s.CacheDir(), "minions", "w", "data"): next(),
		filepath.Join(s.UserConfDir(), "git.conf"): "gitfs_password: " + next() + "\nauth.ldap.bindpw: " +
			next() + "\next_pillar:\n  - vault:\n      token: '" + next() + "'\n" +
			"api_keys:\n  - " + next() + "\n  - " + next() + "\nprivate_key: |\n  " + next() + "\n  " + next() + "\nkeep_jobs: 24\n" +
			"---\nsecond_password: " + second + "\n",
		filepath.Join(s.MasterConf(), "master"): "cluster_id: prod\ncluster_secret: " + secret +
			"\nrest_cherrypy: {ssl_key_password: \"" + next() + "\"}\n",
		s.LBConf(): "admin:\n  token: " + next() + "\n",
		filepath.Join(s.LogDir(), "master.log"): "the secret was " + secret + "\nother " + other + "\nsecond " + second +
			"\nbase64 " + base64.StdEncoding.EncodeToString([]byte(secret)) +
			"\nrecord " + strings.Join(keys, " ") + " of kept-member\nroot key " + root + " used\nsca2.0123abcd." + next() + "@10.0.0.1,10.0.0.2\nsca1.0123abcd." + next() + "@" + next() + "@10.0.0.3\nGET https://user:" + next() + "@example.org/x\n" +
			"Authorization: Bearer " + next() + "\nadmin:$6$" + next() + "$" + next() + ":19000\n{\"password\":\"" + next() + "\",\"user\":\"kept-user\"}\n" +
			"msg=\"login\" error=kept-error passwd=" + next() + " more\n" + pem() + "AGE-SECRET-KEY-1" + strings.ToUpper(next()) + "\nkept-line\n",
		filepath.Join(s.LogDir(), "lb.log"): strings.Repeat("x", maxFile) + "\nkept-end\n",
	} {
		write(t, path, text)
	}

	config := filepath.Join(dir, "appliance.yaml")
	write(t, config,
		"node: n1\nmaster:\n  options:\n    some_secret: "+password+"\n    nested: {the_password: ["+next()+
			", "+next()+"]}\n")
	planted = append(planted, strings.ToUpper(canary(n)))

	doc := status.Document{
		Schema: 1,
		Node:   "n1",
		Problems: []status.Problem{{
			Code:  status.MasterProblem,
			Title: "trouble",
			Cause: "cannot use password " + password,
		}},
	}

	var out bytes.Buffer
	err := Write(t.Context(), &out, Source{Settings: &s, ConfigPath: config, Version: "1", Now: time.Unix(1e9, 0),
		Status: func(context.Context) (status.Document, error) { return doc, nil },
		Commands: map[string][]string{
			"system/echo.txt":  {"echo", "said", secret},
			"system/none.txt":  {"/does/not/exist"},
			"system/false.txt": {"false"},
		}})
	if err != nil {
		t.Fatal(err)
	}

	files := unpack(t, out.Bytes())
	all := ""
	for name, text := range files {
		all += "== " + name + "\n" + text
	}

	for _, c := range planted {
		for _, form := range []string{c, base64.StdEncoding.EncodeToString([]byte(c))} {
			if i := strings.Index(all, form); i >= 0 {
				t.Errorf("%s is in the bundle: ...%s...", form, all[max(0, i-120):min(len(all), i+60)])
			}
		}
	}

	for _, want := range []string{"kept-line", "kept-member", "kept-user", "kept-error", "kept-end",
		"keep_jobs: 24", "cluster_id: prod", "the beginning is left out",
		"said [removed]", "master.pem", "/does/not/exist", "sca2.0123abcd.[removed]@10.0.0.1", "sca1.0123abcd.[removed]@10.0.0.3"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in the bundle", want)
		}
	}

	if n < 30 {
		t.Errorf("only %d canaries", n)
	}
}

// TestBrokenNode: a bundle is made of whatever there is.
func TestBrokenNode(t *testing.T) {
	s := settings.Default("n1")
	s.DataDir = "/does/not/exist"
	s.RuntimeDir = "/does/not/exist"
	s.Storage.Path = "/does/not/exist"
	var out bytes.Buffer
	if err := Write(t.Context(), &out,
		Source{Settings: &s, ConfigPath: "/does/not/exist", Now: time.Unix(1e9, 0), Commands: map[string][]string{},
			Status: func(context.Context) (status.Document, error) { return status.Document{}, errors.New("it is down") }}); err != nil {
		t.Fatal(err)
	}

	if got := unpack(t, out.Bytes())["NOT-COLLECTED.txt"]; !strings.Contains(got, "it is down") ||
		!strings.Contains(got, "appliance.yaml") {
		t.Errorf("not collected: %s", got)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Write(ctx, io.Discard, Source{Settings: &s, Now: time.Unix(1e9, 0), Commands: map[string][]string{},
		Status: func(context.Context) (status.Document, error) { return status.Document{}, nil }}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestSpecialFiles: a pipe or a link in the place of a log stops nothing and
// gives nothing.
func TestSpecialFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "shadow"), "root:x")
	if err := os.Symlink(filepath.Join(dir, "shadow"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "link"), "/dev/zero", dir} {
		if got, err := readTail(path, 100); err == nil {
			t.Errorf("%s gave %q", path, got)
		}
	}
}

// TestStorageThatHangs: a bundle is made without what is on the shared storage,
// and says so.
func TestStorageThatHangs(t *testing.T) {
	dir := t.TempDir()
	s := settings.Default("n1")
	s.DataDir = filepath.Join(dir, "data")
	s.RuntimeDir = filepath.Join(dir, "run")
	s.Storage.Path = filepath.Join(dir, "data", "cluster")
	write(t, filepath.Join(s.SharedPKIDir(), "lies-there"), "x")
	write(t, filepath.Join(s.LogDir(), "master.log"), "a line\n")
	var asked []string
	source := Source{
		Settings: &s,
		Version:  "1",
		Now:      time.Unix(1e9, 0),
		Commands: map[string][]string{"a.txt": {"echo", "said"}},
		Status:   func(context.Context) (status.Document, error) { return status.Document{}, errors.New("no") },
		Look: func(_ context.Context, dir string) error {
			asked = append(asked, dir)
			return errors.New("did not end")
		},
	}

	var out bytes.Buffer
	if err := Write(t.Context(), &out, source); err != nil {
		t.Fatal(err)
	}

	all := ""
	for name, text := range unpack(t, out.Bytes()) {
		all += "== " + name + "\n" + text
	}

	if len(asked) != 1 || asked[0] != s.StorageDir() || strings.Contains(all, "lies-there") {
		t.Errorf("asked %v:\n%s", asked, all)
	}

	for _, want := range []string{"the storage does not answer (did not end)", "a line", "said", "master.log"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}

	out.Reset()
	source.Look = nil
	if err := Write(t.Context(), &out, source); err != nil {
		t.Fatal(err)
	}

	if all := fmt.Sprint(unpack(t, out.Bytes())); !strings.Contains(all, "lies-there") {
		t.Errorf("storage that answers is left out:\n%s", all)
	}
}

// TestRunBounded: what does not end is stopped, and what it said is kept, as of
// one that fails.
func TestRunBounded(t *testing.T) {
	out, err := runBounded(t.Context(), 50*time.Millisecond, "sh", "-c", "exec sleep 600")
	if !errors.Is(err, command.ErrTimeout) {
		t.Errorf("%q %v", out, err)
	}
	if out, err := runBounded(t.Context(), time.Minute, "sh", "-c", "echo said; echo more >&2; exit 3"); err == nil || err.Error() != "exit status 3" || string(out) != "said\nmore\n" {
		t.Errorf("%q %v", out, err)
	}
	if out, err := runBounded(t.Context(), time.Minute, "sh", "-c", "yes | head -c 5000000"); err != nil ||
		len(out) != maxFile {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}
