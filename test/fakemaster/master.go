// Package fakemaster holds a small master for tests of the command line
// tools: real sockets, and minions that answer as a test says.
package fakemaster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"saltern/master/event"
	"saltern/master/msgpack"
	"saltern/master/pattern"
	"saltern/master/value"
	"saltern/master/zmtp"
)

// Key is the only key that the master takes.
const Key = "the key of root"

// Syndic is the id of the master between this one and the minions in Lower.
const Syndic = "syndic1"

// Answer is what a minion does with a job. Without Reply it says nothing.
type Answer struct {
	Reply   bool
	After   time.Duration
	Return  any
	Retcode any // nil is 0
	Out     string
	// Running is how often the minion says that the job still runs.
	Running int
}

// Master is a master that serves 127.0.0.1:Port and the sockets in SockDir.
type Master struct {
	SockDir, CacheDir string
	Port              int
	Bus               *event.Bus

	// Minion answers jobs but saltutil.find_job. It may be called from
	// several goroutines.
	Minion func(id, fun string, load *value.Map) Answer
	// Clear, when set, sees every request first; a reply that is not nil is
	// the answer.
	Clear func(load *value.Map) any
	// Reconnect, when set before a job, cuts all event readers between the
	// publish and the returns of the next job.
	Reconnect bool
	Uncached  bool // returns are not kept in the job cache
	Lose      bool // jobs and returns are kept but not told on the bus
	// Lower, when set, are minions that a syndic named Syndic gives the jobs: the answer to a job
	// does not name them (order_masters).
	Lower []string

	t       testing.TB
	server  *event.Server
	mu      sync.Mutex
	ids     []string
	loads   []*value.Map
	jobs    int
	running map[string]int // jid/id → times
	wg      sync.WaitGroup
	ctx     context.Context
}

// New starts a master with accepted minions of these ids. It ends with the
// test.
func New(t testing.TB, ids ...string) *Master {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	m := &Master{
		SockDir:  shortDir(t),
		CacheDir: t.TempDir(),
		t:        t,
		ids:      ids,
		running:  map[string]int{},
		ctx:      ctx,
		Bus:      event.NewBus(time.Now, 0),
	}

	m.Minion = func(string, string, *value.Map) Answer { return Answer{Reply: true, Return: true} }
	if err := os.WriteFile(filepath.Join(m.CacheDir, ".root_key"), []byte(Key), 0o400); err != nil {
		t.Fatal(err)
	}

	m.serve()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	m.Port = ln.Addr().(*net.TCPAddr).Port
	r, err := zmtp.ListenRouter(ctx, ln, zmtp.RouterConfig{Handler: m.handle})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		stop()
		r.Close()
		m.wg.Wait()
		m.server.Close()
		m.Bus.Close()
	})

	return m
}

// shortDir is a directory whose path leaves room for the name of a socket.
func shortDir(t testing.TB) string {
	d, err := os.MkdirTemp("", "salt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(d) })
	return d
}

func (m *Master) serve() {
	var err error
	if m.server, err = event.Serve(m.Bus, event.Config{Dir: m.SockDir}, slog.New(slog.DiscardHandler)); err != nil {
		m.t.Fatal(err)
	}
}

// Loads are the requests so far.
func (m *Master) Loads() []*value.Map {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]*value.Map(nil), m.loads...)
}

func (m *Master) handle(_ context.Context, _ zmtp.Peer, payload []byte) ([]byte, bool) {
	v, err := msgpack.Decode(payload, msgpack.DefaultLimits)
	req, _ := v.(*value.Map)
	if err != nil || req.Str("enc") != "clear" {
		return nil, false
	}
	load := req.Map("load")
	m.mu.Lock()
	m.loads = append(m.loads, load)
	m.mu.Unlock()
	b, err := msgpack.Marshal(m.answer(load), msgpack.Raw)
	return b, err == nil
}

func failure(name, text string) *value.Map {
	return value.NewMap("error", value.NewMap("name", name, "message", text))
}

func (m *Master) answer(load *value.Map) any {
	// As the real master does: who asks has connected to the bus before.
	if err := m.server.Settle(m.ctx); err != nil && m.ctx.Err() == nil {
		m.t.Error(err)
	}

	if m.Clear != nil {
		if v := m.Clear(load); v != nil {
			return v
		}
	}

	if load.Str("cmd") != "publish" {
		return value.NewMap()
	}
	if load.Str("key") != Key {
		return failure("AuthenticationError", "Authentication error occurred.")
	}

	var ids, lower, missing []any
	tgt, _ := load.Get("tgt")
	known := map[string]bool{}
	for _, id := range m.ids {
		known[id] = true
	}

	below := map[string]bool{}
	for _, id := range m.Lower {
		below[id] = true
	}

	switch tgt := tgt.(type) {
	case []any:
		for _, id := range tgt {
			switch name := id.(string); {
			case known[name]:
				ids = append(ids, id)
			case below[name]:
				lower = append(lower, id)
				fallthrough
			default:
				missing = append(missing, id)
			}
		}
	case string:
		for _, id := range m.ids {
			if pattern.Glob(tgt, id) {
				ids = append(ids, id)
			}
		}

		for _, id := range m.Lower {
			if pattern.Glob(tgt, id) {
				lower = append(lower, id)
			}
		}
	}

	if len(ids) == 0 && m.Lower == nil {
		return value.NewMap("enc", "clear", "load",
			value.NewMap("jid", nil, "minions", []any{}, "error", "Master could not resolve minions"))
	}

	m.mu.Lock()
	m.jobs++
	jid := load.Str("jid")
	if jid == "" {
		jid = fmt.Sprintf("20261121%012d", m.jobs)
	}
	m.mu.Unlock()

	fun, _ := load.Get("fun")
	if !m.Lose {
		m.fire("salt/job/"+jid+"/new", value.NewMap("jid", jid, "minions", ids, "missing", missing, "fun", fun))
	}

	if m.Reconnect {
		m.Reconnect = false
		m.server.Close()
		m.serve()
	}

	if len(lower) > 0 {
		m.fire("syndic/"+Syndic+"/"+jid, value.NewMap("minions", lower))
	}

	for _, id := range append(slices.Clone(ids), lower...) {
		m.wg.Go(func() { m.minion(id.(string), jid, load) })
	}

	return value.NewMap("enc", "clear", "load", value.NewMap("jid", jid, "minions", ids, "missing", missing))
}

func (m *Master) fire(tag string, data *value.Map) {
	if err := m.Bus.Fire(tag, data); err != nil {
		m.t.Error(err)
	}
}

func (m *Master) minion(id, jid string, load *value.Map) {
	fun := load.Str("fun")
	a := Answer{}
	if fun == "saltutil.find_job" {
		a = Answer{Reply: true, Return: m.findJob(id, load.List("arg"))}
	} else {
		a = m.Minion(id, fun, load)
		m.mu.Lock()
		m.running[jid+"/"+id] = a.Running
		m.mu.Unlock()
	}

	select {
	case <-m.ctx.Done():
		return
	case <-time.After(a.After):
	}

	if !a.Reply {
		return
	}

	if a.Retcode == nil {
		a.Retcode = int64(0)
	}

	data := value.NewMap("cmd", "_return", "id", id, "jid", jid, "fun", fun, "return", a.Return, "retcode",
		a.Retcode, "success", true)
	if a.Out != "" {
		data.Set("out", a.Out)
	}

	if !m.Uncached {
		m.store(jid, id, data)
	}

	if m.Lose {
		return
	}

	m.fire("salt/job/"+jid+"/ret/"+id, data)
}

// store keeps a return in Salt's job cache.
func (m *Master) store(jid, id string, data *value.Map) {
	h := sha256.Sum256([]byte(jid))
	x := hex.EncodeToString(h[:])
	dir := filepath.Join(m.CacheDir, "jobs", x[:2], x[2:], id)
	files := map[string]any{"return.p": data}
	if out, ok := data.Get("out"); ok {
		files["out.p"] = out
	}

	if err := os.MkdirAll(dir, 0o755); err != nil {
		m.t.Error(err)
	}

	for name, v := range files {
		b, err := msgpack.Marshal(v, msgpack.Modern)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
		}
		if err != nil {
			m.t.Error(err)
		}
	}
}

func (m *Master) findJob(id string, arg []any) any {
	if len(arg) != 1 {
		return value.NewMap()
	}
	k := arg[0].(string) + "/" + id
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running[k] <= 0 {
		return value.NewMap()
	}
	m.running[k]--
	return value.NewMap("pid", 1, "jid", arg[0])
}
