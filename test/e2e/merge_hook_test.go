//go:build e2e && appliance

package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/test/gitrepo"
	"saltern/test/lab"
)

// callHook calls the web hook of a node as Gitea does. It returns the code of the answer, or 0 if there was none.
func callHook(t *testing.T, address, secret string, length int64, body io.Reader, signed string) int {
	t.Helper()
	m := hmac.New(sha256.New, []byte(secret))
	_, _ = io.WriteString(m, signed)
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/webhook", body)
	if err != nil {
		t.Fatal(err)
	}
	q.ContentLength = length
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("X-Gitea-Signature", hex.EncodeToString(m.Sum(nil)))
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	got, err := client.Do(q)
	if err != nil {
		return 0
	}
	defer got.Body.Close()
	_, _ = io.Copy(io.Discard, got.Body)
	return got.StatusCode
}

// endless is a body of blanks.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

// residentMiB returns the most memory that a process has had, in MiB.
func residentMiB(t *testing.T, pid int) (most int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	if _, err := fmt.Sscan(rest, &most); err != nil {
		t.Fatal(err)
	}
	return most / 1024
}

// TestReportByHook: on an appliance whose next fetch is an hour away, a call of the web hook brings the status of
// a push within seconds. A call with a wrong secret brings nothing; neither do a body of 100 MiB, 3,000 calls at
// once and replayed ones, but for the one status that is due. The node's memory stays bounded.
func TestReportByHook(t *testing.T) {
	t.Parallel()
	network := lab.NewNetwork(t, "rbh", "10.86")
	shared := lab.Dir(t)
	n := lab.NewAppliance(t, network, 1, shared, map[string]any{"mode": "form", "secret": lab.ApplianceSecret})
	n.Change(t, "settings.webhook.listen", n.Addr+":4523")
	server := startStatusServer(t, network.Outside())
	up := gitrepo.New(t, shared, "pillar")
	up.Commit("main", "top.sls", "base: {'*': [web]}\n", "web.sls", "port: 80\n")
	lab.WriteTree(t, shared, map[string]string{
		"etc/master.d/merge.conf": fmt.Sprintf(`git_pillar_update_interval: 3600
ext_pillar: [{git: ["main %s": [{env: base}]]}]
saltern_merge_reports:
  - {remote: pillar, form: gitea, url: "%s", insecure_auth: True, project: ops/pillar, token_file: %s/etc/token}
`, up.URL(), server.URL, shared),
	})
	for name, text := range map[string]string{"webhook.secret": lab.ApplianceSecret, "token": "t0ken\n"} {
		if err := os.WriteFile(filepath.Join(shared, "etc", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n.Launch(t)
	n.WaitReady(t, 1)
	n.StartMinion(t, "web1", lab.Newest)
	n.Ping(t, 150*time.Second, "web1")
	lab.Eventually(t, time.Minute, "the first look", func() error {
		if r := n.Tool(t, "salt-run", "git.reports", "--out", "json"); !strings.Contains(r.Out, `"looked": true`) {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})

	address := n.Addr + ":4523"
	body := fmt.Sprintf(`{"ref":"refs/heads/x","after":"%040d","repository":{"clone_url":%q}}`, 7, up.URL())
	call := func(secret string) int {
		return callHook(t, address, secret, int64(len(body)), strings.NewReader(body), body)
	}
	push := func(branch string) string {
		up.Branch(branch, "main")
		return up.Commit(branch, "web.sls", "port: "+branch+"\n")
	}

	first := push("1001")
	if code := call("another secret of that length"); code != http.StatusUnauthorized {
		t.Errorf("a wrong secret: %d", code)
	}
	begun := time.Now()
	if code := callHook(t, address, lab.ApplianceSecret, 100<<20, io.LimitReader(endless{}, 100<<20), ""); code != http.StatusRequestEntityTooLarge && code != 0 {
		t.Errorf("100 MiB: %d", code)
	}
	t.Logf("100 MiB are refused after %v", time.Since(begun).Round(time.Millisecond))
	time.Sleep(3 * time.Second) // longer than a look at the tips
	if all, _ := server.results(first); len(all) > 0 {
		t.Errorf("calls that were refused brought %v", all)
	}

	begun = time.Now()
	if code := call(lab.ApplianceSecret); code != http.StatusAccepted {
		t.Fatalf("the call: %d", code)
	}
	server.awaitResults(t, 30*time.Second, []string{first})
	t.Logf("the status was there after %v", time.Since(begun).Round(time.Millisecond))

	// Many at once, each third with a wrong secret: the push counts once.
	second := push("1002")
	var mu sync.Mutex
	codes := map[int]int{}
	var all sync.WaitGroup
	begun = time.Now()
	for i := range 3000 {
		secret := lab.ApplianceSecret
		if i%3 == 0 {
			secret = "another secret of that length"
		}
		all.Go(func() {
			code := call(secret)
			mu.Lock()
			codes[code]++
			mu.Unlock()
		})
	}
	all.Wait()
	t.Logf("3,000 calls took %v: %v", time.Since(begun).Round(time.Millisecond), codes)
	if codes[http.StatusAccepted] == 0 || codes[http.StatusAccepted] > 2000 {
		t.Errorf("3,000 calls: %v", codes)
	}
	server.awaitResults(t, time.Minute, []string{second})

	third := push("1003")
	begun = time.Now()
	if code := call(lab.ApplianceSecret); code != http.StatusAccepted {
		t.Errorf("a call after that: %d", code)
	}
	server.awaitResults(t, 30*time.Second, []string{third})
	t.Logf("the status after that was there after %v", time.Since(begun).Round(time.Millisecond))
	for range 20 { // replays
		call(lab.ApplianceSecret)
	}
	time.Sleep(3 * time.Second)
	for _, commit := range []string{first, second, third} {
		got, _ := server.results(commit)
		if len(got) != 1 || got[0] != (setStatus{"success", "pillars: 1 of 1 differ; states: same on 1"}) {
			t.Errorf("%s got %+v", commit, got)
		}
	}
	most := residentMiB(t, n.Proc.PID())
	t.Logf("applianced had at most %d MiB", most)
	if most > 400 {
		t.Errorf("applianced had %d MiB", most)
	}
}
