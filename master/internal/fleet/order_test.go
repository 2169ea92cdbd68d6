package fleet

import (
	"reflect"
	"testing"
	"time"

	"saltern/master/history/summary"
	"saltern/master/jobs"
)

// wantLast checks which run is the last one of web1.
func (b *bench) wantLast(jid string) {
	b.Helper()
	last, _ := b.recorder.Table().Last("web1")
	if last.Run.JID != jid || last.Answer.JID != jid {
		b.Errorf("last run %s, last answer %s, want %s", last.Run.JID, last.Answer.JID, jid)
	}
}

// TestJobIDThatIsAheadDoesNotOutrank: callers may choose the ids of their jobs.
func TestJobIDThatIsAheadDoesNotOutrank(t *testing.T) {
	for name, jid := range map[string]string{
		"two hours ahead":  jobs.FromTime(start.Add(2 * time.Hour)),
		"two months ahead": jobs.FromTime(start.Add(60 * day)),
		"last":             "99991231235959999999",
		"no time":          "99999999999999999999",
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.highstate("web1", "r1", "a=ok")
			ahead := b.archived("web1", "state.apply", "r1", states("a=failed"))
			ahead.JID = jid
			b.offer(ahead)
			b.highstate("web1", "r1", "a=ok")
			b.wantLast(b.jid)

			b.offer(ahead) // the journal repeats it
			b.wantLast(b.jid)
			b.highstate("web1", "r1", "a=changed")
			b.wantLast(b.jid)
			b.wantCauses("web1", "a drift")
		})
	}
}

// TestClockThatWasAhead: the runs of a master whose clock was ahead do not stay the last ones, those that
// a master took whose clock is behind are in order nevertheless, and a late run displaces no later one.
func TestClockThatWasAhead(t *testing.T) {
	b := newBench(t)
	b.highstate("web1", "r1", "a=ok")
	now := b.now
	b.now = b.now.Add(5 * 365 * day)
	for _, sls := range []string{"x", "y", "z"} {
		b.add(b.archived("web1", "state.apply", "r1", states("b=changed"), sls))
	}
	ahead := b.archived("web1", "state.apply", "r1", states("a=failed"))
	b.offer(ahead)
	b.wantLast(ahead.JID)

	b.now = now
	late := b.archived("web1", "state.apply", "r1", states("a=failed"))
	b.now = now.Add(3 * time.Hour)
	b.highstate("web1", "r1", "a=ok")
	b.wantLast(b.jid)
	b.highstate("web1", "r1", "a=changed")
	b.wantCauses("web1", "a drift")
	last := b.jid
	b.add(late)
	b.offer(ahead)
	b.wantLast(last)

	b.now = start.Add(-30 * day) // this clock is behind, those of the others are not
	b.add(late)
	b.wantLast(last)
}

// TestRepeatedRunsLeaveTheTable: the journal repeats what is in the saved table already.
func TestRepeatedRunsLeaveTheTable(t *testing.T) {
	b := newBench(t)
	all := []jobs.Archived{
		b.archived("web1", "state.apply", "r1", states("a=ok", "b=ok")),
		b.archived("web1", "state.apply", "r1", states("a=changed", "b=ok")),
		b.archived("web1", "state.apply", "r1", states("b=changed"), "other"),
		b.archived("web1", "state.apply", "r1", states("a=ok", "b=changed")),
	}
	for _, a := range all {
		b.add(a)
	}
	b.wantCauses("web1", "b drift")
	if err := b.recorder.Sync(); err != nil {
		t.Fatal(err)
	}
	want := b.recorder.table.entries

	b.reopen()
	for _, a := range all {
		b.add(a)
	}
	if got := b.recorder.table.entries; !reflect.DeepEqual(got, want) {
		t.Errorf("table after the repeat:\n%+v, want\n%+v", got["web1"], want["web1"])
	}
	b.wantCauses("web1", "b drift")
}

// TestTableGetsTheNewestRunsOfTheHistory: an older table has been restored from a backup.
func TestTableGetsTheNewestRunsOfTheHistory(t *testing.T) {
	b := newBench(t)
	b.highstate("web1", "r1", "a=ok")
	if err := b.recorder.Sync(); err != nil {
		t.Fatal(err)
	}
	b.highstate("web1", "r1", "a=changed")
	b.reopen()
	b.wantLast(b.jid)
	b.wantCauses("web1", "a drift")
}

// TestJobIDFarAheadIsRefused: such ids would make each look-up read all of the history.
func TestJobIDFarAheadIsRefused(t *testing.T) {
	b := newBench(t)
	for i, ahead := range []time.Duration{23 * time.Hour, 25 * time.Hour, 1000 * day} {
		a := b.archived("web1", "state.apply", "r1", states("a=ok"))
		a.JID = jobs.FromTime(a.Time.Add(ahead))
		err := b.recorder.Add(a)
		if n := b.recorder.Stats().Refused; n != uint64(i) || err != nil { // an error would keep the segment of the job
			t.Errorf("%d refused after an id that is %v ahead: %v", n, ahead, err)
		}
	}
	if last, _ := b.recorder.Table().Last("web1"); last.Run.Result != summary.OK {
		t.Errorf("last run %+v", last.Run)
	}
}
