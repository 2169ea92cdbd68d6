package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"saltern/internal/versioned"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/settings"
	"saltern/test/check"
)

func node(t *testing.T) *settings.Settings {
	t.Helper()
	dir := t.TempDir()
	s := settings.Default("n1")
	s.Cluster = "prod"
	s.DataDir = filepath.Join(dir, "data")
	s.RuntimeDir = filepath.Join(dir, "run")
	s.Storage.Path = filepath.Join(dir, "cluster")
	return &s
}

func write(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// full makes a node with something in every tree.
func full(t *testing.T) *settings.Settings {
	s := node(t)
	key, err := nodeapi.NewClusterKey()
	if err != nil {
		t.Fatal(err)
	}

	write(t, filepath.Join(s.SharedPKIDir(), "master.pem"), string(key), 0o400)
	write(t, filepath.Join(s.SharedPKIDir(), "cluster.pem"), string(key), 0o400)
	write(t, filepath.Join(s.SharedPKIDir(), "n1.pem"), "private-canary", 0o400)
	write(t, filepath.Join(s.SharedPKIDir(), "cluster.pub"), "public", 0o644)
	write(t, filepath.Join(s.SharedPKIDir(), "minions", "web1"), "key of web1", 0o644)
	write(t, filepath.Join(s.SharedPKIDir(), "minions_pre", "web2"), "key of web2", 0o644)
	write(t, filepath.Join(s.SharedPKIDir(), "minions_denied", "web1"), "another key of web1", 0o644)
	write(t, filepath.Join(s.SharedPKIDir(), "sessions", "web1"), "made again", 0o600)
	write(t, filepath.Join(s.SharedPKIDir(), ".saltern_cluster"), "made again", 0o600)
	write(t, filepath.Join(s.SharedPKIDir(), "peers", "n2.pub"), "made again", 0o600)
	write(t, filepath.Join(s.UserConfDir(), "a.conf"), "keep_jobs: 1", 0o644)
	write(t, filepath.Join(s.SharedPythonDir(), "packages.json"), "{}", 0o644)
	write(t, filepath.Join(s.SharedPythonDir(), "wheels", "a-1-py3-none-any.whl"), "a wheel", 0o644)
	write(t, filepath.Join(s.SharedPythonDir(), "wheels", ".new-a-1-py3-none-any.whl"), "made again", 0o644)
	write(t, filepath.Join(s.SharedPythonDir(), ".lock"), "made again", 0o600)
	write(t, filepath.Join(s.SharedGPGDir(), "pubring.kbx"), "public keys", 0o600)
	write(t, filepath.Join(s.SharedGPGDir(), "private-keys-v1.d", "AB.key"), "gpg-canary", 0o600)
	write(t, filepath.Join(s.FileRoot(), "top.sls"), "base: {}", 0o644)
	write(t, filepath.Join(s.FileRoot(), "bin", "run.sh"), "#!/bin/sh", 0o755)
	write(t, filepath.Join(s.PillarRoot(), "web.sls"), "password: pillar-canary", 0o600)
	write(t, filepath.Join(s.CacheDir(), "jobs", "ab", "cdef", "return.p"), "a return", 0o600)
	if !s.Peering.Enabled {
		write(t, filepath.Join(s.CacheDir(), "jobs.journal", "0000000000000001.kept"), "returns", 0o600)
		write(t, filepath.Join(s.CacheDir(), "jobs.journal", "0000000000000002.log"), "latest returns", 0o600)
		write(t, filepath.Join(s.CacheDir(), "jobs.journal", "lock"), "made again", 0o600)
	}
	write(t, filepath.Join(s.CacheDir(), "history", "0000000000000001.seg"), "runs", 0o600)
	write(t, filepath.Join(s.CacheDir(), "history", "last-runs"), "table", 0o600)
	write(t, filepath.Join(s.CacheDir(), "history", "lock"), "made again", 0o600)

	if err := os.Symlink("/etc/shadow", filepath.Join(s.FileRoot(), "link")); err != nil {
		t.Fatal(err)
	}

	if err := os.Mkdir(filepath.Join(s.FileRoot(), "empty"), 0o750); err != nil {
		t.Fatal(err)
	}

	return s
}

// contents gives every file below the node's directories but what a restore
// keeps aside.
func contents(t *testing.T, s *settings.Settings) map[string]string {
	t.Helper()
	got := map[string]string{}
	for _, dir := range []string{s.StorageDir(), s.CacheDir()} {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || e.IsDir() || e.Name() == lockName {
				return err
			}

			rel, _ := filepath.Rel(filepath.Dir(dir), path)
			fi, err := e.Info()
			if err != nil || !fi.Mode().IsRegular() {
				return err
			}

			b, err := os.ReadFile(path)
			got[rel] = fi.Mode().String() + " " + string(b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	return got
}

func passphrase(t *testing.T, text string) (age.Recipient, age.Identity) {
	t.Helper()
	r, err := age.NewScryptRecipient(text)
	if err != nil {
		t.Fatal(err)
	}
	r.SetWorkFactor(8)
	i, err := age.NewScryptIdentity(text)
	if err != nil {
		t.Fatal(err)
	}
	return r, i
}

func options(s *settings.Settings, jobs bool) Options {
	return Options{
		Settings:   s,
		ConfigPath: filepath.Join(s.DataDir, "..", "appliance.yaml"),
		Version:    "1",
		Now:        time.Unix(1e9, 0),
		Jobs:       jobs,
	}
}

func TestRoundTrip(t *testing.T) {
	s := full(t)
	write(t, options(s, true).ConfigPath, "node: n1\n", 0o600)
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}

	pr, pi := passphrase(t, "correct horse")
	for _, tt := range []struct {
		name string
		jobs bool
		r    age.Recipient
		i    age.Identity
	}{{"recipient", true, id.Recipient(), id}, {"passphrase", false, pr, pi}} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			sum, err := Write(t.Context(), &out, options(s, tt.jobs), tt.r)
			if err != nil {
				t.Fatal(err)
			}

			if len(sum.Skipped) != 1 || !strings.Contains(sum.Skipped[0], "srv/salt/link") {
				t.Errorf("skipped: %q", sum.Skipped)
			}

			for _, canary := range []string{"private-canary", "pillar-canary", "web1", "prod"} {
				if bytes.Contains(out.Bytes(), []byte(canary)) {
					t.Errorf("%s is in clear", canary)
				}
			}

			seen, config, err := Inspect(t.Context(), bytes.NewReader(out.Bytes()), Limits{}, tt.i)
			if err != nil || seen.Files != sum.Files || seen.Bytes != sum.Bytes ||
				seen.Manifest != sum.Manifest || string(config) != "node: n1\n" {
				t.Errorf("inspected %+v %q %v, written %+v", seen, config, err, sum)
			}

			to := node(t)
			got, config, err := Restore(t.Context(), bytes.NewReader(out.Bytes()),
				Target{Settings: to, Stamp: "one", Trust: Trust{Signers: []string{sum.Signer}}}, tt.i)
			if err != nil || string(config) != "node: n1\n" || got.Manifest.Cluster != "prod" {
				t.Fatalf("%+v %q %v", got, config, err)
			}

			want := contents(t, s)
			for name := range want {
				withJobs := strings.Contains(name, "jobs/") || strings.Contains(name, "jobs.journal/") || strings.Contains(name, "history/")
				if strings.HasSuffix(want[name], "made again") || !tt.jobs && withJobs {
					delete(want, name)
				}
			}

			have := contents(t, to)
			for name, text := range have { // the master merges these
				if plain := strings.Replace(name, "history/restored-one-", "history/", 1); plain != name {
					delete(have, name)
					have[plain] = text
				}
			}
			if fmt.Sprint(have) != fmt.Sprint(want) {
				t.Errorf("restored\n%v\nwant\n%v", have, want)
			}

			if fi, err := os.Stat(filepath.Join(to.FileRoot(), "empty")); err != nil || fi.Mode().Perm() != 0o750 {
				t.Errorf("empty directory: %v %v", fi, err)
			}
		})
	}
}

// TestNamesOfAnyBytes: names that are no UTF-8 (Latin-1 of old trees), and those of systemd's units with a backslash,
// come back; what cannot be kept is named, and the archive is one that a restore takes.
func TestNamesOfAnyBytes(t *testing.T) {
	s := full(t)
	kept := []string{"caf\xe9.sls", "B\xfccher/top.sls", "B\xfccher/deep/\xff\xfe",
		"units/dev-disk-by\\x2did.mount", "units\\x2d/a", "\u65e5\u672c/x"}
	lost := []string{"a\nb.sls", "new\nline/x", "esc\x1b[2J", strings.Repeat("d/", maxDepth) + "x"}
	for _, name := range append(kept, lost...) {
		write(t, filepath.Join(s.FileRoot(), name), "content of "+name, 0o644)
	}

	var archive bytes.Buffer
	r, i := passphrase(t, "correct horse")

	sum, err := Write(t.Context(), &archive, options(s, false), r)

	if err != nil {
		t.Fatal(err)
	}

	if named := strings.Join(sum.Skipped, " "); strings.Count(named, "lies more than") == 0 ||
		!strings.Contains(named, `new\nline`) || !strings.Contains(named, `a\nb.sls`) {
		t.Errorf("not named: %q", sum.Skipped)
	}

	for _, text := range sum.Skipped {
		if strings.ContainsAny(text, "\n\x1b") {
			t.Errorf("raw: %q", text)
		}
	}

	to := node(t)
	if _, _, err := Restore(t.Context(), &archive, Target{Settings: to, Stamp: "one"}, i); err != nil {
		t.Fatal(err)
	}

	for _, name := range kept {
		if b, err := os.ReadFile(filepath.Join(to.FileRoot(), name)); err != nil || string(b) != "content of "+name {
			t.Errorf("%q: %q %v", name, b, err)
		}
	}
}

// TestFromBrick: the volume is lost, and this node's copy of it is read.
func TestFromBrick(t *testing.T) {
	s := full(t)
	brick := s.Storage.Path
	s.Storage.Path = "/does/not/exist"
	r, i := passphrase(t, "correct horse")
	var out bytes.Buffer
	if _, err := Write(t.Context(), &out,
		Options{Settings: s, ConfigPath: "/does/not/exist", Now: time.Unix(1e9, 0), From: t.TempDir()}, r); err == nil {
		t.Error("an empty directory was taken for a copy")
	}

	out.Reset()
	if _, err := Write(t.Context(), &out,
		Options{Settings: s, ConfigPath: "/does/not/exist", Now: time.Unix(1e9, 0), From: brick}, r); err != nil {
		t.Fatal(err)
	}

	to := node(t)
	if _, _, err := Restore(t.Context(), bytes.NewReader(out.Bytes()), Target{Settings: to, Stamp: "a"},
		i); err != nil {
		t.Fatal(err)
	}

	if b, err := os.ReadFile(filepath.Join(to.SharedPKIDir(), "minions", "web1")); err != nil ||
		string(b) != "key of web1" {
		t.Errorf("%q %v", b, err)
	}
}

// TestRestoredVersionCounts: a versioned file has the restored version afterwards, although the
// newer ones are beside it.
func TestRestoredVersionCounts(t *testing.T) {
	s := full(t)
	r, i := passphrase(t, "correct horse")
	files := map[string]versioned.File{}
	for _, name := range []string{"saved.saltern", "any.other", "saved"} {
		files[name] = versioned.File{
			Path:    filepath.Join(s.SharedPKIDir(), name),
			Mode:    0o600,
			Limit:   100,
			Version: func(b []byte) (uint64, error) { return strconv.ParseUint(string(b), 10, 64) },
		}
	}
	write := func(from, to uint64) {
		for _, f := range files {
			for v := from; v <= to; v++ {
				check.Must(t, f.Write(v-1, strconv.AppendUint(nil, v, 10)))
			}
		}
	}

	write(1, 2)
	var out bytes.Buffer
	_, err := Write(t.Context(), &out, options(s, false), r)
	check.Must(t, err)
	write(3, 4)
	_, _, err = Restore(t.Context(), &out, Target{Settings: s, Stamp: "a", Force: true}, i)
	check.Must(t, err)

	for name, f := range files {
		if _, v, err := f.Read(); v != 2 || err != nil {
			t.Errorf("%s: version %d, want 2, %v", name, v, err)
		}
		aside := filepath.Join(s.StorageDir(), ".before-restore-a", "pki")
		kept, err := filepath.Glob(filepath.Join(aside, "."+name+".after-*"))
		if b, _ := os.ReadFile(filepath.Join(aside, name)); string(b) != "4" || len(kept) != 4 || err != nil {
			t.Errorf("%s: version %q and successors %q are set aside, %v", name, b, kept, err)
		}
	}
	write(3, 3) // a change afterwards
}

// TestNotFresh: accepted minions are not overwritten by accident, and what a
// forced restore replaces is kept.
func TestNotFresh(t *testing.T) {
	s := full(t)
	r, i := passphrase(t, "correct horse")
	var out bytes.Buffer
	if _, err := Write(t.Context(), &out, options(s, false), r); err != nil {
		t.Fatal(err)
	}

	write(t, filepath.Join(s.SharedPKIDir(), "minions", "web1"), "a newer key", 0o644)

	// It came anew while nobody knew it, and the other was refused since.
	write(t, filepath.Join(s.SharedPKIDir(), "minions_pre", "web1"), "waits", 0o644)
	write(t, filepath.Join(s.SharedPKIDir(), "minions_rejected", "web2"), "refused", 0o644)
	before := contents(t, s)
	if _, _, err := Restore(t.Context(), bytes.NewReader(out.Bytes()), Target{
		Settings: s,
		Stamp:    "a",
	}, i); !errors.Is(err, errNotFresh) {
		t.Errorf("not fresh: %v", err)
	}

	if after := contents(t, s); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Error("something was changed")
	}

	if _, _, err := Restore(t.Context(), bytes.NewReader(out.Bytes()),
		Target{Settings: s, Stamp: "a", Force: true}, i); err != nil {
		t.Fatal(err)
	}

	for path, want := range map[string]string{filepath.Join(s.SharedPKIDir(), "minions", "web1"): "key of web1",
		filepath.Join(s.StorageDir(), ".before-restore-a", "pki", "minions", "web1"): "a newer key"} {
		if b, err := os.ReadFile(path); err != nil || string(b) != want {
			t.Errorf("%s: %q %v", path, b, err)
		}
	}

	for _, path := range []string{"minions_pre/web1", "minions_rejected/web2"} {
		if _, err := os.Stat(filepath.Join(s.SharedPKIDir(), path)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", path, err)
		}
		if _, err := os.Stat(filepath.Join(s.StorageDir(), ".before-restore-a", "pki", path)); err != nil {
			t.Error(err)
		}
	}
}

// TestOneRestoreAtATime: a restore beside another one, or beside an import, is refused before it has
// changed anything; the folder of one that was killed is removed.
func TestOneRestoreAtATime(t *testing.T) {
	s := full(t)
	r, i := passphrase(t, "correct horse")
	var out bytes.Buffer
	if _, err := Write(t.Context(), &out, options(s, false), r); err != nil {
		t.Fatal(err)
	}

	left := filepath.Join(s.StorageDir(), ".restore-killed", "pki")
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	unlock, err := LockStorage(s, "import")
	if err != nil {
		t.Fatal(err)
	}

	before := contents(t, s)
	restore := func() error {
		_, _, err := Restore(t.Context(), bytes.NewReader(out.Bytes()), Target{Settings: s, Stamp: "a", Force: true}, i)
		return err
	}
	if err := restore(); err == nil || !strings.Contains(err.Error(), "(import) since ") {
		t.Errorf("beside an import: %v", err)
	}
	if after := contents(t, s); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Error("something was changed")
	}

	unlock()
	if err := restore(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("what a killed restore has left is still there")
	}
}

// TestOtherKind: the backup of a cluster does not go onto a node alone, nor
// the other way round: minions would not know the key.
func TestOtherKind(t *testing.T) {
	r, i := passphrase(t, "correct horse")
	for _, shared := range []bool{true, false} {
		s := full(t)
		s.Peering.Enabled = shared
		var out bytes.Buffer
		if _, err := Write(t.Context(), &out, options(s, false), r); err != nil {
			t.Fatal(err)
		}

		to := node(t)
		to.Peering.Enabled = !shared
		if _, _, err := Restore(t.Context(), bytes.NewReader(out.Bytes()), Target{Settings: to, Stamp: "a"},
			i); err == nil || !strings.Contains(err.Error(), "nothing was changed") {
			t.Errorf("of a cluster: %v: %v", shared, err)
		}

		if got := contents(t, to); len(got) != 0 {
			t.Errorf("there is %v", got)
		}
	}
}

// The jobs of a cluster are those that its masters keep together.
func TestJobsOfACluster(t *testing.T) {
	r, i := passphrase(t, "correct horse")
	segment := filepath.Join("pki", "jobs", "10.0.0.1_1795315067153512490_61e6cae78a4967d7.log")
	for _, jobs := range []bool{true, false} {
		s := full(t)
		s.Peering.Enabled = true
		write(t, filepath.Join(s.StorageDir(), segment), "records", 0o600)
		var out bytes.Buffer
		if _, err := Write(t.Context(), &out, options(s, jobs), r); err != nil {
			t.Fatal(err)
		}

		to := node(t)
		to.Peering.Enabled = true
		if _, _, err := Restore(t.Context(), &out, Target{Settings: to, Stamp: "a"}, i); err != nil {
			t.Fatal(err)
		}

		if b, err := os.ReadFile(filepath.Join(to.StorageDir(), segment)); jobs != (string(b) == "records") {
			t.Errorf("with jobs %v: %q %v", jobs, b, err)
		}
	}
}

// TestDamaged: an archive that is cut, changed or of another key restores
// nothing at all.
func TestDamaged(t *testing.T) {
	s := full(t)
	r, i := passphrase(t, "correct horse")
	var out bytes.Buffer
	if _, err := Write(t.Context(), &out, options(s, true), r); err != nil {
		t.Fatal(err)
	}

	whole := out.Bytes()
	bad := map[string][]byte{"empty": nil, "text": []byte("hello")}
	for n := 0; n < len(whole); n += 389 {
		bad[fmt.Sprintf("cut at %d", n)] = whole[:n]
		changed := bytes.Clone(whole)
		changed[n] ^= 1
		bad[fmt.Sprintf("changed at %d", n)] = changed
	}

	bad["cut by one byte"] = whole[:len(whole)-1]
	bad["longer"] = append(bytes.Clone(whole), "more"...)
	for name, text := range bad {
		to := node(t)
		if _, _, err := Restore(t.Context(), bytes.NewReader(text), Target{
			Settings: to,
			Stamp:    "a",
		}, i); err == nil || !strings.Contains(err.Error(), "nothing was changed") {
			t.Errorf("%s: %v", name, err)
		}

		if got := contents(t, to); len(got) != 0 {
			t.Errorf("%s: restored %v", name, got)
		}
	}

	_, other := passphrase(t, "another one")
	if _, _, err := Inspect(t.Context(), bytes.NewReader(whole), Limits{}, other); err == nil ||
		!strings.Contains(err.Error(), "passphrase or key does not fit") {
		t.Errorf("wrong passphrase: %v", err)
	}
}

// hostile makes an archive with any entries.
func hostile(t *testing.T, r age.Recipient, manifest string, entries ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	sealed, err := age.Encrypt(&out, r)
	if err != nil {
		t.Fatal(err)
	}

	zip := gzip.NewWriter(sealed)
	w := tar.NewWriter(zip)
	if manifest != "" {
		entries = append([]tar.Header{{Name: manifestName, Typeflag: tar.TypeReg, Size: int64(len(manifest))}},
			entries...)
	}

	for n, h := range entries {
		if h.Mode == 0 {
			h.Mode = 0o644
		}

		if err := w.WriteHeader(&h); err != nil {
			t.Fatalf("%+v: %v", h, err)
		}

		body := strings.Repeat("x", int(h.Size))
		if n == 0 && manifest != "" {
			body = manifest
		}

		if _, err := io.WriteString(w, body); err != nil {
			t.Fatal(err)
		}
	}

	if err := errors.Join(w.Close(), zip.Close(), sealed.Close()); err != nil {
		t.Fatal(err)
	}

	return out.Bytes()
}

// TestAttack14HostileArchive: whoever knows a recipient can make an archive.
// None of these leaves a file anywhere.
func TestAttack14HostileArchive(t *testing.T) {
	r, i := passphrase(t, "p")
	good, err := json.Marshal(Manifest{Format: format, Node: "evil"})
	if err != nil {
		t.Fatal(err)
	}

	file := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg, Size: 3} }
	for name, entries := range map[string][]tar.Header{
		"parent":            {file("pki/../../../evil")},
		"parent alone":      {file("../evil")},
		"absolute":          {file("/etc/evil")},
		"hidden parent":     {file("srv/salt/a/../../../evil")},
		"dot":               {file("pki/./a")},
		"double slash":      {file("pki//a")},
		"tree as directory": {{Name: "pki/", Typeflag: tar.TypeDir}},
		"other place":       {file("etc/passwd")},
		"prefix only":       {file("pkix/a")},
		"tree itself":       {file("pki")},
		"new line":          {file("srv/salt/a\nb")},
		"escape":            {file("srv/salt/\x1b[2Ja")},
		"backslash":         {file("srv/salt/..\\a")},
		"long name":         {file("srv/salt/" + strings.Repeat("a", 2000))},
		"deep":              {file("srv/salt/" + strings.Repeat("a/", 40) + "b")},
		"symlink": {{Name: "srv/salt/l", Typeflag: tar.TypeSymlink, Linkname: "/etc"},
			file("srv/salt/l/evil")},
		"hard link":         {{Name: "srv/salt/l", Typeflag: tar.TypeLink, Linkname: "/etc/shadow"}},
		"device":            {{Name: "srv/salt/d", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}},
		"pipe":              {{Name: "srv/salt/f", Typeflag: tar.TypeFifo}},
		"twice":             {file("srv/salt/a"), file("srv/salt/a")},
		"file as directory": {file("srv/salt/a"), file("srv/salt/a/b")},
		"jobs not declared": {file("jobs/a")},
		"sessions":          {file("pki/sessions/web1")},
		"second manifest":   {file(manifestName)},
		"big configuration": {{Name: "appliance.yaml", Typeflag: tar.TypeReg, Size: maxConfig + 1}},
	} {
		t.Run(name, func(t *testing.T) {
			to := node(t)
			text := hostile(t, r, string(good), append([]tar.Header{file("srv/salt/first")}, entries...)...)
			if _, _, err := Restore(t.Context(), bytes.NewReader(text), Target{Settings: to, Stamp: "a"},
				i); err == nil {
				t.Error("restored")
			}

			if got := contents(t, to); len(got) != 0 {
				t.Errorf("there is %v", got)
			}

			if e, err := os.ReadDir(filepath.Dir(to.DataDir)); err != nil || len(e) > 1 {
				t.Errorf("beside the storage there is %v %v", e, err)
			}
		})
	}

	for name, manifest := range map[string]string{
		"none":         "",
		"no JSON":      "{",
		"other format": `{"format":3}`,
		"large":        `{"format":1,"node":"` + strings.Repeat("x", maxManifest) + `"}`,
	} {
		text := hostile(t, r, manifest, file("srv/salt/first"))
		if _, _, err := Restore(t.Context(), bytes.NewReader(text), Target{Settings: node(t), Stamp: "a"},
			i); err == nil {
			t.Errorf("manifest %s: restored", name)
		}
	}
}

// TestRestoredModes: no set-uid bits, nothing that others may write.
func TestRestoredModes(t *testing.T) {
	r, i := passphrase(t, "p")
	text := hostile(t, r, `{"format":1}`, tar.Header{Name: "srv/salt/su", Typeflag: tar.TypeReg, Size: 1, Mode: 0o7777})
	to := node(t)
	if _, _, err := Restore(t.Context(), bytes.NewReader(text), Target{Settings: to, Stamp: "a"}, i); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(filepath.Join(to.FileRoot(), "su")); err != nil || fi.Mode() != 0o755 {
		t.Errorf("%v %v", fi.Mode(), err)
	}
}

// TestAttack21Bomb: a small archive that unpacks to a lot, by one file or by
// many, ends at the bound and leaves nothing.
func TestAttack21Bomb(t *testing.T) {
	r, i := passphrase(t, "p")
	many := []tar.Header{}
	for n := range 50 {
		many = append(many, tar.Header{Name: fmt.Sprintf("srv/salt/f%d", n), Typeflag: tar.TypeReg})
	}

	for name, entries := range map[string][]tar.Header{
		"one large": {{Name: "srv/salt/a", Typeflag: tar.TypeReg, Size: 2 << 20}},
		"many":      many,
	} {
		text := hostile(t, r, `{"format":1}`, entries...)
		if len(text) > 100<<10 {
			t.Fatalf("%s: %d bytes", name, len(text))
		}

		to := node(t)
		if _, _, err := Restore(t.Context(), bytes.NewReader(text),
			Target{
				Settings: to,
				Stamp:    "a",
				Limits:   Limits{Bytes: 1 << 20, Entries: 20},
			}, i); err == nil || !strings.Contains(err.Error(), "more than") &&
			!strings.Contains(err.Error(), "larger than") {
			t.Errorf("%s: %v", name, err)
		}

		if got := contents(t, to); len(got) != 0 {
			t.Errorf("%s: there is %v", name, got)
		}
	}
}

// TestOnVolume: states of a node with a volume are read from the volume and
// restored onto it, not into this node's copy, which follows the volume.
func TestOnVolume(t *testing.T) {
	s := full(t)
	s.Storage.Kind = settings.VolumeStorage
	write(t, filepath.Join(s.FileRoot(), "top.sls"), "an old copy", 0o644)
	write(t, filepath.Join(s.SharedGPGDir(), "pubring.kbx.lock"), "of gpg", 0o600)
	r, i := passphrase(t, "correct horse")
	var out bytes.Buffer
	if _, err := Write(t.Context(), &out, options(s, false), r); err != nil {
		t.Fatal(err)
	}

	to := node(t)
	to.Storage.Kind = settings.VolumeStorage
	if _, _, err := Restore(t.Context(), bytes.NewReader(out.Bytes()), Target{Settings: to, Stamp: "a"},
		i); err != nil {
		t.Fatal(err)
	}

	for name, want := range map[string]string{
		"srv/salt/top.sls":                       "base: {}",
		"srv/pillar/web.sls":                     "password: pillar-canary",
		"etc/master.d/a.conf":                    "keep_jobs: 1",
		"etc/gpgkeys/pubring.kbx":                "public keys",
		"etc/gpgkeys/private-keys-v1.d/AB.key":   "gpg-canary",
		"etc/python/packages.json":               "{}",
		"etc/python/wheels/a-1-py3-none-any.whl": "a wheel",
	} {
		if b, err := os.ReadFile(filepath.Join(to.StorageDir(), name)); err != nil || string(b) != want {
			t.Errorf("%s: %q %v", name, b, err)
		}
		if _, err := os.Stat(filepath.Join(to.MirrorDir(), name)); err == nil {
			t.Errorf("%s is in the copy", name)
		}
	}

	if _, err := os.Stat(filepath.Join(to.SharedGPGDir(), "pubring.kbx.lock")); err == nil {
		t.Error("a lock of gpg is in the backup")
	}
}
