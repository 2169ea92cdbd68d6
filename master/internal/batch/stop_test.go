package batch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"saltern/master/value"
	"saltern/test/check"
)

// TestStop: Stop tells whether it has stopped the batch, and reports none as stopped that would go on
// after a restart.
func TestStop(t *testing.T) {
	w := newWorld(t)
	w.handOver()
	status := func() *value.Map {
		t.Helper()
		got, err := w.m.Status(t.Context(), jid)
		check.Must(t, err)
		return got
	}
	if got := status(); got.Value("pending") != int64(3) || got.Value("active") != int64(2) || got.Bool("halted") {
		t.Errorf("status %v", got)
	}
	active := func(ctx context.Context) (list []*value.Map) {
		t.Helper()
		list, err := w.m.Active(ctx)
		if (err != nil) != (ctx.Err() != nil) {
			t.Error(err)
		}
		return list
	}
	left, leave := context.WithCancel(t.Context())
	leave()
	if got := active(t.Context()); len(got) != 1 || got[0].Str("jid") != jid || len(active(left)) > 0 {
		t.Errorf("active %v", got)
	}
	for _, want := range []bool{true, false} {
		if r := w.m.stopNow(t.Context(), jid); r.stopped != want || r.err != nil {
			t.Errorf("%+v, want %t", r, want)
		}
	}
	w.want("", "halted")
	if got := active(t.Context()); len(got) > 0 {
		t.Errorf("active %v", got)
	}
	if got := status(); !got.Bool("halted") || got.Str("halted_reason") != "stop" {
		t.Errorf("status %v", got)
	}
	const unknown = "20261123000000000009"
	if r := w.m.stopNow(t.Context(), unknown); r != (stopResult{}) {
		t.Errorf("an unknown batch: %+v", r)
	}
	if got, err := w.m.Status(t.Context(), unknown); got != nil || err != nil {
		t.Errorf("an unknown batch: %v, %v", got, err)
	}
	if got, err := w.m.Status(t.Context(), "../../etc"); got != nil || err == nil {
		t.Errorf("no job id: %v, %v", got, err)
	}

	w = newWorld(t)
	w.handOver()
	w.m.cfg.HashType = "none that is known" // as if the disk took nothing
	if r := w.m.stopNow(t.Context(), jid); r.stopped || r.err == nil || !strings.Contains(r.err.Error(), "after a restart") {
		t.Errorf("%+v", r)
	}
}

// TestStatusAfterHalt: minions that were at work when a batch was stopped do not count as active for ever: one has
// returned since, and the other one does not.
func TestStatusAfterHalt(t *testing.T) {
	w := newWorld(t)
	w.handOver("active", value.NewMap("a", seconds(w.now), "b", seconds(w.now)))
	check.Must(t, w.m.stopNow(t.Context(), jid).err)

	counts := func() string {
		t.Helper()
		status, err := w.m.Status(t.Context(), jid)
		check.Must(t, err)
		return fmt.Sprint(status.Value("completed"), status.Value("active"), status.Value("failed"), status.Value("pending"))
	}
	if got := counts(); got != "0 2 0 3" {
		t.Errorf("when it was stopped: %s", got)
	}
	w.returns.Set("b", value.NewMap("return", true))
	if got := counts(); got != "1 1 0 3" {
		t.Errorf("after the return of b: %s", got)
	}
	w.now = w.now.Add(15 * time.Second)
	if got := counts(); got != "1 0 1 3" {
		t.Errorf("when a is late: %s", got)
	}
}

// TestStopOfUnreadableBatch: a batch whose state cannot be read is not called ended.
func TestStopOfUnreadableBatch(t *testing.T) {
	w := newWorld(t)
	w.crowd()
	w.handOver() // it waits: the Manager has its state on the disk only
	dir, err := w.m.jobDir(jid)
	check.Must(t, err)
	check.Must(t, os.WriteFile(filepath.Join(dir, stateFile), []byte("damaged"), 0o600))

	if r := w.m.stopNow(t.Context(), jid); r.stopped || r.err == nil || !strings.Contains(r.err.Error(), "may go on") {
		t.Errorf("%+v", r)
	}
	if got, err := w.m.Status(t.Context(), jid); got != nil || err == nil {
		t.Errorf("status %v, %v", got, err)
	}
}

// TestUnfinished: the files of a batch that goes on are kept, unless nothing happens for long.
func TestUnfinished(t *testing.T) {
	w := newWorld(t)
	w.handOver()
	unfinished := func(now time.Time) bool {
		t.Helper()
		jids, err := Unfinished(w.m.cfg.Dir, w.m.cfg.HashType, now)
		check.Must(t, err)
		return jids[jid]
	}
	if !unfinished(time.Now()) || unfinished(time.Now().Add(stalledFor+time.Minute)) {
		t.Error("a batch that goes on is not kept, or is kept for ever")
	}
	w.m.stopNow(t.Context(), jid)
	if unfinished(time.Now()) {
		t.Error("a batch that has ended is kept")
	}
}

// TestStopOfQueuedBatch: a batch that waits for others does not begin any more.
func TestStopOfQueuedBatch(t *testing.T) {
	w := newWorld(t)
	w.crowd()
	w.handOver()
	if r := w.m.stopNow(t.Context(), jid); !r.stopped {
		t.Errorf("%+v", r)
	}
	w.m.forget("0")
	w.m.adoptWaiting(t.Context())
	w.want("", "halted")
}

// TestStopWaitsForNobody: who asks to stop a batch waits neither for a Manager that has stopped nor
// beyond his time.
func TestStopWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		bounded, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := w.m.Stop(bounded, jid); err == nil { // nobody reads
			t.Error("stopped")
		}

		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { w.m.Run(ctx, nil); close(ended) }()
		if stopped, err := w.m.Stop(t.Context(), jid); stopped || err != nil {
			t.Errorf("an unknown batch: %t, %v", stopped, err)
		}
		stop()
		<-ended
		if _, err := w.m.Stop(t.Context(), jid); err == nil || !strings.Contains(err.Error(), "the master stops") {
			t.Error(err)
		}
	})
}

// TestLongTargetIsNotKept: the load of each slice stays small.
func TestLongTargetIsNotKept(t *testing.T) {
	m := newWorld(t).m
	own := Own{Target: strings.Repeat("web,", maxKeptTarget), Spec: Spec{Size: "25%", Failhard: true}}
	of := m.batchField(own, New([]string{"a"}, 1))
	if of.Value("tgt") != nil || of.Map("asked").Str("size") != "25%" {
		t.Errorf("%v", of)
	}
}
