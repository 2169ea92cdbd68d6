package backupplan

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"

	"saltern/supervisor/backup"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
	"saltern/test/smalldisk"
)

var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// clusterKey takes a second to make.
var clusterKey = sync.OnceValues(nodeapi.NewClusterKey)

// site is the storage of a cluster, and a directory for its backups.
type site struct {
	storage, to string
	identity    *age.X25519Identity
	clock       time.Time
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir := t.TempDir()
	s := &site{storage: filepath.Join(dir, "cluster"), to: filepath.Join(dir, "nas"), clock: noon}
	var err error
	if s.identity, err = age.GenerateX25519Identity(); err != nil {
		t.Fatal(err)
	}

	key, err := clusterKey()
	if err != nil {
		t.Fatal(err)
	}

	for path, text := range map[string]string{
		"pki/cluster.pem":  string(key),
		"pki/minions/web1": "key of web1",
		"srv/salt/top.sls": "base: {}",
	} {
		path = filepath.Join(s.storage, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	for _, d := range []string{s.to, filepath.Join(s.storage, "nodes")} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}

	return s
}

// maker is a try of a node.
func (s *site) maker(node string) *maker {
	c := settings.Default(node)
	c.Cluster = "prod"
	c.Storage.Path = s.storage
	c.DataDir = filepath.Join(filepath.Dir(s.storage), node)
	c.Peering.Enabled = true
	c.Backup = settings.Backup{Every: "24h", To: s.to, Keep: 2, Recipients: []string{s.identity.Recipient().String()}}
	return newMaker(Spec{Settings: &c, Version: "1"}, func() time.Time { return s.clock })
}

func (s *site) record(t *testing.T) record {
	t.Helper()
	r, err := readRecord(s.maker("n1").Settings)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// names are the files of the directory that are not the list.
func (s *site) names(t *testing.T) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(s.to)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			out = append(out, e.Name())
		}
	}
	return out
}

func (s *site) made(t *testing.T, node string) status.BackupFile {
	t.Helper()
	if o := s.maker(node).makeBackup(t.Context()); o.Kind != Made || o.Text != "" {
		t.Fatalf("%s at %s: %+v", node, s.clock, o)
	}
	r := s.record(t)
	if r.Last == nil || r.Claim != nil || r.Failure != nil {
		t.Fatalf("%+v", r)
	}
	return *r.Last
}

// One of the nodes makes a backup, signed and for its recipient; the next is made when
// it is due, and of those made as many stay as shall. Nobody else's file is touched.
func TestMake(t *testing.T) {
	s := newSite(t)
	first := s.made(t, "n1")
	others := []string{first.Name[:20] + "00000000-20200101T000000Z.age", first.Name + ".copy",
		"saltern-prod.age", "notes.txt"}
	prefix := first.Name[:len("saltern-prod-12345678")]
	others = append(others, prefix+"-20200101T000000Z.age") // called like ours, and not made by us
	for _, n := range others {
		if err := os.WriteFile(filepath.Join(s.to, n), []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	in, err := os.Open(filepath.Join(s.to, first.Name))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()

	sum, _, err := backup.Inspect(t.Context(), in, backup.Limits{}, s.identity)
	if err != nil || sum.Signer != first.Signer || sum.Files != first.Files || !sum.Manifest.Created.Equal(noon) {
		t.Errorf("%+v %+v %v", sum, first, err)
	}

	if fi, err := in.Stat(); err != nil || fi.Mode().Perm() != 0o600 || fi.Size() != first.Bytes {
		t.Errorf("%v %v", fi, err)
	}

	if o := s.maker("n2").makeBackup(t.Context()); o.Kind != Early {
		t.Errorf("not due: %+v", o)
	}

	now := s.maker("n2")
	now.Now = true
	s.clock = noon.Add(time.Hour)
	if o := now.makeBackup(t.Context()); o.Kind != Made || s.record(t).Last.Node != "n2" {
		t.Errorf("asked for: %+v", o)
	}

	s.clock = noon.Add(26 * time.Hour)
	third := s.made(t, "n3")
	if got := s.names(t); slices.Contains(got, first.Name) || !slices.Contains(got, third.Name) ||
		len(got) != 2+len(others) {
		t.Errorf("%q", got)
	}

	for _, n := range others {
		if !slices.Contains(s.names(t), n) {
			t.Errorf("%s is gone", n)
		}
	}
}

// A clock that was wrong keeps no backup from being made, and the newest ones stay,
// whatever the times in their names.
func TestClockJumpsBack(t *testing.T) {
	s := newSite(t)
	s.clock = noon.AddDate(1, 0, 0)
	ahead := s.made(t, "n1")
	s.clock = noon
	second := s.made(t, "n1")
	s.clock = noon.Add(25 * time.Hour)
	third := s.made(t, "n1")
	if got := s.names(t); !slices.Equal(got, []string{second.Name, third.Name}) {
		t.Errorf("%q", got)
	}

	if err := os.WriteFile(filepath.Join(s.to, ahead.Name), []byte("put back by somebody"), 0o600); err != nil {
		t.Fatal(err)
	}

	s.clock = noon.AddDate(1, 0, 0) // right again, at the same second
	if got := s.made(t, "n1"); got.Name != strings.TrimSuffix(ahead.Name, ".age")+"-2.age" {
		t.Errorf("%s", got.Name)
	}

	if b, err := os.ReadFile(filepath.Join(s.to, ahead.Name)); err != nil || string(b) != "put back by somebody" {
		t.Errorf("%q %v", b, err)
	}
}

// Who has the claim is left alone, as long as it may be alive.
func TestClaim(t *testing.T) {
	for name, c := range map[string]struct {
		claim claim
		want  Kind
	}{
		"another node": {claim{status.BackupMaker{Node: "n2", Since: noon}, "x", noon.Add(claimFor)},
			Held},
		"another node, over": {claim{status.BackupMaker{Node: "n2", Since: noon}, "x", noon}, Made},
		"this node, before it died": {claim{status.BackupMaker{Node: "n1", Since: noon}, "x", noon.Add(claimFor)},
			Made},
		"by a wrong clock": {claim{status.BackupMaker{Node: "n2", Since: noon}, "x", noon.AddDate(1, 0, 0)},
			Made},
	} {
		s := newSite(t)
		m := s.maker("n1")
		if err := changeRecord(m.Settings, func(r *record) error { r.Claim = &c.claim; return nil }); err != nil {
			t.Fatal(err)
		}

		if o := m.makeBackup(t.Context()); o.Kind != c.want ||
			o.Kind == Held && !strings.Contains(o.Text, "n2 makes a backup since 12:00:00 UTC") {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// A node that was held up until another one went on puts nothing in place.
func TestClaimIsLost(t *testing.T) {
	s := newSite(t)
	m := s.maker("n1")
	if o := m.takeClaim(); o.Kind != Made {
		t.Fatalf("%+v", o)
	}

	s.clock = noon.Add(claimFor)
	if o := s.maker("n2").takeClaim(); o.Kind != Made {
		t.Fatalf("%+v", o)
	}

	if _, err := m.writeBackup(t.Context()); !errors.Is(err, errLost) {
		t.Errorf("%v", err)
	}

	if got := s.names(t); len(got) != 0 {
		t.Errorf("%q", got)
	}

	if o := m.recordOutcome(nil, errors.New("x")); o.Kind != Failed || s.record(t).Claim.Node != "n2" ||
		s.record(t).Failure != nil {
		t.Errorf("%+v, %+v", o, s.record(t))
	}
}

// Of nodes that begin at the same moment one makes the backup.
func TestNeverTwoAtOnce(t *testing.T) {
	for round := range 10 {
		s := newSite(t)
		var all sync.WaitGroup
		kinds := make([]Kind, 4)
		for i := range kinds {
			m := s.maker(fmt.Sprint("n", i))
			all.Go(func() { kinds[i] = m.makeBackup(t.Context()).Kind })
		}

		all.Wait()
		if got := s.names(t); len(got) != 1 {
			t.Fatalf("round %d: %q %v", round, got, kinds)
		}

		made := 0
		for _, k := range kinds {
			if k == Made {
				made++
			} else if k != Held && k != Early {
				t.Errorf("round %d: %v", round, kinds)
			}
		}

		if made != 1 {
			t.Errorf("round %d: %v", round, kinds)
		}
	}
}

// Whoever dies leaves nothing that stays for ever: not what was being written, nor a
// backup that is whole and not counted.
func TestDiedInTheMiddle(t *testing.T) {
	s := newSite(t)
	first := s.made(t, "n1")
	m := s.maker("n1")
	signer, err := backup.Signer(m.Settings)
	if err != nil {
		t.Fatal(err)
	}

	f := newFolder(directory(s.to), "prod", signer)
	c, _, err := f.catalogue(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	there, gone := first, first
	there.Name, gone.Name = f.prefix+"-there.age", f.prefix+"-gone.age"
	c.Files = append(c.Files, entry{there, true}, entry{gone, true})
	if err := f.writeCatalogue(t.Context(), c); err != nil {
		t.Fatal(err)
	}

	for _, n := range []string{there.Name, f.partial("n1") + "1", f.partial("n2") + "1"} {
		if err := os.WriteFile(filepath.Join(s.to, n), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	if shown := f.listFiles(t.Context(), c); len(shown) != 2 {
		t.Errorf("%+v", shown)
	}

	s.clock = noon.Add(25 * time.Hour)
	last := s.made(t, "n1")
	want := []string{f.partial("n2") + "1", last.Name, there.Name} // the other node may be writing it
	if got := s.names(t); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A directory that is not there is no reason to write to the disk below it.
func TestTargetAway(t *testing.T) {
	s := newSite(t)
	if err := os.Remove(s.to); err != nil {
		t.Fatal(err)
	}

	failed := func(want string) {
		t.Helper()
		s.clock = s.clock.Add(25 * time.Hour)
		o := s.maker("n1").makeBackup(t.Context())
		r := s.record(t)
		if o.Kind != Failed || !strings.Contains(o.Text, want) || r.Failure == nil ||
			r.Failure.Cause != o.Text || r.Failure.Node != "n1" || r.Claim != nil {
			t.Errorf("%+v, %+v", o, r)
		}
	}

	failed("there is no directory " + s.to + ": make it, or mount it")
	if o := s.maker("n2").makeBackup(t.Context()); o.Kind != Early {
		t.Errorf("at once after a failure: %+v", o)
	}

	if err := os.Mkdir(s.to, 0o700); err != nil {
		t.Fatal(err)
	}

	s.clock = s.clock.Add(25 * time.Hour)
	s.made(t, "n1")

	// Unmounted: an empty directory.
	if err := os.Rename(s.to, s.to+".away"); err != nil {
		t.Fatal(err)
	}

	if err := os.Mkdir(s.to, 0o700); err != nil {
		t.Fatal(err)
	}

	failed("is something mounted at " + s.to + " no more?")
	if got := s.names(t); len(got) != 0 {
		t.Errorf("%q", got)
	}

	list, err := filepath.Glob(filepath.Join(s.to+".away", "*.json"))
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}

	if err := os.WriteFile(filepath.Join(s.to, filepath.Base(list[0])), nil, 0o600); err != nil { // touch
		t.Fatal(err)
	}

	s.clock = s.clock.Add(25 * time.Hour)
	s.made(t, "n1")
	if err := os.WriteFile(filepath.Join(s.to, filepath.Base(list[0])), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}

	failed("is not a list of backups: move it away")
}

// A full disk: the backups of before stay, nothing half is left, and the reason is
// said.
func TestDiskFull(t *testing.T) {
	s := newSite(t)
	smalldisk.MountOn(t, s.to, "size=96k")
	first := s.made(t, "n1")
	noise := make([]byte, 256<<10)
	rand.New(rand.NewSource(1)).Read(noise)

	if err := os.WriteFile(filepath.Join(s.storage, "srv/salt/noise"), noise, 0o600); err != nil {
		t.Fatal(err)
	}

	s.clock = noon.Add(25 * time.Hour)
	o := s.maker("n1").makeBackup(t.Context())
	if o.Kind != Failed || !strings.Contains(o.Text, "no space left on device") || s.record(t).Failure == nil {
		t.Errorf("%+v", o)
	}

	if got := s.names(t); !slices.Equal(got, []string{first.Name}) {
		t.Errorf("%q", got)
	}
}

// A node that is stopped in the middle leaves no file, and begins anew.
func TestStopped(t *testing.T) {
	s := newSite(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if o := s.maker("n1").makeBackup(ctx); o.Kind != Failed {
		t.Errorf("%+v", o)
	}
	if got := s.names(t); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

// FuzzCatalogue: whatever a list says, nothing is removed but files of the directory
// that are called as this cluster's backups.
func FuzzCatalogue(f *testing.F) {
	f.Add([]byte(`{"format":1,"files":[{"name":"saltern-prod-12345678-1.age"},{"name":"../other"},{"name":"/etc/passwd"}]}`))
	f.Add([]byte(`{"format":1,"files":[{"name":"saltern-prod-12345678-/../../other.age"},{"name":"saltern-prod-12345678-.age","pending":true}]}`))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		top := t.TempDir()
		d := newFolder(directory(filepath.Join(top, "nas")), "prod", "1234567890")
		other := filepath.Join(top, "other.age")
		for _, path := range []string{d.pathOf(d.cataloguePath()), other, d.pathOf("notes.age")} {
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}

		c, _, err := d.catalogue(t.Context())
		if err != nil {
			return
		}

		d.listFiles(t.Context(), c)
		if _, err := d.removeOldest(t.Context(), &c, 0); err != nil {
			t.Logf("prune: %v", err)
		}

		for _, path := range []string{d.pathOf(d.cataloguePath()), other, d.pathOf("notes.age")} {
			if _, err := os.Lstat(path); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// FuzzRecord: a record from the shared storage is refused or has an answer.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"version":3,"claim":{"node":"n2","until":"2026-11-24T12:00:00Z"},"last":{"time":"2026-11-24T12:00:00Z"}}`))
	f.Add([]byte(`{"version":1,"failure":{"time":"9999-11-24T12:00:00Z"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s := settings.Default("n1")
		s.DataDir = t.TempDir()
		if err := os.WriteFile(s.BackupRecord(), text, 0o600); err != nil {
			t.Fatal(err)
		}

		r, err := readRecord(&s)
		if err != nil {
			return
		}

		if next := r.nextTime(settings.Schedule{Every: time.Hour}, noon); next.Sub(noon) > 3*clockSlack {
			t.Fatalf("no backup before %s: %s", next, text)
		}
	})
}
