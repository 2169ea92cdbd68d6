package files

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/master/internal/mastertest"
	"saltern/test/authority"
	"saltern/test/await"
	"saltern/test/check"
	"saltern/test/gitrepo"
)

// TestGitBehindNGINX: files and a pillar over https, with a password and an authority
// of one's own, from git's http-backend behind nginx. A certificate of another
// authority, one that has expired and a wrong password are faults of their own, which
// name the remote and no password.
func TestGitBehindNGINX(t *testing.T) {
	const password = `TOP SECRET:%'"$(id)`
	dir, home := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	up := gitrepo.New(t, dir, "a")
	up.Commit("master", "f", "one", "top.sls", "base:\n  '*': [x]\n", "x.sls", "from_git: 1\n", "large",
		strings.Repeat("0123456789abcdef", 1<<16))
	ours, other := authority.New(t), authority.New(t)
	right, strange, expired := t.TempDir(), t.TempDir(), t.TempDir()
	ours.Sign(right, "127.0.0.1", time.Now().Add(time.Hour))
	other.Sign(strange, "127.0.0.1", time.Now().Add(time.Hour))
	ours.Sign(expired, "127.0.0.1", time.Now().Add(-time.Hour))
	check.Must(t, os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[http]\n sslCAInfo = "+ours.File+"\n"), 0o600))
	urls := gitrepo.NGINX(t, dir, "anna", password, right, strange, expired)
	quoted := "'" + strings.ReplaceAll(password, "'", "''") + "'"
	options := func(url, password string) string {
		return fmt.Sprintf("fileserver_backend: [gitfs]\ngitfs_remotes: [{'%sa': [{user: anna}, {password: %s}]}]\ngitfs_update_interval: 1\ngit_pillar_update_interval: 1\n"+
			"ext_pillar: [{git: [{'master %[1]sa': [{user: anna}, {password: %[2]s}]}]}]\n", url, password)
	}

	for _, c := range []struct {
		name, url, password string
		want                control.Fault
		text                string
	}{
		{"another authority", urls[1], quoted, control.GitHostKeyFault, "certificate"},
		{"an expired certificate", urls[2], quoted, control.GitHostKeyFault, "certificate"},
		{"a wrong password", urls[0], "SECRET2", control.GitLoginFault, "Authentication failed"},
		{"another path", urls[0] + "nosuch/", quoted, control.GitAwayFault, "not found"},
	} {
		r := mastertest.Start(t, options(c.url, c.password))
		var got []string
		await.That(t, c.name+" is a problem", func() bool {
			got = nil
			for _, p := range r.Parts.Problems.List() {
				if p.What == c.want {
					got = append(got, p.Text)
				}
			}
			return len(got) > 0
		})

		if !strings.HasPrefix(got[0], c.url+"a (files and pillars): ") || !strings.Contains(got[0], c.text) ||
			strings.Contains(r.Log.String()+got[0], "SECRET") {
			t.Errorf("%s: %q", c.name, got)
		}

		t.Logf("%s: %s", c.name, got)
		r.Stop()
	}

	r := mastertest.Start(t, options(urls[0], quoted))
	n := r.AcceptedMinion("min1", "min6")
	value := func() int64 { v, _ := n.Pillar().Int("from_git"); return v }
	await.That(t, "the first fetch", func() bool { return fileFromGit(n, "f", "base") == "one" && value() == 1 })

	if got := fileFromGit(n, "large", "base"); len(got) < 64<<10 || got[:16] != "0123456789abcdef" {
		t.Errorf("the large file begins with %d bytes, %.16q", len(got), got)
	}

	up.Rewrite("master", "f", "two", "top.sls", "base:\n  '*': [x]\n", "x.sls", "from_git: 2\n")
	await.That(t, "a forced push", func() bool { return fileFromGit(n, "f", "base") == "two" && value() == 2 })
	if l := r.Parts.Problems.List(); len(l) > 0 || strings.Contains(r.Log.String(), "SECRET") {
		t.Errorf("problems %v, or the password is in the log", l)
	}
}
