package mastertest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"saltern/master"
	"saltern/master/conf"
	"saltern/master/crypt"
	"saltern/master/internal/local"
	"saltern/master/internal/source"
	"saltern/master/value"
	"saltern/master/zmtp"
	"saltern/test/address"
	"saltern/test/check"
	"saltern/test/logged"
)

// Master is a master that runs in the process of the test, with its own ports and directories. If a
// method fails in a way that the test did not ask for, it ends the test.
type Master struct {
	T              testing.TB
	Parts          master.Parts
	Dir            string               // directory of the configuration file and of all other files of the master
	Host           string               // address on which the master listens
	Stop           func()               // stops the master and waits for its end; later calls do nothing
	Kill           func()               // kills the process of the master, as Stop; nil: the master runs in the process of the test
	Signal         func(syscall.Signal) // sends a signal to that process; nil likewise
	Log            *logged.Buffer
	Key            string // key of the system user who runs the test
	RequestAddress string
	PublishAddress string
	Bus            *BusReader // may be nil: ListenToBus was not called

	marks   int              // number of marker events that NewEvents has fired
	now     func() time.Time // nil: the real clock
	process string           // name of the test that runs the process of the master; "": it has none
}

// Start runs a master, on a separate address, until the test ends. options holds lines of the
// configuration file, in which %DIR% stands for the master's directory.
func Start(t testing.TB, options string) *Master {
	t.Helper()
	// The path of a socket must be short, so do not use t.TempDir.
	dir, err := os.MkdirTemp("", "saltern")
	check.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return StartIn(t, dir, options)
}

// StartWithClock works like Start. now is the clock of the master.
func StartWithClock(t testing.TB, now func() time.Time, options string) *Master {
	t.Helper()
	dir, err := os.MkdirTemp("", "saltern")
	check.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return startWith(t, Master{Dir: dir, now: now}, options)
}

// StartIn works like Start, in a directory that may contain files of an earlier master.
func StartIn(t testing.TB, dir, options string) *Master {
	t.Helper()
	return startWith(t, Master{Dir: dir}, options)
}

func startWith(t testing.TB, with Master, options string) *Master {
	t.Helper()
	var err error
	for range 5 { // another program may take a port before the master opens it
		r := &Master{T: t, Dir: with.Dir, now: with.now, Log: &logged.Buffer{}}
		r.Host = fmt.Sprintf("127.%d.%d.%d", 1+mathrand.IntN(250), mathrand.IntN(250), 1+mathrand.IntN(250))
		if err = r.TryStart(options); err == nil {
			t.Cleanup(r.Stop)
			return r
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}

	t.Fatal(err)
	return nil
}

// Path returns a path below the master's directory.
func (r *Master) Path(parts ...string) string {
	return filepath.Join(append([]string{r.Dir}, parts...)...)
}

// TryStart starts the master, or returns an error. Start then tries again with another address.
func (r *Master) TryStart(options string) error {
	t := r.T
	t.Helper()
	if _, err := os.Stat(r.Path("pki", "m1.pem")); errors.Is(err, fs.ErrNotExist) {
		check.Must(t, os.MkdirAll(r.Path("pki"), 0o700))
		check.Must(t, crypt.SavePrivate(r.Path("pki", "m1.pem"), KeyPair(t, "masterA"), ""))
		check.Must(t, crypt.SavePublic(r.Path("pki", "m1.pub"), &KeyPair(t, "masterA").PublicKey))
	}

	cfg := r.writeConfig(options)
	now := time.Now
	if r.now != nil {
		now = r.now
	}

	log := slog.New(slog.NewTextHandler(r.Log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	m, err := master.NewWithClock(t.Context(), cfg, log, now)
	if err != nil {
		return err
	}

	r.Parts = m.Parts()
	r.RequestAddress = net.JoinHostPort(r.Host, fmt.Sprint(cfg.RetPort))
	r.PublishAddress = net.JoinHostPort(r.Host, fmt.Sprint(cfg.PublishPort))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	r.Stop = sync.OnceFunc(func() {
		if r.Bus != nil {
			r.Bus.Close()
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

		// The master fires its start event only after it has written the file.
		if _, err := os.Stat(r.Path("cache", "health", "ready")); err == nil && r.Parts.Bus.Stats().Fired > 0 {
			break
		}
	}

	r.readKey()
	return nil
}

// readKey reads the key of the system user who runs the test.
func (r *Master) readKey() {
	r.T.Helper()
	key, err := os.ReadFile(r.Path("cache", "."+local.CurrentUser()+"_key"))
	check.Must(r.T, err)
	r.Key = string(key)
}

// writeConfig writes the configuration file with free ports, and parses it as the program does.
func (r *Master) writeConfig(options string) *conf.Master {
	r.T.Helper()
	text := fmt.Sprintf(`interface: %s
publish_port: %d
ret_port: %d
user: %s
pki_dir: %s
cachedir: %s
sock_dir: %s
pidfile: %s
token_dir: %s
log_file: /dev/null
`, r.Host, address.Free(r.T, r.Host).Port(), address.Free(r.T, r.Host).Port(), local.CurrentUser(),
		r.Path("pki"), r.Path("cache"), r.Path("run"), r.Path("pid"), r.Path("cache", "tokens"))
	if !strings.HasPrefix(options, "id: ") {
		text += "id: m1\n"
	}
	if !strings.Contains(options, "file_roots:") {
		text += fmt.Sprintf("file_roots:\n  base: [%s]\n", r.Path("roots"))
	}
	if !strings.Contains(options, "pillar_roots:") {
		text += fmt.Sprintf("pillar_roots:\n  base: [%s]\n", r.Path("pillar"))
	}

	text += strings.ReplaceAll(options, "%DIR%", r.Dir)
	check.Must(r.T, os.WriteFile(r.Path("master"), []byte(text), 0o600))
	cfg, err := conf.Load(r.Path("master"))
	check.Must(r.T, err)
	return cfg
}

// AskRaw sends a payload over a new connection, and returns the answer.
func (r *Master) AskRaw(payload []byte) ([]byte, error) {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, err := zmtp.DialReq(ctx, r.RequestAddress, zmtp.DialConfig{})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Do(ctx, payload)
}

// AskValue packs a value, sends it like AskRaw, and returns the decoded answer.
func (r *Master) AskValue(v any) any {
	r.T.Helper()
	b, err := r.AskRaw(Pack(r.T, v))
	check.Must(r.T, err)
	return Unpack(r.T, b)
}

// AskInClear sends an unencrypted command, as local clients do.
func (r *Master) AskInClear(cmd string, fields ...any) any {
	r.T.Helper()
	load := value.NewMap(fields...)
	load.Set("cmd", cmd)
	return r.AskValue(value.NewMap("enc", "clear", "load", load, "version", 3))
}

// Publish starts a job with the key of the master's user, and returns the load in the master's
// answer.
func (r *Master) Publish(tgt, fun string, more ...any) *value.Map {
	r.T.Helper()
	fields := append([]any{"tgt", tgt, "fun", fun, "arg", []any{}, "tgt_type", "glob", "ret", "", "jid", "",
		"kwargs", value.NewMap(), "user", local.CurrentUser(), "key", r.Key},
		more...)
	v, ok := r.AskInClear("publish", fields...).(*value.Map)
	if !ok || v.Map("load") == nil {
		r.T.Fatalf("publish: %v", v)
	}
	return v.Map("load")
}

// LogInFrom logs a user in as salt-api does for a client at an address, and returns the token. It
// returns "" if the log-in is refused.
func (r *Master) LogInFrom(user, password string, from netip.Addr) string {
	r.T.Helper()
	load := value.NewMap("eauth", "sharedsecret", "username", user, "password", password)
	source.Say(load, r.Key, from)
	var fields []any
	for k, v := range load.All() {
		fields = append(fields, k, v)
	}
	m, _ := r.AskInClear("mk_token", fields...).(*value.Map)
	return m.Str("token")
}

// Restart stops the master and starts another one in the same directory.
func (r *Master) Restart(options string) *Master {
	r.T.Helper()
	r.Stop()
	return StartIn(r.T, r.Dir, options)
}
