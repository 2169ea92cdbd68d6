package jobs

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// fact is what a model knows about one thing in a cache: a load, a return, an end time, an expected minion.
type fact struct {
	acked string // acknowledged, so it must be found, and nothing else; "": nothing is
	at    time.Time
	// maybe may be found. Cache says of what was refused that it may be saved or not. What is older than keep_jobs_seconds
	// goes with its segment, so that it may stay for longer (docs/configuration.md, "The job cache").
	maybe map[string]bool
	// before was found or may have been before acked was acknowledged.
	before map[string]bool
}

func (f *fact) ack(v string, at time.Time) {
	before := maps.Clone(f.maybe)
	if before == nil {
		before = map[string]bool{}
	}
	maps.Copy(before, f.before)
	before[f.acked] = true
	*f = fact{acked: v, at: at, before: before}
}

func (f *fact) mayBe(v string) {
	if f.maybe == nil {
		f.maybe = map[string]bool{}
	}
	f.maybe[v] = true
}

// expire says that what is acknowledged may be gone. With again set, what was before may be found instead.
func (f *fact) expire(again bool) {
	if f.acked != "" {
		f.mayBe(f.acked)
	}
	if again {
		for v := range f.before {
			f.mayBe(v)
		}
	}
	f.acked = ""
}

func (f *fact) allows(got string) bool {
	return got == f.acked || got != "" && f.maybe[got]
}

// homeModel is a cache with segments, and what must be found in it.
type homeModel struct {
	*Local
	t       *testing.T
	dice    *rand.Rand
	clock   *fakeClock
	cfg     Config
	archive *archiveWithLoads
	disk    *faultyDisk
	early   uint64 // RemovedEarly as of the last look
	// again says that what was before may be found again when the latest is gone. A full disk costs the oldest segment
	// that the history has (docs/configuration.md): it may have the latest load, and an older one stay in a segment that
	// the history lacks. After a jump of the clock, what it took for old is young again.
	again   bool
	history []string
	// loadWasOld has the jobs whose loads were older than keep_jobs_seconds when Clean came: a return that comes so late,
	// and that a crash passes to the archive again, may find no load.
	loadWasOld map[string]bool

	jids  []string
	facts map[string]*fact // by kind, job and minion
}

// faultyDisk fails from some write on.
type faultyDisk struct {
	mu   sync.Mutex
	err  error // nil: it does not
	left int   // writes that succeed
}

func (d *faultyDisk) write(string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		return nil
	}
	d.left--
	if d.left >= 0 {
		return nil
	}
	return d.err
}

func (d *faultyDisk) failAfter(writes int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
	d.left = writes
}

// archiveWithLoads is an archive that notes jobs of which it gets a return without the load.
type archiveWithLoads struct {
	*fakeArchive
	unknown sync.Map // keys are ids of jobs
}

func (a *archiveWithLoads) Add(r Archived) error {
	if r.Load() == nil {
		a.unknown.Store(r.JID, true)
	}
	return a.fakeArchive.Add(r)
}

// TestHomeAgainstAModel runs random sequences of calls, crashes at any write, full disks and jumps of the clock.
// SALTERN_TEST_SEEDS says how many, SALTERN_TEST_SEED with which it begins.
func TestHomeAgainstAModel(t *testing.T) {
	first := numberFrom("SALTERN_TEST_SEED", 1)
	for seed := first; seed < first+numberFrom("SALTERN_TEST_SEEDS", 3); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			m := newHomeModel(t, rand.New(rand.NewPCG(uint64(seed), 44)))
			for step := range 120 {
				m.step(step)
				if t.Failed() {
					t.Fatalf("after %q", m.history)
				}
			}
			m.end()
		})
	}
}

// numberFrom returns the number in an environment variable, if it has one.
func numberFrom(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

func newHomeModel(t *testing.T, dice *rand.Rand) *homeModel {
	m := &homeModel{
		t:       t,
		dice:    dice,
		clock:   &fakeClock{now: time.Now()},
		archive: &archiveWithLoads{fakeArchive: newFakeArchive()},
		disk:    &faultyDisk{},
		facts:   map[string]*fact{},

		loadWasOld: map[string]bool{},
	}
	m.cfg = Config{
		Dir:          filepath.Join(t.TempDir(), "jobs"),
		SegmentBytes: int64(500 + dice.IntN(1500)),
		Endtimes:     false,
		Archive:      m.archive,
		Now:          m.clock.Now,
		fault:        m.disk.write,
	}
	m.Local = open(t, m.cfg)
	for i := range 8 {
		m.jids = append(m.jids, FromTime(m.clock.Now().Add(time.Duration(i)*time.Minute)))
	}
	return m
}

func (m *homeModel) fact(kind, jid, id string) *fact {
	key := kind + " " + jid + " " + id
	if m.facts[key] == nil {
		m.facts[key] = &fact{}
	}
	return m.facts[key]
}

// settle notes in a fact what became of a call that writes it.
func (m *homeModel) settle(f *fact, v string, err error) {
	now := m.clock.Now()
	switch {
	case err != nil:
		f.mayBe(v)
	default:
		f.ack(v, now)
	}
}

const modelKeep = 24 * time.Hour

func (m *homeModel) step(step int) {
	ctx := m.t.Context()
	jid := m.jids[m.dice.IntN(len(m.jids))]
	id := fmt.Sprintf("m%d", m.dice.IntN(5))
	text := fmt.Sprint("v", step)
	what := m.dice.IntN(20)
	m.history = append(m.history, fmt.Sprintf("%d:%d %s %s", step, what, jid[8:14], id))
	m.clock.pass(time.Second)
	switch what {
	case 0, 1:
		load := value.NewMap("jid", jid, "fun", text)
		err := m.SaveLoad(ctx, jid, load, []string{id})
		m.settle(m.fact("load", jid, ""), text, err)
		m.settle(m.fact("minion", jid, id), "listed", err)
	case 2:
		m.settle(m.fact("minion", jid, id), "listed", m.AddMinions(ctx, jid, []string{id}, ""))
	case 3:
		m.settle(m.fact("end", jid, ""), text, m.UpdateEndtime(ctx, jid, text))
	case 4:
		_, err := m.LayOutAll(ctx, jid)
		m.mayFail(err)
	case 5:
		m.mayFail(m.LayOut(ctx, jid, []string{id, "m0"}))
	case 6:
		m.clean()
	case 7:
		check.Must(m.t, m.Close(ctx))
		m.reopen()
	case 8:
		m.disk.failAfter(m.dice.IntN(8), syscall.EIO)
		m.step(step)
		m.step(step + 1000)
		m.crash()
	case 9:
		m.disk.failAfter(m.dice.IntN(3), syscall.ENOSPC)
	case 10:
		m.disk.failAfter(0, nil)
	case 12:
		m.handOver(jid)
	case 11:
		jump := []time.Duration{10 * time.Minute, 2 * time.Hour, 2 * time.Hour, 20 * time.Hour, -time.Hour, -30 * time.Hour}
		by := jump[m.dice.IntN(len(jump))]
		m.again = m.again || by < 0
		m.clock.pass(by)
	default:
		m.saveReturn(jid, id, text)
	}

	if early := m.Stats().RemovedEarly; early != m.early {
		m.early = early
		m.again = true
		m.expire(m.clock.Now().Add(-youngest))
	}
	if step%7 == 0 {
		m.look()
	}
}

// mayFail fails the test if something failed although the disk did not.
func (m *homeModel) mayFail(err error) {
	m.disk.mu.Lock()
	failing := m.disk.err != nil
	m.disk.mu.Unlock()
	if err != nil && !failing && !errors.Is(err, fs.ErrNotExist) {
		m.t.Error(err)
	}
}

// expire says that what is older than before may be gone.
func (m *homeModel) expire(before time.Time) {
	for _, f := range m.facts {
		if f.at.Before(before) {
			f.expire(m.again)
		}
	}
}

func (m *homeModel) clean() {
	_, err := m.Clean(m.t.Context(), modelKeep)
	m.mayFail(err)
	oldest := m.clock.Now().Add(-modelKeep)
	for _, jid := range m.jids {
		load := m.fact("load", jid, "")
		isStored := load.acked != "" || len(load.maybe) > 0
		m.loadWasOld[jid] = m.loadWasOld[jid] || isStored && load.at.Before(oldest)
	}
	m.expire(oldest)
}

func (m *homeModel) saveReturn(jid, id, text string) {
	r := ret(jid, id, text)
	r.Load = value.NewMap("jid", jid, "fun", "of "+id)
	if m.dice.IntN(3) == 0 {
		r.Out = "nested"
	}
	stored, err := m.SaveReturn(m.t.Context(), r)
	if errors.Is(err, ErrOtherReturn) {
		err = nil // it is answered, and the first one is kept
	}
	m.mayFail(err)
	f := m.fact("return", jid, id)
	load := m.fact("load", jid, "")
	if err != nil {
		if f.acked == "" {
			f.mayBe(text)
		}
		load.mayBe("of " + id)
		return
	}

	if stored && f.acked != "" {
		m.t.Errorf("%s %s is stored again", jid, id)
	}
	makesLoad := load.acked == "" && len(load.maybe) == 0
	if stored {
		f.mayBe(text)
		load.mayBe("of " + id)
	}

	// It is acknowledged: it is found, and so is the load that it may have made.
	got := m.readReturn(jid, id)
	if got == "" || !f.allows(got) || stored && got != text {
		m.t.Errorf("acknowledged return %s of %s: %q, want %+v", id, jid, got, *f)
	}
	if stored {
		f.ack(got, m.clock.Now())
	}
	if fun := m.readLoad(jid).Str("fun"); stored {
		if fun == "" || !load.allows(fun) {
			m.t.Errorf("the load of %s is %q, want %+v", jid, fun, *load)
		}
		if makesLoad {
			load.ack(fun, m.clock.Now())
		}
	}
}

func (m *homeModel) readReturn(jid, id string) string {
	returns, err := m.Returns(m.t.Context(), jid)
	check.Must(m.t, err)
	return returns.Map(id).Str("return")
}

func (m *homeModel) readLoad(jid string) *value.Map {
	load, err := m.Load(m.t.Context(), jid)
	check.Must(m.t, err)
	return load
}

// crash ends the cache as it is. The last segment may have torn bytes then.
func (m *homeModel) crash() {
	crash(m.t, m.Local)
	m.archive.loseUnsynced()
	logs, _ := filepath.Glob(filepath.Join(m.cfg.Dir+".journal", "*"+segmentSuffix))
	if len(logs) > 0 && m.dice.IntN(2) == 0 {
		path := logs[len(logs)-1]
		content, err := os.ReadFile(path)
		check.Must(m.t, err)
		if len(content) >= segmentHead {
			torn := slices.Concat(content[len(segmentMagic):segmentHead], []byte("\x00\x00\x01"))
			check.Must(m.t, os.WriteFile(path, slices.Concat(content, torn[:m.dice.IntN(len(torn))]), 0o600))
		}
	}
	m.reopen()
}

func (m *homeModel) reopen() {
	m.disk.failAfter(0, nil)
	m.early = 0
	m.Local = open(m.t, m.cfg)
	m.look()
}

// handOver compares the records of a job that a peer would get with the model.
func (m *homeModel) handOver(jid string) {
	got := map[string]string{} // by kind, job and minion
	for _, r := range m.recordsOf(jid) {
		v, err := msgpack.Decode(r.a, msgpack.DefaultLimits)
		check.Must(m.t, err)
		switch r.kind {
		case kindLoad:
			got["load "+jid+" "] = v.(*value.Map).Str("fun")
		case kindReturn:
			got["return "+jid+" "+r.id] = v.(*value.Map).Str("return")
		case kindMinions:
			for _, id := range unionTexts(v) {
				got["minion "+jid+" "+id] = "listed"
			}
		}
	}

	m.compare("load", jid, "", got["load "+jid+" "])
	for i := range 5 {
		id := fmt.Sprintf("m%d", i)
		m.compare("return", jid, id, got["return "+jid+" "+id])
		m.compare("minion", jid, id, got["minion "+jid+" "+id])
	}
}

// look compares all that can be read with the model.
func (m *homeModel) look() {
	ctx := m.t.Context()
	listed := map[string]int{}
	check.Must(m.t, m.Each(ctx, func(j Job) error {
		listed[j.JID]++
		return nil
	}))

	for _, jid := range m.jids {
		loaded := m.readLoad(jid)
		m.compare("load", jid, "", loaded.Str("fun"))
		times := listed[jid]
		missing := times == 0 && m.fact("load", jid, "").acked != "" // one that is old may be there and not listed
		if missing || times > 1 || times == 1 && loaded == nil {
			m.t.Errorf("job %s with load %v is listed %d times", jid, loaded, times)
		}
		if loaded != nil {
			minions := unionTexts(loaded.List("Minions"))
			for i := range 5 {
				id := fmt.Sprintf("m%d", i)
				got := ""
				if slices.Contains(minions, id) {
					got = "listed"
				}
				m.compare("minion", jid, id, got)
			}
		}

		end, err := m.Endtime(ctx, jid)
		check.Must(m.t, err)
		m.compare("end", jid, "", end)
		returned, err := m.Returned(ctx, jid)
		check.Must(m.t, err)
		for i := range 5 {
			id := fmt.Sprintf("m%d", i)
			got := m.readReturn(jid, id)
			m.compare("return", jid, id, got)
			if returned[id] != (got != "") {
				m.t.Errorf("%s has returned for %s: %v, its return is %q", id, jid, returned[id], got)
			}
		}
	}
}

func (m *homeModel) compare(kind, jid, id, got string) {
	if f := m.fact(kind, jid, id); !f.allows(got) {
		m.t.Errorf("%s %s %s is %q, want %+v", kind, jid, id, got, *f)
	}
}

// end looks for what must be in the archive, and whether everything goes when it is old.
func (m *homeModel) end() {
	ctx := m.t.Context()
	m.disk.failAfter(0, nil)
	flushed(m.t, m.Local)
	check.Must(m.t, m.Close(ctx))
	m.reopen()
	for _, jid := range m.jids {
		for i := range 5 {
			id := fmt.Sprintf("m%d", i)
			m.archive.mu.Lock()
			_, found := m.archive.taken[jid+" "+id]
			m.archive.mu.Unlock()
			if m.fact("return", jid, id).acked != "" && !found {
				m.t.Errorf("the archive lacks the return of %s for %s", id, jid)
			}
		}
	}

	for jid := range m.archive.unknown.Range {
		if !m.loadWasOld[jid.(string)] {
			m.t.Errorf("the archive got a return of %v without the load of the job", jid)
		}
	}

	m.clock.pass(10 * modelKeep)
	check.Must(m.t, m.Close(ctx)) // it keeps the newest segment
	m.reopen()
	m.clean()
	m.clean()
	m.look()
	if left := keptSegments(m.Local); len(left) > 0 {
		m.t.Errorf("segments stay: %v", left)
	}
	if left := jobFiles(m.t, m.Local); len(left) > 0 {
		m.t.Errorf("files stay: %v", left)
	}
	if m.t.Failed() {
		m.t.Fatalf("after %q", m.history)
	}
}

// What is stored last counts, also if the clock was set back since a file was written that stays as it is: a full disk has
// cost the segment that the file is a copy of, and takes no new file.
func TestLatestCountsAfterTheClockWasSetBack(t *testing.T) {
	clock := &fakeClock{now: time.Now()}
	var broken atomic.Bool
	c := open(t, Config{
		Archive:      newFakeArchive(),
		Now:          clock.Now,
		SegmentBytes: 100,
		fault: func(op string) error {
			if op == "put" && broken.Load() {
				return syscall.ENOSPC
			}
			return nil
		},
	})
	ctx := await.Context(t)
	check.Must(t, c.SaveLoad(ctx, jid1, value.NewMap("jid", jid1, "fun", "older"), nil))
	check.Must(t, c.UpdateEndtime(ctx, jid1, "older"))
	clock.pass(2 * youngest)
	save(t, c, ret(FromTime(clock.Now()), "m1", true)) // ends the segment before
	until(t, func() bool { return len(keptSegments(c)) == 2 })
	for range 2 {
		if _, removed := c.journal.removeOldest(); !removed {
			t.Fatal("the segments of load and end time are not removed")
		}
	}

	clock.pass(-30 * time.Hour)
	broken.Store(true)
	check.Must(t, c.SaveLoad(ctx, jid1, value.NewMap("jid", jid1, "fun", "later"), nil))
	check.Must(t, c.UpdateEndtime(ctx, jid1, "later"))
	flushed(t, c)
	load, err := c.Load(ctx, jid1)
	if err != nil || load.Str("fun") != "later" {
		t.Errorf("the load is %v, %v", load, err)
	}
	if end, err := c.Endtime(ctx, jid1); err != nil || end != "later" {
		t.Errorf("the end time is %q, %v", end, err)
	}
}

// The refs of a segment are in order after each sort, however many were added before.
func TestSortRefs(t *testing.T) {
	dice := rand.New(rand.NewPCG(3, 14))
	var g homeSegment
	for range 200 {
		for range dice.IntN(40) {
			g.refs = append(g.refs, ref{
				job:  uint32(dice.IntN(50)),
				at:   uint32(len(g.refs)),
				what: uint64(dice.IntN(3)),
			})
		}
		want := slices.SortedFunc(slices.Values(g.refs), compareRefs)
		g.sort()
		if !slices.Equal(g.refs, want) || g.sorted != len(want) {
			t.Fatalf("%d refs are not in order", len(want))
		}
	}
}
