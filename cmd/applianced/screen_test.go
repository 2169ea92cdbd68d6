package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hinshun/vt10x"

	"saltern/internal/rpc"
	"saltern/supervisor/api"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
	"saltern/test/await"
	"saltern/test/screen"
)

// shownNode is a node whose status is longer than a window.
type shownNode struct{}

func (shownNode) Status() status.Document {
	at := time.Unix(1_700_000_000, 0)
	minions := 12
	d := status.Document{
		Schema: status.Schema, Time: at, Health: status.Degraded, Exit: status.ExitDegraded, Setup: status.SetupReady,
		Node: "salt-660001", Cluster: "prod", ServingSince: &at, Version: "f05afb80",
		Front: status.Front{Addresses: []string{"10.66.0.11"}, PublishPort: 4505, RequestPort: 4506},
	}

	for i := range 12 {
		d.Nodes = append(d.Nodes, status.Node{
			Name: fmt.Sprintf("salt-66%04d", i+
				1), This: i == 0, Address: fmt.Sprintf("10.66.0.%d", i+11), Version: "f05afb80",
			Role: status.RoleVoter, State: "ready", Master: "ok", Proxy: "ok", Storage: "ok", Minions: &minions, Clock: "synced",
		})
	}

	found := []status.Finding{
		{
			Code:    status.ClockSkew,
			Subject: "salt-660002",
			Cause:   "it is 40 seconds ahead of this one, which is more than the 30 seconds that minions and masters accept of each other",
		},
		{
			Code:  status.SystemOld,
			Cause: "version f05afb80 was built 2025-06-15, 530 days ago: security fixes of since then are missing",
		},
		{Code: status.SystemFixed, Cause: "/etc/saltern/upgrade-keys and /usr/lib/saltern/upgrade-keys hold no key"},
	}

	b := status.NewBoard()
	b.Update(at.Add(-time.Hour), found)
	d.Problems = b.Update(at, found)
	return d
}

// shownSetup is a machine that is not set up.
type shownSetup struct{}

func (shownSetup) Progress() setup.Progress {
	return setup.Progress{State: status.SetupNew, Steps: []setup.Step{}}
}

func (shownSetup) Facts(context.Context) setup.Facts { return setup.Facts{Hostname: "n1"} }

func (shownSetup) Validate(_ context.Context, a setup.Answers) setup.Validation {
	return setup.ValidateHere(a, setup.Facts{Hostname: "n1"}, setup.Base{})
}

func (shownSetup) Claim(_ string, q setup.ClaimRequest) setup.Claim {
	return setup.Claim{Mine: true, Owner: q.Name}
}

// handlers are those of the set-up that the wizard begins with.
func (s shownSetup) handlers() *rpc.Handlers {
	h := shownHandlers(shownNode{}.Status)
	rpc.Handle(h, api.ReadSetup, func(context.Context, rpc.None) (setup.Progress, error) { return s.Progress(), nil })
	rpc.Handle(h, api.ReadFacts, func(ctx context.Context, _ rpc.None) (setup.Facts, error) { return s.Facts(ctx), nil })
	rpc.Handle(h, api.CheckAnswers, func(ctx context.Context, a setup.Answers) (setup.Validation, error) {
		return s.Validate(ctx, a), nil
	})
	rpc.Handle(h, api.ClaimSetup, func(_ context.Context, q setup.ClaimRequest) (setup.Claim, error) {
		return s.Claim("", q), nil
	})
	return h
}

// shownHandlers are those of a supervisor that only has a status.
func shownHandlers(document func() status.Document) *rpc.Handlers {
	h := &rpc.Handlers{}
	rpc.Handle(h, api.ReadStatus, func(context.Context, rpc.None) (status.Document, error) { return document(), nil })
	return h
}

// served gives the socket of a supervisor that ends with the test.
func served(t *testing.T, handlers *rpc.Handlers) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	server := api.NewServer(api.Config{Handlers: handlers, Log: slog.New(slog.DiscardHandler)})
	l, err := server.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, l) }()
	t.Cleanup(func() { stop(); <-ended })
	return socket
}

// onScreen runs applianced on a terminal of its own.
func onScreen(t *testing.T, o screen.Options, args ...string) *screen.Screen {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := screen.New(t, o)
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), "SALTERN_TEST_APPLIANCED=1", "NO_COLOR=1")
	s.Start(cmd)
	return s
}

// shows waits until a terminal shows these lines.
func shows(t *testing.T, s *screen.Screen, want []string) {
	t.Helper()
	want = screen.Trim(strings.Join(want, "\n"))
	if !await.Within(20*time.Second, func() bool { return slices.Equal(s.Lines(), want) }) {
		t.Fatalf("the terminal shows\n%s\n\nnot\n%s", strings.Join(s.Lines(), "\n"), strings.Join(want, "\n"))
	}
}

// windowed is what status --watch shows in a window.
func windowed(width, height int) []string {
	return status.Fit(shownNode{}.Status(), status.Room{Width: width, Lines: height - 1, Rest: "applianced status"})
}

// TestWatchFitsTheWindow: status --watch has the answer in sight in a window of any
// size. (m22)
func TestWatchFitsTheWindow(t *testing.T) {
	socket := served(t, shownHandlers(shownNode{}.Status))
	for _, term := range []string{"linux", "vt220", "xterm"} {
		t.Run(term, func(t *testing.T) {
			t.Parallel()
			s := onScreen(t, screen.Options{Term: term, Width: 80, Height: 24}, "--socket", socket, "status",
				"--watch", "--interval", "200ms")
			shows(t, s, windowed(80, 24))

			if answer := s.Lines()[0]; !strings.HasPrefix(answer, "DEGRADED") {
				t.Errorf("first is %q", answer)
			}

			for _, size := range [][2]int{{132, 43}, {60, 15}, {80, 24}} {
				s.Resize(size[0], size[1])
				shows(t, s, windowed(size[0], size[1]))
			}
		})
	}
}

// TestStatusEndsWithTheAnswer: a status that is longer than the window has the answer
// once more where one looks; one that is not has it once. (m22)
func TestStatusEndsWithTheAnswer(t *testing.T) {
	socket := served(t, shownHandlers(shownNode{}.Status))
	for _, x := range []struct{ height, answers int }{{20, 2}, {60, 1}} {
		t.Run(fmt.Sprint(x.height), func(t *testing.T) {
			s := onScreen(t, screen.Options{Term: "linux", Width: 80, Height: x.height}, "--socket", socket, "status")
			want := status.Fit(shownNode{}.Status(), status.Room{Width: 80})
			if x.answers == 2 {
				want = append(want, want[0])
				want = want[len(want)-x.height+1:] // and the line of the cursor
			}
			shows(t, s, want)
		})
	}
}

// TestPagesOfTheProgram: the console page and the wizard, as the program draws them,
// are the same after Ctrl-L, which draws them anew. (B1)
func TestPagesOfTheProgram(t *testing.T) {
	socket := served(t, shownSetup{}.handlers())
	type stroke struct{ key, comes string }
	for verb, x := range map[string]struct {
		begins  string
		strokes []stroke
	}{
		"console": {"cluster prod",
			[]stroke{
				{"1", "arrow down"},
				{"\x1b[B", "arrow down"},
				{"\x1b[6~", "arrows"},
				{"\x1b[A", "arrow"},
				{"5", "restart salt-master"},
			}},
		"setup": {"What shall this machine do?",
			[]stroke{
				{"\x1b[B", "> join a"},
				{"\x1bOP", "Help: Welcome"},
				{" ", "only keyboard and network change"},
				{"\r", "SSH public key"},
				{"\x1b[[A", "Help: Admin"},
			}},
	} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			s := onScreen(t, screen.Options{Term: "linux", Width: 80, Height: 24}, "--socket", socket, verb)
			s.Shows(x.begins)
			for _, stroke := range x.strokes {
				before := len(s.Sent())
				s.Type(stroke.key)
				s.Shows(stroke.comes)
				settled(s, before)
				drawn := s.Lines()
				before = len(s.Sent())
				s.Type("\x0c")
				settled(s, before)

				if now := s.Lines(); !slices.Equal(drawn, now) {
					t.Fatalf("after %q the terminal shows\n%s\n\nand drawn anew\n%s", stroke.key,
						strings.Join(drawn, "\n"), strings.Join(now, "\n"))
				}
			}
		})
	}
}

// settled waits until the program has written more than before, or nothing for a
// while, and the terminal shows it.
func settled(s *screen.Screen, before int) {
	await.Within(2*time.Second, func() bool { return len(s.Sent()) > before })
	for n := -1; n != len(s.Sent()); {
		n = len(s.Sent())
		await.Within(80*time.Millisecond, func() bool { return n != len(s.Sent()) })
	}
}

// TestWatchShowsFullLines: a line that fills the window keeps its last character: on the
// Linux console and xterm, as on this emulator, and unlike in tmux, the cursor is still
// on it.
func TestWatchShowsFullLines(t *testing.T) {
	full := 0
	for width := 60; width < 100; width++ {
		want := windowed(width, 24)
		if !slices.ContainsFunc(want, func(l string) bool { return len(l) == width }) {
			continue
		}

		full++
		s := screen.New(t, screen.Options{Term: "linux", Width: width, Height: 24})
		if err := drawStatus(s.Tty(), shownNode{}.Status(), nil); err != nil {
			t.Fatal(err)
		}

		shows(t, s, want)

		vt := vt10x.New(vt10x.WithSize(width, 24))
		_, _ = vt.Write([]byte(s.Sent()))
		if shown := screen.Trim(vt.String()); !slices.Equal(shown, screen.Trim(strings.Join(want, "\n"))) {
			t.Errorf("%d columns: the terminal shows\n%s", width, strings.Join(shown, "\n"))
		}

		if full == 3 {
			return
		}
	}

	t.Errorf("%d widths have a full line", full)
}
