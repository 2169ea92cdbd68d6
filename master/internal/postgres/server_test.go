package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"saltern/master/internal/postgres/settings"
	"saltern/test/await"
	"saltern/test/check"
)

// binaries is the folder of PostgreSQL's programs in Debian 12.
const binaries = "/usr/lib/postgresql/15/bin"

// server is a real PostgreSQL with a cluster of its own, which runs as an unprivileged user.
type server struct {
	t    testing.TB
	dir  string
	port int
	as   *syscall.SysProcAttr
	cmd  *exec.Cmd
}

// newOwnServer returns a server of this test alone, for it to break.
func newOwnServer(t testing.TB) *server {
	t.Helper()
	dir := openFolder(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return newServer(t, dir)
}

// openFolder makes a folder that the server's user can reach, as the folder of a test is not.
func openFolder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "postgres")
	check.Must(t, err)
	check.Must(t, os.Chmod(dir, 0o755))
	return dir
}

// newServer makes a cluster below a folder and starts it.
func newServer(t testing.TB, dir string) *server {
	t.Helper()
	if _, err := os.Stat(filepath.Join(binaries, "initdb")); err != nil {
		t.Skip("NOT TESTED: PostgreSQL 15 is missing (make deps, or apt-get install postgresql)")
	}

	s := &server{t: t, dir: filepath.Join(dir, "data"), as: &syscall.SysProcAttr{Setpgid: true}}
	if os.Getuid() == 0 {
		u, err := user.Lookup("postgres")
		check.Must(t, err)
		uid, err := strconv.Atoi(u.Uid)
		check.Must(t, err)
		gid, err := strconv.Atoi(u.Gid)
		check.Must(t, err)
		s.as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		check.Must(t, os.Mkdir(s.dir, 0o700))
		check.Must(t, os.Chown(s.dir, uid, gid))
	}

	initdb := s.command("initdb", "-D", s.dir, "-U", "admin", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}

	l, err := net.Listen("tcp", "127.0.63.1:0")
	check.Must(t, err)
	s.port = l.Addr().(*net.TCPAddr).Port
	check.Must(t, l.Close())
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(binaries, name), args...)
	cmd.SysProcAttr = s.as
	cmd.Dir = "/"
	return cmd
}

func (s *server) start() {
	s.t.Helper()
	s.cmd = s.command("postgres", "-D", s.dir, "-h", "127.0.63.1", "-p", strconv.Itoa(s.port), "-k", s.dir,
		"-c", "fsync=off", "-c", "max_connections=40", "-c", "shared_buffers=32MB")
	check.Must(s.t, s.cmd.Start())
	await.That(s.t, "PostgreSQL answers", func() bool {
		conn, err := s.tryConnect("postgres")
		if err == nil {
			conn.Close(context.Background())
		}
		return err == nil
	})
}

// kill kills the server's processes at once, as a power cut does.
func (s *server) kill() {
	if s.cmd == nil {
		return
	}
	// Each child has a process group of its own. The server cannot be started while one of them is left.
	children, _ := s.children()
	for _, pid := range append(children, s.cmd.Process.Pid) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	_ = s.cmd.Wait()
	s.cmd = nil
	_ = os.Remove(filepath.Join(s.dir, "postmaster.pid"))
}

// signal sends a signal to all processes of the server.
func (s *server) signal(sig syscall.Signal) {
	s.t.Helper()
	children, err := s.children()
	check.Must(s.t, err)
	check.Must(s.t, syscall.Kill(s.cmd.Process.Pid, sig))
	for _, pid := range children {
		_ = syscall.Kill(pid, sig)
	}
}

// children returns the ids of the server's processes but the first.
func (s *server) children() (pids []int, err error) {
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(s.cmd.Process.Pid)).Output()
	for text := range strings.FieldsSeq(string(out)) {
		if pid, err := strconv.Atoi(text); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

func (s *server) tryConnect(name string) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	return pgx.Connect(ctx, fmt.Sprintf("host=127.0.63.1 port=%d user=admin dbname=%s sslmode=disable", s.port, name))
}

var names struct {
	sync.Mutex
	count int
}

// database creates an empty database.
func (s *server) database(t testing.TB) *settings.Settings {
	t.Helper()
	names.Lock()
	names.count++
	name := fmt.Sprintf("salt%d", names.count)
	names.Unlock()
	conn, err := s.tryConnect("postgres")
	check.Must(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(context.Background(), "CREATE DATABASE "+name)
	check.Must(t, err)
	return &settings.Settings{
		Host:     "127.0.63.1",
		Port:     s.port,
		Database: name,
		User:     "admin",
		SSLMode:  "disable",
		Spool:    settings.DefaultSpool,
	}
}

// roleFor returns the name of a further role of the test that made a database. Roles belong to the whole server, which
// tests share.
func roleFor(db *settings.Settings) string { return "role_of_" + db.Database }

// query connects to a database for the test's own questions.
func (s *server) query(t testing.TB, db *settings.Settings) *pgx.Conn {
	t.Helper()
	conn, err := s.tryConnect(db.Database)
	check.Must(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// count returns the number that a question answers with.
func count(t testing.TB, conn *pgx.Conn, sql string, args ...any) (n int) {
	t.Helper()
	check.Must(t, conn.QueryRow(context.Background(), sql, args...).Scan(&n))
	return n
}

var shared struct {
	sync.Once
	server *server
	dir    string
}

// sharedServer returns a server for tests that do not break it.
func sharedServer(t testing.TB) *server {
	t.Helper()
	shared.Do(func() {
		dir := openFolder(t)
		shared.dir = dir
		s := newServer(unowned{t}, dir)
		shared.server = s
	})
	if shared.server == nil {
		t.Skip("NOT TESTED: PostgreSQL 15 is missing (make deps, or apt-get install postgresql)")
	}
	return shared.server
}

// unowned is a test whose server outlives it.
type unowned struct{ testing.TB }

func (unowned) Cleanup(func()) {}

func TestMain(m *testing.M) {
	if os.Getenv(killedProcess) != "" {
		runUntilKilled()
		return
	}
	code := m.Run()
	if shared.server != nil {
		shared.server.kill()
	}
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
