package api

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"saltern/internal/audit"
	"saltern/internal/control"
	"saltern/internal/control/toolrun"
	"saltern/supervisor/setup"
	"saltern/test/await"
)

// fakeCluster refuses what is asked of the node n9.
type fakeCluster struct{ absent }

func (fakeCluster) Drain(_ context.Context, node string, _ bool) error {
	if node == "n9" {
		return errors.Join(ErrState, errors.New("there is no node n9"))
	}
	return nil
}
func (fakeCluster) JoinString() (string, error)                         { return "sca1.hush", nil }
func (fakeCluster) Ping(context.Context, string) ([]setup.Check, error) { return nil, nil }

// keysOf sees for whom keys are changed.
type keysOf struct {
	absent
	env   []string
	ended []control.Revocation
}

func (k *keysOf) RevokeTokens(_ context.Context, r control.Revocation) (control.Revoked, error) {
	k.ended = append(k.ended, r)
	return control.Revoked{Count: 2}, nil
}

func (k *keysOf) ChangeKeys(ctx context.Context, _ KeyChange) error {
	k.env = audit.Env(ctx)
	return nil
}

// What is asked for by the local API is written down with who asked, before and after;
// who only looks is not.
func TestAudited(t *testing.T) {
	dir := t.TempDir()
	log := audit.Open(audit.Config{Dir: dir, Node: "n1", Program: "applianced"})
	t.Cleanup(log.Close)
	n, k := &fakeNode{}, &keysOf{}
	path := filepath.Join(t.TempDir(), "a.sock")
	s := NewServer(Parts{Node: n, Services: n, Cluster: fakeCluster{}, Minions: k, LogIns: k, Record: log}, "", quiet())
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

// Whoever adds a route that changes something says here why it is not written down, or
// adds it to acts.
func TestChangesAreAudited(t *testing.T) {
	// look only
	exempt := []string{"POST /v1/config/check", "POST /v1/cluster/ping", "POST /v1/setup/validate",
		"POST /v1/setup/preflight",
		"POST /v1/setup/retry", "POST /v1/setup/claim", // what was started goes on; who leads the wizard
		"POST /v1/keys"} // salt-key does

	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}

	re := regexp.MustCompile(`HandleFunc\("((?:POST|PUT|DELETE|PATCH) [^"]*)"(\+toolrun\.Path)?`)
	routes := map[string]bool{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}

		for _, m := range re.FindAllSubmatch(b, -1) {
			route := string(m[1])
			if len(m[2]) > 0 {
				route += toolrun.Path
			}
			routes[route] = true
		}
	}

	if len(routes) < 20 {
		t.Fatalf("only %v", routes)
	}

	for _, r := range slices.Sorted(maps.Keys(routes)) {
		if _, ok := acts()[r]; ok == slices.Contains(exempt, r) {
			t.Errorf("%s: in acts %v", r, ok)
		}
	}

	for a := range acts() {
		if method, _, _ := strings.Cut(a, " "); method != http.MethodGet && !routes[a] {
			t.Errorf("%s is no route", a)
		}
	}
}
