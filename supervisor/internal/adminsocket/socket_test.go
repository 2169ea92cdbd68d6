package adminsocket

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"saltern/internal/audit"
	"saltern/internal/control"
	"saltern/internal/rpc"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/layout"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
	"saltern/test/await"
)

// withoutAPI are the services of a node without salt-api, as a [serviceManager]. It gets the
// names of those that are restarted.
type withoutAPI chan string

func (w withoutAPI) Output(name string, _ int) ([]string, error) {
	if name == status.APIService {
		return nil, fmt.Errorf("%q: %w", name, service.ErrUnknown)
	}
	return nil, nil
}

func (w withoutAPI) Restart(name string) error {
	w <- name
	return nil
}

// degraded is the observer of a node that is not well.
type degraded struct{ now func() time.Time }

func (degraded) Document() status.Document {
	minions := 3
	return status.Document{
		Node:   "n1",
		Health: status.Degraded,
		Nodes:  []status.Node{{Name: "n1", This: true, State: "ready\x1b[2J", Minions: &minions}},
		Problems: []status.Problem{{
			Code:  status.APIDown,
			Title: "t",
			Cause: strings.Repeat("x", 5000),
			Next:  "do it",
		}},
		Virtual: &status.Virtual{Address: "10.0.0.9", Nodes: []string{"n1"}},
	}
}

func (d degraded) Points() []control.Point { return []control.Point{{At: d.now()}} }

// echoed are records that hold what was asked for.
type echoed struct{}

func (echoed) Audit(_ context.Context, q audit.Query) (audit.List, error) {
	return audit.List{Page: audit.Page{Records: []audit.Record{{
		Node:   "n2",
		Action: q.Action,
		Object: fmt.Sprint(q.Last),
	}}}}, nil
}

// startDoor gives the door of a node that is alone, what it restarts, and its records.
func startDoor(t *testing.T, now func() time.Time) (*Socket, *control.Door, chan string, func() []audit.Record) {
	t.Helper()
	dir, err := os.MkdirTemp("", "door") // short: the path of a socket
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { os.RemoveAll(dir) })
	log := audit.Open(audit.Config{Dir: filepath.Join(dir, "audit"), Node: "n1", Program: "applianced"})
	cfg := settings.Default("n1")
	cfg.RuntimeDir = dir
	restarted := make(chan string, 10)
	d := New(Config{
		Node:     "n1",
		Path:     cfg.DoorSocket(),
		Account:  layout.Account{Name: "saltern-master", UID: os.Geteuid(), GID: -1},
		Log:      slog.New(slog.DiscardHandler),
		Now:      now,
		Record:   log,
		Observer: degraded{now},
		Restarts: NewRestarts(slog.New(slog.DiscardHandler), withoutAPI(restarted)),
		Records:  echoed{},
	})

	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); d.Run(ctx) }()
	restarting := make(chan struct{})
	go func() { defer close(restarting); d.cfg.Restarts.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done; <-restarting; log.Close() })
	c := control.NewDoor(cfg.DoorSocket(), os.Geteuid())

	return d, c, restarted, func() []audit.Record {
		log.Close()
		p, err := audit.Read(context.Background(), "n1", audit.Query{Last: 100}, filepath.Join(dir, "audit"))
		if err != nil {
			t.Fatal(err)
		}
		return p.Records
	}
}

// open waits until the door answers.
func open(t *testing.T, c *control.Door) (a control.Appliance) {
	t.Helper()
	await.That(t, "the door answers", func() bool {
		var err error
		a, err = c.Appliance(t.Context())
		return err == nil
	})
	return a
}

// The master is told how the nodes are, and what its users ask for is done and written
// down, with their names.
func TestDoor(t *testing.T) {
	_, c, restarted, records := startDoor(t, time.Now)
	a := open(t, c)
	if a.Node != "n1" || a.Address != "10.0.0.9" || len(a.Nodes) != 1 || *a.Nodes[0].Minions != 3 ||
		a.Nodes[0].State != "ready" || len(a.Findings) != 1 || len(a.Findings[0].Cause) > 320 || a.Findings[0].Next != "do it" {
		t.Errorf("%+v", a)
	}

	if got, err := c.Course(t.Context()); err != nil || len(got.Nodes) != 1 ||
		len(got.Nodes[0].Points) != 1 || got.Nodes[0].Node != "n1" {
		t.Errorf("%+v %v", got, err)
	}

	if got, err := c.Records(t.Context(), control.Question{
		Action: "node.*",
		Last:   1e9,
	}); err != nil || !strings.Contains(string(got), `"node":"n2"`) ||
		!strings.Contains(string(got), `"object":"500"`) {
		t.Errorf("%s %v", got, err)
	}

	if _, err := c.Records(t.Context(), control.Question{Action: "["}); err == nil {
		t.Error("a pattern that is none")
	}

	by := control.By{User: "alice", Proof: "token", Eauth: "pam", From: "10.0.0.7", Via: "salt-api"}
	if err := c.Restart(t.Context(), control.Restart{By: by, Node: "n1", Service: status.BalancerService}); err != nil {
		t.Fatal(err)
	}

	if got := <-restarted; got != status.BalancerService {
		t.Error(got)
	}

	by.Proof = "login" // which only the supervisor itself can know
	if err := c.DrainNode(t.Context(), control.Drain{
		By:   by,
		Node: "n1",
	}); err == nil || !strings.Contains(err.Error(), "not part of a cluster") {
		t.Errorf("%v", err)
	}

	var got []string
	for _, r := range audit.Settled(records()) {
		got = append(got,
			fmt.Sprintf("%s %s %s %s/%s %s via %s", r.Action, r.Object, r.Result, r.Who(), r.Proof, r.From, r.Via))
	}

	want := "service.restart lb of n1 started alice as saltern-master/token 10.0.0.7 via salt-api; node.drain n1 refused alice (unproven)/none 10.0.0.7 via salt-api"
	if s := strings.Join(got, "; "); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
}

// TestAttack80Door: the account of salt-api gets no more at the door than the verbs
// that are there, for services that may be restarted, at a rate, however it asks.
func TestAttack80Door(t *testing.T) {
	now := time.Now()
	d, c, restarted, records := startDoor(t, func() time.Time { return now })
	open(t, c)
	evil := control.By{User: strings.Repeat("a\n", 2000), From: "\x1b]0;x\a"}
	for _, q := range []control.Restart{
		{By: evil, Node: "n1", Service: "../../bin/sh"},
		{By: evil, Node: "n1", Service: "observe"},
		{By: evil, Node: "n1", Service: "api"},
		{By: evil, Node: "n9\n", Service: "lb"},
	} {
		if err := c.Restart(t.Context(), q); err == nil || strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%+v: %v", q, err)
		}
	}

	if err := c.DrainNode(t.Context(),
		control.Drain{
			By:   control.By{User: strings.Repeat("u", 10000)},
			Node: "n1",
		}); err == nil || !strings.Contains(err.Error(), "read the request") {
		t.Errorf("a long request: %v", err)
	}

	for i := range 20 {
		if _, err := c.Records(t.Context(), control.Question{}); (err != nil) != (i >= 10) {
			t.Errorf("records for the %d. time: %v", i+1, err)
		}
	}

	refused := 0
	for range 30 {
		err := c.Restart(t.Context(), control.Restart{By: evil, Node: "n1", Service: "lb"})
		if e, ok := errors.AsType[*rpc.Error](err); ok && e.Code == rpc.CodeBusy {
			refused++
		}
	}

	if refused != 28 { // six at once, and four of them went above
		t.Errorf("%d of 30 were refused", refused)
	}

	for range 2 {
		<-restarted
	}

	d.mu.Lock()
	now = now.Add(21 * time.Second)
	d.mu.Unlock()

	if err := c.Restart(t.Context(), control.Restart{By: evil, Node: "n1", Service: "lb"}); err != nil {
		t.Errorf("20 seconds later: %v", err)
	}

	for _, r := range records() {
		if strings.ContainsAny(r.User+r.From+r.Object+r.Detail, "\n\x1b") || len(r.User) > 300 ||
			r.Proof != audit.Unproven {
			t.Errorf("%+v", r)
		}
	}
}

// A restart waits until its answer has gone, and no more wait than there is room for.
func TestRestartsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		restarted := make(chan string, 10)
		r := NewRestarts(slog.New(slog.DiscardHandler), withoutAPI(restarted))
		for i := range maxSoon + 1 {
			if err := r.RestartSoon("lb"); (err == nil) != (i < maxSoon) {
				t.Errorf("%d: %v", i, err)
			}
		}

		ctx, stop := context.WithCancel(t.Context())
		go r.Run(ctx)
		time.Sleep(answerFirst / 2)
		synctest.Wait()

		if len(restarted) > 0 {
			t.Error("it did not wait")
		}

		time.Sleep(answerFirst)
		synctest.Wait()
		if len(restarted) != 1 {
			t.Errorf("%d restarts", len(restarted))
		}

		stop()
	})
}

// countedPoints counts how often this node is asked for its points. The first caller hangs up while
// it is asked.
type countedPoints struct {
	degraded
	hangUp func()
	asked  int
}

func (o *countedPoints) Points() []control.Point {
	o.asked++
	if o.asked == 1 {
		o.hangUp()
	}
	<-time.After(time.Second) // of the bubble, so that the others come meanwhile
	return o.degraded.Points()
}

// TestCourseOfACrowd: callers at once share one question to the nodes, and one who hangs up leaves no
// answer behind for the others.
func TestCourseOfACrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, hangUp := context.WithCancel(t.Context())
		o := &countedPoints{degraded: degraded{time.Now}, hangUp: hangUp}
		s := New(Config{Node: "n1", Now: time.Now, Observer: o})
		if _, err := s.Course(first); !errors.Is(err, context.Canceled) {
			t.Errorf("who hangs up: %v", err)
		}

		errs := make(chan error, 40)
		for range cap(errs) {
			go func() {
				c, err := s.Course(t.Context())
				if err == nil && len(c.Nodes) != 1 {
					err = fmt.Errorf("%+v", c)
				}
				errs <- err
			}()
		}
		for range cap(errs) {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if o.asked != 2 {
			t.Errorf("the node was asked %d times", o.asked)
		}
	})
}
