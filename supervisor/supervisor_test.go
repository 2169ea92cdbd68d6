package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"saltern/lbproxy"
	"saltern/supervisor/api"
	"saltern/supervisor/history"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
	"saltern/test/await"
)

// TestMain is also the main of the two children: `-c DIR` is a master that
// can do no more than answer a ping, `lb --config FILE` the real load
// balancer.
func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	switch {
	case len(os.Args) > 2 && os.Args[1] == "-c":
		os.Exit(pretendMaster(ctx, os.Args[2]))
	case len(os.Args) > 3 && os.Args[1] == "lb":
		cfg, err := lbproxy.LoadConfig(os.Args[3])
		if err == nil {
			err = lbproxy.Serve(ctx, cfg, slog.New(slog.NewJSONHandler(os.Stderr, nil)))
		}

		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}

		os.Exit(0)
	}

	os.Exit(m.Run())
}

func pretendMaster(ctx context.Context, dir string) int {
	var c struct {
		Interface string
		Publish   int `yaml:"publish_port"`
		Ret       int `yaml:"ret_port"`
		Die       string
	}

	b, err := os.ReadFile(filepath.Join(dir, "master"))
	if err == nil {
		err = yaml.Unmarshal(b, &c)
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if c.Die != "" {
		fmt.Fprintln(os.Stderr, c.Die)
		return 7
	}

	var all sync.WaitGroup
	for port, kind := range map[int]string{c.Publish: "PUB", c.Ret: "ROUTER"} {
		ln, err := net.Listen("tcp", net.JoinHostPort(c.Interface, strconv.Itoa(port)))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}

		context.AfterFunc(ctx, func() { _ = ln.Close() })
		all.Go(func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				go echo(conn, kind)
			}
		})
	}

	fmt.Println("[INFO    ] pretending")
	all.Wait()
	return 0
}

// echo speaks just enough ZMTP 3 for a ping.
func echo(c net.Conn, kind string) {
	defer c.Close()
	var g [64]byte
	g[0] = 0xff
	g[9] = 0x7f
	g[10] = 3
	copy(g[12:], "NULL")
	_, _ = c.Write(g[:])

	if _, err := io.ReadFull(c, g[:]); err != nil {
		return
	}

	ready := "\x05READY\x0bSocket-Type\x00\x00\x00" + string(rune(len(kind))) + kind
	_, _ = io.WriteString(c, "\x04"+string(rune(len(ready)))+ready)
	var head [2]byte
	for {
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}

		body := make([]byte, head[1])
		if _, err := io.ReadFull(c, body); err != nil {
			return
		}

		if head[0] == 0 {
			if i := strings.Index(string(body), "\x81\xa3cmd\xa4ping"); i >= 0 {
				_, _ = io.WriteString(c, "\x01\x00\x00\x0a\x81\xa3cmd\xa4ping")
			}
		}
	}
}

// notes keeps what would go to systemd.
type notes struct {
	mu   sync.Mutex
	list []string
}

func (n *notes) Notify(s string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, strings.Split(s, "\n")...)
}

func (n *notes) has(s string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Contains(n.list, s)
}

// run is a supervisor in this process with real children.
type run struct {
	t      *testing.T
	dir    string
	path   string
	client *api.Client
	notes  *notes
	stop   func() error
	base   setup.Base // where a node that is not set up has its folders
}

func newRun(t *testing.T) (*run, map[string]any) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "sup-")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	t.Parallel()

	// An address of its own, so that tests side by side can use the same ports.
	addr := fmt.Sprintf("127.%d.%d.%d", 64+rand.IntN(64), rand.IntN(256), 1+rand.IntN(250))
	conf := map[string]any{
		"node": "n1", "data_dir": dir + "/data", "runtime_dir": dir + "/run",
		"front":    map[string]any{"addresses": []string{addr}, "publish_port": 24505, "request_port": 24506},
		"master":   map[string]any{"address": addr, "publish_port": 24507, "request_port": 24508},
		"lb":       map[string]any{"proxy_protocol": false},
		"programs": map[string]any{"master": exe, "lb": exe},
		"users":    map[string]any{"master": "", "lb": ""},
		"limits":   map[string]any{"stop_timeout": "5s", "disk_low_percent": 0, "disk_full_percent": 0},
	}

	return &run{
		t:      t,
		dir:    dir,
		path:   dir + "/appliance.yaml",
		client: api.NewClient(dir + "/api.sock"),
		notes:  &notes{},
	}, conf
}

func (r *run) write(conf map[string]any) {
	r.t.Helper()
	b, err := yaml.Marshal(conf)
	if err == nil {
		err = os.WriteFile(r.path, b, 0o600)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *run) start() {
	r.t.Helper()
	s := New(Options{
		ConfigPath: r.path,
		Hostname:   "host",
		Version:    "test",
		Executable: "/nowhere/applianced",
		Socket:     r.dir + "/api.sock",
		Log:        slog.New(slog.NewTextHandler(io.Discard, nil)),
		Notify:     r.notes,
		Base:       r.base,
	})

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	r.stop = sync.OnceValue(func() error { cancel(); return <-done })
	r.t.Cleanup(func() {
		if err := r.stop(); err != nil {
			r.t.Errorf("stop: %v", err)
		}
	})
}

// until waits for a status document that satisfies ok.
func (r *run) until(what string, ok func(status.Document) bool) status.Document {
	r.t.Helper()
	var d status.Document
	var err error
	if await.Within(time.Minute, func() bool { d, err = r.client.Status(r.t.Context()); return err == nil && ok(d) }) {
		return d
	}
	var text strings.Builder
	_ = status.WriteText(&text, d)
	r.t.Fatalf("%s: not reached (%v); status is\n%s", what, err, text.String())
	return d
}

func serving(d status.Document) bool {
	up := len(d.Services) == 2
	for _, s := range d.Services {
		up = up && s.State == "running"
	}
	return up && d.ServingSince != nil && d.Health == status.Healthy
}

// shows reports whether a problem is listed, with its cause.
func shows(d status.Document, code status.Code, cause string) bool {
	return slices.ContainsFunc(d.Problems,
		func(p status.Problem) bool { return p.Code == code && strings.Contains(p.Cause, cause) })
}

func pid(d status.Document, name string) int {
	for _, s := range d.Services {
		if s.Name == name {
			return s.PID
		}
	}
	return 0
}

func TestServesRestartsAndStops(t *testing.T) {
	r, conf := newRun(t)
	r.write(conf)
	r.start()
	d := r.until("serves", serving)
	if d.Setup != status.SetupReady || d.Exit != 0 || len(d.Services) != 2 || d.Nodes[0].State != "ready" ||
		d.Nodes[0].Proxy != "ok" {
		t.Errorf("%+v", d)
	}

	for _, want := range []string{"READY=1", "STATUS=healthy", "WATCHDOG=1"} {
		if !r.notes.has(want) {
			t.Errorf("systemd was not told %s", want)
		}
	}

	if lines, err := r.client.Output(t.Context(), "master", 10); err != nil ||
		!slices.Contains(lines, "[INFO    ] pretending") {
		t.Errorf("output %v %v", lines, err)
	}

	page, err := r.client.Log(t.Context(), "master", api.LogQuery{Last: 1})
	if err != nil || len(page.Lines) != 1 || !strings.HasSuffix(page.Lines[0], "Z [INFO    ] pretending") {
		t.Errorf("log %+v %v", page, err)
	}

	if _, err := r.client.Log(t.Context(), "mastr", api.LogQuery{Last: 1}); err == nil ||
		!strings.Contains(err.Error(), "there are: lb, master") {
		t.Errorf("log of a service that is not there: %v", err)
	}

	if page, err := r.client.Log(t.Context(), "master", api.LogQuery{Since: time.Now().Add(-time.Hour)}); err != nil || len(page.Lines) == 0 {
		t.Errorf("log %+v %v", page, err)
	}

	first, lb := pid(d, "master"), pid(d, "lb")
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	d = r.until("serves again", func(d status.Document) bool {
		return serving(d) && d.Services[0].Restarts == 1 &&
			strings.HasPrefix(d.Services[0].LastExit, "killed by SIGKILL")
	})

	if page, err = r.client.Log(t.Context(), "master", api.LogQuery{Cursor: page.Cursor}); err != nil ||
		len(page.Lines) != 1 {
		t.Errorf("what the new one wrote: %+v %v", page, err)
	}

	if p := pid(d, "master"); p == first || p == 0 || pid(d, "lb") != lb {
		t.Errorf("master %d→%d, lb %d→%d: only the master should be new", first, p, lb, pid(d, "lb"))
	}

	var all string
	if !await.Within(time.Minute, func() bool {
		events, err := r.client.Events(t.Context(), history.Query{Last: 100})
		all = fmt.Sprintln(err)
		for _, e := range events {
			all += fmt.Sprintln(e.Kind, e.Subject, e.Text)
		}
		return strings.Contains(all, "service master ended after ") &&
			strings.Contains(all, "killed by SIGKILL") && strings.HasPrefix(all, "<nil>\nstart ")
	}) {
		t.Fatalf("events: %s", all)
	}

	if err := r.client.Restart(t.Context(), "lb"); err != nil {
		t.Error(err)
	}

	d = r.until("new load balancer", func(d status.Document) bool { return serving(d) && pid(d, "lb") != lb })
	if err := r.stop(); err != nil {
		t.Error(err)
	}

	for _, p := range []int{pid(d, "master"), pid(d, "lb")} {
		if syscall.Kill(p, 0) == nil {
			t.Errorf("process %d outlived the supervisor", p)
		}
	}

	if !r.notes.has("STOPPING=1") {
		t.Error("systemd was not told STOPPING=1")
	}
}

func TestSetUpThroughTheAPI(t *testing.T) {
	r, conf := newRun(t)
	r.start()
	d := r.until("not configured", func(d status.Document) bool { return d.Health == status.Unconfigured })
	if d.Exit != status.ExitUnconfigured || d.Setup != status.SetupNew {
		t.Errorf("%+v", d)
	}

	if err := r.client.SetConfig(t.Context(), []byte("nod: x")); !errors.Is(err, api.ErrConfig) ||
		!strings.Contains(err.Error(), "field nod not found") {
		t.Errorf("wrong configuration: %v", err)
	}

	text, err := yaml.Marshal(conf)
	if err != nil {
		t.Fatal(err)
	}

	if err := r.client.SetConfig(t.Context(), text); err != nil {
		t.Fatal(err)
	}

	r.until("serves", serving)
	if b, err := r.client.Config(t.Context()); err != nil || string(b) != string(text) {
		t.Errorf("configuration reads back as %q, %v", b, err)
	}

	if err := r.client.SetConfig(t.Context(), []byte("node: [")); err == nil {
		t.Error("wrong configuration accepted while serving")
	}

	r.until("still serves", serving)
}

func TestWrongConfigurationIsServedAndMended(t *testing.T) {
	r, conf := newRun(t)
	r.write(map[string]any{"node": "a b", "data_dir": "x"})
	r.start()
	d := r.until("wrong",
		func(d status.Document) bool { return shows(d, status.ConfigWrong, `node: "a b" is not a host name`) })
	if d.Setup != status.SetupFailed || d.Exit != status.ExitNotServing || !shows(d, status.ConfigWrong, "data_dir: ") {
		t.Errorf("%+v", d)
	}
	r.write(conf)
	r.until("serves once it is fixed", serving)
}

func TestPortInUse(t *testing.T) {
	r, conf := newRun(t)
	ln, err := net.Listen("tcp", net.JoinHostPort(conf["master"].(map[string]any)["address"].(string), "24508"))
	if err != nil {
		t.Fatal(err)
	}

	r.write(conf)
	r.start()
	d := r.until("port in use",
		func(d status.Document) bool { return shows(d, status.PortInUse, fmt.Sprintf("(pid %d)", os.Getpid())) })
	if shows(d, status.MasterDown, "") || d.Health != status.NotServing {
		t.Errorf("%+v", d.Problems)
	}

	_ = ln.Close()
	r.until("starts by itself when it is free", serving)
}

func TestCrashLoopNamesTheCause(t *testing.T) {
	r, conf := newRun(t)
	conf["master"].(map[string]any)["options"] = map[string]any{"die": "cannot go on: the moon is full"}
	r.write(conf)
	r.start()
	d := r.until("crash loop",
		func(d status.Document) bool { return shows(d, status.MasterDown, "exit code 7, 2 times in a row") })
	if !shows(d, status.MasterDown, "last line: cannot go on: the moon is full") {
		t.Errorf("%+v", d.Problems)
	}
	if shows(d, status.NoBackend, "") {
		t.Error("a consequence is listed beside its cause")
	}
}

func TestBadKeyFileStopsTheStart(t *testing.T) {
	r, conf := newRun(t)
	r.write(conf)
	cfg, err := settings.Load(r.path, "x")
	if err != nil {
		t.Fatal(err)
	}

	key := filepath.Join(cfg.PKIDir(), "master.pem")
	if err := errors.Join(os.MkdirAll(cfg.PKIDir(), 0o700), os.WriteFile(key, nil, 0o400)); err != nil {
		t.Fatal(err)
	}

	r.start()
	d := r.until("bad key",
		func(d status.Document) bool { return shows(d, status.KeyUnreadable, "empty or cut short") })
	if pid(d, "master") != 0 {
		t.Error("the master was started with a broken key")
	}

	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}

	r.until("serves", serving)
}

// open_mode in the administrator's own file: the master is not started until
// it is allowed by name, and then it is shown.
func TestAttack31OpenModeInUserFile(t *testing.T) {
	r, conf := newRun(t)
	r.write(conf)
	cfg, err := settings.Load(r.path, "x")
	if err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(cfg.UserConfDir(), "mine.conf")
	if err := errors.Join(os.MkdirAll(cfg.UserConfDir(), 0o755),
		os.WriteFile(file, []byte("timeout: 5\nopen_mode: True\n"), 0o644)); err != nil {
		t.Fatal(err)
	}

	r.start()
	d := r.until("refused",
		func(d status.Document) bool { return shows(d, status.MasterConfig, "mine.conf:2: open_mode") })
	if pid(d, "master") != 0 || d.Health != status.NotServing {
		t.Errorf("%+v", d)
	}

	conf["allow_insecure"] = []string{"open_mode"}
	r.write(conf)
	if err := r.client.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}

	d = r.until("serves and shows it",
		func(d status.Document) bool { return d.ServingSince != nil && shows(d, status.InsecureOption, "") })
	if d.Health != status.Degraded || d.Exit != status.ExitDegraded {
		t.Errorf("health %s exit %d", d.Health, d.Exit)
	}

	if b, err := os.ReadFile(file); err != nil || string(b) != "timeout: 5\nopen_mode: True\n" {
		t.Errorf("the administrator's file was touched: %q %v", b, err)
	}
}
