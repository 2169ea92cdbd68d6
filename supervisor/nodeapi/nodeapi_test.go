package nodeapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/internal/audit"
	"saltern/internal/control"
	"saltern/internal/control/toolrun"
	"saltern/supervisor/history"
	"saltern/supervisor/keyuse"
	"saltern/supervisor/marks"
	"saltern/supervisor/nodeapi/internal/spake2"
	"saltern/supervisor/nodes"
	"saltern/supervisor/options"
	"saltern/supervisor/status"
	"saltern/supervisor/upgrade/rollout"
)

const goodSecret = "correct-horse-battery-staple"

// clusterNode is a node of a cluster behind a real server.
type clusterNode struct {
	mu      sync.Mutex
	table   nodes.Table
	secret  string
	next    string
	key     *ClusterKey
	keyErr  error
	address string
	id      *Identity
	log     bytes.Buffer
	options options.Node
	records []audit.Record
	events  []history.Event
	system  rollout.Node
	marks   marks.Report
	newest  control.Newest
	tool    func(context.Context, toolrun.Request) (func(context.Context, io.Writer), error)
	looks   int // for a table
}

// frozen is a clock that stands, for what is counted per minute.
func frozen() time.Time { return time.Unix(1e9, 0) }

func (c *clusterNode) Table() nodes.Table {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table.Clone()
}
func (c *clusterNode) Secrets() ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return []string{c.secret, c.next}, nil
}
func (c *clusterNode) Options() options.Node { return c.options }
func (c *clusterNode) System() rollout.Node  { return c.system }
func (c *clusterNode) Marks(asker string) marks.Report {
	r := c.marks
	r.Heard = &marks.Heard{Start: asker[:8]}
	return r
}
func (c *clusterNode) Used(n nodes.Node, s keyuse.Speaker, source string) string {
	if s.Life != "copy" {
		return ""
	}
	return fmt.Sprintf("two machines use the key of %s: %s and %s", n.Name, n.Address, source)
}
func (c *clusterNode) StorageAuthority() (Authority, error) {
	return Authority{Cert: []byte("certificate"), Key: []byte("key")}, c.keyErr
}
func (c *clusterNode) SignStorage(request []byte, node string) (Certificate, error) {
	return Certificate{Cert: append([]byte(node+" "), request...), Authority: []byte("certificate")}, c.keyErr
}
func (c *clusterNode) LookForTable() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks++
}
func (c *clusterNode) Audit(_ context.Context, q audit.Query) (audit.Page, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return audit.Page{Records: c.records}.Newest(max(q.Last, 1)), nil
}

func (c *clusterNode) Events(q history.Query) ([]history.Event, error) { return c.events, nil }

func (c *clusterNode) Points() []control.Point {
	n := 3.0
	return []control.Point{{At: frozen(), Minions: &n}}
}

func (c *clusterNode) Newest(context.Context) control.Newest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newest
}

func (c *clusterNode) RestartService(name string) error {
	if name != "lb" {
		return errors.New("no such service")
	}
	return nil
}

func (c *clusterNode) Record(r audit.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records = append(c.records, r)
}

func (c *clusterNode) Git(_ context.Context, fetch bool, remote string) (status.GitView, error) {
	return status.GitView{Remotes: []status.GitRemote{{URL: fmt.Sprint("https://h/", fetch, remote), Files: true}}}, nil
}
func (c *clusterNode) Minions(context.Context, bool) (status.MinionView, error) {
	return status.MinionView{Minions: []status.Minion{{ID: "web1", Key: "accepted"}}}, nil
}
func (c *clusterNode) Tool(ctx context.Context, r toolrun.Request) (func(context.Context, io.Writer), error) {
	return c.tool(ctx, r)
}
func (c *clusterNode) ClusterKey() (*ClusterKey, error) { return c.key, c.keyErr }
func (c *clusterNode) Storage() Storage                 { return Storage{Kind: "directory", Path: "/srv"} }
func (c *clusterNode) Summary() Summary                 { return Summary{Version: "v1", Table: c.Table().Version} }
func (c *clusterNode) Offer(t nodes.Table) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.Version > c.table.Version {
		c.table = t
	}
	return nil
}
func (c *clusterNode) Admit(_ context.Context, n nodes.Node) (nodes.Table, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.IsArbiter() {
		return nodes.Table{}, fmt.Errorf("%w: there is no volume", ErrRole)
	}
	if err := nodes.Admit(&c.table, n); err != nil {
		return nodes.Table{}, fmt.Errorf("%w: %w", ErrName, err)
	}
	c.table.Version++
	return c.table.Clone(), nil
}
func (c *clusterNode) SetState(_ context.Context, name string, s nodes.State) (nodes.Table, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.table.Set(name, s)
	c.table.Version++
	return c.table.Clone(), err
}
func (c *clusterNode) setSecrets(now, next string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.secret, c.next = now, next
}

type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

func identity(t *testing.T) *Identity {
	t.Helper()
	id, err := LoadIdentity(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// startNode serves the first node of a cluster.
func startNode(t *testing.T) *clusterNode {
	t.Helper()
	return startNodeAt(t, time.Now)
}

func startNodeAt(t *testing.T, now func() time.Time) *clusterNode {
	t.Helper()
	text, err := NewClusterKey()
	if err != nil {
		t.Fatal(err)
	}
	c := &clusterNode{secret: goodSecret, id: identity(t)}
	if c.key, err = ParseClusterKey(text); err != nil {
		t.Fatal(err)
	}
	c.table = nodes.Table{Version: 1, Cluster: "prod", KeyHash: c.key.Hash, Nodes: []nodes.Node{
		{Name: "n1", Address: "127.0.70.1", State: nodes.Member, Certificate: c.id.Hash}}}
	c.address = serve(t, c, c.id, slog.New(slog.NewTextHandler(lockedWriter{&c.mu, &c.log}, nil)), now)
	return c
}

func serve(t *testing.T, h Host, id *Identity, log *slog.Logger, now func() time.Time) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- NewServer(h, id, "v1", log, now).Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})

	return ln.Addr().String()
}

func (c *clusterNode) ask(hash, secret string) Ask {
	return Ask{Address: c.address, Cluster: "prod", Secret: secret, KeyHash: hash, Version: "v1",
		Node: nodes.Node{Name: "n2", Address: "127.0.70.2", Front: []string{"127.0.70.2"}}, Ports: []int{1}}
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestJoinAndSpeak(t *testing.T) {
	c := startNode(t)
	id := identity(t)
	look, err := Meet(within(t), id, c.ask("", goodSecret))
	if err != nil {
		t.Fatal(err)
	}

	if look.Table.Cluster != "prod" || len(look.Table.Nodes) != 1 || look.Storage.Path != "/srv" ||
		look.Skew.Abs() > 30*time.Second || len(look.Reach) != 1 {
		t.Errorf("a look: %+v", look)
	}

	a := c.ask(c.key.Hash, goodSecret)
	a.Join = true
	for range 2 { // an answer may be lost: it is asked again
		met, err := Meet(within(t), id, a)
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := met.Table.Find("n2"); !ok || n.State != nodes.Joining || n.Certificate != id.Hash {
			t.Fatalf("table after joining: %+v", met.Table)
		}
	}

	cl := NewClient(id, c.address, c.id.Hash)
	defer cl.Close()
	if tab, err := cl.SetState(within(t), nodes.Member); err != nil || tab.Nodes[1].State != nodes.Member {
		t.Errorf("ready: %+v %v", tab, err)
	}

	if s, err := cl.Status(within(t)); err != nil || s.Version != "v1" {
		t.Errorf("status: %+v %v", s, err)
	}

	tab, err := cl.Table(within(t))
	if err != nil {
		t.Fatal(err)
	}

	tab.Version++
	if err := cl.Offer(within(t), tab); err != nil || c.Table().Version != tab.Version {
		t.Errorf("offer: %v", err)
	}

	for fetch, want := range map[bool]string{false: "https://h/false", true: "https://h/truex"} {
		name := map[bool]string{true: "x"}[fetch]
		if v, err := cl.Git(within(t), fetch, name); err != nil || len(v.Remotes) != 1 || v.Remotes[0].URL != want {
			t.Errorf("git remotes: %+v %v", v, err)
		}
	}

	if list, err := cl.Minions(within(t), true); err != nil || len(list.Minions) != 1 || list.Minions[0].ID != "web1" {
		t.Errorf("minions: %v %v", list, err)
	}

	if a, err := cl.StorageAuthority(within(t)); err != nil || string(a.Cert) != "certificate" ||
		string(a.Key) != "key" {
		t.Errorf("authority: %+v %v", a, err)
	}

	// While the secret is changed both count, afterwards the new one alone.
	const fresh = "another-secret-of-some-length"
	c.setSecrets(goodSecret, fresh)
	for _, s := range []string{goodSecret, fresh} {
		if _, err := Meet(within(t), identity(t), c.ask("", s)); err != nil {
			t.Errorf("a secret that counts: %v", err)
		}
	}

	c.setSecrets(fresh, "")
	for _, s := range []string{goodSecret, ""} {
		if _, err := Meet(within(t), identity(t), c.ask("", s)); !errors.Is(err, ErrSecret) {
			t.Errorf("the old secret, or none: %v", err)
		}
	}
}

func TestJoinRefused(t *testing.T) {
	c := startNode(t)
	id := identity(t)
	for name, tt := range map[string]struct {
		change func(*Ask)
		want   error
	}{
		"wrong secret":    {func(a *Ask) { a.Secret = "wrong-secret-of-some-length" }, ErrSecret},
		"no secret":       {func(a *Ask) { a.Secret = "" }, ErrSecret},
		"other cluster":   {func(a *Ask) { a.Cluster = "test" }, ErrCluster},
		"hash of another": {func(a *Ask) { a.KeyHash = strings.Repeat("0", 64) }, ErrProof},
		"name taken":      {func(a *Ask) { a.Join, a.Node.Name = true, "n1" }, ErrName},
		"address taken":   {func(a *Ask) { a.Join, a.Node.Address = true, "127.0.70.1" }, ErrName},
		"an arbiter": {func(a *Ask) {
			a.Join = true
			a.Node.Storage = nodes.ArbiterStorage
		}, ErrRole},
		"name is a path":   {func(a *Ask) { a.Join, a.Node.Name = true, "../n2" }, nil},
		"unreachable node": {func(a *Ask) { a.Address = "127.0.0.1:1" }, nil},
	} {
		a := c.ask("", goodSecret)
		tt.change(&a)
		_, err := Meet(within(t), id, a)
		if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}

	if got := c.Table(); len(got.Nodes) != 1 {
		t.Errorf("somebody joined: %+v", got)
	}
}

// middle passes TLS on between two connections of its own: what a machine in
// the middle can do at best.
func middle(t *testing.T, to string) string {
	t.Helper()
	id := identity(t)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", id.serverTLS())
	if err != nil {
		t.Fatal(err)
	}

	var all sync.WaitGroup
	t.Cleanup(func() { _ = ln.Close(); all.Wait() })
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}

			all.Go(func() {
				defer c.Close()
				up, err := tls.Dial("tcp", to, id.clientTLS(""))
				if err != nil {
					return
				}
				defer up.Close()

				both := make(chan struct{}, 2)
				go func() { _, _ = io.Copy(up, c); _ = up.Close(); both <- struct{}{} }()
				go func() { _, _ = io.Copy(c, up); _ = c.Close(); both <- struct{}{} }()
				<-both
				<-both
			})
		}
	})

	return ln.Addr().String()
}

// TestAttack10ManInTheMiddleOfNodes: between two nodes that know each other,
// nobody else is spoken with.
func TestAttack10ManInTheMiddleOfNodes(t *testing.T) {
	c := startNode(t)
	cl := NewClient(identity(t), middle(t, c.address), c.id.Hash)
	defer cl.Close()
	if _, err := cl.Status(within(t)); !errors.Is(err, ErrPin) {
		t.Errorf("%v", err)
	}
}

// TestAttack11ManInTheMiddleOfJoin: a machine in the middle that passes
// everything on gets neither a machine nor a cluster to believe it, with a join
// string and without, and never sees a proof when there is a join string.
func TestAttack11ManInTheMiddleOfJoin(t *testing.T) {
	c := startNode(t)
	for _, hash := range []string{c.key.Hash, ""} {
		a := c.ask(hash, goodSecret)
		a.Address, a.Join = middle(t, c.address), true
		if _, err := Meet(within(t), identity(t), a); !errors.Is(err, ErrProof) {
			t.Errorf("hash %.5q: %v", hash, err)
		}
	}
	if len(c.Table().Nodes) != 1 {
		t.Error("somebody joined")
	}
}

// TestAttack11FalseCluster: a machine that only claims to be the cluster. With
// a join string it is found out before a proof leaves; without one its lack of
// the secret is found before anything is believed.
func TestAttack11FalseCluster(t *testing.T) {
	c, false1 := startNode(t), startNode(t)
	false1.secret = "a-secret-that-is-guessed-wrong"
	a := c.ask(c.key.Hash, goodSecret)
	a.Address = false1.address

	if _, err := Meet(within(t), identity(t), a); !errors.Is(err, ErrProof) {
		t.Errorf("with the hash: %v", err)
	}

	if strings.Contains(false1.log.String(), "does not know the secret") {
		t.Error("a proof was sent before the cluster had proven itself")
	}

	// It knows the cluster's public key, but cannot sign with it.
	false1.key = &ClusterKey{key: false1.key.key, Public: c.key.Public, Hash: c.key.Hash}
	if _, err := Meet(within(t), identity(t), a); !errors.Is(err, ErrProof) {
		t.Errorf("with the public key of the cluster: %v", err)
	}

	// It takes any proof, and has to answer with one of its own.
	liar := NewServer(false1, false1.id, "v1", slog.New(slog.DiscardHandler), time.Now)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/join/hello", withBody(maxHello, liar.answerHello))
	mux.HandleFunc("POST /v1/join/prove", func(w http.ResponseWriter, _ *http.Request) {
		replyJSON(w, proveReply{Proof: make([]byte, 32), Table: false1.Table(), Storage: Storage{Path: "/taken"}})
	})
	ln, err := tls.Listen("tcp", "127.0.0.1:0", false1.id.serverTLS())
	if err != nil {
		t.Fatal(err)
	}

	srv := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: time.Minute,
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, meetingKey{}, &meeting{})
		},
	}

	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(ln) })
	defer serving.Wait()

	defer srv.Close()
	a.KeyHash, a.Address = "", ln.Addr().String()
	if m, err := Meet(within(t), identity(t), a); !errors.Is(err, ErrProof) || m != nil {
		t.Errorf("a machine without the secret was believed: %v", err)
	}
}

// TestAttack11ReplayedJoin: what was seen on one connection is worth nothing on
// another.
func TestAttack11ReplayedJoin(t *testing.T) {
	c := startNode(t)
	id := identity(t)
	talk := func() (*http.Client, proveRequest) {
		conn, err := tls.Dial("tcp", c.address, id.clientTLS(""))
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { _ = conn.Close() })
		st := conn.ConnectionState()
		bind, err := binding(&st)
		if err != nil {
			t.Fatal(err)
		}

		h := &http.Client{Transport: &http.Transport{DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}}
		mine := strings.Repeat("11", nonceBytes)
		w, err := stretch(goodSecret)
		if err != nil {
			t.Fatal(err)
		}

		exchange, err := spake2.New(w, true)
		if err != nil {
			t.Fatal(err)
		}

		var r helloReply
		post(t, h, "/v1/join/hello",
			helloRequest{Protocol: protocol, Cluster: "prod", Nonce: mine, Share: exchange.Share()}, &r)
		proof, _, err := exchange.Finish(r.Share, meetingNames(bind, mine, r.Nonce, id.Hash, c.id.Hash, KeyHash(r.Key)))
		if err != nil {
			t.Fatal(err)
		}

		return h, proveRequest{Proof: proof, Node: nodes.Node{Name: "n2", Address: "127.0.70.2"}}
	}

	h1, q := talk()
	var ok proveReply
	if code := post(t, h1, "/v1/join/prove", q, &ok); code != http.StatusOK {
		t.Fatalf("the first time: %d", code)
	}

	if code := post(t, h1, "/v1/join/prove", q, nil); code != http.StatusBadRequest {
		t.Errorf("a second time on the same connection: %d", code)
	}

	h2, _ := talk()
	if code := post(t, h2, "/v1/join/prove", q, nil); code != http.StatusForbidden {
		t.Errorf("on another connection: %d", code)
	}
}

func post(t *testing.T, h *http.Client, path string, v, into any) int {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}

	resp, err := h.Post("https://node"+path, "application/json", bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()

	text, _ := io.ReadAll(resp.Body)
	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			t.Fatalf("%s: %s", err, text)
		}
	}

	return resp.StatusCode
}

// TestAttack11GuessedSecret: guesses are few, logged with their source, and
// stop even the right secret for a while.
func TestAttack11GuessedSecret(t *testing.T) {
	c := startNodeAt(t, frozen)
	id := identity(t)
	wrong, busy := 0, 0
	for i := range 12 {
		_, err := Meet(within(t), id, c.ask("", fmt.Sprintf("guess-number-%d-of-many", i)))
		switch {
		case errors.Is(err, ErrSecret):
			wrong++
		case errors.Is(err, ErrBusy):
			busy++
		default:
			t.Fatal(err)
		}
	}

	if wrong > failuresPerMinute+2 || busy == 0 {
		t.Errorf("%d guesses were looked at, %d turned away", wrong, busy)
	}

	if _, err := Meet(within(t), id, c.ask("", goodSecret)); !errors.Is(err, ErrBusy) {
		t.Errorf("after the guesses: %v", err)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.log.String(); !strings.Contains(s, "does not know the secret") ||
		!strings.Contains(s, "peer=127.0.0.1:") || strings.Contains(s, "guess-number") {
		t.Errorf("log:\n%s", s)
	}
}

// TestAttack11EmptySecret: a cluster without a secret takes nobody.
func TestAttack11EmptySecret(t *testing.T) {
	c := startNode(t)
	c.secret = ""
	if _, err := Meet(within(t), identity(t), c.ask("", "")); err == nil {
		t.Error("joined without a secret")
	}
}

// TestAttack12RemovedNode: its key, and the old secret, open nothing any more,
// and it is told why.
func TestAttack12RemovedNode(t *testing.T) {
	c := startNode(t)
	id := identity(t)
	a := c.ask("", goodSecret)
	a.Join = true

	if _, err := Meet(within(t), id, a); err != nil {
		t.Fatal(err)
	}

	cl := NewClient(id, c.address, c.id.Hash)
	defer cl.Close()
	if _, err := cl.Status(within(t)); err != nil {
		t.Fatal(err)
	}

	if _, err := c.SetState(t.Context(), "n2", nodes.Removed); err != nil {
		t.Fatal(err)
	}

	for what, err := range map[string]error{
		"status":    second(cl.Status(within(t))),
		"table":     second(cl.Table(within(t))),
		"ready":     second(cl.SetState(within(t), nodes.Member)),
		"offer":     cl.Offer(within(t), c.Table()),
		"minions":   second(cl.Minions(within(t), false)),
		"git":       second(cl.Git(within(t), false, "")),
		"git fetch": second(cl.Git(within(t), true, "")),
		"authority": second(cl.StorageAuthority(within(t))),
		"tool":      second(cl.RunTool(within(t), toolrun.Request{Tool: "salt", User: "root"})),
	} {
		if !errors.Is(err, ErrRemoved) {
			t.Errorf("%s: %v", what, err)
		}
	}

	if _, err := Meet(within(t), id, a); !errors.Is(err, ErrName) && !errors.Is(err, ErrRemoved) {
		t.Errorf("with the old key and a secret that still holds: %v", err)
	}

	c.setSecrets("the-secret-was-changed-then", "")
	if _, err := Meet(within(t), identity(t), a); !errors.Is(err, ErrSecret) {
		t.Errorf("with a new key and the old secret: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestStrangersReachNothing(t *testing.T) {
	c := startNode(t)
	cl := NewClient(identity(t), c.address, c.id.Hash)
	defer cl.Close()

	for what, err := range map[string]error{
		"status": second(cl.Status(within(t))), "table": second(cl.Table(within(t))), "ready": second(cl.SetState(within(t), nodes.Member)),
		"offer": cl.Offer(within(t), c.Table()), "minions": second(cl.Minions(within(t), false)),
		"authority": second(cl.StorageAuthority(within(t))),
		"tool":      second(cl.RunTool(within(t), toolrun.Request{Tool: "salt", User: "root"})),
	} {
		if !errors.Is(err, errStranger) {
			t.Errorf("%s: %v", what, err)
		}
	}

	plain := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true,
		MinVersion:         tls.VersionTLS13,
	}}}

	resp, err := plain.Get("https://" + c.address + "/v1/status")
	if err != nil {
		t.Fatal(err)
	}

	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("without a certificate: %d", resp.StatusCode)
	}

	old := &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}
	if conn, err := tls.Dial("tcp", c.address, old); err == nil {
		_ = conn.Close()
		t.Error("TLS 1.2 was taken")
	}
}

func TestProtocolOfAnotherVersion(t *testing.T) {
	c := startNode(t)
	id := identity(t)
	h := &http.Client{Transport: &http.Transport{DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialPinned(ctx, id, c.address, "")
	}}}
	defer h.CloseIdleConnections()

	var f fault
	if code := post(t, h, "/v1/join/hello",
		helloRequest{
			Protocol: protocol + 1,
			Version:  "v9",
			Cluster:  "prod",
			Nonce:    newNonce(),
		}, &f); code != http.StatusConflict || f.Code != codeProtocol {
		t.Errorf("%d %+v", code, f)
	}

	big := helloRequest{Protocol: protocol, Version: strings.Repeat("v", maxHello), Cluster: "prod", Nonce: newNonce()}
	if code := post(t, h, "/v1/join/hello", big, nil); code != http.StatusBadRequest {
		t.Errorf("a large hello: %d", code)
	}
}

func TestIdentityStays(t *testing.T) {
	dir := t.TempDir()
	a, err := LoadIdentity(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := LoadIdentity(dir)
	if err != nil || a.Hash != b.Hash || len(a.Hash) != 64 {
		t.Errorf("%v %v %v", a.Hash, b, err)
	}
}

// TestAttack25LogFlood: who is refused again and again costs one line a minute.
func TestAttack25LogFlood(t *testing.T) {
	c := startNodeAt(t, frozen)
	id := identity(t)
	cl := NewClient(id, c.address, c.id.Hash)
	defer cl.Close()

	for range 50 {
		if _, err := cl.Status(within(t)); !errors.Is(err, errStranger) {
			t.Fatal(err)
		}
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if n := strings.Count(c.log.String(), "a stranger was refused"); n != 1 {
		t.Errorf("%d lines:\n%s", n, c.log.String())
	}
}
