package audit

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"saltern/test/await"
	"saltern/test/logged"
	"saltern/test/smalldisk"
)

// otto may do little.
func otto(action string, result Result) Record {
	return Record{
		Actor:    Actor{User: "otto", Proof: Token, Eauth: "file", From: "10.0.0.9", Limited: true},
		Action:   action,
		Function: "test.ping",
		Object:   "web*",
		Result:   result,
		Detail:   strings.Repeat("x", 900),
	}
}

// Nothing that a limited user causes, permitted or not, drives out what was written down
// before, and what is left out is counted (finding 8 of the second audit).
func TestLimitedUserDrivesOutNothing(t *testing.T) {
	for name, flood := range map[string]Record{
		"refused publishes":   otto("job.publish", Refused),
		"permitted publishes": otto("job.publish", Started),
		"refused runners":     otto("runner.call", Refused),
		"keys":                otto("key.accept", OK),
		"log-ins": {
			Actor:  Actor{User: "otto", Proof: Password, Eauth: "file"},
			Action: "login",
			Result: OK,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := memoryDir(t)
			var later atomic.Int64
			l := open(t, dir, func() time.Time { return at.Add(time.Duration(later.Load())) })
			l.Write(t.Context(), act("web1"))
			l.Write(t.Context(), otto("node.leave", Refused))
			const asked = 150_000 // more than would fit
			for i := range asked {
				l.Note(flood)
				if i%2000 == 1999 {
					l.Write(t.Context(), act("between"))
				}
			}

			later.Store(int64(time.Hour))
			l.Close()

			if got := objects(read(t, Query{
				Action: "key.accept",
				User:   "alice",
			}, dir)); len(got) != 76 || got[0] != "web1" {
				t.Errorf("%d acts, first %q", len(got), got[:min(1, len(got))])
			}

			written, more := uint64(0), uint64(0)
			for _, r := range read(t, Query{Action: flood.Action, User: "otto"}, dir).Records {
				written++
				more += r.More
				if r.More > 0 && (r.Kinds[strings.TrimSpace(strings.Join(
					strings.Fields(flood.Action+" "+flood.Function+" "+
						string(flood.Result)), " "))] != r.More || r.Action != moreAction || r.User != "otto") {
					t.Errorf("%+v", r)
				}
			}

			if written-1+more != asked || written > 2100 {
				t.Errorf("%d written, %d counted, of %d", written, more, asked)
			}
		})
	}
}

// Another user has a rate of his own, and an administrator's jobs have none.
func TestRatesAreOfEachUser(t *testing.T) {
	dir := memoryDir(t)
	l := open(t, dir, func() time.Time { return at })
	for range 5000 {
		l.Note(otto("job.publish", Refused))
	}

	eva := otto("job.publish", Refused)
	eva.User = "eva"
	l.Note(eva)
	root := Record{Actor: Actor{User: "root", Proof: Key}, Action: "job.publish", Result: Started}
	for range 3000 {
		l.Write(t.Context(), root)
	}

	l.Close()
	if n := len(read(t, Query{User: "eva"}, dir).Records); n != 1 {
		t.Errorf("%d of eva", n)
	}

	if n := len(read(t, Query{User: "root"}, dir).Records); n != 3000 {
		t.Errorf("%d of root", n)
	}
}

// What was left out is written down once a minute, with its kinds, and exactly.
func TestWhatWasLeftOutIsCounted(t *testing.T) {
	dir := memoryDir(t)
	l := open(t, dir, func() time.Time { return at })
	for i := range 300 {
		r := otto("runner.call", Refused)
		r.Function = fmt.Sprint("evil.f", i)
		l.Note(r)
	}

	l.Close()
	page := read(t, Query{Action: "audit.more"}, dir)
	if len(page.Records) != 1 {
		t.Fatalf("%+v", page.Records)
	}

	r := page.Records[0]
	sum := uint64(0)
	for _, n := range r.Kinds {
		sum += n
	}

	if !strings.HasPrefix(r.Detail,
		"and 200 more of otto, faster than is written down: 185 others, 1 runner.call evil.f1") {
		t.Errorf("%q", r.Detail)
	}

	if r.More != 200 || sum != 200 || len(r.Kinds) != maxKinds || r.Result != Refused ||
		r.Kinds[otherKinds] != 200-maxKinds+1 {
		t.Errorf("%+v", r)
	}

	for _, q := range []Query{{Action: "runner.*"}, {User: "otto"}, {}} {
		if got := read(t, q, dir).Records; len(got) != 101 {
			t.Errorf("%+v: %d records", q, len(got))
		}
	}
}

// Very many users share what is left, and none is forgotten while something of his is not
// written down.
func TestRatesOfVeryManyUsers(t *testing.T) {
	l := newRates()
	of := shelf{name: refusedShelf, ofUser: shelfNamed(refusedShelf).ofUser}
	for i := range 3 * maxAccounts {
		r := otto("job.publish", Refused)
		r.User = fmt.Sprint("u", i)
		for range 102 {
			l.admitLimited(r, of, at)
		}
	}

	if len(l.accounts) > maxAccounts+1 {
		t.Errorf("%d accounts", len(l.accounts))
	}

	more := uint64(0)
	for _, s := range l.summaries(maxAccounts + 1) {
		more += s.record.More
	}

	if want := uint64(2*maxAccounts + 2*maxAccounts*102 - 100); more != want || l.leftOut != 0 {
		t.Errorf("%d, want %d; %d left", more, want, l.leftOut)
	}
}

// 3,000 callers at once: what each is told of is on the disk, all in one chain.
func TestManyCallersAtOnce(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, nil)
	const callers = 3000
	var all sync.WaitGroup
	var slowest atomic.Int64
	for i := range callers {
		all.Go(func() {
			began := time.Now()
			l.Write(t.Context(), act(fmt.Sprint(i)))
			for d := int64(time.Since(began)); d > slowest.Load(); {
				slowest.Store(d)
			}
		})
	}

	all.Wait()
	t.Logf("the last of %d waited %s", callers, time.Duration(slowest.Load()))
	if err := l.Fault(); err != nil {
		t.Fatal(err)
	}

	if n := len(read(t, Query{}, dir).Records); n != callers {
		t.Errorf("%d records", n)
	}

	list, err := Verify(t.Context(), Folder{NodeFolder, dir}, nil)
	if err != nil || !list[0].Whole() || list[0].Last != callers+1 {
		t.Errorf("%+v %v", list[0], err)
	}
}

// An act has room also when all else has filled the queue; one that is lost, or not
// on the disk yet, stands in the system's log.
func TestActsAreNotLostSilently(t *testing.T) {
	dir := t.TempDir()
	smalldisk.MountOn(t, dir, "size=16k")
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 16<<10), 0o600); err != nil &&
		!strings.Contains(err.Error(), "no space") {
		t.Fatal(err)
	}

	var said logged.Buffer
	l := Open(Config{Dir: dir, Node: "n1", Program: "test", Log: slog.New(slog.NewTextHandler(&said, nil))})
	job := Record{Actor: Actor{User: "root", Proof: Key}, Action: "job.publish", Result: Started}
	for range maxWaiting + 100 {
		l.Note(job)
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	l.Write(ended, act("early"))
	if got := said.String(); !strings.Contains(got, "not in the audit record yet") ||
		!strings.Contains(got, "object=early") || strings.Contains(got, "job.publish") {
		t.Errorf("%s", got)
	}

	for range actsReserve {
		l.Note(act("more"))
	}

	l.Note(act("too many"))
	await.That(t, "the fault is told", func() bool { return l.Fault() != nil })
	if got := said.String(); !strings.Contains(got, "an act is lost") || !strings.Contains(got, `object="too many"`) {
		t.Errorf("%.500s", got)
	}

	l.Close()
	if n := strings.Count(said.String(), "object=more"); n < actsReserve-1 {
		t.Errorf("%d of the lost acts are told of", n)
	}
}
