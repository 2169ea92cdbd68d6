//go:build e2e

package e2e

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/crypt"
	"saltern/master/value"
	"saltern/test/gitrepo"
	"saltern/test/lab"
	"saltern/test/minion"
)

// setStatus is a status as Gitea gets it.
type setStatus struct{ State, Description string }

// statusServer imitates Gitea's way to set statuses. At one request it calls kill, before or after it has noted
// the status, and answers nothing.
type statusServer struct {
	*httptest.Server

	mu       sync.Mutex
	statuses map[string][]setStatus // by commit
	bodies   string
	requests int

	killAt int    // the number of the request; 0: none
	noted  bool   // the status of that request counts
	kill   func() // nil: it was called
	killed string // what that request was about
}

// startStatusServer starts a server at an address of this host, such as "127.0.0.1".
func startStatusServer(t *testing.T, host string) *statusServer {
	t.Helper()
	s := &statusServer{statuses: map[string][]setStatus{}}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	s.Server = httptest.NewUnstartedServer(s)
	_ = s.Listener.Close()
	s.Listener = listener
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func (s *statusServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	var status setStatus
	if json.Unmarshal(body, &status) != nil || r.Header.Get("Authorization") != "token t0ken" ||
		!strings.HasPrefix(r.URL.Path, "/api/v1/repos/ops/pillar/statuses/") {
		w.WriteHeader(http.StatusNotFound)
		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	commit := path.Base(r.URL.Path)
	s.requests++
	isLast := s.kill != nil && s.requests == s.killAt
	if !isLast || s.noted {
		s.statuses[commit] = append(s.statuses[commit], status)
		s.bodies += string(body)
	}
	if isLast {
		s.kill()
		s.kill = nil
		s.killed = commit
		return // to a process that is not there any more
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, `{"id": 1}`)
}

// killDuring makes the server call kill at one of the next requests.
func (s *statusServer) killDuring(request int, noted bool, kill func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killAt = s.requests + request
	s.noted = noted
	s.kill = kill
	s.killed = ""
}

// wasKilled returns the commit that the request was about at which kill was called, or "".
func (s *statusServer) wasKilled() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.killed
}

// results returns the statuses of a commit but for pending, and whether the last status is one of them.
func (s *statusServer) results(commit string) (all []setStatus, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, status := range s.statuses[commit] {
		ended = status.State != "pending"
		if ended {
			all = append(all, status)
		}
	}
	return all, ended
}

// awaitResults waits until the last status of each commit is a result.
func (s *statusServer) awaitResults(t *testing.T, limit time.Duration, commits []string) {
	t.Helper()
	lab.Eventually(t, limit, "each commit has its result", func() error {
		for _, commit := range commits {
			if all, ended := s.results(commit); !ended {
				return fmt.Errorf("%s has %v", commit, all)
			}
		}
		return nil
	})
}

// hostileBranches are what nobody should push, by the name of the branch.
func hostileBranches(mark string) map[string]string {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'i'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 10), ","))
	}
	return map[string]string{
		"```@all/<script>$(id)`;&|;" + strings.Repeat("é", 60): "include: [nosuch." + strings.Repeat("`@all<b>", 20) + "]\n",
		"size":   "x: " + strings.Repeat("y", 2<<20),
		"values": bomb,
		"loop":   "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}\n",
		"runs":   "x: {{ salt['cmd.run']('touch " + mark + "') }}\n",
	}
}

// pushHostile pushes one of the hostile branches, which it removes from the list. It returns "" if none is left.
func pushHostile(t *testing.T, up *gitrepo.Repo, hostile map[string]string) (commit string) {
	t.Helper()
	for branch, text := range hostile {
		t.Logf("a hostile branch: %.20q", branch)
		delete(hostile, branch)
		up.Branch(branch, "main")
		return up.Commit(branch, "top.sls", "base: {'*': [web, evil]}\n", "evil.sls", text)
	}
	return ""
}

// withGrains makes a minion known to a member with its grains.
func withGrains(t *testing.T, c *lab.Cluster, m *lab.Member, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lab.Limit(time.Minute))
	defer cancel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	master, err := crypt.LoadPrivate(filepath.Join(c.Shared, "pki", "cluster.pem"), "")
	if err != nil {
		t.Fatal(err)
	}
	one, err := minion.New(minion.Config{
		ID:      id,
		Key:     key,
		Master:  &master.PublicKey,
		Request: m.Addr + ":" + strconv.Itoa(lab.FrontRequest),
		Grains:  value.NewMap("id", id, "os", "Debian"),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	lab.Eventually(t, time.Minute, id+" has its pillar", func() error {
		if err := one.SignIn(ctx); err != nil {
			return err
		}
		_, err := one.Pillar(ctx)
		return err
	})
}

// TestReportsOverKills: of ten pushes to a cluster of three masters, one of them hostile, each gets one result
// at the git server, although the owner is killed twice: at a request of this server that is chosen at random, once
// before and once after the server has noted it. The hostile one gets nothing but a refusal.
//
// SALTERN_KILLS=20 kills twenty owners, with five pushes each, and tries each kind of hostile branch.
func TestReportsOverKills(t *testing.T) {
	t.Parallel()
	rounds := 2
	if n, err := strconv.Atoi(os.Getenv("SALTERN_KILLS")); err == nil {
		rounds = n
	}
	server := startStatusServer(t, "127.0.0.1")
	up := gitrepo.New(t, lab.Dir(t), "pillar")
	up.Commit("main", "top.sls", "base: {'*': [web]}\n", "web.sls", "port: 80\ndb_password: S3CR3T\n")
	c := lab.StartCluster(t, lab.ClusterConfig{NoLB: true, Options: map[string]any{
		"auto_accept":                true,
		"git_pillar_update_interval": 1,
		"ext_pillar":                 []any{map[string]any{"git": []any{map[string]any{"main " + up.URL(): []any{map[string]any{"env": "base"}}}}}},
		"saltern_merge_reports": []any{map[string]any{"remote": "pillar", "form": "gitea", "url": server.URL,
			"project": "ops/pillar", "token": "t0ken"}},
	}})
	withGrains(t, c, c.Members[0], "web1")
	for _, m := range c.Members {
		lab.Eventually(t, time.Minute, "the first look", func() error {
			if r := m.SaltRun(t, "git.reports", "--out", "json"); !strings.Contains(r.Out, `"looked": true`) {
				return fmt.Errorf("%+v", r)
			}
			return nil
		})
	}

	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	random := mathrand.New(mathrand.NewPCG(seed, 0))
	mark := filepath.Join(lab.Dir(t), "mark")
	hostile := hostileBranches(mark)
	for round := range rounds {
		owner := ownerOf(t, c)
		noted := round%2 == 1
		request := 1 + random.IntN(10)
		server.killDuring(request, noted, owner.Master.Kill)

		evil := ""
		count := 5
		if round%2 == 0 {
			evil = pushHostile(t, up, hostile)
			count = 4
		}
		var commits []string
		for i := range count {
			branch := fmt.Sprintf("b%d-%d", round, i)
			up.Branch(branch, "main")
			commits = append(commits, up.Commit(branch, "web.sls", fmt.Sprintf("port: 8%d%d\ndb_password: S3CR3T\n", round, i)))
		}

		waits := commits
		if evil != "" {
			waits = append(waits[:len(waits):len(waits)], evil)
		}
		server.awaitResults(t, 3*time.Minute, waits)
		killed := server.wasKilled()
		t.Logf("round %d: killed at request %d, noted %v, of %s", round, request, noted, killed)

		defer judgeReports(t, server, commits, evil, killed) // at the end: nothing comes later either
		if killed != "" {
			owner.StartMaster(t)
			owner.WaitReady(t)
			c.WaitWhole(t)
		}
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the code of a branch ran")
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	for _, word := range []string{"<script", "@all", "S3CR3T"} {
		if strings.Contains(server.bodies, word) {
			t.Errorf("the server got %q", word)
		}
	}
}

// judgeReports checks that each commit has one result. The one at which the owner was killed may have the same
// twice.
func judgeReports(t *testing.T, server *statusServer, commits []string, evil, killed string) {
	t.Helper()
	for _, commit := range commits {
		all, _ := server.results(commit)
		if all[0] != (setStatus{"success", "pillars: 1 of 1 differ; states: same on 1"}) {
			t.Errorf("%s got %+v", commit, all)
		}
	}
	if all, _ := server.results(evil); evil != "" && all[0].State != "failure" && all[0].State != "error" {
		t.Errorf("the hostile branch got %+v", all)
	}
	for _, commit := range append(commits[:len(commits):len(commits)], evil) {
		all, _ := server.results(commit) // none if evil is ""
		again := len(all) == 2 && all[1] == all[0] && commit == killed
		if len(all) > 1 && !again {
			t.Errorf("%s got %+v", commit, all)
		}
	}
}
