// Package gitrepo makes git repositories for tests and serves them with git's own
// daemon on the loopback interface.
package gitrepo

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/test/address"
)

// Repo is a bare repository. Its methods fail the test.
type Repo struct {
	t    testing.TB
	Dir  string
	when int
}

// New makes an empty repository <dir>/<name>. The test is skipped without git.
func New(t testing.TB, dir, name string) *Repo {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("SKIPPED: git is not installed")
	}
	r := &Repo{t: t, Dir: filepath.Join(dir, name)}
	run(t, "/", "git", "init", "-q", "--bare", "-b", "master", r.Dir)
	return r
}

// URL names the repository as a file.
func (r *Repo) URL() string { return "file://" + r.Dir }

// Commit adds a commit to a branch, or begins it, and gives its id. files are
// pairs of path and content: a content that begins with "->" is a link, with "+x"
// an executable file, with "@" a submodule at that commit; "-" removes.
func (r *Repo) Commit(branch string, files ...string) string {
	r.t.Helper()
	ref := "refs/heads/" + branch
	from := r.Git("for-each-ref", "--format=%(objectname)", ref)
	return r.put(ref, from, files)
}

// Branch begins a branch at another one.
func (r *Repo) Branch(name, from string) { r.t.Helper(); r.Git("update-ref", "refs/heads/"+name, from) }

// Rewrite puts a commit without parents in the place of a branch, as a forced
// push does.
func (r *Repo) Rewrite(branch string, files ...string) string {
	r.t.Helper()
	r.Git("update-ref", "-d", "refs/heads/"+branch)
	return r.put("refs/heads/"+branch, "", files)
}

func (r *Repo) put(ref, from string, files []string) string {
	r.t.Helper()
	var in bytes.Buffer
	r.when++
	fmt.Fprintf(&in, "commit %s\ncommitter a <a@example.com> %d +0000\ndata 1\nx\n", ref, 1700000000+r.when)

	if from != "" {
		fmt.Fprintf(&in, "from %s\n", from)
	}

	for f := range slices.Chunk(files, 2) {
		mode, content := "100644", f[1]
		if content == "-" {
			fmt.Fprintf(&in, "D %s\n", quote(f[0]))
			continue
		}

		if id, ok := strings.CutPrefix(content, "@"); ok {
			fmt.Fprintf(&in, "M 160000 %s %s\n", id, quote(f[0]))
			continue
		}

		if s, ok := strings.CutPrefix(content, "->"); ok {
			mode, content = "120000", s
		} else if s, ok := strings.CutPrefix(content, "+x"); ok {
			mode, content = "100755", s
		}

		fmt.Fprintf(&in, "M %s inline %s\ndata %d\n%s\n", mode, quote(f[0]), len(content), content)
	}

	in.WriteString("\n")
	cmd := exec.Command("git", "--git-dir="+r.Dir, "fast-import", "--quiet", "--force")
	cmd.Stdin = &in
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("fast-import: %v: %s", err, out)
	}

	return r.Git("rev-parse", ref)
}

func quote(path string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(path) + `"`
}

// Git runs git on the repository and gives what it prints.
func (r *Repo) Git(args ...string) string {
	r.t.Helper()
	return run(r.t, "/",
		append([]string{"git", "--git-dir=" + r.Dir, "-c", "user.name=a", "-c", "user.email=a@example.com"},
			args...)...)
}

// Input is Git with a standard input.
func (r *Repo) Input(in []byte, args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", append([]string{"--git-dir=" + r.Dir}, args...)...)
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func run(t testing.TB, dir string, argv ...string) string {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", argv, err, out)
	}
	return strings.TrimSpace(string(out))
}

// Daemon serves the repositories below a directory until the test ends, or until
// stop is called, and gives the beginning of their URLs.
func Daemon(t testing.TB, dir string) (url string, stop func()) {
	t.Helper()
	port := address.Free(t, "127.0.0.1").Port()
	cmd := exec.Command(filepath.Join(run(t, "/", "git", "--exec-path"), "git-daemon"), "--listen=127.0.0.1",
		fmt.Sprintf("--port=%d", port), "--base-path="+dir, "--export-all", "--reuseaddr")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	ended := false
	stop = func() {
		if !ended {
			ended = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}

	t.Cleanup(stop)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	for end := time.Now().Add(20 * time.Second); ; {
		c, err := net.Dial("tcp4", address)
		if err == nil {
			c.Close()
			return "git://" + address + "/", stop
		}
		if time.Now().After(end) {
			t.Fatalf("git daemon: %v", err)
		}

		time.Sleep(10 * time.Millisecond) // it has no way to say that it listens
	}
}
