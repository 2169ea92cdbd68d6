package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/lbproxy"
)

// The test program is the backends and the proxies as well.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 {
		os.Exit(m.Run())
	}
	switch os.Args[1] {
	case "backend":
		os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	case "lb":
		os.Exit(runBalancer(os.Args[2]))
	case "liar":
		os.Exit(runLiar(os.Args[2]))
	}
	os.Exit(m.Run())
}

func runBalancer(path string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg, err := lbproxy.LoadConfig(path)
	if err == nil {
		err = lbproxy.Serve(ctx, cfg, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// runLiar answers requests itself, and not with what was sent.
func runLiar(addr string) int {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return 1
	}

	for {
		c, err := ln.Accept()
		if err != nil {
			return 1
		}

		go func() {
			defer c.Close()
			b := make([]byte, 1+frameHead+requestSize)
			for {
				if _, err := io.ReadFull(c, b); err != nil {
					return
				}
				_, _ = c.Write(make([]byte, frameHead+requestSize))
			}
		}()
	}
}

func freeAddr(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// site is a folder with a configuration of two backends and some proxies.
type site struct {
	dir    string
	config config
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{dir: t.TempDir()}
	s.config.Backends = []string{freeAddr(t), freeAddr(t)}
	t.Chdir(s.dir)
	return s
}

// balancer adds our balancer.
func (s *site) balancer(t *testing.T) {
	t.Helper()
	listen := freeAddr(t)
	text := fmt.Sprintf("frontends: [{name: f, mode: request, bind: [%q], balance: roundrobin}]\n"+
		"health: {check: exchange, send: \"E\\0\\0\\0\\x01x\", expect: \"\\0\\0\\0\\x01\", inter: 100ms}\nbackends:\n", listen)
	for i, addr := range s.config.Backends {
		_, port, _ := net.SplitHostPort(addr)
		text += fmt.Sprintf("- {name: r%d, address: 127.0.0.1, request_port: %s}\n", i, port)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "lb.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	s.add("lb", listen, "lb", "lb.yaml")
}

// add adds a proxy that this program plays.
func (s *site) add(name, listen string, args ...string) {
	s.config.Proxies = append(s.config.Proxies,
		definition{Name: name, Command: append([]string{os.Args[0]}, args...), Listen: listen})
}

// suite runs the suite and returns its results.
func (s *site) suite(t *testing.T, args ...string) ([]result, string) {
	t.Helper()
	b, err := json.Marshal(s.config)
	if err == nil {
		err = os.WriteFile(filepath.Join(s.dir, "proxies.json"), b, 0o644)
	}

	if err != nil {
		t.Fatal(err)
	}

	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), append([]string{"suite"}, args...), nil, &stdout, &stderr); code != exitOK {
		t.Fatalf("%v: status %d: %s", args, code, &stderr)
	}

	kept, err := os.ReadFile(filepath.Join(s.dir, "results.jsonl"))
	if err != nil || !bytes.HasSuffix(kept, stdout.Bytes()) {
		t.Errorf("the file of results holds %s, %v; printed %s", kept, err, &stdout)
	}

	var out []result
	for d := json.NewDecoder(&stdout); ; {
		var r result
		if err := d.Decode(&r); err == io.EOF {
			return out, stderr.String()
		} else if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
}

// demand fails the test unless all fields are there with a figure above 0.
func demand(t *testing.T, r result, fields ...string) {
	t.Helper()
	for _, f := range fields {
		if v, ok := r[f].(float64); !ok || v <= 0 {
			t.Errorf("%s: %s is %v", r["scenario"], f, r[f])
		}
	}
}

func TestSpeed(t *testing.T) {
	s := newSite(t)
	s.balancer(t)
	results, errors := s.suite(t, "-reps", "1", "-scenarios", "rate,lat:200,bulk:2,idle:20", "-conns", "200",
		"-dur", "500ms", "-mb", "8", "-casts", "2", "-kept", "10", "-rest", "200ms")
	if len(results) != 4 || errors != "" {
		t.Fatalf("%d results, %s", len(results), errors)
	}

	for _, r := range results {
		if r["proxy"] != "lb" || r["rep"] != 0.0 || r["error"] != nil || r["failed"] != nil && r["failed"] != 0.0 {
			t.Errorf("%v", r)
		}
		demand(t, r, "machine_busy_pct")
	}

	demand(t, results[0], "per_s", "ms_p50", "ms_p99", "ms_max")
	demand(t, results[1], "requests", "ms_p50", "ms_p99")
	demand(t, results[2], "down_gb_s", "up_gb_s")
	demand(t, results[3], "fds_per_conn", "cast_ms_p50", "deliver_ms_max", "threads")

	if results[0]["conns"] != 200.0 || results[1]["requests"] != 100.0 || results[3]["held"] != 20.0 {
		t.Errorf("%v", results)
	}

	for _, r := range results {
		if r["lost"] != nil || r["down_missing_bytes"] != nil || r["up_missing_bytes"] != nil {
			t.Errorf("%v", r)
		}
	}
}

func TestFailures(t *testing.T) {
	s := newSite(t)
	s.balancer(t)
	s.config.Hole = []string{"touch hole", "rm hole"}
	results, errors := s.suite(t, "-reps", "1", "-scenarios", "fail:kill,fail:stall,fail:hole", "-dur",
		"300ms", "-fail-rate", "80", "-held", "6")
	if len(results) != 3 || errors != "" {
		t.Fatalf("%d results, %s", len(results), errors)
	}

	for _, r := range results {
		demand(t, r, "requests", "during", "during_ms_p99", "during_ms_max")
		if a, b := heldAt(t, r); a+b != 6 {
			t.Errorf("held %v at first", r["held_start"])
		}
	}

	kill, hole := results[0], results[2]
	if _, victims := heldAt(t, kill); victims == 0 || kill["held_cut"].(float64) < float64(victims) {
		t.Errorf("%d were held at the backend that died, %v were cut", victims, kill["held_cut"])
	}

	demand(t, kill, "held_last_cut_s", "held_back_worst_s")
	if hole["failed"] != 0.0 || hole["held_cut"] != 0.0 {
		t.Errorf("the hole that is none: %v", hole)
	}

	if _, err := os.Stat("hole"); err == nil {
		t.Error("the hole was not ended")
	}
}

// heldAt is how many connections each backend held first.
func heldAt(t *testing.T, r result) (a, b int) {
	t.Helper()
	if _, err := fmt.Sscanf(r["held_start"].(string), "[%d %d]", &a, &b); err != nil {
		t.Fatalf("held_start is %v: %v", r["held_start"], err)
	}
	return a, b
}

// The order of the proxies turns, so that none is always the first.
func TestOrderTurns(t *testing.T) {
	s := newSite(t)
	s.balancer(t)
	s.config.Proxies = append(s.config.Proxies, s.config.Proxies[0])
	s.config.Proxies[1].Name = "again"
	results, _ := s.suite(t, "-reps", "2", "-scenarios", "rate", "-conns", "1")
	var order []string
	for _, r := range results {
		order = append(order, r["proxy"].(string))
	}

	if got := strings.Join(order, " "); got != "lb again again lb" {
		t.Error(got)
	}

	if results, _ := s.suite(t, "-reps", "1", "-scenarios", "rate", "-conns", "1", "-only", "again"); len(results) != 1 || results[0]["proxy"] != "again" {
		t.Errorf("only one: %v", results)
	}
}

// What does not work is said, and is a result with an error.
func TestTrouble(t *testing.T) {
	s := newSite(t)
	busy, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()

	s.add("taken", busy.Addr().String(), "lb", "none")
	s.add("ends", freeAddr(t), "lb", "none")
	s.config.Proxies = append(s.config.Proxies,
		definition{Name: "missing", Command: []string{"/nowhere"}, Listen: freeAddr(t)})
	results, errors := s.suite(t, "-reps", "1", "-scenarios", "rate", "-conns", "1")
	for i, want := range []string{"something else listens", "it has ended", "/nowhere"} {
		if text, _ := results[i]["error"].(string); !strings.Contains(text, want) || !strings.Contains(errors, want) {
			t.Errorf("%v, want %q; %s", results[i], want, errors)
		}
	}
}

// An answer with other bytes is a failure.
func TestWrongAnswer(t *testing.T) {
	s := newSite(t)
	s.add("liar", freeAddr(t))
	d := &s.config.Proxies[0]
	d.Command = append(d.Command, "liar", d.Listen)
	results, _ := s.suite(t, "-reps", "1", "-scenarios", "rate,lat:100", "-conns", "5", "-kept", "2", "-dur", "200ms")
	if results[0]["failed"] != 5.0 || results[0]["conns"] != 0.0 {
		t.Errorf("%v", results[0])
	}
	if results[1]["failed"] != 2.0 || results[1]["requests"] != 0.0 {
		t.Errorf("%v", results[1])
	}
}

func TestUsage(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("one.json", []byte(`{"backends": ["127.0.0.1:1"], "proxies": [{"name": "x"}]}`),
		0o644); err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{nil, exitUsage, "Usage"},
		{[]string{"--help"}, exitOK, "suite"},
		{[]string{"suite", "--help"}, exitOK, "-fail-rate"},
		{[]string{"suite", "-reps", "0"}, exitUsage, "above 0"},
		{[]string{"suite", "-scenarios", "rate,dance"}, exitUsage, `"dance"`},
		{[]string{"suite", "-scenarios", "lat:x"}, exitUsage, `"lat:x"`},
		{[]string{"suite", "more"}, exitUsage, `"more"`},
		{[]string{"suite", "-config", "none.json"}, exitFailed, "none.json"},
		{[]string{"suite", "-config", "one.json"}, exitFailed, "two backends"},
		{[]string{"backend"}, exitUsage, "ADDR"},
	} {
		var out bytes.Buffer
		if code := run(t.Context(), tt.args, strings.NewReader(""), &out, &out); code != tt.code ||
			!strings.Contains(out.String(), tt.says) {
			t.Errorf("%v: status %d, want %d with %q: %s", tt.args, code, tt.code, tt.says, &out)
		}
	}
}

func TestSum(t *testing.T) {
	const s = time.Second
	r := result{}
	sum(r, []attempt{
		{at: 0, millis: 1, kind: "ok"},
		{at: 4 * s, millis: 5, kind: "reset"},
		{at: 5 * s, millis: 300, kind: "ok", number: victim},
		{at: 6 * s, millis: 7, kind: "timeout"},
		{at: 9 * s, millis: 2, kind: "ok", number: victim},
		{at: 10 * s, millis: 2, kind: "ok", number: victim},
	}, 3*s, 8*s)

	for k, want := range map[string]any{
		"requests":             6,
		"failed":               2,
		"during":               3,
		"slow_over_250ms":      1,
		"first_bad_s":          1.0,
		"last_bad_s":           3.0,
		"routed_again_after_s": 1.0,
		"during_ms_p50":        7.0,
		"during_ms_max":        300.0,
	} {
		if r[k] != want {
			t.Errorf("%s is %v, want %v", k, r[k], want)
		}
	}
}
