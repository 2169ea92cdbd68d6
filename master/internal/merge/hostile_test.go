package merge

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/master/internal/merge/forge"
	"saltern/master/internal/merge/options"
	"saltern/test/await"
	"saltern/test/check"
)

// bomb is YAML whose aliases stand for 10^9 values.
func bomb() string {
	text := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'i'; c++ {
		text += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 10), ","))
	}
	return text
}

// TestHostilePushes: nine branches are pushed, and hostile ones beside them. These get nothing but a refusal,
// and the others their results.
func TestHostilePushes(t *testing.T) {
	t.Parallel()
	r := newRig(t, options.Gitea, 2, "comment: changes")
	mark := t.TempDir() + "/mark"
	hostile := []struct{ name, branch, content string }{
		{"values", "a1", bomb()},
		{"size", "b4x", "x: " + strings.Repeat("y", 2<<20)},
		{"names", "```@all/<script>$(id)`;&|;\u202e" + strings.Repeat("é", 60), "include: [nosuch." + strings.Repeat("`@all<b>", 20) + "]\n"},
		{"a link out", "b5x", "->/etc/hostname"},
		{"a program", "z", "#!py\ndef run():\n  open('" + mark + "', 'w')\n"},
	}
	if os.Getenv("SALTERN_PYTHON") != "" {
		hostile = append(hostile, struct{ name, branch, content string }{
			"a command", "z1", "x: {{ salt['cmd.run']('touch " + mark + "') }}\n",
		})
	}
	if os.Getenv("SALTERN_PYTHON") != "" && os.Getenv("SALTERN_ROUNDS") != "" {
		hostile = append(hostile, struct{ name, branch, content string }{
			"a loop", "b6x", "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}\n",
		})
	}

	commits := map[string]string{}
	for i := range 9 {
		branch := fmt.Sprint("b", i)
		commits[branch] = r.push(branch, "web.sls", fmt.Sprintf("port: %d\n", 8000+i))
	}
	evil := map[string]string{}
	for _, h := range hostile {
		evil[h.name] = r.push(h.branch, "top.sls", "base: {'*': [web, evil]}\n", "evil.sls", h.content)
	}
	r.fetch()

	for branch, commit := range commits {
		if got := r.server.final(commit); got.State != "success" || !strings.Contains(got.Description, "2 of 2 differ") {
			t.Errorf("%s: %+v", branch, got)
		}
	}
	for name, commit := range evil {
		got := r.server.final(commit)
		if got.State != "failure" && got.State != "error" {
			t.Errorf("%s: %+v", name, got)
		}
		t.Log(name, ":", got.Description)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("their code ran")
	}
	if all := r.server.everything(); strings.Contains(all, "<script") || strings.Contains(all, "@all") {
		t.Error("a name of a branch was sent")
	}
}

// TestBranchNamedLikeACommit: a branch that is named like the commit of somebody else does not take the
// place of that commit.
func TestBranchNamedLikeACommit(t *testing.T) {
	t.Parallel()
	r := newRig(t, options.Gitea, 1, "branches: [feature]")
	commit := r.push("feature", "web.sls", "port: 8080\n")
	r.push(commit, "web.sls", "port: 80\ndb_password: S3CR3T-old\n", "other.sls", "x: 1\n")
	r.fetch()
	if got := r.server.final(commit); !strings.Contains(got.Description, "1 of 1 differ") {
		t.Errorf("got %+v", got)
	}
}

// TestForksAreLeftOut: what a refspec fetches from merge requests of strangers is not compared.
func TestForksAreLeftOut(t *testing.T) {
	t.Parallel()
	for _, forks := range []bool{false, true} {
		r := newRig(t, options.Gitea, 1, fmt.Sprintf("forks: %v}\ngit_pillar_refspecs: ['+refs/heads/*:refs/remotes/origin/*', '+refs/pull/*:refs/remotes/origin/pull/*'", forks)+"]\nx: {y: 1")
		fork := r.push("stranger", "web.sls", "port: 1\n")
		r.up.Git("update-ref", "refs/pull/5/head", fork)
		r.up.Git("update-ref", "-d", "refs/heads/stranger")
		own := r.push("zz", "web.sls", "port: 2\n") // is compared after the fork
		r.fetch()
		r.server.final(own)
		if forks {
			r.server.final(fork)
		} else if got := r.server.of(fork); len(got) > 0 {
			t.Errorf("the fork got %+v", got)
		}
	}
}

// TestSecrets: 40 marked secrets are in nothing that is sent or logged.
func TestSecrets(t *testing.T) {
	t.Parallel()
	r := newRig(t, options.Gitea, 2, "comment: changes")
	var before, after strings.Builder
	for i := range 20 {
		fmt.Fprintf(&before, "s%d: {password: MARKED-%d-old, api_key: MARKED-k%d-old}\n", i, i, i)
		fmt.Fprintf(&after, "s%d: {password: MARKED-%d-new, api_key: [MARKED-k%d-new]}\ncopy%d: MARKED-%d-new\n", i, i, i, i, i)
	}
	r.up.Commit("main", "web.sls", before.String())
	commit := r.push("feature", "web.sls", after.String())
	r.server.mu.Lock()
	r.server.merges[3] = commit
	r.server.mu.Unlock()
	r.fetch()
	r.server.final(commit)
	await.That(t, "a comment", func() bool { return strings.Contains(r.server.everything(), "(hidden)") })
	kept, err := os.ReadFile(r.path())
	check.Must(t, err)
	if all := r.server.everything() + r.log.String() + string(kept); strings.Contains(all, "MARKED") {
		t.Errorf("a secret is in clear:\n%s", all)
	}
}

// TestServerAway: while the server is away nothing is lost, and it becomes known; a commit that it
// refuses holds up no other.
func TestServerAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, options.Gitea, 1, "branches: ['b*', '!bad*']")
	r.server.away.Store(true)
	first := r.push("b1", "web.sls", "port: 1\n")
	gone := r.push("b2", "web.sls", "port: 2\n")
	ignored := r.push("bad", "web.sls", "port: 3\n")
	r.server.refuses.Store(gone)
	r.fetch()
	await.That(t, "a try", func() bool { return strings.Contains(r.server.everything(), "pending") })
	r.server.away.Store(false)
	last := r.push("b3", "web.sls", "port: 4\n")
	r.fetch()
	r.server.final(first)
	r.server.final(last)
	if got := append(r.server.of(gone), r.server.of(ignored)...); len(got) > 0 {
		t.Errorf("got %+v", got)
	}
	if _, told := r.problems.Load(control.MergeFault); told {
		t.Error("a short fault is a problem of the node")
	}
}

// TestOneCommitThatTheServerDoesNotTake: a commit of which the server takes no status, for whatever reason,
// holds up no other.
func TestOneCommitThatTheServerDoesNotTake(t *testing.T) {
	t.Parallel()
	for _, code := range []int{http.StatusForbidden, http.StatusInternalServerError} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, options.Gitea, 1, "into: main")
			r.server.refusal.Store(int32(code))
			bad := r.push("a1", "web.sls", "port: 1\n")
			r.server.refuses.Store(bad)
			good := r.push("b1", "web.sls", "port: 2\n")
			r.fetch()
			r.server.final(good)
			later := r.push("b2", "web.sls", "port: 3\n")
			r.fetch()
			r.server.final(later)
			if got := r.server.of(bad); len(got) > 0 {
				t.Errorf("got %+v", got)
			}
			r.server.refuses.Store("")
			r.ahead.Store(int64(lastPause))
			r.server.final(bad)
		})
	}
}

// TestTokenWithoutTheRight: a token that may set no status becomes known, and nothing is lost. GitHub answers 404.
func TestTokenWithoutTheRight(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]error{http.StatusForbidden: forge.ErrForbidden, http.StatusNotFound: forge.ErrGone} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, options.Gitea, 1, "into: main")
			r.server.denies.Store(int32(code))
			commits := []string{r.push("a1", "web.sls", "port: 1\n"), r.push("a2", "web.sls", "port: 2\n")}
			r.fetch()
			await.That(t, "a try", func() bool { return strings.Contains(r.server.everything(), "pending") })
			await.That(t, "the fault", func() bool {
				r.ahead.Add(int64(reportAfter))
				return errors.Is(r.problem(), want)
			})
			r.server.denies.Store(0)
			r.ahead.Add(int64(time.Hour))
			for _, commit := range commits {
				r.server.final(commit)
			}
			await.That(t, "the end of the fault", func() bool { return r.problem() == nil })
		})
	}
}

// TestFaultOfOneComment: a merge request that takes no comment, and comments that the token may not change, hold up
// neither other comments nor statuses; each merge request of a commit gets one.
func TestFaultOfOneComment(t *testing.T) {
	t.Parallel()
	r := newRig(t, options.Gitea, 1, "comment: numbers")
	bad := r.push("a1", "web.sls", "port: 1\n")
	good := r.push("b1", "web.sls", "port: 2\n")
	r.server.mu.Lock()
	r.server.merges = map[int64]string{1: bad, 2: good, 3: good}
	r.server.locked = 1
	r.server.mu.Unlock()
	r.fetch()
	commented := func(numbers ...string) func() bool {
		return func() bool {
			r.server.mu.Lock()
			defer r.server.mu.Unlock()
			for _, number := range numbers {
				if !slices.Contains(r.server.commented, number) {
					return false
				}
			}
			return true
		}
	}
	await.That(t, "the other comments", commented("2", "3"))

	later := r.push("b2", "web.sls", "port: 3\n")
	r.fetch()
	r.server.final(later)
	if err := r.problem(); err != nil {
		t.Errorf("the problem %v", err)
	}
	r.server.mu.Lock()
	r.server.locked = 0
	r.server.mu.Unlock()
	r.ahead.Add(int64(time.Hour))
	await.That(t, "the last comment", commented("1"))
}
