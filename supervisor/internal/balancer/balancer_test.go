package balancer

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"saltern/lbproxy"
	"saltern/supervisor/internal/child"
	"saltern/supervisor/settings"
)

// TestReconcile: a running proxy gets the masters it is to have; one that moved
// is given up and taken again, and nothing is done when all is as it should be.
func TestReconcile(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "admin")
	master := func(name, address string) lbproxy.Backend {
		return lbproxy.Backend{Name: name, Address: address, Weight: 100, PublishPort: 4505, RequestPort: 4506}
	}
	p, err := lbproxy.New(lbproxy.Config{Admin: lbproxy.Admin{Socket: socket},
		Frontends: []lbproxy.Frontend{{Name: "publish", Mode: lbproxy.Publish, Bind: []string{"127.0.0.1:0"}},
			{Name: "request", Mode: lbproxy.Request, Bind: []string{"127.0.0.1:0"}}},
		Backends: []lbproxy.Backend{master("a", "127.0.0.2"), master("b", "127.0.0.3"),
			master("old", "127.0.0.4")}}, nil)
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()

	<-p.Ready()
	c := lbproxy.NewClient(socket)
	want := []lbproxy.Backend{master("a", "127.0.0.2"), master("b", "127.0.0.5"), master("new", "127.0.0.6")}
	for range 3 { // removed, then added, then nothing
		st, err := c.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := reconcile(ctx, c, st, want); err != nil {
			t.Fatal(err)
		}
	}

	st, err := c.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}

	got := map[string]string{}
	for _, b := range st.Backends {
		got[b.Name] = b.Address
	}

	if len(got) != 3 || got["a"] != "127.0.0.2" || got["b"] != "127.0.0.5" || got["new"] != "127.0.0.6" {
		t.Errorf("%v", got)
	}
}

// TestOlderTableDoesNotReplaceNewer: a start of the load balancer that has read the table of nodes
// before a change does not write it after the change.
func TestOlderTableDoesNotReplaceNewer(t *testing.T) {
	older := settings.Default("n1")
	older.DataDir = t.TempDir()
	if err := os.MkdirAll(filepath.Dir(older.LBConf()), 0o755); err != nil {
		t.Fatal(err)
	}
	newer := older
	newer.Members = []settings.Member{{Name: "n2", Address: "10.0.0.2"}}

	var b *Balancer
	var calls atomic.Int32
	changed := make(chan error, 1)
	read := func() *settings.Settings {
		if calls.Add(1) > 1 {
			return &newer
		}

		done := make(chan struct{})
		go func() {
			defer close(done)
			changed <- b.TableChanged()
		}()
		select {
		case <-done:
		case <-time.After(100 * time.Millisecond): // it waits
		}
		return &older
	}

	env := child.Env{Settings: &older, Log: slog.New(slog.DiscardHandler), Now: time.Now}
	programs, err := child.NewPrograms(env, false)
	if err != nil {
		t.Fatal(err)
	}
	b = New(env, programs, read, errors.ErrUnsupported)
	if err := errors.Join(b.writeConfig(), <-changed); err != nil {
		t.Fatal(err)
	}

	text, err := os.ReadFile(older.LBConf())
	if err != nil {
		t.Fatal(err)
	}
	if list := *b.backends.Load(); len(list) != 2 || !strings.Contains(string(text), "10.0.0.2") {
		t.Errorf("the masters are %v, the file is\n%s", list, text)
	}
}
