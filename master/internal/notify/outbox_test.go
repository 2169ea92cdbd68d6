package notify

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"saltern/master/internal/notify/alert"
	"saltern/master/internal/notify/rules"
	"saltern/master/saltyaml"
	"saltern/test/check"
)

func option(t testing.TB, yaml string) []any {
	t.Helper()
	v, err := saltyaml.Decode([]byte(yaml), "test")
	check.Must(t, err)
	list, _ := v.([]any)
	return list
}

// The outbox still has alerts and marks after a restart, whatever is at the end of the file.
func TestOutboxSurvives(t *testing.T) {
	for _, torn := range []bool{false, true} {
		t.Run(fmt.Sprint("torn ", torn), func(t *testing.T) {
			b := newBench(t, nil)
			dir := t.TempDir()
			b.open(dir)
			b.fail("sent", b.now)
			b.want([]string{"sent"})
			b.fail("waits", b.now)
			check.Must(t, b.outbox.Close())

			if torn {
				files, err := filepath.Glob(filepath.Join(dir, "*.records"))
				check.Must(t, err)
				f, err := os.OpenFile(files[len(files)-1], os.O_APPEND|os.O_WRONLY, 0)
				check.Must(t, err)
				_, err = f.WriteString("\x00\x00\x00\x10half of a re")
				check.Must(t, errors.Join(err, f.Close()))
			}

			b.open(dir)
			b.fail("sent", b.now) // another copy of the same happening
			b.want([]string{"waits"})
		})
	}
}

// A mark may come before the alert, because another master was faster.
func TestMarkBeforeItsAlert(t *testing.T) {
	b := newBench(t, nil)
	dir := t.TempDir()
	b.open(dir)
	a := failure("web", b.now)
	_, err := b.outbox.Settle(Mark{Alert: a.ID, To: "r/1", Key: a.Key, At: b.now, Outcome: Sent, Message: a.ID})
	check.Must(t, err)
	b.fail("web", b.now)
	b.want()

	check.Must(t, b.outbox.Close())
	b.open(dir)
	b.fail("web", b.now)
	b.want()
}

// settleAll marks all that waits, with one sync.
func (b *bench) settleAll(outcome Outcome) {
	b.t.Helper()
	var marks []Mark
	for _, e := range b.outbox.lines["r/1"].queue {
		marks = append(marks, Mark{Alert: e.alert.ID, To: "r/1", Key: e.alert.Key, At: b.now, Outcome: outcome})
	}
	_, err := b.outbox.Settle(marks...)
	check.Must(b.t, err)
}

// The outbox forgets what is too old, and nothing else; what it forgets leaves the disk.
func TestPrune(t *testing.T) {
	b := newBench(t, func(r *rules.Rule) { r.Limit = 1e6 })
	dir := t.TempDir()
	b.open(dir)
	for day := range 6 {
		b.failAll(300, fmt.Sprintf("m%d-%%d", day))
		b.settleAll(Sent)
		check.Must(t, b.outbox.Prune(b.now))
		if day < 2 && len(b.outbox.order) != 300*(day+1) {
			t.Errorf("day %d: %d alerts", day, len(b.outbox.order))
		}
		b.now = b.now.Add(24*time.Hour + time.Minute)
	}

	if n := len(b.outbox.order); n != 600 {
		t.Errorf("%d alerts are left", n)
	}
	check.Must(t, b.outbox.Close())
	b.open(dir)
	if n := len(b.outbox.order); n > 600 {
		t.Errorf("%d alerts are read again", n)
	}
	if b.outbox.Lost() > 0 {
		t.Errorf("%d are lost", b.outbox.Lost())
	}
}

// The oldest make room, and are counted.
func TestOutboxIsBounded(t *testing.T) {
	o, err := OpenOutbox(t.TempDir(), map[string]time.Time{"r/1": {}}, func(*alert.Alert) []string { return []string{"r/1"} })
	check.Must(t, err)
	defer o.Close()
	now := time.Now()
	var batch []alert.Alert
	for i := range maxEntries + 100 {
		batch = append(batch, failure(fmt.Sprint("m", i), now))
	}
	_, err = o.Record(batch...)
	check.Must(t, err)
	if len(o.order) != maxEntries || len(o.lines["r/1"].queue) != maxEntries || o.Lost() != 100 {
		t.Errorf("%d entries, %d wait, %d lost", len(o.order), len(o.lines["r/1"].queue), o.Lost())
	}
	if o.lines["r/1"].queue[0].alert.Minion != "m100" {
		t.Error("not the oldest made room")
	}
}

// A disk that takes nothing does not keep notifications from being sent.
func TestOutboxWithoutDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	check.Must(t, os.WriteFile(path, nil, 0o600))
	o, err := OpenOutbox(path, map[string]time.Time{"r/1": {}}, func(*alert.Alert) []string { return []string{"r/1"} })
	if err == nil {
		t.Fatal("a file is no folder")
	}
	b := newBench(t, nil)
	b.outbox = o
	if _, err := o.Record(failure("web", b.now)); err == nil {
		t.Error("nobody is told that the alert is in memory only")
	}
	m, _ := o.next("r/1", &b.rule, b, b.now)
	if m == nil || m.Alerts[0].Minion != "web" {
		t.Errorf("%+v", m)
	}
}

// TestFiguresBeginAtTheStart: what was refused before a restart is no new refusal, and still in notify.list.
func TestFiguresBeginAtTheStart(t *testing.T) {
	b := newBench(t, nil)
	dir := t.TempDir()
	b.open(dir)
	b.fail("web1", b.now)
	b.fail("web2", b.now)
	b.settleAll(Refused)
	if got := b.outbox.sinceStart("r/1"); got[Refused] != 2 {
		t.Errorf("before the restart: %v", got)
	}
	check.Must(t, b.outbox.Close())

	b.open(dir)
	_, all := b.outbox.counts("r/1")
	if got := b.outbox.sinceStart("r/1"); got[Refused] != 0 || all[Refused] != 2 {
		t.Errorf("after the restart: %v, of all %v", got, all)
	}
	b.fail("web3", b.now)
	b.settleAll(Refused)
	if got := b.outbox.sinceStart("r/1"); got[Refused] != 1 {
		t.Errorf("after one more: %v", got)
	}
}
