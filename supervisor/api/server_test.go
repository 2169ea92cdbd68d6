package api

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"saltern/supervisor/settings"
)

// awayNode fails as the shared storage does.
type awayNode struct {
	fakeNode
	err error
}

func (n *awayNode) Reload() error                        { return n.err }
func (n *awayNode) Restart(string) error                 { return n.err }
func (n *awayNode) Config() ([]byte, error)              { return nil, n.err }
func (n *awayNode) CheckConfig([]byte) error             { return fmt.Errorf("%w: %w", ErrConfig, n.err) }
func (n *awayNode) SetConfig([]byte) error               { return fmt.Errorf("%w: %w", ErrState, n.err) }
func (n *awayNode) Output(string, int) ([]string, error) { return nil, n.err }

// TestStorageAwayInWords: an answer of the local API names the cause and its code, and
// no file that only programs know, whatever kind of error it is in (M5).
func TestStorageAwayInWords(t *testing.T) {
	s := settings.Default("n1")
	s.Storage.Kind, s.Storage.Path = settings.VolumeStorage, "/srv/cluster"
	err := fmt.Errorf("change /srv/cluster/nodes/nodes.json: %w",
		&fs.PathError{Op: "open", Path: "/srv/cluster/nodes/.nodes.json.after-tmp-761700366", Err: syscall.ENOTCONN})
	n := &awayNode{err: err}
	path := filepath.Join(t.TempDir(), "a.sock")
	server := NewServer(Config{Handlers: register(n), Settings: &s, Log: quiet()})
	ln, listenErr := server.Listen(path)
	if listenErr != nil {
		t.Fatal(listenErr)
	}

	go func() { _ = server.Serve(t.Context(), ln) }()

	c := NewClient(path)
	_, configErr := c.Config(t.Context())
	_, outputErr := c.Output(t.Context(), "master", 3)
	for what, err := range map[string]error{
		"config": configErr, "output": outputErr, "reload": c.Reload(t.Context()), "restart": c.Restart(t.Context(), "master"),
		"check": c.CheckConfig(t.Context(), nil), "set": c.SetConfig(t.Context(), nil),
	} {
		if err == nil || !strings.Contains(err.Error(), "the shared volume does not answer (SCA-412)") ||
			strings.Contains(err.Error(), ".after-tmp") || strings.Contains(err.Error(), "transport") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
