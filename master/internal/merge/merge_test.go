package merge

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/master/conf"
	"saltern/master/internal/diff"
	"saltern/master/internal/merge/forge"
	"saltern/master/internal/merge/options"
	"saltern/master/internal/pillar"
	"saltern/master/internal/pillar/renderer"
	"saltern/master/internal/repos"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
	"saltern/test/gitrepo"
)

// posted is a status or a comment that a server has got.
type posted struct {
	Commit, State, Description, Context, Target string
}

// gitServer is a server with the API of Gitea, GitHub or GitLab. It refuses what their manuals do not
// allow.
type gitServer struct {
	t    *testing.T
	form options.Form
	*httptest.Server
	away atomic.Bool // answers 502
	// refuses is a commit of which the server takes no status: it answers with refusal.
	refuses atomic.Value
	refusal atomic.Int32
	denies  atomic.Int32 // the answer to each status; 0: as it should be

	mu       sync.Mutex
	statuses []posted
	comments map[int64]string // by id
	merges   map[int64]string // commits by number
	bodies   []string
	// commented are the numbers of merge requests with new comments. locked is one that takes none.
	commented []string
	locked    int64
}

const token = "T0K3N-of-the-forge"

func newGitServer(t *testing.T, form options.Form) *gitServer {
	s := &gitServer{t: t, form: form, comments: map[int64]string{}, merges: map[int64]string{}}
	s.refuses.Store("")
	s.refusal.Store(http.StatusNotFound)
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

var giteaPath = regexp.MustCompile(`^(?:/api/v1)?/repos/ops/pillar/(?:(statuses)/([0-9a-f]{40})|(pulls)|issues/([0-9]+)/(comments)|issues/comments/([0-9]+))$`)
var gitLabPath = regexp.MustCompile(`^/api/v4/projects/ops%2Fpillar/(?:(statuses)/([0-9a-f]{40})|(merge_requests)|merge_requests/([0-9]+)/(notes)(?:/([0-9]+))?)$`)

func (s *gitServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bodies = append(s.bodies, string(body))

	form := giteaPath
	proof := map[options.Form]string{options.Gitea: "token " + token, options.GitHub: "Bearer " + token, options.Generic: "Bearer " + token}[s.form]
	given := r.Header.Get("Authorization")
	if s.form == options.GitLab {
		form = gitLabPath
		proof = token
		given = r.Header.Get("PRIVATE-TOKEN")
	}
	switch {
	case s.away.Load():
		w.WriteHeader(http.StatusBadGateway)
		return
	case given != proof:
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if s.form == options.Generic {
		s.takeStatus(w, "", body)
		return
	}

	m := form.FindStringSubmatch(r.URL.EscapedPath())
	if m == nil {
		s.t.Errorf("there is no path %s", r.URL.EscapedPath())
		w.WriteHeader(http.StatusNotFound)
		return
	}
	switch {
	case m[1] != "" && r.Method == http.MethodPost:
		s.takeStatus(w, m[2], body)
	case m[3] != "" && r.Method == http.MethodGet:
		s.listMerges(w)
	default:
		s.takeComment(w, m[4], m[6], body)
	}
}

// takeStatus takes a status as the manuals say: Gitea repoCreateStatus, GitHub "Create a commit status",
// GitLab "Set commit pipeline status".
func (s *gitServer) takeStatus(w http.ResponseWriter, commit string, body []byte) {
	var status struct {
		State, Description, Context, Name string
		Commit, Branch, Remote, Ref       string
		Target                            string `json:"target_url"`
	}
	states := []string{"pending", "success", "failure", "error"}
	if s.form == options.GitLab {
		states = []string{"pending", "running", "success", "failed", "canceled"}
	}
	err := json.Unmarshal(body, &status)
	if status.Name != "" {
		status.Context = status.Name
	}
	if s.form == options.Generic {
		commit = status.Commit
	}
	if s.form == options.GitLab && status.Ref != "feature" {
		s.t.Errorf("the branch in the body %s", body)
	}
	if err != nil || !slices.Contains(states, status.State) || len([]rune(status.Description)) > 140 || status.Context == "" {
		s.t.Errorf("the body %s: %v", body, err)
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	switch {
	case commit == s.refuses.Load():
		w.WriteHeader(int(s.refusal.Load()))
		return
	case s.denies.Load() != 0:
		w.WriteHeader(int(s.denies.Load()))
		return
	}
	s.statuses = append(s.statuses, posted{commit, status.State, status.Description, status.Context, status.Target})
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, `{"id": 1}`)
}

func (s *gitServer) listMerges(w http.ResponseWriter) {
	list := []any{}
	for number, commit := range s.merges {
		if s.form == options.GitLab {
			list = append(list, map[string]any{"iid": number, "sha": commit})
		} else {
			list = append(list, map[string]any{"number": number, "head": map[string]any{"sha": commit}})
		}
	}
	_ = json.NewEncoder(w).Encode(list)
}

func (s *gitServer) takeComment(w http.ResponseWriter, number, id string, body []byte) {
	if s.locked != 0 && number == fmt.Sprint(s.locked) {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	s.commented = append(s.commented, number)
	var comment struct{ Body string }
	if json.Unmarshal(body, &comment) != nil || comment.Body == "" || len(comment.Body) > 65536 {
		s.t.Errorf("a comment: %s", body)
	}
	n := int64(len(s.comments) + 1)
	if id != "" {
		fmt.Sscan(id, &n)
	}
	s.comments[n] = comment.Body
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"id": %d}`, n)
}

// of returns the statuses of a commit.
func (s *gitServer) of(commit string) (all []posted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.statuses {
		if p.Commit == commit {
			all = append(all, p)
		}
	}
	return all
}

// final waits for the result of a commit.
func (s *gitServer) final(commit string) posted {
	s.t.Helper()
	var last posted
	await.That(s.t, "the status of "+commit, func() bool {
		all := s.of(commit)
		if len(all) == 0 {
			return false
		}
		last = all[len(all)-1]
		return last.State != "pending"
	})
	return last
}

func (s *gitServer) everything() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.bodies, "\n")
}

// cluster says who is the owner.
type cluster struct{ other atomic.Bool }

func (c *cluster) Own() (uint64, bool) { return 1, !c.other.Load() }

type fleet map[string]*value.Map

func (f fleet) Match(any, string) ([]string, error) { return slices.Sorted(maps.Keys(f)), nil }

func (f fleet) Groups() *value.Map { return nil }

func (f fleet) Grains(id string) (*value.Map, bool) {
	g, ok := f[id]
	return g, ok
}

// rig is a master with a pillar from git, and the server of that repository.
type rig struct {
	t       *testing.T
	dir     string
	up      *gitrepo.Repo
	server  *gitServer
	repos   *repos.Service
	remotes Remotes
	compare Comparer
	options []options.Report
	cluster cluster
	log     strings.Builder
	logMu   sync.Mutex

	ahead    atomic.Int64 // nanoseconds by which the clock is ahead
	problems sync.Map
	stop     context.CancelFunc
	done     chan struct{}
}

// newRig makes a rig whose upstream has the branch main. more are lines of the entry.
func newRig(t *testing.T, form options.Form, minions int, more string) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), server: newGitServer(t, form)}
	r.up = gitrepo.New(t, r.dir, "pillar")
	r.up.Commit("main", "top.sls", "base: {'*': [web]}\n", "web.sls", "port: 80\ndb_password: S3CR3T-old\n")
	check.Must(t, os.WriteFile(r.dir+"/token", []byte(token+"\n"), 0o600))

	text := fmt.Sprintf(`id: m1
cachedir: %[1]s/cache
pki_dir: %[1]s/pki
git_pillar_update_interval: 1
ext_pillar: [{git: ["main %[2]s": [{env: base}]]}]
saltern_merge_reports:
  - {remote: pillar, form: %[3]s, url: %[4]s, project: ops/pillar, token_file: %[1]s/token, %[5]s}
`, r.dir, r.up.URL(), form, r.server.URL, more)
	check.Must(t, os.WriteFile(r.dir+"/master", []byte(text), 0o600))
	c, err := conf.Load(r.dir + "/master")
	check.Must(t, err)
	if len(c.MergeReports) != 1 {
		t.Fatal(c.Notes)
	}
	r.options = c.MergeReports

	r.repos, err = repos.Open(t.Context(), repos.Config{
		Options: c,
		Alone:   true,
		Fire:    func(string, *value.Map) {},
		Problem: func(control.Fault, error) {},
		Now:     time.Now,
		Log:     slog.New(slog.DiscardHandler),
	})
	check.Must(t, err)
	r.remotes = r.repos
	t.Cleanup(r.repos.Close)
	running, end := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		r.repos.Run(running)
		close(ended)
	}()
	t.Cleanup(func() {
		end()
		<-ended
	})

	f := fleet{}
	for i := range minions {
		f[fmt.Sprintf("m%d", i)] = value.NewMap("os", "Debian")
	}
	r.compare = diff.New(diff.Config{
		Pillar: pillar.Config{ExtPillar: c.ExtPillar, Git: r.repos.Pillars(), Opts: value.NewMap(), Now: time.Now},
		Renderer: renderer.Config{
			Python:    []string{os.Getenv("SALTERN_PYTHON")},
			Overrides: value.NewMap("root_dir", r.dir, "id", "m"),
		},
		Fleet: f,
		Dir:   r.dir + "/work",
		Takes: time.Minute,
	})
	r.fetch()
	r.start()
	t.Cleanup(func() { r.stopService() })
	await.That(t, "the first look", func() bool { return r.record().Looked })
	return r
}

// Write implements io.Writer for the log.
func (r *rig) Write(b []byte) (int, error) {
	r.logMu.Lock()
	defer r.logMu.Unlock()
	return r.log.Write(b)
}

// fetch fetches, as the web hook asks for.
func (r *rig) fetch() {
	r.t.Helper()
	_, err := r.repos.FetchGit(r.t.Context(), "")
	check.Must(r.t, err)
}

func (r *rig) path() string { return filepath.Join(r.dir, "merge.saltern") }

// problem returns the fault that the service has reported, or nil.
func (r *rig) problem() error {
	v, _ := r.problems.Load(control.MergeFault)
	err, _ := v.(error)
	return err
}

func (r *rig) record() *record {
	got, err := newStore(r.path()).load(context.Background())
	check.Must(r.t, err)
	return got
}

// start starts the service, as a master does that begins.
func (r *rig) start() {
	s := New(Config{
		Reports: r.options,
		Remotes: r.remotes,
		Compare: r.compare,
		Cluster: &r.cluster,
		Record:  func(string) string { return r.path() },
		Problem: func(fault control.Fault, err error) { r.problems.Store(fault, err) },
		Now:     func() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) },
		Log:     slog.New(slog.NewTextHandler(r, nil)),
		look:    100 * time.Millisecond,
	})
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	r.done = make(chan struct{})
	go func() {
		s.Run(ctx)
		close(r.done)
	}()
}

func (r *rig) stopService() {
	r.stop()
	<-r.done
}

// push makes a commit on a branch, which begins at main.
func (r *rig) push(branch string, files ...string) string {
	r.t.Helper()
	if r.up.Git("for-each-ref", "refs/heads/"+branch) == "" {
		r.up.Branch(branch, "main")
	}
	return r.up.Commit(branch, files...)
}

func TestForms(t *testing.T) {
	for _, form := range []options.Form{options.Gitea, options.GitHub, options.GitLab, options.Generic} {
		t.Run(string(form), func(t *testing.T) {
			t.Parallel()
			comment := "comment: changes"
			if form == options.Generic {
				comment = "context: saltern"
			}
			r := newRig(t, form, 3, comment+", console: 'https://salt.example.com:8000/console'")
			commit := r.push("feature", "web.sls", "port: 8080\ndb_password: S3CR3T-new\nname: \"```\\n@all <b> `x`\"\n")
			r.server.mu.Lock()
			r.server.merges[7] = commit
			r.server.mu.Unlock()
			r.fetch()

			got := r.server.final(commit)
			want := "pillars: 3 of 3 differ; states: same on 3"
			if got.State != "success" || got.Description != want || got.Context != "saltern" ||
				!strings.HasPrefix(got.Target, "https://salt.example.com:8000/console/diff?") {
				t.Errorf("got %+v", got)
			}
			if all := r.server.of(commit); len(all) != 2 || all[0].State != "pending" {
				t.Errorf("statuses: %+v", all)
			}
			if form == options.Generic {
				return
			}

			comments := func() []string {
				r.server.mu.Lock()
				defer r.server.mu.Unlock()
				return slices.Collect(maps.Values(r.server.comments))
			}
			await.That(t, "a comment", func() bool { return len(comments()) == 1 })
			text := comments()[0]
			for _, part := range []string{"~ port: 80 → 8080", `"(hidden)" changes`, "＠all"} {
				if !strings.Contains(text, part) {
					t.Errorf("the comment lacks %q:\n%s", part, text)
				}
			}
			if strings.Count(text, "```") != 4 || strings.Contains(text, "@") {
				t.Errorf("the comment is not fenced:\n%s", text)
			}

			// A newer commit of the same merge request: the same comment gets another text.
			commit = r.push("feature", "web.sls", "port: 8081\n")
			r.server.mu.Lock()
			r.server.merges[7] = commit
			r.server.mu.Unlock()
			r.fetch()
			await.That(t, "another text", func() bool { all := comments(); return len(all) == 1 && strings.Contains(all[0], "8081") })
			if all := r.server.everything(); strings.Contains(all, "S3CR3T") || strings.Contains(all, token) {
				t.Error("a secret was sent")
			}
			if strings.Contains(r.log.String(), token) {
				t.Error("the log has the token")
			}
		})
	}
}

// TestJudge: what is no success.
func TestJudge(t *testing.T) {
	same := diff.Summary{Minions: 3}
	for _, tt := range []struct {
		name    string
		to      options.Report
		summary diff.Summary
		state   forge.State
		says    string
	}{
		{"nothing differs", options.Report{}, same, forge.Success, "same on 3"},
		{"no minion", options.Report{}, diff.Summary{}, forge.Error, "no minion"},
		{"differs", options.Report{}, diff.Summary{Minions: 3, Differ: 1}, forge.Success, "1 of 3 differ"},
		{"may not differ", options.Report{Fails: true}, diff.Summary{Minions: 3, Differ: 1}, forge.Failure, "1 of 3 differ"},
		{"broken", options.Report{}, diff.Summary{Minions: 3, Broken: 1}, forge.Failure, "1 with new errors"},
		{"without grains", options.Report{}, diff.Summary{Minions: 3, Unknown: 9}, forge.Failure, "9 not compared"},
		{"may lack grains", options.Report{WithoutGrains: true}, diff.Summary{Minions: 3, Unknown: 9}, forge.Success, "9 not compared"},
		{"ext_pillar", options.Report{}, diff.Summary{Minions: 3, LeftOut: 2}, forge.Success, "2 ext_pillar left out"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := judge([]part{{pillars, tt.summary, ""}, {states, tt.summary, ""}}, &tt.to)
			if got.state != tt.state || !strings.Contains(got.description, tt.says) {
				t.Errorf("got %s: %s", got.state, got.description)
			}
		})
	}
}
