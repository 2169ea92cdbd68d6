//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// oldSite is a master of Salt's with a minion that has a pillar and a state, stopped.
func oldSite(t *testing.T) (s *lab.Site, m *lab.Minion, out string) {
	t.Helper()
	s = lab.NewSites(t, 1)[0]
	out = lab.Dir(t)
	lab.WriteTree(t, s.Dir, map[string]string{
		"srv/salt/web.sls": "conf:\n  file.managed:\n    - name: " + out +
			"/{{ grains['id'] }}\n    - contents_pillar: word\n",
		"srv/pillar/top.sls":  "base:\n  '*':\n    - word\n",
		"srv/pillar/word.sls": "word: of {{ grains['id'] }}\n",
	})

	s.Python = true
	s.Options = map[string]any{
		"nodegroups":           map[string]any{"web": "L@one"},
		"open_mode":            false,
		"log_rotate_max_bytes": 1000,
	}

	s.Launch(t)
	m = lab.SiteMinion(t, "one", lab.Newest, []*lab.Site{s}, nil)
	s.Accept(t, m.ID)
	s.Ping(t, 4*time.Minute, m.ID)
	stop(t, s)

	return s, m, out
}

// TestImport: a master of Salt's is taken over by a node on its address: first only
// looked at, then imported, then once more; then exported for Salt's master, which takes
// the place back. The minion is not touched.
func TestImport(t *testing.T) {
	t.Parallel()
	s, m, out := oldSite(t)
	n := lab.StartNode(t, lab.NodeConfig{Addr: s.Addr})
	conf := filepath.Join(s.Dir, "etc")
	key := func() string {
		b, err := os.ReadFile(filepath.Join(n.Settings.PKIDir(), "master.pub"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}

	before := key()
	r := n.Applianced(t, "import", "--dry-run", "--config-dir", conf, "/")
	if r.Code != 2 || !strings.Contains(r.Out, "nothing was changed") ||
		!strings.Contains(r.Out, "/master:") || !strings.Contains(r.Out,
		"option log_rotate_max_bytes: option is not used by this master") {
		t.Fatalf("import --dry-run: %+v", r)
	}

	if key() != before {
		t.Fatal("a dry run has changed the key")
	}

	archive := filepath.Join(n.Dir, "old.tar.gz")
	if r := lab.Run(t, 30*time.Second, "/bin/tar", "czf", archive, "-C", "/",
		strings.TrimPrefix(s.Dir, "/")); r.Code != 0 {
		t.Fatalf("tar: %+v", r)
	}

	if r := n.Applianced(t, "import", "--config-dir", conf, archive); r.Code != 2 ||
		!strings.Contains(r.Out, "imported:") {
		t.Fatalf("import: %+v", r)
	}

	if key() == before {
		t.Error("the node still has its own key")
	}

	n.Ping(t, 4*time.Minute, m.ID)
	lab.Eventually(t, 60*time.Second, "state and pillar", func() error {
		v, err := n.JSON(t, "-t", "60", "-N", "web", "state.apply", "web")
		if ret, _ := v[m.ID].(map[string]any); err != nil || len(ret) != 1 ||
			!strings.Contains(fmt.Sprint(ret), "result:true") {
			return fmt.Errorf("state.apply: %v, %w", v, err)
		}
		return nil
	})

	if b, err := os.ReadFile(filepath.Join(out, m.ID)); err != nil || !strings.Contains(string(b), "of one") {
		t.Errorf("the state has made %q, %v", b, err)
	}

	if !m.Running() {
		t.Error("the minion has ended")
	}

	if r := n.Applianced(t, "import", "--config-dir", conf, archive); r.Code != 2 ||
		strings.Contains(r.Out, "conflict") || !strings.Contains(r.Out, "0 B written") {
		t.Errorf("the same import again: %+v", r)
	}

	// And back: Salt's master starts on what is exported.
	tree := filepath.Join(n.Dir, "exported")
	if r := n.Applianced(t, "export", tree); r.Code != 0 {
		t.Fatalf("export: %+v", r)
	}

	if err := n.Stop(60 * time.Second); err != nil {
		t.Fatal(err)
	}

	if err := os.Remove(filepath.Join(out, m.ID)); err != nil {
		t.Fatal(err)
	}

	s.Options = map[string]any{
		"pki_dir":         tree + "/etc/salt/pki/master",
		"default_include": tree + "/etc/salt/master.d/*.conf",
		"file_roots":      map[string][]string{"base": {tree + "/srv/salt"}},
		"pillar_roots":    map[string][]string{"base": {tree + "/srv/pillar"}},
	}

	s.Launch(t)
	s.Ping(t, 4*time.Minute, m.ID)
	if v, err := s.JSON(t, "-t", "60", "-N", "web", "state.apply", "web"); err != nil ||
		!strings.Contains(fmt.Sprint(v), "result:true") {
		t.Errorf("state.apply from Salt's master: %v, %v", v, err)
	}

	if _, err := os.Stat(filepath.Join(out, m.ID)); err != nil {
		t.Error(err)
	}

	if !m.Running() {
		t.Error("the minion has ended")
	}
}
