package balancer

import (
	"context"
	"path/filepath"
	"testing"

	"saltern/lbproxy"
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
