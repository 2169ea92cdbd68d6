package adopt

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"saltern/master/crypt"
	"saltern/supervisor/settings"
)

// keyNumber gives one of a few keys, which take a while to make.
func keyNumber(t testing.TB, n int) *rsa.PrivateKey {
	t.Helper()
	return made()[n]
}

var made = sync.OnceValue(func() (list []*rsa.PrivateKey) {
	for range 5 {
		k, err := crypt.GeneratePrivate(2048)
		if err != nil {
			panic(err)
		}
		list = append(list, k)
	}
	return list
})

func public(t testing.TB, n int) string {
	t.Helper()
	text, err := crypt.PublicPEM(&keyNumber(t, n).PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return text + "\n"
}

func private(t testing.TB, n int, passphrase string) string {
	t.Helper()
	text, err := crypt.PrivatePEM(keyNumber(t, n), passphrase)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// The keys: 0 of the old master, 1 of web1, 2 of web2, 3 of the node, 4 of a stranger.
func oldMaster(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"etc/salt/master": `# The old master.
id: old
user: salt
interface: 10.0.0.1
timeout: 15
# who answers
file_roots:
  base:
    - /srv/states
    - /srv/more
  dev:
    - /srv/dev
worker_threads: many   # nonsense
sock_dir: /run/salt
open_mode: True
file_recv: soon
gather_job_timeout: 20
autosign_file: /etc/salt/autosign.conf
state_output: mixed
my_own: 1
`,
		"etc/salt/master.d/b.conf":                       "state_output: changes\nreactor:\n  - 'salt/start':\n    - /srv/states/reactor/start.sls\n    - /srv/reactor/lost.sls\n",
		"etc/salt/master.d/README":                       "no options",
		"etc/salt/autosign.conf":                         "*.example.com\n",
		"etc/salt/pki/master/old.pem":                    private(t, 0, ""),
		"etc/salt/pki/master/old.pub":                    public(t, 0),
		"etc/salt/pki/master/minions/web1":               public(t, 1),
		"etc/salt/pki/master/minions_pre/web2":           public(t, 2),
		"etc/salt/pki/master/minions_pre/two":            public(t, 4),
		"etc/salt/pki/master/minions_rejected/bad":       public(t, 4),
		"etc/salt/pki/master/minions_denied/web2":        public(t, 4),
		"etc/salt/pki/master/minions/broken":             "no key",
		"etc/salt/pki/master/minions/a*b":                public(t, 4),
		"etc/salt/pki/master/minions_autosign/.keep":     "",
		"srv/states/top.sls":                             "base: {'*': [a]}\n",
		"srv/states/reactor/start.sls":                   "{}\n",
		"srv/more/top.sls":                               "never seen\n",
		"srv/more/a.sls":                                 "a: test.nop\n",
		"srv/dev/d.sls":                                  "d: test.nop\n",
		"srv/reactor/lost.sls":                           "{}\n",
		"srv/pillar/top.sls":                             "base: {'*': [p]}\n",
		"var/cache/salt/master/jobs/ab/cd/jid":           "1",
		"etc/salt/pki/master/minions_rejected/.hidden":   "x",
		"etc/salt/pki/master/minions/sub/not-a-key-file": "x",
	})

	for _, ext := range []string{".pem", ".pub"} { // as 3008 does
		if err := os.Symlink("/etc/salt/pki/master/old"+ext,
			filepath.Join(dir, "etc/salt/pki/master/master"+ext)); err != nil {
			t.Fatal(err)
		}
	}

	for link, to := range map[string]string{
		"srv/states/linked.sls": "/srv/more/a.sls",
		"srv/states/loop":       "..",
		"srv/states/out.sls":    "/../../../../../../etc/hostname-of-nobody",
	} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}

	return dir
}

// freshNode is a node that has started once: it has a key, and a minion waits.
func freshNode(t testing.TB) *settings.Settings {
	t.Helper()
	dir := t.TempDir()
	s := settings.Default("n1")
	s.DataDir = filepath.Join(dir, "data")
	s.RuntimeDir = filepath.Join(dir, "run")
	s.Storage.Path = filepath.Join(dir, "storage")
	s.Master.Address = "127.0.0.1"
	s.Users.Master, s.Users.LB = "", ""
	write(t, s.Storage.Path, map[string]string{
		"pki/n1.pem":           private(t, 3, ""),
		"pki/n1.pub":           public(t, 3),
		"pki/minions_pre/web1": public(t, 1),
	})

	for _, ext := range []string{".pem", ".pub"} {
		if err := os.Symlink(filepath.Join(s.Storage.Path, "pki/n1"+ext),
			filepath.Join(s.Storage.Path, "pki/master"+ext)); err != nil {
			t.Fatal(err)
		}
	}

	return &s
}

func look(t testing.TB, dir string, q Request) *Plan {
	t.Helper()
	tree, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	p, err := Look(t.Context(), tree, q)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func apply(t testing.TB, p *Plan, stamp string) string {
	t.Helper()
	unlock, err := Lock(p.request.Settings)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	kept, err := p.Apply(t.Context(), stamp)
	if err != nil {
		t.Fatal(err)
	}
	return kept
}

func counts(p *Plan) map[Kind][4]int {
	out := map[Kind][4]int{}
	for _, c := range p.Counts() {
		out[c.Kind] = [4]int{c.New, c.Same, c.Other, c.Left}
	}
	return out
}

func read(t testing.TB, s *settings.Settings, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.Storage.Path, name))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func names(t testing.TB, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			out = append(out, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Everything of an old master is on the node, and a second import has nothing to do.
func TestImport(t *testing.T) {
	old, s := oldMaster(t), freshNode(t)
	before := names(t, s.Storage.Path)
	p := look(t, old, Request{Settings: s})
	want := map[Kind][4]int{
		MasterKey: {0, 0, 1, 0}, Accepted: {1, 0, 0, 3}, Pending: {2, 0, 0, 0}, Rejected: {1, 0, 0, 0}, Denied: {1, 0, 0, 0},
		Options: {3, 0, 0, 2}, Lists: {1, 0, 0, 0}, States: {10, 0, 0, 2}, Pillars: {1, 0, 0, 0},
	}
	if got := counts(p); !reflect.DeepEqual(got, want) {
		t.Errorf("counts %v", got)
	}

	if now := names(t, s.Storage.Path); !slices.Equal(now, before) {
		t.Errorf("a look has written: %v", now)
	}

	if p.Refused() {
		t.Fatalf("refused: %v %v", p.Refusals, p.Conflicts)
	}

	kept := apply(t, p, "one")
	for name, text := range map[string]string{
		"pki/n1.pem": private(t, 0, ""), "pki/n1.pub": public(t, 0), "pki/master.pem": private(t, 0, ""),
		"pki/minions/web1": public(t, 1), "pki/minions_pre/web2": public(t, 2), "pki/minions_pre/two": public(t, 4), "pki/minions_rejected/bad": public(t, 4), "pki/minions_denied/web2": public(t, 4),
		"srv/salt/top.sls": "base: {'*': [a]}\n", "srv/salt/a.sls": "a: test.nop\n", "srv/salt/linked.sls": "a: test.nop\n", "srv/salt/_env/dev/d.sls": "d: test.nop\n",
		"srv/pillar/top.sls": "base: {'*': [p]}\n", "etc/master.d/import-autosign.list": "*.example.com\n",
	} {
		if got := read(t, s, name); got != text {
			t.Errorf("%s: %q", name, got)
		}
	}

	if fi, err := os.Stat(filepath.Join(s.Storage.Path, "pki/n1.pem")); err != nil || fi.Mode().Perm() != 0o400 {
		t.Errorf("the key: %v %v", fi, err)
	}

	if !slices.Contains(names(t, kept), "pki/n1.pem") {
		t.Errorf("kept: %v", names(t, kept))
	}

	if left, _ := filepath.Glob(filepath.Join(s.Storage.Path, ".import-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}

	again := look(t, old, Request{Settings: s})
	if len(again.items) > 0 || again.Refused() || again.Rekeyed {
		t.Errorf("again: %v, refused %v, conflicts %v", again.items, again.Refusals, again.Conflicts)
	}

	if kept := apply(t, again, "two"); kept != "" {
		t.Errorf("kept %s", kept)
	}
}

// What options become, with file and line.
func TestOptions(t *testing.T) {
	s := freshNode(t)
	p := look(t, oldMaster(t), Request{Settings: s, Force: true})
	apply(t, p, "one")
	for _, want := range []string{
		"/etc/salt/master:3: option user: left out: the appliance sets it itself",
		"/etc/salt/master:7: option file_roots: the files are brought to srv/salt on the storage",
		"/etc/salt/master:13: option worker_threads: expected a whole number, found the text",
		"/etc/salt/master:15: option open_mode: left out: it lets every minion in",
		"/etc/salt/master:16: option file_recv: left out, the master does not start with it: ",
		"/etc/salt/master:20: option my_own: it is not known",
		"/etc/salt/master.d/b.conf:2: option reactor: it names /srv/reactor/lost.sls, which is not imported",
		"/etc/salt/master.d/b.conf:2: option reactor: paths are changed to where the files are brought: /srv/states/reactor/start.sls",
		"/srv/more/top.sls: not served by the old master either",
		"/srv/states/loop/states: left out: it is a link to a folder above it",
		"/srv/states/out.sls: left out: it is a link to nothing in the tree",
		"/etc/salt/pki/master/minions/broken: left out: it is no key that a minion can use",
		"/etc/salt/pki/master/minions: left out: a file in it is no minion's: invalid minion id: holds a glob character",
	} {
		if !slices.ContainsFunc(p.Notes, func(n Note) bool { return strings.HasPrefix(n.String(), want) }) {
			t.Errorf("no note %q", want)
		}
	}

	if t.Failed() {
		for _, n := range p.Notes {
			t.Log(n)
		}
	}

	main := read(t, s, "etc/master.d/import-0-master.conf")
	for _, want := range []string{"\n# The old master.\n", "\ntimeout: 15\n",
		"\n# user: left out: the appliance sets it\n",
		"\n# state_output: left out: /etc/salt/master.d/b.conf:1 says it again\n", "\nmy_own: 1\n"} {
		if !strings.Contains(main, want) {
			t.Errorf("no %q in:\n%s", want, main)
		}
	}

	if strings.Contains(main, "10.0.0.1") || strings.Contains(main, "\nopen_mode") {
		t.Errorf("too much:\n%s", main)
	}

	if b := read(t, s, "etc/master.d/import-1-b.conf"); !strings.Contains(b,
		s.FileRoot()+"/reactor/start.sls") || !strings.Contains(b, "state_output: changes") {
		t.Errorf("b.conf:\n%s", b)
	}

	extra := read(t, s, "etc/master.d/import-3-appliance.conf")
	for _, want := range []string{s.FileRoot() + "/_env/dev", s.UserConfDir() + "/import-autosign.list"} {
		if !strings.Contains(extra, want) {
			t.Errorf("no %s in:\n%s", want, extra)
		}
	}
}

// Nothing of the node is replaced silently, and with force it is kept.
func TestConflicts(t *testing.T) {
	old, s := oldMaster(t), freshNode(t)
	write(t, s.Storage.Path, map[string]string{
		"pki/minions/other": public(t, 4), "pki/minions/web2": public(t, 4), "srv/salt/top.sls": "mine\n", "pki/minions_rejected/bad": public(t, 4),
	})
	before := names(t, s.Storage.Path)
	p := look(t, old, Request{Settings: s})
	var got []string
	for _, c := range p.Conflicts {
		got = append(got, c.String())
	}

	want := []string{
		`pki: the key of the master would become another, and 2 minions here know this one, "other" the first`,
		"pki/minions_pre/web2: another key is accepted here", "srv/salt/top.sls: has another content here",
	}

	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("no %q in %q", w, got)
		}
	}

	if _, err := p.Apply(t.Context(), "x"); err == nil || !slices.Equal(names(t, s.Storage.Path), before) {
		t.Errorf("a refused import: %v", err)
	}

	kept := apply(t, look(t, old, Request{Settings: s, Force: true}), "f")
	for _, name := range []string{"pki/n1.pem", "pki/minions/web2", "srv/salt/top.sls"} {
		if _, err := os.Stat(filepath.Join(kept, name)); err != nil {
			t.Error(err)
		}
	}

	if got := read(t, s, "srv/salt/top.sls"); got != "base: {'*': [a]}\n" {
		t.Errorf("top.sls: %s", got)
	}

	if got := read(t, s, "pki/minions/other"); got != public(t, 4) {
		t.Error("a minion that is not in the import is gone")
	}

	if _, err := os.Stat(filepath.Join(s.Storage.Path, "pki/minions/web2")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the key of web2 is in two states")
	}
}

// An import that ended between two files is finished by the same one, without force.
func TestInterrupted(t *testing.T) {
	old, s := oldMaster(t), freshNode(t)
	p := look(t, old, Request{Settings: s})
	if p.Refused() {
		t.Fatalf("refused: %v %v", p.Refusals, p.Conflicts)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Apply(ctx, "c"); !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), "nothing was changed") {
		t.Fatalf("cancelled: %v", err)
	}

	all := p.items
	for n := 1; n < len(all); n += 3 { // as if it had ended after n files
		s := freshNode(t)
		p := look(t, old, Request{Settings: s})
		p.items = p.items[:n]
		apply(t, p, "a")

		if err := os.Mkdir(filepath.Join(s.Storage.Path, stagePrefix+"dead"), 0o700); err != nil {
			t.Fatal(err)
		}

		q := look(t, old, Request{Settings: s})
		if q.Refused() || len(q.items) != len(all)-n && n > 2 {
			t.Fatalf("after %d of %d: %d left, refused %v %v", n, len(all), len(q.items), q.Refusals, q.Conflicts)
		}

		apply(t, q, "b")
		if last := look(t, old, Request{Settings: s}); len(last.items) > 0 {
			t.Errorf("after %d: %d are left", n, len(last.items))
		}

		if _, err := os.Stat(filepath.Join(s.Storage.Path, stagePrefix+"dead")); err == nil {
			t.Error("what a killed import has left is still there")
		}
	}
}

// Two imports at the same moment.
func TestLock(t *testing.T) {
	s := freshNode(t)
	unlock, err := Lock(s)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := Lock(s); err == nil || !strings.Contains(err.Error(), "n1 (import) since ") {
		t.Errorf("a second import: %v", err)
	}

	unlock()
	unlock, err = Lock(s)
	if err != nil {
		t.Fatal(err)
	}

	unlock()
}

// In a cluster the key that minions know is the cluster's.
func TestCluster(t *testing.T) {
	old, s := oldMaster(t), freshNode(t)
	s.Peering.Enabled, s.Peering.Address = true, "127.0.0.1"
	write(t, s.Storage.Path, map[string]string{"pki/cluster.pem": private(t, 3, ""), "pki/cluster.pub": public(t, 3)})
	if p := look(t, old, Request{Settings: s, WithoutKey: true, Beside: true}); p.Refused() || p.Rekeyed {
		t.Errorf("without the key: %v %v", p.Refusals, p.Conflicts)
	}

	// Other nodes use the key: the new one lies beside it until they take it together.
	kept := apply(t, look(t, old, Request{Settings: s, Beside: true}), "beside")
	if read(t, s, "pki/cluster.pem") != private(t, 3, "") ||
		read(t, s, "pki/cluster-next.pem") != private(t, 0, "") || read(t, s, "pki/cluster-next.pub") != public(t, 0) {
		t.Error("the new key does not lie beside the cluster's")
	}

	if b, err := os.ReadFile(filepath.Join(kept, "pki/cluster.pem")); err != nil || string(b) != private(t, 3, "") {
		t.Errorf("the cluster's key of before is not kept: %v", err)
	}

	if p := look(t, old, Request{Settings: s, Beside: true}); p.Refused() || !p.Rekeyed || p.Bytes() != 0 {
		t.Errorf("again: %v, %d bytes", p.Refusals, p.Bytes())
	}

	apply(t, look(t, old, Request{Settings: s}), "one")
	if read(t, s, "pki/cluster.pem") != private(t, 0, "") || read(t, s, "pki/cluster.pub") != public(t, 0) ||
		read(t, s, "pki/n1.pem") != private(t, 3, "") {
		t.Error("the cluster has another key than the old master, or the node's own is another")
	}

	if p := look(t, old, Request{Settings: s, Beside: true}); p.Refused() || p.Rekeyed {
		t.Errorf("with the same key and others: %v", p.Refusals)
	}
}

// Trees that lack something, or hold what cannot be taken.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(dir string)
		want   string
	}{
		"no configuration": {func(dir string) {
			_ = os.RemoveAll(dir + "/etc/salt/master")
			_ = os.RemoveAll(dir + "/etc/salt/master.d")
		}, "there is no /etc/salt/master"},
		"no key": {func(dir string) {
			_ = os.Remove(dir + "/etc/salt/pki/master/master.pem")
			_ = os.Remove(dir + "/etc/salt/pki/master/old.pem")
		}, "there is no key of the master"},
		"cut key": {func(dir string) {
			write(t, dir, map[string]string{"etc/salt/pki/master/old.pem": "-----BEGIN RSA PRIVATE KEY-----\nAA"})
		}, "unusable private key"},
		"passphrase": {func(dir string) {
			write(t, dir, map[string]string{"etc/salt/pki/master/old.pem": private(t, 0, "word")})
		}, "key_pass"},
		"bad yaml": {func(dir string) { write(t, dir, map[string]string{"etc/salt/master.d/c.conf": "a: [\n"}) },
			"c.conf"},
		"device": {func(dir string) {
			_ = os.Remove(dir + "/etc/salt/master")
			_ = os.Symlink("/dev/zero", dir+"/etc/salt/master")
			_ = os.RemoveAll(dir + "/etc/salt/master.d")
		}, "there is no /etc/salt/master"},
		"key link loop": {func(dir string) {
			_ = os.Remove(dir + "/etc/salt/pki/master/old.pem")
			_ = os.Symlink("old.pem", dir+"/etc/salt/pki/master/old.pem")
		}, "too many levels"},
	} {
		t.Run(name, func(t *testing.T) {
			old, s := oldMaster(t), freshNode(t)
			c.change(old)
			tree, err := Open(old)
			if err != nil {
				t.Fatal(err)
			}
			defer tree.Close()

			p, err := Look(t.Context(), tree, Request{Settings: s, Force: true})
			text := fmt.Sprint(err)
			if err == nil {
				text = strings.Join(p.Refusals, "; ")
				if !p.Refused() {
					t.Error("it is not refused")
				}
			}

			if !strings.Contains(text, c.want) {
				t.Errorf("%s, not %s", text, c.want)
			}
		})
	}
}

// A key with a passphrase is opened by the option that the tree has.
func TestPassphrase(t *testing.T) {
	old, s := oldMaster(t), freshNode(t)
	write(t, old,
		map[string]string{
			"etc/salt/pki/master/old.pem": private(t, 0, "word"),
			"etc/salt/master.d/k.conf":    "key_pass: word\n",
		})
	apply(t, look(t, old, Request{Settings: s}), "one")
	if read(t, s, "pki/n1.pem") != private(t, 0, "") {
		t.Error("the key is not in clear")
	}
	if k := read(t, s, "etc/master.d/import-1-k.conf"); strings.Contains(k, "word") {
		t.Errorf("the passphrase is brought: %s", k)
	}
}

// What was imported and exported can be imported again and is the same.
func TestExport(t *testing.T) {
	old, s := oldMaster(t), freshNode(t)
	s.Master.Options = map[string]any{"timeout": 9, "saltern_renderer_python": "/x/y"}
	apply(t, look(t, old, Request{Settings: s}), "one")
	dir := filepath.Join(t.TempDir(), "tree")
	sum, err := Export(t.Context(), s, dir)
	if err != nil || sum.Files == 0 || sum.Fingerprint == "" {
		t.Fatalf("%+v %v", sum, err)
	}

	if _, err := Export(t.Context(), s, dir); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over one that is there: %v", err)
	}

	for name, want := range map[string]string{
		"etc/salt/pki/master/master.pem": private(t, 0, ""), "etc/salt/pki/master/minions/web1": public(t, 1), "etc/salt/pki/master/minions_denied/web2": public(t, 4),
		"srv/salt/top.sls": "base: {'*': [a]}\n", "srv/pillar/top.sls": "base: {'*': [p]}\n", "etc/salt/master.d/import-autosign.list": "*.example.com\n",
	} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); string(b) != want {
			t.Errorf("%s: %q %v", name, b, err)
		}
	}

	all := ""
	for _, n := range names(t, filepath.Join(dir, "etc/salt")) {
		if n == "master" || strings.HasSuffix(n, ".conf") {
			b, err := os.ReadFile(filepath.Join(dir, "etc/salt", n))
			if err != nil {
				t.Fatal(err)
			}
			all += string(b)
		}
	}

	for _, want := range []string{"timeout: 9\n", "/srv/salt/reactor/start.sls", "/srv/salt/_env/dev",
		"autosign_file: /etc/salt/master.d/import-autosign.list"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in:\n%s", want, all)
		}
	}

	if strings.Contains(all, s.Storage.Path) || strings.Contains(all, "/x/y") {
		t.Errorf("too much:\n%s", all)
	}

	q := look(t, dir, Request{Settings: s, Force: true})
	for k, c := range counts(q) {
		if k != Options && k != Lists && k != States && c[0]+c[2] > 0 {
			t.Errorf("%s: %v", k, c)
		}
	}
}
