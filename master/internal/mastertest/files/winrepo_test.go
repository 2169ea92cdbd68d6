package files

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"saltern/master/internal/mastertest"
	"saltern/test/check"
	"saltern/test/gitrepo"
)

// Salt's own runner winrepo puts repositories below winrepo_dir_ng, from where the
// backend roots serves them.
func TestWinrepo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	up := gitrepo.New(t, dir, "win")
	up.Commit("master", "firefox.sls", "firefox: {}\n")
	ng := filepath.Join(dir, "srv/win/repo-ng")
	check.Must(t, os.MkdirAll(ng, 0o755))
	r := mastertest.Start(t,
		fmt.Sprintf("saltern_renderer_python: %s\nfile_roots: {base: [%s/srv]}\nwinrepo_dir: %s/repo\nwinrepo_dir_ng: %s\nwinrepo_remotes: []\nwinrepo_remotes_ng: ['%s']\n",
			mastertest.SaltPython(t), dir, dir, ng, up.URL()))
	n := r.AcceptedMinion("min1", "min6")
	for _, text := range []string{"firefox: {}\n", "firefox: {two: 2}\n"} {
		up.Commit("master", "firefox.sls", text)
		v, err := r.Parts.Runs.Call(t.Context(), "winrepo.update_git_repos", nil, nil)
		check.Must(t, err)
		if got, want := fmt.Sprint(mastertest.PlainValue(v)), fmt.Sprintf("map[%s:%s/win/_]", up.URL(), ng); got != want {
			t.Errorf("the runner says %s, want %s", got, want)
		}

		if got := fileFromGit(n, "win/repo-ng/win/_/firefox.sls", "base"); got != text {
			t.Errorf("a minion has %q, want %q", got, text)
		}
	}
}
