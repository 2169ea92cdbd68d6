package batch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/master/event"
	"saltern/master/jobs"
	"saltern/master/value"
)

const jid = "20261123000000000001"

// world is a manager without a master.
type world struct {
	saved string // name of the saved job of all slices, or ""

	t         *testing.T
	m         *Manager
	dir       string
	now       time.Time
	published []string
	fired     []string
	returns   *value.Map
	refuse    error
	ctx       context.Context // of events
	sends     bool            // the tool sends the state and writes no file
	withheld  *value.Map      // what the tool sends beside the state
	fields    string          // the job fields of the latest slice
	adopted   string          // by whom
}

// userKey is that of the master's user.
const userKey = "the key of root"

func newWorld(t *testing.T) *world {
	w := &world{t: t, ctx: t.Context(), dir: t.TempDir(), now: time.Unix(1000, 0), returns: value.NewMap()}
	w.again()
	return w
}

// again is a manager that starts where another one died.
func (w *world) again() {
	w.m = NewManager(Config{
		Dir:       w.dir,
		Jobs:      w,
		Publisher: w,
		UserKey:   func() (string, error) { return userKey, nil },
		Adopted:   func(_ string, kept *value.Map) { w.adopted += kept.Str("user") },
		Fire: func(tag string, data *value.Map) {
			w.fired = append(w.fired, strings.TrimPrefix(tag, "salt/batch/"+jid+"/"))
		},
		Now: func() time.Time { return w.now },
		Log: slog.New(slog.DiscardHandler),
	})
}

// StartSlice implements [Publisher].
func (w *world) StartSlice(_ context.Context, l *value.Map) error {
	w.published = append(w.published, strings.Join(l.Texts("tgt"), ","))
	w.fields = value.Repr(l.Map("kwargs"))
	if l.Str("jid") != jid || l.Str("tgt_type") != "list" || l.Str("fun") != "test.arg" ||
		l.Str("user") != "ann" || len(l.List("arg")) != 2 {
		w.t.Errorf("published %v", l)
	}
	if got := l.Map(jobs.SavedField).Str("job"); got != w.saved {
		w.t.Errorf("published for the saved job %q, want %q", got, w.saved)
	}
	return w.refuse
}

// Load implements [Jobs].
func (w *world) Load(context.Context, string) (*value.Map, error) {
	return value.NewMap("user", "ann"), nil
}

// Returns implements [Jobs].
func (w *world) Returns(context.Context, string) (*value.Map, error) { return w.returns, nil }

// jobDir returns the folder of the job.
func (w *world) jobDir() string {
	dir, err := w.m.jobDir(jid)
	if err != nil {
		w.t.Fatal(err)
	}
	return dir
}

// handOver does what `salt -b 2 --async` does.
func (w *world) handOver(more ...any) {
	w.t.Helper()
	kept := value.NewMap("jid", jid, "all_minions", []any{"a", "b", "c", "d", "e"}, "pending", []any{"c", "d", "e"},
		"active", value.NewMap("a", 1000.0, "b", 1000.0), "done", value.NewMap(), "failed", value.NewMap(), "wait", []any{}, "batch_size", 2,
		"fun", "test.arg", "arg", []any{"x"}, "kwargs", value.NewMap("k", "v"), "tgt", "*", "tgt_type", "glob", "failhard", false, "batch_wait", 0,
		"timeout", 5, "gather_job_timeout", 10, "last_progress", 1000.0, "created", 1000.0, "halted", false, "halted_reason", nil, "driver", "master", "ret", "", "user", "ann")

	for i := 0; i < len(more); i += 2 {
		kept.Set(more[i], more[i+1])
	}

	data := value.NewMap("jid", jid, "driver", "master")
	if w.sends {
		data.Set("key", userKey)
		data.Set(event.WithheldField, w.withheld)
		data.Set("state", kept)
	} else if err := w.m.writeState(jid, kept); err != nil {
		w.t.Fatal(err)
	}

	w.event("salt/batch/"+jid+"/new", data)
}

// event fires an event of a tool.
func (w *world) event(tag string, data *value.Map) {
	w.handle(event.Event{Tag: tag, Data: data, Origin: event.Socket})
}

// handle has the manager handle an event as the bus gives it.
func (w *world) handle(e event.Event) {
	w.t.Helper()
	bus := event.NewBus(time.Now, 0)
	sub := bus.Subscribe("batches", 1, nil)
	if err := bus.Relay(e); err != nil {
		w.t.Fatal(err)
	}
	w.m.handle(w.ctx, <-sub.C)
}

func (w *world) ret(id string, code int) {
	w.handle(event.Event{
		Tag:    "salt/job/" + jid + "/ret/" + id,
		Data:   value.NewMap("id", id, "return", true, "retcode", code),
		Origin: event.Minion,
		Minion: id,
	})
}

// want compares what was published and fired since the last call.
func (w *world) want(published, fired string) {
	w.t.Helper()
	if got := strings.Join(w.published, " "); got != published {
		w.t.Errorf("published %q, want %q", got, published)
	}
	if got := strings.Join(w.fired, " "); got != fired {
		w.t.Errorf("fired %q, want %q", got, fired)
	}
	w.published, w.fired = nil, nil
}

// kept is what batch.status would show, as done/failed/active/pending and why it
// was halted.
func (w *world) kept() string {
	w.t.Helper()
	k, err := w.m.readState(jid)
	if err != nil {
		w.t.Fatal(err)
	}
	return fmt.Sprintf("%d/%d/%d/%d %s", k.Map("done").Len(), k.Map("failed").Len(), k.Map("active").Len(),
		len(k.List("pending")), k.Str("halted_reason"))
}

func (w *world) listed() bool { l, _ := w.m.activeJIDs(); return slices.Contains(l, jid) }

func TestManagerDrivesABatch(t *testing.T) {
	for _, sends := range []bool{false, true} {
		t.Run(fmt.Sprintf("sent %v", sends), func(t *testing.T) { drivesABatch(t, sends) })
	}
}

func drivesABatch(t *testing.T, sends bool) {
	w := newWorld(t)
	w.sends = sends
	w.returns.Set("a", value.NewMap("return", true, "retcode", 0)) // faster than the tool
	w.handOver()
	w.want("c", "progress")

	if !w.m.Wants("salt/job/"+jid+"/ret/b") || w.m.Wants("salt/job/"+jid+"/new") ||
		w.m.Wants("salt/job/20261123000000000002/ret/b") || !w.listed() {
		t.Error("wants, or is not listed")
	}

	w.ret("b", 0)
	w.ret("b", 0)
	w.want("d", "progress")
	w.ret("zz", 0) // nobody of the batch
	w.now = w.now.Add(16 * time.Second)
	w.returns.Set("d", value.NewMap("return", 1, "retcode", 1)) // its event was lost
	w.m.giveUpLate(t.Context())
	w.want("e", "progress")

	if got := w.kept(); got != "3/1/1/0 " {
		t.Errorf("kept %s", got)
	}

	w.ret("e", 0)
	w.want("", "complete")
	if w.listed() || len(w.m.batches) > 0 || w.m.Wants("salt/job/"+jid+"/ret/b") {
		t.Error("the batch is not forgotten")
	}

	if w.adopted != "ann" {
		t.Errorf("it was told to be adopted of %q", w.adopted)
	}

	w.event("salt/batch/"+jid+"/stop", value.NewMap())
	w.want("", "")
}

// TestManagerHasWithheldFields: the slices of a batch have the settings of its returner, which its events do not
// show, also after a restart of the master.
func TestManagerHasWithheldFields(t *testing.T) {
	w := newWorld(t)
	w.sends = true
	w.withheld = value.NewMap("ret_kwargs", value.NewMap("password", "hunter2"), "id", "root")
	w.handOver()
	const want = "{'ret_kwargs': {'password': 'hunter2'}}"
	w.ret("a", 0)
	if w.fields != want {
		t.Errorf("a slice has %s", w.fields)
	}

	w.again()
	w.fields = ""
	w.m.Run(canceled(t), nil)
	w.ret("b", 0)
	if w.fields != want {
		t.Errorf("after a restart a slice has %s", w.fields)
	}
}

// canceled returns a context that has ended.
func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// A master that dies goes on with its batches, and gives who was at work the time
// anew.
func TestManagerGoesOn(t *testing.T) {
	w := newWorld(t)
	w.handOver()
	w.ret("a", 0)
	w.want("c", "progress")
	w.again()
	w.now = w.now.Add(time.Hour)
	w.returns.Set("b", value.NewMap("return", true, "retcode", 0))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.m.Run(ctx, nil)
	w.want("d", "progress")
	w.m.giveUpLate(t.Context())
	w.want("", "")

	if got := w.kept(); got != "2/0/2/1 " {
		t.Errorf("kept %s", got)
	}

	// A list that names what is gone.
	if err := os.RemoveAll(w.jobDir()); err != nil {
		t.Fatal(err)
	}

	w.again()
	w.m.Run(ctx, nil)
	if w.listed() {
		t.Error("a batch that is gone is listed")
	}
}

func TestManagerHalts(t *testing.T) {
	t.Run("failhard", func(t *testing.T) {
		w := newWorld(t)
		w.handOver("failhard", true)
		w.ret("a", 1)
		w.want("", "halted")

		if got := w.kept(); got != "1/0/1/3 failhard" || w.listed() {
			t.Errorf("kept %s", got)
		}

		w.ret("b", 0)
		w.want("", "")
	})

	t.Run("batch.stop", func(t *testing.T) {
		w := newWorld(t)
		w.handOver()
		w.event("salt/batch/"+jid+"/stop", value.NewMap("jid", jid, "reason", "stop"))
		w.want("", "halted")
		if got := w.kept(); got != "0/0/2/3 stop" || w.listed() {
			t.Errorf("kept %s", got)
		}
	})

	t.Run("batch_wait", func(t *testing.T) {
		w := newWorld(t)
		w.handOver("batch_wait", 3)
		w.ret("a", 0)
		w.want("", "progress")
		w.now = w.now.Add(4 * time.Second)
		w.m.giveUpLate(t.Context())
		w.want("c", "progress")
	})

	t.Run("a publish that fails", func(t *testing.T) {
		w := newWorld(t)
		w.handOver()
		w.refuse = errors.New("no")
		w.ret("a", 0)
		w.want("c", "progress")
		w.m.giveUpLate(t.Context()) // c has failed, and the fault may pass
		w.want("", "")
		w.now = w.now.Add(sendPause)
		w.m.giveUpLate(t.Context())
		w.want("d,e", "complete")

		if got := w.kept(); got != "1/4/0/0 " {
			t.Errorf("kept %s", got)
		}
	})

	t.Run("a disk that takes nothing", func(t *testing.T) {
		w := newWorld(t)
		w.handOver()
		w.m.cfg.HashType = "none that is known"
		w.ret("a", 0)
		w.want("", "halted")
	})

	t.Run("more than may wait", func(t *testing.T) {
		w := newWorld(t)
		w.crowd()
		w.m.waiting = make([]string, maxWaiting)
		w.handOver()
		w.want("", "halted")

		if got := w.kept(); !strings.Contains(got, "drives 256 batches already, and 10000 wait") {
			t.Errorf("kept %s", got)
		}

		if w.adopted != "" {
			t.Error("it was told to be adopted")
		}
	})
}

// crowd has the manager drive as many batches as it may.
func (w *world) crowd() {
	for i := range maxActive {
		w.m.batches[fmt.Sprint(i)] = &driven{State: New(nil, 1), kept: value.NewMap()}
	}
}

// Finding F2: a batch that finds no place waits for one, also when the master dies
// meanwhile, and what its minions returned counts.
func TestBatchWaitsForItsTurn(t *testing.T) {
	for name, dies := range map[string]bool{"waits": false, "the master dies": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.crowd()
			w.handOver()
			w.event("salt/batch/"+jid+"/new", value.NewMap("jid", jid))
			w.want("", "")

			if len(w.m.waiting) != 1 || !w.listed() {
				t.Fatalf("waiting %v, listed %v", w.m.waiting, w.listed())
			}

			w.returns.Set("a", value.NewMap("return", true, "retcode", 0)) // its event goes by
			w.now = w.now.Add(time.Hour)
			if dies {
				w.again()
				w.crowd()
				_ = w.m.adoptBatch(t.Context(), jid, true)
			}

			w.m.adoptWaiting(t.Context())
			w.want("", "")
			w.m.forget("0")
			w.m.adoptWaiting(t.Context())
			w.want("c", "progress")
			w.ret("b", 0)
			w.want("d", "progress") // b is not late: its time began with its turn

			if w.adopted != "ann" {
				t.Errorf("it was told to be adopted of %q", w.adopted)
			}
		})
	}

	t.Run("stopped", func(t *testing.T) {
		w := newWorld(t)
		w.crowd()
		w.handOver()
		w.event("salt/batch/"+jid+"/stop", value.NewMap())
		w.m.forget("0")
		w.m.adoptWaiting(t.Context())
		w.want("", "halted")

		if w.listed() || len(w.m.waiting) > 0 {
			t.Error("a batch that was stopped waits on")
		}
	})
}

// Who may not hand a batch over, and what is none.
func TestManagerIgnores(t *testing.T) {
	w := newWorld(t)
	w.handOver("driver", "other")
	for _, from := range []event.Origin{event.Peer, event.Minion} {
		w.m.handle(t.Context(), event.Event{Tag: "salt/batch/" + jid + "/new", Data: value.NewMap(), Origin: from})
		w.m.handle(t.Context(), event.Event{Tag: "salt/batch/" + jid + "/stop", Data: value.NewMap(), Origin: from})
	}

	w.event("salt/batch/20261123000000000009/new", value.NewMap())
	w.event("salt/batch/../../etc/new", value.NewMap())
	w.event("salt/batch/"+jid+"/progress", value.NewMap("state", value.NewMap("driver", "master")))
	if err := os.WriteFile(filepath.Join(w.jobDir(), stateFile), []byte{0xc1}, 0o600); err != nil {
		t.Fatal(err)
	}

	w.event("salt/batch/"+jid+"/new", value.NewMap())
	w.want("", "")
	if len(w.m.batches) > 0 || w.listed() {
		t.Error("adopted")
	}
}

// The state of a batch that a tool drives is kept for batch.status, and batch.stop
// reaches the tool.
func TestManagerKeepsTheToolsBatches(t *testing.T) {
	w := newWorld(t)
	state := func(done int) *value.Map {
		s := value.NewMap("jid", jid, "driver", "cli", "batch_size", 1, "pending", []any{"b"}, "active",
			value.NewMap("a", 1.0), "failed", value.NewMap())
		d := value.NewMap()
		for i := range done {
			d.Set(fmt.Sprint(i), value.NewMap())
		}

		s.Set("done", d)
		return value.NewMap("state", s)
	}

	w.event("salt/batch/"+jid+"/new", state(0))
	w.event("salt/batch/"+jid+"/progress", state(1))
	if got := w.kept(); got != "1/0/1/1 " || !w.listed() || len(w.m.batches) > 0 {
		t.Errorf("kept %s", got)
	}

	w.event("salt/batch/"+jid+"/stop", value.NewMap())
	w.want("", "halted")
	if got := w.kept(); got != "1/0/1/1 stop" || w.listed() {
		t.Errorf("kept %s", got)
	}

	w.event("salt/batch/"+jid+"/new", state(0))
	w.event("salt/batch/"+jid+"/complete", state(2))
	if got := w.kept(); got != "2/0/1/1 " || w.listed() {
		t.Errorf("kept %s", got)
	}
}

// Salt's clean_old_jobs removes a folder without a jid file at once.
func TestStateLiesInAFolderWithJIDFile(t *testing.T) {
	w := newWorld(t)
	for range 2 {
		if err := w.m.writeState(jid, value.NewMap("jid", jid)); err != nil {
			t.Fatal(err)
		}
		dir, err := w.m.jobDir(jid)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "jid")); err != nil || string(b) != jid {
			t.Errorf("jid file: %q, %v", b, err)
		}
	}
}
