package master

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/conf"
	"saltern/master/crypt"
	"saltern/master/internal/local"
	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/master/zmtp"
	"saltern/test/address"
	"saltern/test/await"
)

const wire = "testdata/wire"

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pair is one of the key pairs that came with the captures.
func pair(t testing.TB, name string) *rsa.PrivateKey {
	t.Helper()
	k, err := crypt.LoadPrivate(filepath.Join(wire, "keys", name+"_TESTONLY.pem"), "")
	must(t, err)
	return k
}

func pemOf(t testing.TB, k *rsa.PrivateKey) string {
	t.Helper()
	text, err := crypt.PublicPEM(&k.PublicKey)
	must(t, err)
	return text
}

// running is a master at work in this process, with the same ports and
// folders as a real one.
type running struct {
	t    testing.TB
	m    *Master
	dir  string
	host string
	stop func()
	log  *logLines
	key  string // of the user that runs the test
	req  string // addresses
	pub  string
	mark int
	now  func() time.Time // the clock; nil: the real one
	bus  *busReader
}

// logLines collects what the master logs.
type logLines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.b.Len() < 16<<20 {
		l.b.Write(p)
	}
	return len(p), nil
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// startMaster runs a master on an address of its own. options are lines of
// the configuration file; %DIR% in them is the master's folder.
func startMaster(t testing.TB, options string) *running {
	t.Helper()
	// The path of a socket must be short: no t.TempDir.
	dir, err := os.MkdirTemp("", "saltern")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return startMasterIn(t, dir, options)
}

// startMasterAt is startMaster with a clock of the test's.
func startMasterAt(t testing.TB, now func() time.Time, options string) *running {
	t.Helper()
	dir, err := os.MkdirTemp("", "saltern")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return startMasterWith(t, running{dir: dir, now: now}, options)
}

func startMasterIn(t testing.TB, dir, options string) *running {
	t.Helper()
	return startMasterWith(t, running{dir: dir}, options)
}

func startMasterWith(t testing.TB, with running, options string) *running {
	t.Helper()
	var err error
	for range 5 { // another program may take a port between finding and using it
		r := &running{t: t, dir: with.dir, now: with.now, log: &logLines{}}
		r.host = fmt.Sprintf("127.%d.%d.%d", 1+mathrand.IntN(250), mathrand.IntN(250), 1+mathrand.IntN(250))
		if err = r.start(options); err == nil {
			t.Cleanup(r.stop)
			return r
		}
		if !strings.Contains(err.Error(), "listen on port") {
			break
		}
	}

	t.Fatal(err)
	return nil
}

func (r *running) path(parts ...string) string {
	return filepath.Join(append([]string{r.dir}, parts...)...)
}

func (r *running) start(options string) error {
	t := r.t
	t.Helper()
	if _, err := os.Stat(r.path("pki", "m1.pem")); errors.Is(err, fs.ErrNotExist) {
		must(t, os.MkdirAll(r.path("pki"), 0o700))
		must(t, crypt.SavePrivate(r.path("pki", "m1.pem"), pair(t, "masterA"), ""))
		must(t, crypt.SavePublic(r.path("pki", "m1.pub"), &pair(t, "masterA").PublicKey))
	}

	pubPort := int(address.Free(t, r.host).Port())
	retPort := int(address.Free(t, r.host).Port())
	id := "id: m1\n"
	if strings.HasPrefix(options, "id: ") {
		id = ""
	}

	text := id + fmt.Sprintf("interface: %s\npublish_port: %d\nret_port: %d\nuser: %s\npki_dir: %s\ncachedir: %s\nsock_dir: %s\npidfile: %s\ntoken_dir: %s\nlog_file: /dev/null\n",
		r.host, pubPort, retPort, local.CurrentUser(), r.path("pki"), r.path("cache"), r.path("run"), r.path("pid"), r.path("cache", "tokens"))
	if !strings.Contains(options, "file_roots:") {
		text += fmt.Sprintf("file_roots:\n  base: [%s]\n", r.path("roots"))
	}

	if !strings.Contains(options, "pillar_roots:") {
		text += fmt.Sprintf("pillar_roots:\n  base: [%s]\n", r.path("pillar"))
	}

	must(t, os.WriteFile(r.path("master"), []byte(text+strings.ReplaceAll(options, "%DIR%", r.dir)), 0o600))
	cfg, err := conf.Load(r.path("master"))
	must(t, err)
	now := time.Now
	if r.now != nil {
		now = r.now
	}

	r.m, err = newAt(t.Context(), cfg,
		slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})), now)
	if err != nil {
		return err
	}

	r.req, r.pub = net.JoinHostPort(r.host, fmt.Sprint(retPort)), net.JoinHostPort(r.host, fmt.Sprint(pubPort))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.m.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		if r.bus != nil {
			r.bus.close()
		}

		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("the master ended with %v", err)
			}
		case <-time.After(30 * time.Second):
			t.Error("the master does not stop")
		}
	})

	for {
		select {
		case err := <-done:
			cancel()
			return err
		case <-time.After(2 * time.Millisecond):
		}

		// The event of the start comes after the file.
		if _, err := os.Stat(r.path("cache", "health", "ready")); err == nil && r.m.bus.Stats().Fired > 0 {
			break
		}
	}

	key, err := os.ReadFile(r.path("cache", "."+local.CurrentUser()+"_key"))
	must(t, err)
	r.key = string(key)
	return nil
}

// within bounds one step of a test.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// until waits for a condition.
func until(t testing.TB, what string, f func() bool) {
	t.Helper()
	await.That(t, what, f)
}

// raw sends a payload on a connection of its own.
func (r *running) raw(payload []byte) ([]byte, error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, err := zmtp.DialReq(ctx, r.req, zmtp.DialConfig{})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Do(ctx, payload)
}

func (r *running) rawValue(v any) any {
	r.t.Helper()
	b, err := r.raw(pack(r.t, v))
	must(r.t, err)
	return unpack(r.t, b)
}

func pack(t testing.TB, v any) []byte {
	t.Helper()
	b, err := msgpack.Marshal(v, msgpack.Raw)
	must(t, err)
	return b
}

func unpack(t testing.TB, b []byte) any {
	t.Helper()
	v, err := msgpack.Decode(b, msgpack.DefaultLimits)
	must(t, err)
	return v
}

// clear sends a command of a local client.
func (r *running) clear(cmd string, fields ...any) any {
	r.t.Helper()
	load := value.NewMap(fields...)
	load.Set("cmd", cmd)
	return r.rawValue(value.NewMap("enc", "clear", "load", load, "version", 3))
}

// job publishes with the key of the master's user.
func (r *running) job(tgt, fun string, more ...any) *value.Map {
	r.t.Helper()
	fields := append([]any{"tgt", tgt, "fun", fun, "arg", []any{}, "tgt_type", "glob", "ret", "", "jid", "",
		"kwargs", value.NewMap(), "user", local.CurrentUser(), "key", r.key},
		more...)
	v, ok := r.clear("publish", fields...).(*value.Map)
	if !ok || v.Map("load") == nil {
		r.t.Fatalf("publish: %v", v)
	}
	return v.Map("load")
}

// plainMap is a map that fmt prints by its values.
func plainMap(m *value.Map) map[any]any { return maps.Collect(m.All()) }
