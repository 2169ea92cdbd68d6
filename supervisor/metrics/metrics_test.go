package metrics

import (
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/supervisor/status"
)

var update = flag.Bool("update", false, "rewrite testdata")

func document() status.Document {
	now := time.Unix(1_800_000_000, 0)
	connected, synced := 12, true
	return status.Document{
		Schema:       1,
		Time:         now,
		Health:       status.Degraded,
		Setup:        status.SetupReady,
		Version:      "1.0.0",
		Cluster:      "prod",
		Node:         "sca-1",
		Started:      now.Add(-time.Hour),
		ServingSince: &now,
		Nodes: []status.Node{
			{Name: "sca-1", State: "ready", Virtual: true},
			{Name: "sca-2", State: "unreachable"},
		},
		Virtual:  &status.Virtual{Address: "10.0.0.20", Nodes: []string{"sca-1"}},
		Services: []status.Service{{Name: "master", State: "running"}, {Name: "lb", State: "failed", Restarts: 3}},
		Minions:  status.Minions{Accepted: 14, Pending: 1, Connected: &connected},
		Master: &status.Master{
			Written:             now,
			Requests:            100,
			Returns:             50,
			Jobs:                3,
			OldestRequestMillis: 1500,
			PillarErrorMinions:  2,
			Resources:           &control.Resources{Known: 60, Refused: 2},
			PillarMemo: &control.PillarMemo{
				Hits:    900,
				Misses:  20,
				Alone:   5,
				Dropped: 1,
				Results: 19,
				Bytes:   40000,
			},
			Files: &control.Files{
				AsOf:      time.Unix(1_800_000_000, 0),
				Old:       "the shared volume does not answer",
				Questions: 40,
				Late:      2,
				Seconds:   7.5,
				Waits:     900,
				ServedOld: 12,
				Refused:   1,
			},
			Runners: &control.Runners{
				Workers:  4,
				Waiting:  2,
				Calls:    321,
				Lost:     1,
				Left:     3,
				Seconds:  12.5,
				Waited:   0.25,
				Running:  true,
				Restarts: 1,
				Renewals: 6,
			},
			Returners: []control.Returner{
				{Name: "rawfile_json", Waiting: 3, Done: 40, Lost: 2, Refused: 1, Error: "secret details stay out"},
				{Name: "own", Done: 46},
			},
			Postgres: &control.Postgres{
				Waiting:    7,
				SpoolBytes: 900,
				SpoolMost:  1000,
				Written:    50,
				Known:      4,
				Adapted:    3,
				Refused:    2,
				Lost:       1,
				Unanswered: 8,
				Error:      "secret details stay out",
				Events: &control.PostgresEvents{
					Waiting:    5,
					SpoolBytes: 600,
					SpoolMost:  700,
					Written:    80,
					Adapted:    3,
					Refused:    2,
					Lost:       1,
					Error:      "secret details stay out",
				},
			},
			Fleet: &control.Fleet{
				LastRuns: map[string]int{"ok": 40, "changed": 3, "failed": 2, "never": 5},
				Ages:     map[string]int{"hour": 30, "day": 14, "older": 1},
				Drifted:  1,
				Functions: []control.FleetFunction{
					{
						Function: "state.apply",
						Runs:     map[string]uint64{"ok": 90, "failed": 4},
						States:   map[string]uint64{"ok": 900, "failed": 5},
					},
					{Function: "other", Runs: map[string]uint64{"ok": 7}},
				},
				FailedStates: []control.FailedState{
					{State: "pkg.installed \"ngin\\x\n", Minions: 4},
					{State: "other", Minions: 3},
				},
				Deaf: 2,
				History: &control.History{
					Runs:         1000,
					Segments:     3,
					Bytes:        123456,
					Oldest:       now.Add(-time.Hour),
					Damaged:      1,
					LeftOut:      2,
					DroppedOld:   30,
					DroppedLarge: 20,
					DroppedFull:  10,
				},
			},
			Notify: &control.Notify{
				Destinations: []control.Destination{{
					Name:    "night/1",
					By:      "mail",
					Waiting: 2,
					Settled: map[string]uint64{"sent": 10, "refused": 1},
					Failing: true,
				}},
				Lost: 4,
			},
			Engines: []control.Engine{
				{Name: "webhook", State: "running", Starts: 2, Error: "secret details stay out"},
				{Name: "thorium", State: "elsewhere"},
			},
		},
		Storage: status.Storage{Total: 1000, Free: 250, InodesFree: 50},
		Clock:   status.Clock{Synchronised: &synced},
		Backup: &status.Backup{
			Last:    &status.BackupFile{Time: now.Add(-time.Hour), Bytes: 4096},
			Failure: &status.BackupFailure{Cause: "secret details stay out"},
		},
		Problems: []status.Problem{
			{
				Code:     status.NodeUnreachable,
				Severity: status.Warning,
				Subject:  "sca-2",
				Cause:    "secret details stay out",
			},
			{Code: status.KeyUnreadable, Severity: status.Fatal, Subject: "evil \"name\\\n\x1b\xff"},
		},
	}
}

var line = regexp.MustCompile(`^[a-z_]+(\{[a-z]+="(?:[^"\\\n]|\\[\\n"])*"(,[a-z]+="(?:[^"\\\n]|\\[\\n"])*")*\})? -?[0-9.e+-]+$`)

// TestText compares the text with the recorded one: names and labels are
// promised.
// TestDeafMinionsWithoutAHistory: a master that keeps no history still counts minions that answer nothing.
func TestDeafMinionsWithoutAHistory(t *testing.T) {
	var p page
	p.fleet(&control.Fleet{Deaf: 2})
	text := p.String()
	if !strings.Contains(text, "saltern_fleet_deaf_minions 2\n") || strings.Contains(text, "saltern_fleet_minions") {
		t.Error(text)
	}
}

func TestText(t *testing.T) {
	var b strings.Builder
	if err := writeText(&b, document()); err != nil {
		t.Fatal(err)
	}

	seen := map[string]bool{}
	for _, l := range strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n") {
		if seen[l] {
			t.Errorf("twice: %s", l)
		}
		seen[l] = true
		if !strings.HasPrefix(l, "# ") && !line.MatchString(l) {
			t.Errorf("not a sample: %q", l)
		}
	}

	path := filepath.Join("testdata", "metrics.txt")
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755),
			os.WriteFile(path, []byte(b.String()), 0o644)); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(path)
	if err != nil || b.String() != string(want) {
		t.Errorf("differs (%v):\n%s", err, b.String())
	}

	b.Reset()
	if err := writeText(&b, status.Unknown(time.Now(), "")); err != nil ||
		!strings.Contains(b.String(), "saltern_serving 0") {
		t.Errorf("an empty document: %v\n%s", err, b.String())
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// TestServe asks a real server, and sees it end.
func TestServe(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	var d status.Document
	s := Source{
		Status:   func() status.Document { return d },
		Balancer: func(context.Context) ([]byte, error) { return []byte("saltern_lb_sessions 1\n"), nil },
	}

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		serve(ctx, ln, s, slog.New(slog.DiscardHandler))
	}()

	base := "http://" + ln.Addr().String()
	for _, tt := range []struct {
		health status.Health
		setup  status.Setup
		code   int
	}{
		{status.Healthy, status.SetupReady, 200}, {status.Degraded, status.SetupDegraded, 200}, {status.NotServing, status.SetupReady, 503},
		{status.Unconfigured, status.SetupNew, 503}, {status.Healthy, status.SetupDraining, 503}, {"", "", 503},
	} {
		since := time.Unix(1_800_000_000, 0)
		d = status.Document{Health: tt.health, Setup: tt.setup, ServingSince: &since}
		if code, text := get(t, base+"/readyz"); code != tt.code {
			t.Errorf("%s %s: %d %s", tt.health, tt.setup, code, text)
		}

		if code, _ := get(t, base+"/healthz"); code != 200 {
			t.Errorf("healthz: %d", code)
		}
	}

	d = document()
	if code, text := get(t, base+"/metrics"); code != 200 ||
		!strings.Contains(text, "\nsaltern_lb_sessions 1\n") || !strings.Contains(text,
		`saltern_node_ready{node="sca-2"} 0`) ||
		strings.Contains(text, "secret details") {
		t.Errorf("metrics: %d\n%s", code, text)
	}

	if code, _ := get(t, base+"/"); code != 404 {
		t.Errorf("/: %d", code)
	}

	if resp, err := http.Post(base+"/metrics", "text/plain", nil); err != nil || resp.StatusCode != 405 {
		t.Errorf("POST: %v %v", resp, err)
	}

	cancel()
	<-ended
}

// TestAddressInUse: a port that is taken stops nothing but the metrics.
func TestAddressInUse(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Serve(ctx, ln.Addr().String(), Source{Status: document}, slog.New(slog.DiscardHandler))
	}()
	cancel()
	<-ended
}
