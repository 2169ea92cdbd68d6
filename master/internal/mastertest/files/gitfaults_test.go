package files

import (
	"encoding/pem"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"saltern/internal/control"
	"saltern/master/internal/mastertest"
	"saltern/test/await"
	"saltern/test/check"
	"saltern/test/gitrepo"
)

// gitBackend serves repositories by git's own program for web servers.
func gitBackend(t *testing.T, dir string) http.Handler {
	t.Helper()
	path, err := exec.LookPath("git")
	check.Must(t, err)
	return &cgi.Handler{
		Path: path,
		Args: []string{"http-backend"},
		Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1",
			"GIT_CONFIG_GLOBAL=/dev/null"},
	}
}

// Each kind of fault is a problem of its own, which names the remote and ends when
// the remote is right again.
func TestGitFaults(t *testing.T) {
	dir, home := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	repo := func(name string) *gitrepo.Repo {
		up := gitrepo.New(t, dir, name)
		up.Commit("master", "f", "x")
		return up
	}

	away, ref, large := repo("away"), repo("ref"), repo("large")
	repo("login")
	repo("trust")
	noise := make([]byte, 3<<20)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}

	large.Rewrite("master", "f", string(noise))
	check.Must(t, os.Rename(away.Dir, away.Dir+".off"))
	var open atomic.Bool
	backend := gitBackend(t, dir)
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !open.Load() {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	defer plain.Close()

	sealed := httptest.NewTLSServer(backend)
	defer sealed.Close()
	url, _ := gitrepo.Daemon(t, dir)
	remotes := map[control.Fault]string{
		control.GitAwayFault: url + "away", control.GitLoginFault: plain.URL +
			"/login", control.GitHostKeyFault: sealed.URL + "/trust",
		control.GitRefFault: url + "ref", control.GitSizeFault: url + "large",
	}

	var list []string
	for what, u := range remotes {
		if what == control.GitRefFault {
			u = fmt.Sprintf("{'%s': [{all_saltenvs: v9}]}", u)
		} else {
			u = "'" + u + "'"
		}
		list = append(list, u)
	}

	r := mastertest.Start(t,
		"saltern_git_max_size: 1\nfileserver_backend: [gitfs]\ngitfs_update_interval: 1\ngitfs_remotes: ["+
			strings.Join(list, ", ")+"]\n")
	await.That(t, "each fault is a problem", func() bool {
		found := map[control.Fault]string{}
		for _, p := range r.Parts.Problems.List() {
			found[p.What] = p.Text
		}

		for what, u := range remotes {
			if !strings.HasPrefix(found[what], u+" (files): ") {
				return false
			}
		}

		return true
	})

	var last string
	defer func() {
		if t.Failed() {
			t.Log(last)
		}
	}()

	// All is fixed at the remotes, and nothing is done here.
	check.Must(t, os.Rename(away.Dir+".off", away.Dir))
	ref.Git("update-ref", "refs/tags/v9", "refs/heads/master")
	large.Rewrite("master", "f", "small")
	open.Store(true)
	ca := filepath.Join(home, "ca.pem")
	check.Must(t,
		os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: sealed.Certificate().Raw}), 0o600))
	check.Must(t, os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[http]\n sslCAInfo = "+ca+"\n"), 0o600))
	await.That(t, "all problems end by themselves", func() bool {
		if len(r.Parts.Problems.List()) == 0 {
			return true
		}
		last = fmt.Sprint(r.Parts.Problems.List())
		return false
	})
}
