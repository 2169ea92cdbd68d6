package web

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"saltern/master/client"
	"saltern/master/internal/batch"
	"saltern/master/internal/local"
	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
	"saltern/test/minion"
)

// TestMasterProcess is a master of TestStopOfBatchWhoseMasterIsAway, in its process.
func TestMasterProcess(t *testing.T) { mastertest.RunProcess(t) }

// worker is a scripted minion that answers pings, and returns other jobs when it is told to.
type worker struct {
	*minion.Minion
	key *minion.Minion // asks; the other one listens

	mu   sync.Mutex
	jobs map[string]bool // job ids
}

// hireWorker has a minion follow what a master publishes, until the test ends.
func hireWorker(t *testing.T, r *mastertest.Master, id string) *worker {
	t.Helper()
	connect := func() *minion.Minion {
		m, err := minion.New(minion.Config{
			ID:      id,
			Key:     mastertest.KeyPair(t, "min8"),
			Master:  &mastertest.KeyPair(t, "masterA").PublicKey,
			Request: r.RequestAddress,
			Publish: r.PublishAddress,
		})
		check.Must(t, err)
		check.Must(t, m.SignIn(await.Context(t)))
		return m
	}
	w := &worker{Minion: connect(), key: connect(), jobs: map[string]bool{}}

	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() { w.follow(ctx) })
	t.Cleanup(func() {
		cancel()
		following.Wait()
		w.Close()
		w.key.Close()
	})
	return w
}

func (w *worker) follow(ctx context.Context) {
	for ctx.Err() == nil {
		job, err := w.Next(ctx)
		if err != nil {
			select { // the master is away
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		fun, jid := job.Str("fun"), job.Str("jid")
		listed := strings.Contains(value.Repr(job.Value("tgt")), w.ID)
		switch {
		case fun == "test.ping":
			_ = w.giveBack(ctx, jid, fun)
		case fun == "test.arg" && listed:
			w.mu.Lock()
			w.jobs[jid] = true
			w.mu.Unlock()
		}
	}
}

// giveBack returns a job. A master that was started again may not know the session.
func (w *worker) giveBack(ctx context.Context, jid, fun string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := w.key.Return(ctx, jid, fun, true)
	if err == nil {
		return nil
	}
	if err := w.key.SignIn(ctx); err != nil {
		return err
	}
	return w.key.Return(ctx, jid, fun, true)
}

func (w *worker) has(jid string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.jobs[jid]
}

// callRunner calls a runner as salt-run on the host of a master does.
func callRunner(t *testing.T, r *mastertest.Master, fun string, arg ...any) (any, bool) {
	t.Helper()
	_, port, err := net.SplitHostPort(r.RequestAddress)
	check.Must(t, err)
	number, err := strconv.Atoi(port)
	check.Must(t, err)
	c := client.New(client.Config{
		Interface:  r.Host,
		RetPort:    number,
		SockDir:    r.Path("run"),
		CacheDir:   r.Path("cache"),
		MasterUser: local.CurrentUser(),
		User:       local.CurrentUser(),
		Timeout:    5 * time.Second,
		Log:        slog.New(slog.NewTextHandler(r.Log, nil)),
	})
	defer c.Close()
	data, err := c.Runner(await.Context(t), fun, arg, value.NewMap(), value.NewMap(), func(string, *value.Map) {})
	check.Must(t, err)
	return data.Value("return"), data.Bool("success")
}

// TestStopOfBatchWhoseMasterIsAway: a stop that was acknowledged holds when the master that runs the batch was
// frozen or killed, and goes on afterwards. The other masters tell that the batch is stopped.
func TestStopOfBatchWhoseMasterIsAway(t *testing.T) {
	t.Parallel()
	ms := mastertest.StartProcesses(t, "TestMasterProcess", 3, batchOptions+"auto_accept: true\n")
	owner, asked, third := ms[0], ms[1], ms[2]
	workers := map[string]*worker{}
	for _, id := range []string{"web1", "web2", "web3"} {
		workers[id] = hireWorker(t, owner, id)
	}

	begin := func() (jid string) {
		t.Helper()
		await.That(t, "a batch begins", func() bool {
			answer, _ := owner.AskInClear(batch.Command, "fun", "test.arg", "arg", []any{}, "tgt", "web*", "tgt_type", "glob", "ret", "",
				"kwargs", value.NewMap(), batch.Field, batch.Spec{Size: "1"}.Map(), "user", "root", "key", owner.Key).(*value.Map)
			load := answer.Map("load")
			jid = load.Str("jid")
			return jid != "" && len(load.List("minions")) == 3
		})
		await.That(t, "the first minion has the job", func() bool { return workers["web1"].has(jid) })
		await.That(t, "the other masters know the job", func() bool {
			for _, m := range []*mastertest.Master{asked, third} {
				job, _ := callRunner(t, m, "jobs.list_job", jid)
				if found, _ := job.(*value.Map); found.Map("Batch") == nil {
					return false
				}
			}
			return true
		})
		return jid
	}

	for _, c := range []struct {
		name       string
		goes, back func()
	}{
		{
			name: "frozen",
			goes: func() { owner.Signal(syscall.SIGSTOP) },
			back: func() { owner.Signal(syscall.SIGCONT) },
		},
		{
			name: "killed",
			goes: func() { owner.Kill() },
			back: owner.StartAgain,
		},
	} {
		jid := begin()
		c.goes()
		if got, ok := callRunner(t, asked, "batch.stop", jid); got != true || !ok {
			t.Errorf("%s: batch.stop: %v, %t", c.name, got, ok)
		}
		job, _ := callRunner(t, third, "jobs.list_job", jid)
		found, _ := job.(*value.Map)
		if got := found.Map("Batch"); got.Str("halted") != "stop" || !got.Bool("away") {
			t.Errorf("%s: the third master tells %s", c.name, mastertest.PlainText(got))
		}
		if got, ok := callRunner(t, third, "batch.status", jid); ok || !strings.Contains(fmt.Sprint(got), "an order to stop the batch was left") {
			t.Errorf("%s: batch.status: %v", c.name, got)
		}

		c.back()
		await.That(t, c.name+": its first minion returns", func() bool {
			return workers["web1"].giveBack(await.Context(t), jid, "test.arg") == nil
		})
		await.That(t, c.name+": the master has stopped it", func() bool {
			status, _ := callRunner(t, asked, "batch.status", jid)
			m, _ := status.(*value.Map)
			return m.Str("halted_reason") == "stop"
		})
		await.Holds(t, time.Second, c.name+": no further slice", func() bool { return !workers["web2"].has(jid) && !workers["web3"].has(jid) })
		if got, ok := callRunner(t, third, "batch.stop", jid); got != false || !ok {
			t.Errorf("%s: stopped again: %v", c.name, got)
		}
	}
}
