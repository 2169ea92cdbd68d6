package api

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"saltern/internal/audit"
	"saltern/internal/control"
	"saltern/internal/rpc"
	"saltern/test/await"
)

// keysOf sees for whom keys are changed, and which log-ins end.
type keysOf struct {
	env   []string
	ended []control.Revocation
}

// handlers are those of a member of a cluster without a node n9.
func (k *keysOf) handlers(n *fakeNode) *rpc.Handlers {
	h := n.handlers()
	rpc.Handle(h, DrainNode, rpc.Order(func(_ context.Context, q ClusterRequest) error {
		if q.Node == "n9" {
			return errors.Join(ErrState, errors.New("there is no node n9"))
		}
		return nil
	}))
	rpc.Handle(h, ShowJoinString, func(context.Context, rpc.None) (JoinLine, error) {
		return JoinLine{"sca1.hush"}, nil
	})
	rpc.Handle(h, RevokeTokens, func(_ context.Context, r control.Revocation) (control.Revoked, error) {
		k.ended = append(k.ended, r)
		return control.Revoked{Count: 2}, nil
	})
	rpc.Handle(h, ChangeKeys, rpc.Order(func(ctx context.Context, _ KeyChange) error {
		k.env = audit.Env(ctx)
		return nil
	}))
	return h
}

// What is asked for by the local API is written down with who asked, before and after;
// who only looks is not.
func TestAudited(t *testing.T) {
	dir := t.TempDir()
	log := audit.Open(audit.Config{Dir: dir, Node: "n1", Program: "applianced"})
	t.Cleanup(log.Close)
	n, k := &fakeNode{}, &keysOf{}
	path := filepath.Join(t.TempDir(), "a.sock")
	s := NewServer(Config{Handlers: k.handlers(n), Record: log, Log: quiet()})
	ln, err := s.Listen(path)
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	t.Cleanup(func() { cancel(); <-done })
	c := NewClient(path)

	_, err = c.Status(t.Context())
	large := strings.Repeat("# \n", 100_000) // passes as it is
	err = errors.Join(err, c.Restart(t.Context(), "lb"), c.Drain(t.Context(), "n2", false), c.Drain(t.Context(),
		"n2", true), c.SetConfig(t.Context(), []byte(large)),
		c.CheckConfig(t.Context(), []byte("x")), c.ChangeKeys(t.Context(),
			KeyChange{Verb: "accept", IDs: []string{"web1"}}))
	if _, jerr := c.JoinString(t.Context()); err != nil || jerr != nil || n.set != large {
		t.Fatalf("%v %v", err, jerr)
	}

	if err := c.Drain(t.Context(), "n9", false); !errors.Is(err, ErrState) {
		t.Errorf("%v", err)
	}

	if err := c.Reload(t.Context()); err == nil {
		t.Error("it was reloaded")
	}

	if n, err := c.RevokeTokens(t.Context(), control.Revocation{User: "anna"}); err != nil || n.Count != 2 {
		t.Errorf("%+v %v", n, err)
	}

	var got []string
	await.That(t, "all is written down", func() bool {
		p, err := audit.Read(t.Context(), "n1", audit.Query{}, dir)
		if err != nil {
			t.Fatal(err)
		}

		got = nil
		for _, r := range p.Records {
			if r.User == "" || r.From != audit.Local || r.Op == "" || *r.UID != os.Getuid() {
				t.Fatalf("%+v", r)
			}
			got = append(got,
				strings.TrimSpace(r.Action+" "+r.Object+" "+string(r.Result)+" "+
					strings.ReplaceAll(r.Detail, "\n", " ")))
		}

		return len(got) >= 16
	})

	want := []string{"service.restart lb asked", "service.restart lb started", "node.drain n2 asked",
		"node.drain n2 ok", "node.undrain n2 asked", "node.undrain n2 ok",
		"config.set  asked", "config.set  started", "secret.show  asked", "secret.show  ok", "node.drain n9 asked", "node.drain n9 refused " + ErrState.Error() + " there is no node n9",
		"node.reload  asked", "node.reload  failed disk is gone", "token.revoke anna asked", "token.revoke anna ok"}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	if len(k.ended) != 1 || k.ended[0].User != "anna" {
		t.Errorf("%+v", k.ended)
	}

	if len(k.env) != 1 || !strings.HasPrefix(k.env[0], audit.ActorEnv+"=") {
		t.Errorf("salt-key is told %q", k.env)
	}

	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, f := range files {
		if b, err := os.ReadFile(f); err != nil || strings.Contains(string(b), "hush") {
			t.Errorf("%s: a secret, or %v", f, err)
		}
	}
}

// TestNetworkLooksAreNotAudited: the wizard asks every second for the state of a network on trial.
// Those requests change nothing, and filled the audit record.
func TestNetworkLooksAreNotAudited(t *testing.T) {
	for action, dry := range map[string]bool{"look": true, "try": false, "confirm": false, "revert": false, "": false, "LOOK": false} {
		s := TryNetwork.Subject(NetworkRequest{Action: action})
		if s.Dry != dry || s.Object != action {
			t.Errorf("%q: %+v", action, s)
		}
	}
}
