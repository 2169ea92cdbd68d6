//go:build e2e && appliance

package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
	"saltern/test/gitrepo"
	"saltern/test/lab"
)

// gitServed asks a node for what all serve: the commit of main by node, and the codes
// of faults.
func gitServed(t *testing.T, r lab.Result) (commits map[string]string, codes []status.Code, err error) {
	t.Helper()
	var list status.GitList
	if err := json.Unmarshal([]byte(r.Out), &list); err != nil {
		return nil, nil, fmt.Errorf("applianced git: %w: %+v", err, r)
	}

	commits = map[string]string{}
	for node, remotes := range list.Nodes {
		for _, m := range remotes {
			if i := slices.IndexFunc(m.Refs, func(r status.GitRef) bool { return r.Name == "main" }); i >= 0 {
				commits[node] = m.Refs[i].Commit
			}
			if m.Fault != nil {
				codes = append(codes, m.Fault.Code)
			}
		}
	}

	return commits, codes, nil
}

// pushed tells a node of a push as GitHub does; the code is 0 when it was taken.
func pushed(t *testing.T, address, url string) (r lab.Result) {
	t.Helper()
	body := fmt.Sprintf(`{"ref":"refs/heads/main","repository":{"clone_url":%q}}`, url)
	m := hmac.New(sha256.New, []byte(lab.ApplianceSecret))
	m.Write([]byte(body))
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/webhook",
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}

	q.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(m.Sum(nil)))
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		return lab.Result{Code: 1, Err: err.Error()}
	}
	defer resp.Body.Close()

	text, _ := io.ReadAll(resp.Body)
	if r.Code, r.Err = resp.StatusCode, string(text); r.Code == http.StatusAccepted {
		r.Code = 0
	}

	return r
}

// TestGitOnThreeNodes: the first remote comes with config apply; what is pushed is on
// all nodes within 5 s of a fetch on one of them, and any node tells of all.
func TestGitOnThreeNodes(t *testing.T) {
	nodes := threeNodes(t, lab.NewNetwork(t, "sgt", "10.63"))
	for _, n := range nodes {
		n.Change(t, "settings.webhook.listen", n.Addr+":4523")
		n.Launch(t)
	}

	for _, n := range nodes {
		n.WaitReady(t, 3)
	}

	shared := nodes[0].Shared
	n1, n2, n3 := nodes[0], nodes[1], nodes[2]
	if r := n2.Applianced(t, "git"); r.Code != 0 || !strings.Contains(r.Out, "gitfs_remotes") {
		t.Errorf("without remotes: %+v", r)
	}

	if r := n2.Applianced(t, "git", "fetch"); r.Code != 1 || !strings.Contains(r.Err, "no git remote is configured") {
		t.Errorf("a fetch without remotes: %+v", r)
	}

	up := gitrepo.New(t, shared, "states")
	up.Commit("main", "f", "1")
	conf := filepath.Join(shared, "etc/master.d/git.conf")
	text := "fileserver_backend: [roots, gitfs]\ngitfs_base: main\ngitfs_update_interval: 3600\ngitfs_remotes: ['file://" + up.Dir + "']\n"
	if err := errors.Join(os.MkdirAll(filepath.Dir(conf), 0o755), os.WriteFile(conf, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}

	if p, r := applied(t, n2); len(p.Lines) == 0 {
		t.Fatalf("the first remote: %+v", r)
	}

	if r := pushed(t, n2.Addr+":4523", up.URL()); r.Code != 503 {
		t.Errorf("a web hook without a secret here: %+v", r)
	}

	if err := os.WriteFile(filepath.Join(shared, "etc/webhook.secret"), []byte(lab.ApplianceSecret),
		0o600); err != nil {
		t.Fatal(err)
	}

	agree := func(want string) error {
		commits, codes, err := gitServed(t, n3.Applianced(t, "git", "--json"))
		if err != nil {
			return err
		}

		for _, n := range nodes {
			if commits[n.Name] != want {
				return fmt.Errorf("%v %v, want %s", commits, codes, want)
			}
		}

		return nil
	}

	for how, fetch := range map[string]func() lab.Result{
		"applianced git fetch":        func() lab.Result { return n2.Applianced(t, "git", "fetch") },
		"applianced git fetch states": func() lab.Result { return n3.Applianced(t, "git", "fetch", "states") },
		"a web hook":                  func() lab.Result { return pushed(t, n2.Addr+":4523", up.URL()) },
		// As after its interval: one master fetches, and nobody else is asked to.
		"one master": func() (r lab.Result) {
			cfg, err := settings.Load(n1.Config(), n1.Name)
			if err != nil {
				t.Fatal(err)
			}

			if _, err := control.NewClient(filepath.Join(cfg.MasterSockDir(), control.Socket),
				os.Getuid()).FetchGit(t.Context(), ""); err != nil {
				return lab.Result{Code: 1, Err: err.Error()}
			}

			return r
		},
		"fileserver.update": func() lab.Result { return n1.Tool(t, "salt-run", "fileserver.update") },
	} {
		want := up.Commit("main", "f", how)
		begun := time.Now()
		if r := fetch(); r.Code != 0 {
			t.Errorf("%s: %+v", how, r)
		}

		lab.Eventually(t, 10*time.Second, how+": all nodes serve the push", func() error { return agree(want) })
		t.Logf("%s: all nodes agree after %v", how, time.Since(begun).Round(time.Millisecond))
		if d := time.Since(begun); d > 5*time.Second {
			t.Errorf("%s: it took %v", how, d)
		}
	}

	if r := n1.Applianced(t, "git", "fetch", "nosuch"); r.Code != 1 || !strings.Contains(r.Err, "applianced git") {
		t.Errorf("an unknown remote: %+v", r)
	}

	if err := os.Rename(up.Dir, up.Dir+".away"); err != nil {
		t.Fatal(err)
	}

	r := n1.Applianced(t, "git", "fetch", "--json")
	if _, codes, err := gitServed(t, r); err != nil || r.Code != status.ExitDegraded ||
		!slices.Equal(codes, []status.Code{status.GitAway, status.GitAway, status.GitAway}) {
		t.Errorf("without the remote: %v %v %+v", codes, err, r)
	}

	if r := n1.Applianced(t, "git"); !strings.Contains(r.Out, "SCA-214 unreachable") {
		t.Errorf("the screen: %+v", r)
	}

	if err := os.Rename(up.Dir+".away", up.Dir); err != nil {
		t.Fatal(err)
	}

	if r := n2.Applianced(t, "git", "fetch"); r.Code != 0 {
		t.Errorf("with the remote again: %+v", r)
	}
}
