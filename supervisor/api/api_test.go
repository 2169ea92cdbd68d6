package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"saltern/internal/rpc"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/status"
)

type fakeNode struct{ restarted, set string }

func (f *fakeNode) Status() status.Document {
	return status.Document{Schema: status.Schema, Node: "n1", Health: status.Healthy}
}
func (f *fakeNode) Output(name string, n int) ([]string, error) {
	if name != "master" {
		return nil, fmt.Errorf("%q: %w", name, service.ErrUnknown)
	}
	return []string{"one", "two", "three"}[:min(n, 3)], nil
}
func (f *fakeNode) Restart(name string) error { f.restarted = name; return nil }
func (f *fakeNode) Reload() error             { return errors.New("disk is gone") }
func (f *fakeNode) Config() ([]byte, error)   { return []byte(f.set), nil }
func (f *fakeNode) CheckConfig(t []byte) error {
	if strings.Contains(string(t), "bad") {
		return fmt.Errorf("%w: line 1: bad", ErrConfig)
	}
	return nil
}
func (f *fakeNode) SetConfig(t []byte) error {
	if err := f.CheckConfig(t); err != nil {
		return err
	}
	f.set = string(t)
	return nil
}

// handlers registers the methods of a node with its services.
func (f *fakeNode) handlers() *rpc.Handlers { return register(f) }

// servedNode is what the tests' nodes have.
type servedNode interface {
	Status() status.Document
	Output(name string, lines int) ([]string, error)
	Restart(name string) error
	Reload() error
	Config() ([]byte, error)
	CheckConfig(text []byte) error
	SetConfig(text []byte) error
}

func register(n servedNode) *rpc.Handlers {
	h := &rpc.Handlers{}
	rpc.Handle(h, ReadStatus, func(context.Context, rpc.None) (status.Document, error) { return n.Status(), nil })
	rpc.Handle(h, ReadOutput, func(_ context.Context, q OutputRequest) (OutputLines, error) {
		lines, err := n.Output(q.Service, q.Lines)
		return OutputLines{lines}, err
	})
	rpc.Handle(h, RestartService, rpc.Order(func(_ context.Context, name string) error { return n.Restart(name) }))
	rpc.Handle(h, Reload, rpc.Order(func(context.Context, rpc.None) error { return n.Reload() }))
	rpc.Handle(h, ReadConfig, func(context.Context, rpc.None) (ConfigText, error) {
		text, err := n.Config()
		return ConfigText{string(text)}, err
	})
	rpc.Handle(h, CheckConfig, rpc.Order(func(_ context.Context, text []byte) error { return n.CheckConfig(text) }))
	rpc.Handle(h, SetConfig, rpc.Order(func(_ context.Context, text []byte) error { return n.SetConfig(text) }))
	return h
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func serve(t *testing.T, dir string) (string, *fakeNode) {
	t.Helper()
	path := filepath.Join(dir, "a.sock")
	n := &fakeNode{}
	s := NewServer(Config{Handlers: n.handlers(), Log: quiet()})
	ln, err := s.Listen(path)
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("socket file is still there: %v", err)
		}
	})

	return path, n
}

func TestRoundTrip(t *testing.T) {
	path, n := serve(t, t.TempDir())
	c := NewClient(path)
	ctx := t.Context()
	if d, err := c.Status(ctx); err != nil || d.Node != "n1" || d.Health != status.Healthy {
		t.Errorf("status: %+v %v", d, err)
	}

	if l, err := c.Output(ctx, "master", 2); err != nil || strings.Join(l, " ") != "one two" {
		t.Errorf("output: %v %v", l, err)
	}

	if _, err := c.Output(ctx, "../x", 2); err == nil || !strings.Contains(err.Error(), "no such service") {
		t.Errorf("unknown service: %v", err)
	}

	if err := c.Restart(ctx, "lb"); err != nil || n.restarted != "lb" {
		t.Errorf("restart: %v", err)
	}

	if err := c.Reload(ctx); err == nil || err.Error() != "disk is gone" {
		t.Errorf("reload: %v", err)
	}

	if err := c.SetConfig(ctx, []byte("node: a")); err != nil || n.set != "node: a" {
		t.Errorf("set: %v", err)
	}

	if err := c.SetConfig(ctx, []byte("bad")); !errors.Is(err, ErrConfig) || n.set != "node: a" {
		t.Errorf("bad set: %v", err)
	}

	if err := c.CheckConfig(ctx, []byte("bad")); !errors.Is(err, ErrConfig) {
		t.Errorf("check: %v", err)
	}

	if b, err := c.Config(ctx); err != nil || string(b) != "node: a" {
		t.Errorf("config: %s %v", b, err)
	}

	if err := c.SetConfig(ctx, make([]byte, maxBody+1)); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("large body: %v", err)
	}
}

func TestNotRunning(t *testing.T) {
	if _, err := NewClient(filepath.Join(t.TempDir(), "none")).Status(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("%v", err)
	}
}

func TestListenReplacesOnlyADeadSocket(t *testing.T) {
	dir := t.TempDir()
	path, _ := serve(t, dir)
	s := NewServer(Config{Handlers: &rpc.Handlers{}, Log: quiet()})
	if _, err := s.Listen(path); err == nil || !strings.Contains(err.Error(), "another supervisor") {
		t.Errorf("live socket: %v", err)
	}

	dead := filepath.Join(dir, "dead")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}

	ln.SetUnlinkOnClose(false)
	_ = ln.Close()
	l2, err := s.Listen(dead)
	if err != nil {
		t.Fatalf("dead socket: %v", err)
	}

	_ = l2.Close()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}

	if _, err := s.Listen(file); err == nil {
		t.Error("a plain file was replaced")
	}
}

// The socket is closed to other users by its mode and, should the mode be
// changed, by the kernel's word about who calls.
func TestAttack32OtherUser(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "api")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path, n := serve(t, dir)
	fi, err := os.Stat(path)
	if err != nil || fi.Mode().Perm() != 0o660 {
		t.Fatalf("mode %v %v", fi.Mode(), err)
	}

	s := NewServer(Config{Handlers: n.handlers(), Log: quiet()})
	for _, c := range []struct {
		uid  uint32
		want bool
	}{{0, true}, {uint32(os.Geteuid()), true}, {54321, false}, {65534, os.Geteuid() == 65534}} {
		if got := s.allowed(unix.Ucred{Uid: c.uid, Gid: 54321}); got != c.want {
			t.Errorf("uid %d allowed: %v", c.uid, got)
		}
	}

	if os.Geteuid() != 0 {
		return // only root can become another user; CI runs as root
	}

	for _, mode := range []os.FileMode{0o660, 0o666} {
		if err := errors.Join(os.Chmod(path, mode), os.Chmod(dir, 0o755)); err != nil {
			t.Fatal(err)
		}

		exe := filepath.Join(dir, "stranger")
		if err := copyFile(os.Args[0], exe); err != nil {
			t.Fatal(err)
		}

		cmd := exec.Command(exe)
		cmd.Env = []string{"SALTERN_TEST_SOCKET=" + path}
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321, Gid: 54321}}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "stranger: ") {
			t.Fatalf("mode %v: %v\n%s", mode, err, out)
		}

		if !strings.Contains(string(out), "permi") || strings.Contains(string(out), "n1") {
			t.Errorf("mode %v: a stranger got:\n%s", mode, out)
		}
	}
}

// TestMain is also the main of the stranger above.
func TestMain(m *testing.M) {
	if path := os.Getenv("SALTERN_TEST_SOCKET"); path != "" {
		d, err := NewClient(path).Status(context.Background())
		fmt.Println("stranger:", d.Node, err)
		return
	}
	os.Exit(m.Run())
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}

func TestConnectionsAreBounded(t *testing.T) {
	path, _ := serve(t, t.TempDir())
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()

	for range maxConns + 20 {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}

	// Those too many wait. They are answered when the others have gone.
	answered := make(chan error, 3*maxConns)
	for range cap(answered) {
		go func() {
			_, err := NewClient(path).Status(t.Context())
			answered <- err
		}()
	}

	for _, c := range open {
		_ = c.Close()
	}
	for range cap(answered) {
		if err := <-answered; err != nil {
			t.Errorf("after the flood: %v", err)
		}
	}
}

// TestSupervisorGoesAway: a supervisor that ends while it is asked counts as one
// that does not run, so that who waits for its next life goes on waiting.
func TestSupervisorGoesAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}

	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_ = c.Close() // with what was asked unread: a reset
		}
	}()

	t.Cleanup(func() { ln.Close(); <-done })
	for range 5 {
		if _, err := NewClient(path).Status(t.Context()); !errors.Is(err, ErrNotRunning) {
			t.Errorf("%v", err)
		}
	}
}
