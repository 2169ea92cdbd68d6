//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"saltern/test/gitrepo"
	"saltern/test/lab"
)

// TestGitManual takes the options that docs/git.md shows, with the addresses of
// repositories that are there, and runs what it tells people to type, but for Salt's own
// winrepo and what is about the image's firewall.
func TestGitManual(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/git.md")
	if err != nil {
		t.Fatal(err)
	}

	dir := lab.Dir(t)
	for name, files := range map[string][]string{
		"states.git": {"top.sls", "base:\n  '*': [site]\n", "site.sls",
			"hello:\n  test.succeed_without_changes:\n    - name: it is {{ pillar['from'] }} {{ pillar['branch'] }}\n"},
		"ops-states.git":       {"states/ops.sls", "ops:\n  test.nop: []\n"},
		"apache-formula.git":   {"apache/init.sls", "apache:\n  test.nop: []\n"},
		"pillar.git":           {"top.sls", "base:\n  '*': [p]\n", "p.sls", "from: git\n"},
		"pillar-by-branch.git": {"top.sls", "base:\n  '*': [b]\n", "b.sls", "branch: by branch\n"},
	} {
		r := gitrepo.New(t, dir, name)
		r.Commit("main", files...)
		r.Commit("master", files...)
		r.Commit("v2.1.0", files...)
	}

	url, _ := gitrepo.Daemon(t, dir)
	here := strings.NewReplacer("git@git.example.com:ops/states.git", url+"ops-states.git",
		"git@git.example.com:ops/", url, "https://git.example.com/", url)
	options, remotes := map[string]any{}, []any{}
	for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(string(page), -1) {
		text := here.Replace(block[1])
		if !strings.Contains(text, "gitfs_remotes") && !strings.Contains(text, "ext_pillar") {
			continue
		}

		text = regexp.MustCompile(`(?m)^.*privkey.*\n`).ReplaceAllString(text, "") // they are not asked by ssh here
		m := map[string]any{}
		if err := yaml.Unmarshal([]byte(text), &m); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}

		list, _ := m["gitfs_remotes"].([]any)
		remotes = append(remotes, list...)
		for k, v := range m {
			options[k] = v
		}
	}

	if len(remotes) != 3 || options["ext_pillar"] == nil {
		t.Fatalf("the page shows %v", options)
	}

	options["gitfs_remotes"] = remotes
	options["gitfs_update_interval"] = 3600
	options["git_pillar_update_interval"] = 3600
	n := lab.PrepareNode(t,
		lab.NodeConfig{Options: options, Extra: map[string]any{"webhook": map[string]any{"listen": "127.0.0.1:34523"}}})
	secret := n.Settings.WebhookSecret()
	for _, path := range []string{secret, filepath.Join(dir, "webhook.secret")} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(lab.ApplianceSecret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	n.Launch(t)
	accepted(t, n, "g1", lab.Newest)
	lab.Eventually(t, 60*time.Second, "states and pillars of the page's repositories", func() error {
		if r := n.Salt(t, "-t", "60", "*", "state.apply"); r.Code != 0 ||
			!strings.Contains(r.Out, "it is git by branch") {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})

	ran := 0
	for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```").FindAllStringSubmatch(string(page), -1) {
		if strings.Contains(block[1], "winrepo") || strings.Contains(block[1], "nft") {
			continue
		}

		text := strings.ReplaceAll(block[1], "http://NODE:4523/", "http://127.0.0.1:34523/")
		ran += strings.Count(text, "\n")
		cmd := exec.Command("sh", "-ec", text)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "SALT_CONFIG_DIR="+n.Settings.MasterConf(),
			"PATH="+filepath.Dir(lab.Bin(t, "salt"))+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil || strings.Contains(string(out), "secrets differ") ||
			strings.Contains(string(out), "error") && strings.Contains(text, "curl") {
			t.Errorf("%s\n%v\n%s", text, err, out)
		}

		t.Logf("%s\n%s", text, out)
	}

	if ran < 8 {
		t.Errorf("only %d commands were tried", ran)
	}
}
