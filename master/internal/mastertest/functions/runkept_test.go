package functions

import (
	"slices"
	"strings"
	"testing"

	"saltern/internal/durable"
	"saltern/master/crypt"
	"saltern/master/internal/local"
	"saltern/master/internal/mastertest"
	"saltern/master/keys"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// ret waits for the result of a runner that was started.
func runnerResult(r *mastertest.Master, answer any) *value.Map {
	r.T.Helper()
	m, ok := answer.(*value.Map)
	if !ok || m.Str("jid") == "" {
		r.T.Fatalf("answer of a runner: %v", answer)
	}

	var data *value.Map
	await.That(r.T, "the result of a runner", func() bool {
		for _, e := range r.NewEvents() {
			if e.Tag == m.Str("tag")+"/ret" {
				data = e.Data
			}
		}
		return data != nil
	})

	return data
}

func TestRunnersAreListedAndKept(t *testing.T) {
	r := mastertest.Start(t, "")
	r.ListenToBus()
	run := func(fun string, args ...any) *value.Map {
		t.Helper()
		return runnerResult(r, r.AskInClear("runner", "fun", fun, "kwarg",
			value.NewMap("arg", args, "kwarg", value.NewMap()), "key", r.Key, "user", local.CurrentUser()))
	}

	now := run("jobs.master").List("return")
	if len(now) != 1 {
		t.Fatalf("jobs.master: %v", now)
	}

	entry, _ := now[0].(*value.Map)
	fields := []string{}
	for field := range entry.All() {
		fields = append(fields, value.Str(field))
	}
	slices.Sort(fields)
	// as Salt's own runners/test_jobs.py::test_master demands
	if want := []string{"_stamp", "fun", "fun_args", "jid", "pid", "user"}; !slices.Equal(fields, want) {
		t.Errorf("a run in jobs.master has the fields %v, want %v", fields, want)
	}

	if len(r.Parts.Runs.Running()) != 0 {
		t.Error("a runner that has ended is still listed")
	}

	jid := run("test.arg", "x").Str("jid")
	job := run("jobs.list_job", jid).Map("return")
	if job.Str("Function") != "runner.test.arg" || job.Map("Result").Map("m1") == nil {
		t.Errorf("kept runner: %v", job)
	}

	if got := r.AskInClear("wheel", "fun", "key.list_all", "key", r.Key, "user", local.CurrentUser()).(*value.Map).Map("data"); run("jobs.list_job", got.Str("jid")).Map("return").Str("Function") != "wheel.key.list_all" {
		t.Errorf("wheel function %v is not kept", got)
	}
}

// A key file that appeared a moment ago counts for the next job.
func TestKeyOfAMomentAgo(t *testing.T) {
	r := mastertest.Start(t, "")
	pem, err := crypt.PublicPEM(&mastertest.KeyPair(t, "min8").PublicKey)
	check.Must(t, err)
	for _, id := range []string{"new1", "new2", "new3"} {
		check.Must(t, durable.Replace(r.Path("pki", keys.Accepted.Dir(), id), []byte(strings.TrimSpace(pem)), 0o600))
		if got := r.Publish(id, "test.ping").List("minions"); len(got) != 1 {
			t.Errorf("%s: minions %v", id, got)
		}
	}
}
