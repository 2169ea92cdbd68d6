package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"saltern/internal/rpc"
)

// fakeMaster notes what it is asked and answers err.
type fakeMaster struct {
	asked []string
	err   error
}

func (f *fakeMaster) Minions(finger bool) Minions {
	m := Minions{
		Minions: []Minion{{
			ID:        "web1",
			Key:       "accepted",
			Connected: true,
			Address:   "10.0.0.7",
			Seen:      1764000000.25,
		}},
		Subscriptions: map[string]int{"10.0.0.9": 2},
	}

	if finger {
		m.Minions[0].Finger = "aa:bb"
	}

	return m
}

func (f *fakeMaster) RemoveMember(_ context.Context, r Removal) error {
	f.asked = append(f.asked, "remove "+r.ID+" "+r.Key+" "+r.Node)
	return f.err
}

func (f *fakeMaster) StageSecret(context.Context) error {
	f.asked = append(f.asked, "stage")
	return f.err
}

func (f *fakeMaster) CommitSecret(_ context.Context, finger string) error {
	f.asked = append(f.asked, "commit "+finger)
	return f.err
}

func (f *fakeMaster) Explain(_ context.Context, q ExplainQuestion) (Explanation, error) {
	return Explanation{Minion: q.Minion}, nil
}

func (f *fakeMaster) LayOutJob(context.Context, JobFiles) error { return nil }

func (f *fakeMaster) Schedule() (Schedule, error) {
	s := Schedule{
		Enabled: true,
		Entries: []ScheduleEntry{{Name: "a\x1b[2J", Function: "test.sleep", Trigger: "cron", Next: []time.Time{}}},
	}
	for range 2 * MaxScheduled {
		s.Refused = append(s.Refused, ScheduleProblem{Entry: "b", Text: "as\nasked"})
	}
	return s, nil
}

func (f *fakeMaster) Git() Git {
	r := GitRemote{URL: "https://h/x", Files: true, Refs: []GitRef{}, State: "ab", Next: time.Unix(1764000000, 0).UTC()}
	for i := range MaxGitRefs {
		r.Refs = append(r.Refs, GitRef{Name: fmt.Sprint("b", i), Commit: "12"})
	}
	r.Fault = &GitFault{What: GitAwayFault, Kind: "unreachable", Text: "gone", Since: time.Unix(1764000000, 0).UTC()}
	return Git{Remotes: []GitRemote{r}}
}

func (f *fakeMaster) FetchGit(_ context.Context, remote string) (Git, error) {
	f.asked = append(f.asked, "fetch "+remote)
	g := f.Git()
	g.Remotes[0].URL, g.Remotes[0].Fault.Text, g.Remotes[0].More = "https://h/x\x1b[2J", "a\n"+
		strings.Repeat("b", 1000), -1
	g.Remotes[0].Refs = append(g.Remotes[0].Refs, GitRef{Name: "one more"})
	return g, f.err
}

func (f *fakeMaster) LogIns() (Tokens, error) {
	at := time.Unix(1764000000, 0).UTC()
	return Tokens{
		Tokens: []Token{{
			Name:  TokenName("ab"),
			User:  "ann",
			Eauth: "pam",
			From:  "10.0.0.7",
			Node:  "n1\x1b[2J",
			Start: at,
			Until: at,
		}},
		More: -1,
	}, f.err
}

func (f *fakeMaster) SyncHistory() error { return f.err }

func (f *fakeMaster) EndLogIns(r Revocation) (Revoked, error) {
	f.asked = append(f.asked, "end "+r.Name+r.User+" "+r.Eauth)
	return Revoked{2}, f.err
}

func serveFake(t *testing.T) (*fakeMaster, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "ctl") // short: the path of a socket
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, Socket)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}

	f := &fakeMaster{}
	s := Serve(ln, f, slog.New(slog.DiscardHandler))
	t.Cleanup(s.Close)
	return f, path
}

func TestClientAndServer(t *testing.T) {
	f, path := serveFake(t)
	c := NewClient(path, os.Geteuid())
	for _, finger := range []bool{false, true} {
		if got, err := c.Minions(t.Context(), finger); err != nil || !reflect.DeepEqual(got, f.Minions(finger)) {
			t.Errorf("%+v %v", got, err)
		}
	}

	at := time.Unix(1764000000, 250e6).UTC()
	if h := f.Minions(false).Minions[0].Heard(); h == nil || !h.Equal(at) {
		t.Errorf("%v", h)
	}

	if (Minion{}).Heard() != nil || (Minion{Seen: 1e300}).Heard() != nil {
		t.Error("heard at no time")
	}

	if err := errors.Join(c.RemoveMember(t.Context(), Removal{ID: "10.0.0.2", Key: "ab", Node: "cd"}),
		c.StageSecret(t.Context()), c.CommitSecret(t.Context(), "k12")); err != nil {
		t.Fatal(err)
	}

	if got := strings.Join(f.asked, ", "); got != "remove 10.0.0.2 ab cd, stage, commit k12" {
		t.Error(got)
	}

	// What is refused keeps its code; the text is made safe.
	f.err = fmt.Errorf("later: %w", &rpc.Error{Code: rpc.CodeNoSuchMember, Text: "there is no\x1b[2J\n10.0.0.9"})
	err := c.RemoveMember(t.Context(), Removal{ID: "10.0.0.9"})
	if !errors.Is(err, ErrNoSuchMember) || err.Error() != "there is no 10.0.0.9" {
		t.Errorf("%v", err)
	}

	f.err = errors.New("no such member of the disk")
	var refused *rpc.Error
	if err := c.StageSecret(t.Context()); !errors.As(err, &refused) || refused.Code != rpc.CodeFailed ||
		errors.Is(err, ErrNoSuchMember) {
		t.Errorf("a text is no code: %v", err)
	}
}

// What is told of log-ins is fit for a terminal; what names none is refused with a code.
func TestTokensOfAMaster(t *testing.T) {
	f, path := serveFake(t)
	c := NewClient(path, os.Geteuid())
	got, err := c.Tokens(t.Context())
	if err != nil || got.More != 0 || len(got.Tokens) != 1 || got.Tokens[0].Name != TokenName("ab") ||
		strings.Contains(got.Tokens[0].Node, "\x1b") || got.Tokens[0].Start.Unix() != 1764000000 {
		t.Errorf("%+v %v", got, err)
	}

	if n, err := c.RevokeTokens(t.Context(), Revocation{
		User:  "ann",
		Eauth: "pam",
	}); err != nil || n.Count != 2 || len(f.asked) != 1 || f.asked[0] != "end ann pam" {
		t.Errorf("%+v %v %q", n, err, f.asked)
	}

	f.err = ErrNoSuchToken
	if _, err := c.RevokeTokens(t.Context(), Revocation{User: "ann"}); !errors.Is(err, ErrNoSuchToken) {
		t.Errorf("%v", err)
	}
}

// TestScheduleOfAMaster: what a master shows is bounded and fit for one line each.
func TestScheduleOfAMaster(t *testing.T) {
	_, path := serveFake(t)
	c := NewClient(path, os.Geteuid())
	got, err := c.Schedule(t.Context())
	if err != nil || !got.Enabled || len(got.Entries) != 1 || len(got.Refused) != MaxScheduled {
		t.Fatalf("%+v, %v", got, err)
	}
	if name, text := got.Entries[0].Name, got.Refused[0].Text; strings.ContainsAny(name+text, "\x1b\n") {
		t.Errorf("%q, %q", name, text)
	}
}

// What is told of git remotes is bounded, and fit for a terminal.
func TestGitOfAMaster(t *testing.T) {
	f, path := serveFake(t)
	c := NewClient(path, os.Geteuid())
	if got, err := c.Git(t.Context()); err != nil || !reflect.DeepEqual(got, f.Git()) {
		t.Errorf("%+v %v", got, err)
	}

	got, err := c.FetchGit(t.Context(), "x")
	if err != nil || len(f.asked) != 1 || f.asked[0] != "fetch x" || len(got.Remotes) != 1 {
		t.Fatalf("%+v %v %v", got, err, f.asked)
	}

	if r := got.Remotes[0]; r.URL != "https://h/x" && strings.Contains(r.URL, "\x1b") ||
		len(r.Refs) != MaxGitRefs || r.More != 0 || len(r.Fault.Text) > 310 || strings.Contains(r.Fault.Text, "\n") {
		t.Errorf("%+v", r)
	}

	f.err = &rpc.Error{Code: rpc.CodeNoSuchRemote, Text: "none"}
	if _, err := c.FetchGit(t.Context(), "y"); !errors.Is(err, ErrNoSuchRemote) {
		t.Errorf("%v", err)
	}
}

// asNobody calls f as a user who is nobody here, on a thread that ends with it.
func asNobody(t *testing.T, f func() error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("LOUD: another user needs root")
	}

	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread is not used again
		keep, nobody := ^uintptr(0), uintptr(65534)
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, keep, nobody, keep); e != 0 {
			done <- e
			return
		}
		done <- f()
	}()

	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// A master answers nobody but root and its own user, and its client believes
// nobody else.
func TestPeersOfTheSocket(t *testing.T) {
	f, path := serveFake(t)
	if err := errors.Join(os.Chmod(filepath.Dir(path), 0o777), os.Chmod(path, 0o777)); err != nil {
		t.Fatal(err)
	}

	asNobody(t, func() error {
		c, err := net.Dial("unix", path)
		if err != nil {
			return err
		}
		defer c.Close()

		_, _ = io.WriteString(c, "POST /v1/cluster/secret_next HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}")
		if b, err := io.ReadAll(c); len(b) > 0 {
			return fmt.Errorf("a stranger is answered: %q %v", b, err)
		}

		return nil
	})

	if len(f.asked) > 0 {
		t.Errorf("a stranger gave orders: %v", f.asked)
	}

	if _, err := NewClient(path, 65533).Minions(t.Context(), false); err != nil {
		t.Errorf("root listens: %v", err)
	}

	var ln net.Listener
	other := filepath.Join(filepath.Dir(path), "other")
	asNobody(t, func() (err error) { ln, err = net.Listen("unix", other); return err })
	defer ln.Close()

	if _, err := NewClient(other, 65533).Minions(t.Context(), false); !errors.Is(err, errStranger) {
		t.Errorf("a stranger listens: %v", err)
	}

	if _, err := NewClient(path+"x", 0).Minions(t.Context(), false); !errors.Is(err, fs.ErrNotExist) ||
		strings.Contains(err.Error(), "http://") {
		t.Errorf("nobody listens: %v", err)
	}
}

// TestWhoIsNotHeard: a program that does not run is told from one that hangs, and from one
// whose answer cannot be taken.
func TestWhoIsNotHeard(t *testing.T) {
	dir := t.TempDir()
	listen := func(name string) *net.UnixListener {
		t.Helper()
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ln.Close() })
		return ln
	}

	killed := listen("killed")
	killed.SetUnlinkOnClose(false)
	_ = killed.Close()
	listen("hangs")
	fillBacklog(t, filepath.Join(dir, "hangs for long"))
	_, talks := serveFake(t)

	for _, row := range []struct {
		name, path string
		most       int64
		want       string
	}{
		{"none", filepath.Join(dir, "none"), maxAnswer, "the master of this node does not run"},
		{"killed", filepath.Join(dir, "killed"), maxAnswer, "the master of this node does not run"},
		{"hangs", filepath.Join(dir, "hangs"), maxAnswer, "the master of this node does not answer"},
		{"hangs for long", filepath.Join(dir, "hangs for long"), maxAnswer, "the master of this node does not answer"},
		{"says too much", talks, 10, "ask the master: the answer has more than 10 bytes"},
	} {
		t.Run(row.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			c := &Client{newClient(master, row.path, os.Geteuid(), row.most)}
			if _, err := c.Schedule(ctx); err == nil || err.Error() != row.want {
				t.Errorf("%v, want %s", err, row.want)
			}
		})
	}
}

// fillBacklog has a program listen at path that takes no connections, and as many wait there
// as may.
func fillBacklog(t *testing.T, path string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err == nil {
		t.Cleanup(func() { _ = syscall.Close(fd) })
		err = syscall.Bind(fd, &syscall.SockaddrUnix{Name: path})
	}
	if err == nil {
		err = syscall.Listen(fd, 0)
	}

	for range 10 {
		if err != nil {
			break
		}
		var c net.Conn
		if c, err = net.Dial("unix", path); err == nil {
			t.Cleanup(func() { _ = c.Close() })
		}
	}

	if !errors.Is(err, syscall.EAGAIN) {
		t.Fatalf("the backlog is not full: %v", err)
	}
}

// slowMaster notes when a fetch begins. A fetch whose caller has gone ends when release is closed.
type slowMaster struct {
	fakeMaster
	began, release chan struct{}
	ended          atomic.Bool
}

func (m *slowMaster) FetchGit(ctx context.Context, _ string) (Git, error) {
	close(m.began)
	<-ctx.Done()
	<-m.release
	m.ended.Store(true)
	return Git{}, ctx.Err()
}

// TestCloseWaitsForHandlers: nothing works for a caller any more when Close has returned.
func TestCloseWaitsForHandlers(t *testing.T) {
	path := filepath.Join(t.TempDir(), Socket)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}

	m := &slowMaster{began: make(chan struct{}), release: make(chan struct{})}
	s := Serve(ln, m, slog.New(slog.DiscardHandler))
	var told error
	go func() {
		_, told = NewClient(path, os.Geteuid()).FetchGit(context.Background(), "")
		close(m.release)
	}()
	<-m.began

	s.Close()
	if !m.ended.Load() {
		t.Error("a handler still works")
	}
	<-m.release
	if told == nil {
		t.Error("the caller is told that it worked")
	}
}
