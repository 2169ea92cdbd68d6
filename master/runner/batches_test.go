package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"slices"
	"strings"
	"testing"

	"saltern/master/jobs"
	"saltern/master/value"
)

// oneBatch is a master, or all others, with one batch.
type oneBatch struct {
	jid     string
	gone    bool // its state cannot be read any more
	damaged error
	fail    error
	asked   []string // the owners that were asked
	stopped int
}

func (b *oneBatch) Status(_ context.Context, jid string) (*value.Map, error) {
	if jid != b.jid || b.gone {
		return nil, b.damaged
	}
	return m("jid", jid, "total", int64(9), "batch_size", int64(2), "pending", int64(4), "active", int64(1), "failed", int64(0),
		"halted", false, "halted_reason", nil), nil
}

func (b *oneBatch) Active(context.Context) ([]*value.Map, error) {
	status, _ := b.Status(context.Background(), b.jid)
	return []*value.Map{status}, b.damaged
}

func (b *oneBatch) Stop(_ context.Context, jid string) (bool, error) {
	if jid != b.jid {
		return false, nil
	}
	b.stopped++
	return b.stopped == 1, nil
}

// others asks oneBatch as another master.
type others struct{ *oneBatch }

func (o others) Status(_ context.Context, jid, owner string) (*value.Map, error) {
	o.asked = append(o.asked, owner)
	status, _ := o.oneBatch.Status(context.Background(), jid)
	return status, o.fail
}

func (o others) Active(ctx context.Context) ([]*value.Map, map[string]error) {
	list, _ := o.oneBatch.Active(ctx)
	if o.fail != nil {
		return nil, map[string]error{"n2": o.fail}
	}
	return list, nil
}

func (o others) Stop(ctx context.Context, jid, owner string) (bool, error) {
	o.asked = append(o.asked, owner)
	if o.fail != nil {
		return false, o.fail
	}
	return o.oneBatch.Stop(ctx, jid)
}

// leftOrders are orders for masters that do not answer.
type leftOrders struct {
	left map[string]bool
	fail error
}

func (o *leftOrders) Leave(_ context.Context, jid, master string) (bool, error) {
	isNew := !o.left[jid+master]
	if o.fail == nil {
		o.left[jid+master] = true
	}
	return isNew, o.fail
}

func (o *leftOrders) Left(_ context.Context, jid, master string) (bool, error) {
	return o.left[jid+master], nil
}

// killed keeps what minions were asked.
type killed struct{ questions []Question }

func (k *killed) Tell(_ context.Context, q Question) (int, error) {
	k.questions = append(k.questions, q)
	return 2, nil
}

// Ask waits for a minion that does not answer.
func (k *killed) Ask(ctx context.Context, _ Question) (Answer, error) {
	<-ctx.Done()
	return Answer{}, ctx.Err()
}

// TestBatches: a batch is shown and stopped where it runs; the other masters are asked only for what this
// one does not run.
func TestBatches(t *testing.T) {
	const ours, theirs = "20261129055906639594", "20261129055906639595"
	cache, err := jobs.Open(jobs.Config{Dir: t.TempDir(), HashType: "sha256"}, slog.New(slog.DiscardHandler))
	ok(t, err)
	defer cache.Close(context.Background())
	of := m("minions", int64(9), "size", int64(2), "master", "n2", "tgt", "web*", "tgt_type", "glob", "delimiter", "|")
	ok(t, cache.SaveLoad(t.Context(), theirs, m("fun", "test.ping", "tgt", []any{"web1", "web2"}, "tgt_type", "list", jobs.BatchField, of),
		[]string{"web1", "web2"}))

	elsewhere := &oneBatch{jid: theirs}
	minions := &killed{}
	env := environment(nil)
	env.Jobs, env.Batches, env.BatchesElsewhere, env.Minions = cache, &oneBatch{jid: ours}, others{elsewhere}, minions
	call := func(fun string, args ...any) (any, error) { return New().Call(t.Context(), env, fun, args, nil) }

	number, _ := new(big.Int).SetString(ours, 10) // what a command line makes of the id
	for _, c := range []struct {
		fun  string
		args []any
		want any
	}{
		{"batch.stop", []any{number}, true},
		{"batch.stop", []any{ours}, false},
		{"batch.stop", []any{theirs, true}, true},
		{"batch.stop", []any{theirs, true}, false},
		{"batch.stop", []any{"20261129055906639596"}, false},
		{"batch.status", []any{"20261129055906639596"}, nil},
	} {
		if got, err := call(c.fun, c.args...); err != nil || got != c.want {
			t.Errorf("%s %v: %v, %v", c.fun, c.args, got, err)
		}
	}
	if q := minions.questions; len(q) != 1 || q[0].Fun != "saltutil.kill_job" || value.Repr(q[0].Target) != "['web1', 'web2']" || q[0].Arg[0] != theirs {
		t.Errorf("killed %v", q)
	}
	if got := strings.Join(elsewhere.asked, " "); got != "n2 n2  " { // of an unknown job all are asked
		t.Errorf("asked %q", got)
	}

	for target, want := range map[string]int{"web[*]": 1, "web1": 0} { // as it was asked for, not of the last slice
		got, err := New().Call(t.Context(), env, "jobs.list_jobs", nil, m("search_target", target))
		ok(t, err)
		if n := got.(*value.Map).Len(); n != want {
			t.Errorf("search_target=%s finds %d", target, n)
		}
	}

	listed := func() (jids []string) {
		t.Helper()
		got, err := call("batch.list_active")
		ok(t, err)
		for _, v := range got.([]any) {
			entry := v.(*value.Map)
			jids = append(jids, entry.Str("jid")+entry.Str("error"))
			if _, has := entry.Get("age_seconds"); !has || entry.Len() < 17 {
				t.Errorf("an entry lacks fields: %s", JSON(entry, false))
			}
		}
		return jids
	}
	if got := listed(); !slices.Equal(got, []string{ours, theirs}) {
		t.Errorf("active: %v", got)
	}

	show := func() (job *value.Map) {
		t.Helper()
		got, err := call("jobs.list_job", theirs)
		ok(t, err)
		return got.(*value.Map)
	}
	if job := show(); job.Str("Target") != "web*" || job.Str("Target-type") != "glob" || job.Str("Delimiter") != "|" || job.Map("Batch").Value("pending") != int64(4) {
		t.Errorf("the job: %s", JSON(job, false))
	}
	elsewhere.fail = errors.New("n2 did not answer")
	if got := listed(); !slices.Equal(got, []string{ours, "n2 did not answer"}) {
		t.Errorf("active: %v", got)
	}
	elsewhere.jid = ""
	if b := show().Map("Batch"); !b.Bool("away") || b.Value("pending") != nil || b.Value("minions") != int64(9) {
		t.Errorf("the batch of a master that is away: %s", JSON(b, false))
	}
	for _, fun := range []string{"batch.stop", "batch.status"} {
		if _, err := call(fun, theirs); err == nil || !strings.Contains(err.Error(), "n2 did not answer") {
			t.Errorf("%s: %v", fun, err)
		}
		if _, err := call(fun, "../../etc/passwd"); err == nil || !strings.Contains(err.Error(), "is not a job id") {
			t.Errorf("%s: %v", fun, err)
		}
	}

	elsewhere.fail = fmt.Errorf("n2 %w", ErrRemoved)
	if b := show().Map("Batch"); b.Bool("away") || !b.Bool("removed") {
		t.Errorf("the batch of a master that was removed: %s", JSON(b, false))
	}

	asked := len(elsewhere.asked)
	if _, err := call("jobs.lookup_jid", theirs); err != nil || len(elsewhere.asked) != asked {
		t.Errorf("a look-up of returns asks other masters: %v", err)
	}
}

// TestStopOfBatchWithoutState: a batch of this master is stopped although its state file is gone, and is
// not called ended when that cannot be read.
func TestStopOfBatchWithoutState(t *testing.T) {
	const ours = "20261129055906639594"
	cache, err := jobs.Open(jobs.Config{Dir: t.TempDir(), HashType: "sha256"}, slog.New(slog.DiscardHandler))
	ok(t, err)
	defer cache.Close(context.Background())
	own, elsewhere := &oneBatch{jid: ours, gone: true}, &oneBatch{}
	env := environment(nil)
	env.Jobs, env.Batches, env.BatchesElsewhere = cache, own, others{elsewhere}
	call := func(fun string) (any, error) { return New().Call(t.Context(), env, fun, []any{ours}, nil) }

	if got, err := call("batch.stop"); got != true || err != nil || len(elsewhere.asked) > 0 {
		t.Errorf("%v, %v; asked %v", got, err, elsewhere.asked)
	}

	own.damaged = errors.New("it holds no state of a batch")
	for _, fun := range []string{"batch.stop", "batch.status"} {
		if got, err := call(fun); err == nil || len(elsewhere.asked) > 0 {
			t.Errorf("%s of a damaged state: %v; asked %v", fun, got, elsewhere.asked)
		}
	}
}

// TestStopIsLeftForSilentMaster: an order to stop a batch is left for the master that runs it when that does not
// answer, unless it does not know such orders. What cannot be left is not called stopped.
func TestStopIsLeftForSilentMaster(t *testing.T) {
	const jid = "20261129055906639595"
	for _, c := range []struct {
		name    string
		answers error // of the master that runs the batch
		old     bool  // it does not know orders
		fail    error // of the shared folder
		want    []any // of batch.stop, asked twice; nil: an error
		halted  string
	}{
		{name: "silent", answers: &NoAnswer{"n2 did not answer"}, want: []any{true, false}, halted: "stop"},
		{name: "of an older version", answers: &NoAnswer{"n2 did not answer"}, old: true},
		{name: "without a shared folder", answers: &NoAnswer{"n2 did not answer"}, fail: errors.New("the folder does not answer")},
		{name: "removed", answers: fmt.Errorf("n2 %w", ErrRemoved)},
		{name: "with a fault", answers: errors.New("the disk of n2 is full")},
	} {
		t.Run(c.name, func(t *testing.T) {
			cache, err := jobs.Open(jobs.Config{Dir: t.TempDir(), HashType: "sha256"}, slog.New(slog.DiscardHandler))
			ok(t, err)
			defer cache.Close(context.Background())
			of := m("minions", int64(9), "size", int64(2), "master", "n2", "orders", !c.old)
			ok(t, cache.SaveLoad(t.Context(), jid, m("fun", "test.ping", "tgt", []any{"web1"}, jobs.BatchField, of), []string{"web1"}))
			orders := &leftOrders{left: map[string]bool{}, fail: c.fail}
			env := environment(nil)
			env.Jobs, env.Batches, env.StopOrders = cache, &oneBatch{}, orders
			env.BatchesElsewhere = others{&oneBatch{fail: c.answers}}

			for i := range 2 {
				got, err := New().Call(t.Context(), env, "batch.stop", []any{jid}, nil)
				switch {
				case c.want != nil && (err != nil || got != c.want[i]):
					t.Errorf("%v, %v, want %v", got, err, c.want[i])
				case c.want == nil && (err == nil || !strings.Contains(err.Error(), c.answers.Error())):
					t.Errorf("%v, %v", got, err)
				case c.fail != nil && !strings.Contains(err.Error(), c.fail.Error()):
					t.Error(err)
				}
			}
			job, err := New().Call(t.Context(), env, "jobs.list_job", []any{jid}, nil)
			ok(t, err)
			if got := job.(*value.Map).Map("Batch").Str("halted"); got != c.halted {
				t.Errorf("halted %q, want %q", got, c.halted)
			}
		})
	}
}
