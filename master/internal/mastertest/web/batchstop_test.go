package web

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"saltern/master/internal/batch"
	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// TestStopOfBatchAtAnotherMaster: a batch is stopped from each master of the cluster, and each tells how
// far it is. When the master that runs it is away, the others say so, and leave it an order.
func TestStopOfBatchAtAnotherMaster(t *testing.T) {
	t.Parallel()
	ms := mastertest.StartCluster(t, 3, batchOptions)
	mastertest.AwaitLinks(t, ms)
	owner, asked, third := ms[0], ms[1], ms[2]
	c := hireCrewOf(t, owner, "web1")

	begin := func() (jid string) {
		t.Helper()
		answer, _ := owner.AskInClear(batch.Command, "fun", "test.arg", "arg", []any{}, "tgt", "web*", "tgt_type", "glob", "ret", "",
			"kwargs", value.NewMap(), batch.Field, batch.Spec{Size: "1"}.Map(), "user", "root", "key", owner.Key).(*value.Map)
		if jid = answer.Map("load").Str("jid"); jid == "" {
			t.Fatalf("answer %s", mastertest.PlainText(answer))
		}
		return jid
	}
	call := func(m *mastertest.Master, fun, jid string) (any, error) {
		var args []any
		if jid != "" {
			args = []any{jid}
		}
		return m.Parts.Runs.Call(await.Context(t), fun, args, nil)
	}
	batchAt := func(m *mastertest.Master, jid string) *value.Map {
		job, err := call(m, "jobs.list_job", jid)
		check.Must(t, err)
		return job.(*value.Map).Map("Batch")
	}

	jid := begin()
	await.That(t, "the other masters know how far it is", func() bool {
		for _, m := range []*mastertest.Master{asked, third} {
			if n, ok := batchAt(m, jid).Int("pending"); !ok || n != 3 {
				return false
			}
		}
		return true
	})
	listed := func(m *mastertest.Master) string {
		list, err := call(m, "batch.list_active", "")
		check.Must(t, err)
		var entries []string
		for _, v := range list.([]any) {
			entry := v.(*value.Map)
			entries = append(entries, strings.TrimSpace(strings.Join([]string{entry.Str("jid"), entry.Str("master"), entry.Str("error")}, " ")))
		}
		return strings.Join(entries, "; ")
	}
	for _, m := range ms {
		if got, want := listed(m), jid+" "+owner.Host; got != want {
			t.Errorf("%s lists %q, want %q", m.Host, got, want)
		}
	}
	if got := batchAt(asked, jid); got.Str("tgt") != "web*" || got.Str("master") != owner.Host {
		t.Errorf("the batch: %s", mastertest.PlainText(got))
	}

	for i, want := range []bool{true, false} { // the second time it has ended
		if got, err := call([]*mastertest.Master{asked, third}[i], "batch.stop", jid); err != nil || got != want {
			t.Errorf("batch.stop: %v, %v, want %t", got, err, want)
		}
	}
	for _, m := range ms {
		if got := batchAt(m, jid); got.Str("halted") != "stop" {
			t.Errorf("%s: %s", m.Host, mastertest.PlainText(got))
		}
	}
	c.ret("web1", jid, "test.arg", 0)
	await.Holds(t, time.Second, "no further slice", func() bool { return fmt.Sprint(c.slices()) == "[web1]" })

	for fun, want := range map[string]any{"batch.stop": false, "batch.status": nil} {
		if got, err := call(asked, fun, "20260102030405678901"); err != nil || got != want {
			t.Errorf("%s of an unknown job: %v, %v", fun, got, err)
		}
	}

	jid = begin()
	await.That(t, "the job reaches the others", func() bool { return batchAt(asked, jid) != nil })
	owner.Stop()
	await.That(t, "the others see that it is away", func() bool { return batchAt(asked, jid).Bool("away") })
	if got, err := call(asked, "batch.status", jid); err == nil || !strings.Contains(err.Error(), "the master "+owner.Host+" runs the batch") {
		t.Errorf("batch.status: %v, %v", got, err)
	}
	if got, err := call(asked, "batch.stop", jid); err != nil || got != true { // it waits as an order
		t.Errorf("batch.stop: %v, %v", got, err)
	}
}
