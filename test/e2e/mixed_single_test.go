//go:build e2e

package e2e

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// TestMigrationSingle: ours takes the place of one of Salt's, with its
// configuration, keys, files and jobs, and gives it back. Minions are not
// touched. See docs/migration.md.
func TestMigrationSingle(t *testing.T) {
	t.Parallel()
	s := lab.NewSites(t, 1)[0]
	out := lab.Dir(t)
	lab.WriteTree(t, s.Dir, map[string]string{
		"srv/salt/web.sls": "conf:\n  file.managed:\n    - name: " + out +
			"/{{ grains['id'] }}\n    - contents_pillar: word\n",
		"srv/pillar/top.sls":  "base:\n  '*':\n    - word\n",
		"srv/pillar/word.sls": "word: of {{ grains['id'] }}\n",
	})

	s.Python = true
	s.Launch(t)
	m := lab.SiteMinion(t, "one", lab.Versions()[1], []*lab.Site{s}, nil)
	s.Accept(t, m.ID)
	s.Ping(t, 4*time.Minute, m.ID)
	var jid string
	job := func() {
		t.Helper()
		r := s.Salt(t, "--async", m.ID, "test.echo", "before")
		if jid = regexp.MustCompile(`\d{20}`).FindString(r.Out); jid == "" {
			t.Fatalf("salt --async: %+v", r)
		}
	}

	known := func(what string) {
		t.Helper()
		lab.Eventually(t, 2*time.Minute, what+" knows the job", func() error {
			if r := s.SaltRun(t, "jobs.lookup_jid", jid, "--out", "json"); r.Code != 0 ||
				!strings.Contains(r.Out, `"before"`) {
				return fmt.Errorf("job %q: %s%s", jid, r.Out, r.Err)
			}
			return nil
		})
	}

	job()
	known("Salt's master")
	for _, python := range []bool{false, true} {
		if !s.Python { // what Salt's master reads
			if r := s.SaltRun(t, "jobs.files", "all"); r.Code != 0 {
				t.Errorf("salt-run jobs.files all: %s%s", r.Out, r.Err)
			}
		}
		stop(t, s)
		s.Python = python
		s.Launch(t)
		s.Ping(t, 4*time.Minute, m.ID)
		known(s.Name) // of the master before
		job()
		known(s.Name)
		v, err := s.JSON(t, "-t", "60", m.ID, "state.apply", "web")
		if ret, _ := v[m.ID].(map[string]any); err != nil || len(ret) != 1 ||
			!strings.Contains(fmt.Sprint(ret), "result:true") {
			t.Errorf("state.apply from %s: %v, %v", s.Name, v, err)
		}

		if n, _ := filepath.Glob(filepath.Join(out, m.ID)); len(n) != 1 {
			t.Error("the state has made no file")
		}
	}

	if !m.Running() {
		t.Error("the minion has ended")
	}
}
