package jobs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// jobFiles returns the files of all jobs, without their folders.
func jobFiles(t *testing.T, c *Local) (names []string) {
	t.Helper()
	check.Must(t, filepath.WalkDir(c.cfg.Dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, filepath.Base(path))
		}
		return err
	}))
	slices.Sort(names)
	return names
}

func keptSegments(c *Local) []string {
	list, _ := filepath.Glob(filepath.Join(c.cfg.JournalDir, "*"+keptSuffix))
	return list
}

// A return becomes no file. A job that is published has the three files that Salt's own tools read at once.
func TestReturnsAreNoFiles(t *testing.T) {
	archive := newFakeArchive()
	cfg := Config{Dir: filepath.Join(t.TempDir(), "jobs"), Archive: archive, SegmentBytes: 2000}
	c := open(t, cfg)
	load := value.NewMap("jid", jid1, "fun", "f")
	check.Must(t, c.SaveLoad(await.Context(t), jid1, load, []string{"m1", "m2"}))
	scheduled := FromTime(time.Now())
	for i := range 50 {
		save(t, c, ret(jid1, fmt.Sprintf("m%d", i), i))
		r := ret(scheduled, fmt.Sprintf("m%d", i), i)
		r.Load = value.NewMap("jid", scheduled, "fun", "g", "id", r.ID)
		save(t, c, r)
	}
	flushed(t, c)
	if got := fmt.Sprint(jobFiles(t, c)); got != "[.load.p .minions.p jid]" {
		t.Errorf("files %s", got)
	}

	for range 2 {
		check.Must(t, c.Close(await.Context(t)))
		if left, _ := filepath.Glob(cfg.Dir + ".journal/*.log"); len(left) > 0 {
			t.Errorf("segments that would be replayed: %v", left)
		}
		before := archive.times
		c = open(t, cfg)
		if archive.times != before {
			t.Errorf("the archive got %d returns again", archive.times-before)
		}
		for _, jid := range []string{jid1, scheduled} {
			got, err := c.Returns(await.Context(t), jid)
			check.Must(t, err)
			if got.Len() != 50 {
				t.Errorf("%d returns of %s", got.Len(), jid)
			}
		}
	}

	found, err := Find(await.Context(t), c, Query{Last: 5})
	check.Must(t, err)
	if len(found) != 2 || found[0].JID != min(jid1, scheduled) || found[1].Load.Str("fun") == "" {
		t.Errorf("found %v", found)
	}
}

// answers returns everything that can be read about jobs, as text.
func answers(t *testing.T, c *Local, jids []string) string {
	t.Helper()
	flushed(t, c)
	ctx := await.Context(t)
	var b strings.Builder
	for _, jid := range jids {
		load, err := c.Load(ctx, jid)
		check.Must(t, err)
		returns, err := c.Returns(ctx, jid)
		check.Must(t, err)
		returned, err := c.Returned(ctx, jid)
		check.Must(t, err)
		end, err := c.Endtime(ctx, jid)
		check.Must(t, err)
		facts, err := c.knownFacts(jid)
		check.Must(t, err)
		fmt.Fprintf(&b, "%s: %v %v %q %v\n", jid, packedText(t, load), returned, end, facts)
		ids := returns.Keys()
		slices.Sort(ids)
		for _, id := range ids {
			fmt.Fprintf(&b, "  %v %v\n", id, packedText(t, returns.Map(id)))
		}
	}

	var all []string
	check.Must(t, c.Each(ctx, func(j Job) error {
		all = append(all, j.JID+" "+j.Load.Str("fun"))
		return nil
	}))
	slices.Sort(all)
	fmt.Fprintln(&b, all)
	for _, q := range []Query{{Last: 3}, {Last: 3, NoFindJob: true}, {Last: 100, NoRuns: true}} {
		found, err := Find(ctx, c, q)
		check.Must(t, err)
		for _, j := range found {
			fmt.Fprint(&b, j.JID, " ")
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}

// A cache whose records stay in segments answers as one whose records are files, after any order of calls,
// restarts and crashes, and so does one that begins to make files, and one that begins and ends to. Files that are made
// on demand, and go after an hour, change nothing.
func TestHomeAnswersAsFilesDo(t *testing.T) {
	seeds := 2
	if n, err := strconv.Atoi(os.Getenv("SALTERN_TEST_SEEDS")); err == nil {
		seeds = n
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { compareWithFiles(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func compareWithFiles(t *testing.T, dice *rand.Rand) {
	clock := &fakeClock{now: time.Now()}
	endtimes := dice.IntN(2) == 0
	settings := func(i int) Config {
		return Config{
			Dir:          filepath.Join(t.TempDir(), fmt.Sprint(i)),
			Files:        i == 0,
			Endtimes:     endtimes,
			SegmentBytes: 900,
			Now:          clock.Now,
		}
	}
	cfgs := []Config{settings(0), settings(1), settings(2), settings(3)}
	caches := make([]*Local, len(cfgs))
	for i, cfg := range cfgs {
		caches[i] = open(t, cfg)
	}

	functions := []string{"test.ping", "saltutil.find_job", "runner.x", "state.apply"}
	var jids []string
	for i := range 12 {
		jids = append(jids, FromTime(clock.Now().Add(time.Duration(dice.IntN(1000))*time.Minute+time.Duration(i))))
	}
	for step := range 100 {
		clock.pass(time.Second)
		jid := jids[dice.IntN(len(jids))]
		id := fmt.Sprintf("m%d", dice.IntN(6))
		fun := functions[len(jid+id)%len(functions)]
		load := value.NewMap("jid", jid, "fun", functions[int(jid[17])%len(functions)], "step", step)
		what := dice.IntN(14)
		if what == 12 {
			clock.pass(2 * time.Hour)
		}
		alternate := dice.IntN(2) == 0
		for i, c := range caches {
			ctx := await.Context(t)
			switch what {
			case 0:
				_, err := c.Prep(ctx, jids[0], true)
				check.Must(t, err)
			case 1:
				check.Must(t, c.SaveLoad(ctx, jid, load.Clone(), []string{id, "m9"}))
			case 2:
				check.Must(t, c.SaveLoad(ctx, jid, load.Clone(), nil))
			case 3:
				check.Must(t, c.AddMinions(ctx, jid, []string{id}, "syndic"))
			case 4:
				check.Must(t, c.UpdateEndtime(ctx, jid, fmt.Sprint(step)))
			case 5:
				if dice.IntN(3) == 0 {
					crash(t, c)
				} else {
					check.Must(t, c.Close(ctx))
				}
				cfg := cfgs[i]
				cfg.Files = i == 0 || i == 2 && step > 60 || i == 3 && alternate
				caches[i] = open(t, cfg)
			case 12:
				flushed(t, c)
				_, err := c.Clean(ctx, 1000*time.Hour)
				check.Must(t, err)
			case 13:
				flushed(t, c)
				_, err := c.LayOutAll(ctx, jid)
				if !errors.Is(err, fs.ErrNotExist) {
					check.Must(t, err)
				}
			default:
				r := ret(jid, id, strings.Repeat(fun, what))
				r.Load = load.Clone()
				if what == 6 {
					r.Out = "nested"
				}
				_, err := c.SaveReturn(ctx, r)
				if !errors.Is(err, ErrOtherReturn) {
					check.Must(t, err)
				}
			}
		}
		if step%20 > 0 {
			continue
		}
		want := answers(t, caches[0], jids)
		for i, c := range caches {
			if got := answers(t, c, jids); got != want {
				t.Fatalf("step %d, cache %d:\n%s\nwant\n%s", step, i, got, want)
			}
		}
	}
}

// A segment that stays may be damaged anywhere. What is whole is found, nothing else is, and the master starts.
func TestDamagedHome(t *testing.T) {
	cfg := Config{Dir: filepath.Join(t.TempDir(), "jobs")}
	c := open(t, cfg)
	want := map[string]string{}
	for i := range 40 {
		id := fmt.Sprintf("m%d", i)
		want[id] = strings.Repeat(id, 1+i*7)
		save(t, c, ret(jid1, id, want[id]))
	}
	check.Must(t, c.Close(await.Context(t)))
	path := keptSegments(c)[0]
	good, err := os.ReadFile(path)
	check.Must(t, err)

	dice := rand.New(rand.NewPCG(7, 7))
	for range 30 {
		b := bytes.Clone(good)
		for range 1 + dice.IntN(4) {
			b[dice.IntN(len(b))] ^= byte(1 + dice.IntN(255))
		}
		if dice.IntN(4) == 0 {
			b = b[:dice.IntN(len(b))]
		}
		check.Must(t, os.WriteFile(path, b, 0o600))
		c := open(t, cfg)
		got, err := c.Returns(await.Context(t), jid1)
		check.Must(t, err)
		for id := range got.All() {
			if name := id.(string); got.Map(name).Str("return") != want[name] {
				t.Fatalf("return of %s: %v", name, got.Map(name))
			}
		}
		check.Must(t, c.Close(await.Context(t)))
		for _, other := range keptSegments(c) {
			if other != path {
				t.Errorf("a segment without records stays: %s", other)
			}
		}
	}
}

// A crash between the rename of a segment and the end of its index costs nothing.
func TestHomeWithoutIndex(t *testing.T) {
	cfg := Config{Dir: filepath.Join(t.TempDir(), "jobs")}
	c := open(t, cfg)
	for i := range 20 {
		save(t, c, ret(jid1, fmt.Sprintf("m%d", i), i))
	}
	check.Must(t, c.Close(await.Context(t)))
	path := keptSegments(c)[0]
	whole, err := os.ReadFile(path)
	check.Must(t, err)
	content, _ := readIndex(bytes.NewReader(whole), int64(len(whole)))
	index := len(content) + indexTrailer
	for _, cut := range []int{1, indexTrailer, index - 1, index} {
		check.Must(t, os.WriteFile(path, whole[:len(whole)-cut], 0o600))
		c = open(t, cfg)
		if got, _ := c.Returns(await.Context(t), jid1); got.Len() != 20 {
			t.Errorf("without %d bytes: %d returns", cut, got.Len())
		}
		check.Must(t, c.Close(await.Context(t)))
		if again, _ := os.ReadFile(path); !bytes.Equal(again, whole) {
			t.Errorf("without %d bytes: the index is not the same again", cut)
		}
	}
}

func TestHomeIsCleaned(t *testing.T) {
	clock := &fakeClock{now: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}
	cfg := Config{Dir: filepath.Join(t.TempDir(), "jobs"), Now: clock.Now}
	c := open(t, cfg)
	old := FromTime(clock.Now())
	r := ret(old, "m1", 1)
	r.Load = value.NewMap("jid", old, "fun", "f")
	save(t, c, r)
	flushed(t, c)
	ctx := await.Context(t)
	if n, err := c.Clean(ctx, 0); n != 0 || err != nil {
		t.Errorf("with keep_jobs_seconds 0: removed %d, %v", n, err)
	}

	clock.pass(25 * time.Hour)
	_, err := c.Clean(ctx, 24*time.Hour)
	check.Must(t, err)
	got, _ := c.Returns(ctx, old)
	load, _ := c.Load(ctx, old)
	jobs, _ := Find(ctx, c, Query{Last: 1})
	if got.Len() > 0 || load != nil || len(jobs) > 0 {
		t.Errorf("too old: %v %v %v", got, load, jobs)
	}

	await.That(t, "the segment is ended although nothing comes, and removed", func() bool {
		_, err := c.Clean(ctx, 24*time.Hour)
		check.Must(t, err)
		begun, _ := filepath.Glob(filepath.Join(c.cfg.JournalDir, "*.log"))
		return len(begun) == 0 && len(keptSegments(c)) == 0
	})

	late := ret(old, "m2", 2)
	late.Load = value.NewMap("jid", old, "fun", "f")
	save(t, c, late)
	if load, _ := c.Load(ctx, old); load.Str("fun") != "f" {
		t.Error("a late return makes no load")
	}
}

// Further records become files when too many are in segments.
func TestHomeIsFull(t *testing.T) {
	cfg := Config{Dir: filepath.Join(t.TempDir(), "jobs"), SegmentBytes: 1000, mostHome: 20}
	c := open(t, cfg)
	for i := range 200 {
		save(t, c, ret(jid1, fmt.Sprintf("m%d", i), i))
	}
	flushed(t, c)
	if n := c.home.records; n < 20 || n > 100 {
		t.Errorf("%d records in segments", n)
	}
	if n := len(jobFiles(t, c)); n < 100 {
		t.Errorf("%d files", n)
	}
	check.Must(t, c.Close(await.Context(t)))
	c = open(t, cfg)
	if got, _ := c.Returns(await.Context(t), jid1); got.Len() != 200 {
		t.Errorf("%d returns", got.Len())
	}
}

// On a disk without inodes jobs are published and returns taken as long as the journal has room. The log says
// once that Salt's tools lack files.
func TestPublishWithoutInodes(t *testing.T) {
	var log bytes.Buffer
	cfg := Config{Dir: filepath.Join(t.TempDir(), "jobs"), fault: func(op string) error {
		if op == "put" {
			return syscall.ENOSPC
		}
		return nil
	}}
	c, err := Open(cfg, slog.New(slog.NewTextHandler(&log, nil)))
	check.Must(t, err)
	base := time.Now()
	for i := range 20 {
		jid := FromTime(base.Add(time.Duration(i) * time.Millisecond))
		check.Must(t, c.SaveLoad(await.Context(t), jid, value.NewMap("jid", jid), []string{"m"}))
		save(t, c, ret(jid, "m", 1))
	}
	jobs, err := Find(await.Context(t), c, Query{Last: 100})
	check.Must(t, err)
	if len(jobs) != 20 {
		t.Errorf("%d jobs", len(jobs))
	}
	check.Must(t, c.Close(await.Context(t)))
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d errors in the log:\n%s", n, log.String())
	}
}

// The files that somebody asked for go after an hour, unless there is something else among them.
func TestLaidOutFilesGo(t *testing.T) {
	t.Run("with end times", func(t *testing.T) { layOutAndClean(t, true, 8) })
	t.Run("without", func(t *testing.T) { layOutAndClean(t, false, 7) })
}

func layOutAndClean(t *testing.T, endtimes bool, filesOfJob int) {
	clock := &fakeClock{now: time.Now()}
	c := open(t, Config{Endtimes: endtimes, Now: clock.Now})
	ctx := await.Context(t)
	jids := []string{FromTime(clock.Now()), FromTime(clock.Now().Add(time.Second))}
	for _, jid := range jids {
		check.Must(t, c.SaveLoad(ctx, jid, value.NewMap("jid", jid, "fun", "f"), []string{"m1", "m2"}))
		for _, id := range []string{"m1", "m2"} {
			r := ret(jid, id, id)
			r.Out = "txt"
			save(t, c, r)
		}
		_, err := c.LayOutAll(ctx, jid)
		check.Must(t, err)
		_, err = c.LayOutAll(ctx, jid)
		check.Must(t, err)
	}
	if n := len(jobFiles(t, c)); n != 2*filesOfJob {
		t.Errorf("%d files: %v", n, jobFiles(t, c))
	}
	own := filepath.Join(c.files.jobDir(jids[1]), "m3")
	check.Must(t, os.MkdirAll(own, 0o750))
	check.Must(t, os.WriteFile(own+"/return.p", []byte(packed(t, "of another program")), 0o600))

	clock.pass(2 * time.Hour)
	flushed(t, c)
	_, err := c.Clean(ctx, 24*time.Hour)
	check.Must(t, err)
	if _, err := os.Stat(c.files.jobDir(jids[0])); err == nil {
		t.Error("the files stay")
	}
	for i, jid := range jids {
		load, _ := c.Load(ctx, jid)
		if got, _ := c.Returns(ctx, jid); got.Len() != 2+i || load == nil {
			t.Errorf("%s: %v %v", jid, load, got.Keys())
		}
	}
	if _, err := c.LayOutAll(ctx, FromTime(clock.Now())); err == nil {
		t.Error("files of an unknown job")
	}
}

// The journal renames a segment before the home knows its new name.
func TestHomeWhileASegmentIsRenamed(t *testing.T) {
	c := open(t, Config{})
	for i := range 10 {
		save(t, c, ret(jid1, fmt.Sprintf("m%d", i), i))
	}
	flushed(t, c)
	path := c.home.pathOf(c.home.segments[0])
	check.Must(t, os.Rename(path, strings.TrimSuffix(path, segmentSuffix)+keptSuffix))
	got, err := c.Returns(await.Context(t), jid1)
	check.Must(t, err)
	if got.Len() != 10 {
		t.Errorf("%d of 10 returns while the segment is renamed", got.Len())
	}
	check.Must(t, os.Rename(strings.TrimSuffix(path, segmentSuffix)+keptSuffix, path))
}

// While a segment cannot be read, a return replaces no load, and the return of a job that stores none is refused.
func TestReturnsWhileASegmentCannotBeRead(t *testing.T) {
	c := open(t, Config{})
	ctx := await.Context(t)
	secret := FromTime(time.Now())
	_, err := c.Prep(ctx, secret, true)
	check.Must(t, err)
	check.Must(t, c.SaveLoad(ctx, jid1, value.NewMap("jid", jid1, "fun", "f", "user", "anna"), nil))
	flushed(t, c)
	check.Must(t, os.RemoveAll(c.files.jobDir(jid1)))
	path := c.home.pathOf(c.home.segments[0])
	aside := path + ".aside"
	for _, broken := range []func() error{
		func() error { return os.Mkdir(path, 0o700) },
		func() error { return os.Symlink(path, path) },
	} {
		c.known.forget()
		check.Must(t, os.Rename(path, aside))
		check.Must(t, broken())
		for i, jid := range []string{jid1, secret} {
			r := ret(jid, "m1", 1)
			r.Load = value.NewMap("jid", jid, "fun", "g", "user", "root")
			stored, err := c.SaveReturn(ctx, r)
			if i == 1 && (stored || err == nil) {
				t.Errorf("the return of a job that stores none: stored %v, %v", stored, err)
			}
			if i == 0 && err != nil {
				t.Error(err)
			}
		}
		flushed(t, c)
		check.Must(t, os.Remove(path))
		check.Must(t, os.Rename(aside, path))
		if load, err := c.Load(ctx, jid1); err != nil || load.Str("user") != "anna" {
			t.Errorf("the load of the return: %v, %v", load, err)
		}
	}
}

// A number that is there twice, after a restore or a crash, costs neither segment.
func TestSegmentsWithTheSameNumber(t *testing.T) {
	cfg := Config{Dir: filepath.Join(t.TempDir(), "jobs")}
	c := open(t, cfg)
	save(t, c, ret(jid1, "m1", 1))
	check.Must(t, c.Close(await.Context(t)))
	kept := keptSegments(c)[0]
	number := strings.TrimSuffix(kept, keptSuffix)

	other := open(t, Config{})
	save(t, other, ret(jid1, "m2", 2))
	crash(t, other)
	left, _ := filepath.Glob(other.cfg.JournalDir + "/*" + segmentSuffix)
	content, err := os.ReadFile(left[0])
	check.Must(t, err)
	check.Must(t, os.WriteFile(number+segmentSuffix, content, 0o600))

	for range 2 {
		c = open(t, cfg)
		save(t, c, ret(jid1, fmt.Sprint("n", c.journal.nextNumber), 3))
		check.Must(t, os.WriteFile(strings.TrimSuffix(c.home.pathOf(c.home.segments[len(c.home.segments)-1]), segmentSuffix)+keptSuffix,
			[]byte("of somebody else"), 0o600))
		check.Must(t, c.Close(await.Context(t)))
	}
	c = open(t, cfg)
	if got, _ := c.Returns(await.Context(t), jid1); got.Len() != 4 {
		t.Errorf("returns of %v, want of m1, m2 and two more", got.Keys())
	}
	for _, path := range keptSegments(c) {
		if b, _ := os.ReadFile(path); len(b) == 0 {
			t.Errorf("%s is empty", path)
		}
	}
}

// A record that cannot be read when the segment is kept stays in it, for somebody who can repair it.
func TestKeptSegmentWithADamagedRecord(t *testing.T) {
	for _, last := range []bool{false, true} {
		c := open(t, Config{})
		for i := range 5 {
			save(t, c, ret(jid1, fmt.Sprintf("m%d", i), "what it returned"))
		}
		flushed(t, c)
		g := c.home.segments[0]
		at := g.refs[0].at // any of them is in the middle, or at the start
		for _, r := range g.refs {
			at = max(at, r.at)
		}
		if !last {
			at = uint32(segmentHead)
		}
		path := c.home.pathOf(g)
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		check.Must(t, err)
		_, err = file.WriteAt([]byte("X"), int64(at)+int64(recordHead)+5)
		check.Must(t, err)
		check.Must(t, file.Close())
		before, err := os.ReadFile(path)
		check.Must(t, err)

		check.Must(t, c.Close(await.Context(t)))
		after, err := os.ReadFile(keptSegments(c)[0])
		check.Must(t, err)
		if !bytes.Equal(bytes.TrimRight(before, "\x00"), bytes.TrimRight(after, "\x00")) {
			t.Errorf("the last record: %v: the segment had %d bytes and has %d", last, len(before), len(after))
		}
	}
}

// A clock that was ahead, and came back, hides no return that was taken since.
func TestClockThatWasAhead(t *testing.T) {
	clock := &fakeClock{now: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}
	c := open(t, Config{Now: clock.Now})
	clock.pass(100 * 24 * time.Hour)
	_, err := c.Clean(await.Context(t), 24*time.Hour)
	check.Must(t, err)
	clock.pass(-100 * 24 * time.Hour)
	r := ret(jid1, "m1", 1)
	r.Load = value.NewMap("jid", jid1, "fun", "f")
	save(t, c, r)
	flushed(t, c)
	got, err := c.Returns(await.Context(t), jid1)
	check.Must(t, err)
	if load, _ := c.Load(await.Context(t), jid1); got.Len() != 1 || load == nil {
		t.Errorf("hidden: %v, %v", got, load)
	}
}

// A list of jobs reads no returns, and a record that cannot be read costs no other job.
func TestLayOutLoadsReadsLoadsOnly(t *testing.T) {
	for _, damaged := range []kind{kindReturn, kindLoad} {
		c := open(t, Config{})
		ctx := await.Context(t)
		base := time.Now()
		var jids []string
		for i := range 3 {
			jid := FromTime(base.Add(time.Duration(i) * time.Second))
			jids = append(jids, jid)
			r := ret(jid, "m1", "what it returned")
			r.Load = value.NewMap("jid", jid, "fun", "f")
			save(t, c, r)
		}
		flushed(t, c)
		g := c.home.segments[0]
		file, err := os.OpenFile(c.home.pathOf(g), os.O_RDWR, 0)
		check.Must(t, err)
		for _, p := range c.home.find(jids[1], allRecords) {
			if p.what == uint64(damaged) || damaged == kindReturn && p.what >= isReturn {
				_, err = file.WriteAt([]byte("X"), int64(p.at)+int64(recordHead)+5)
				check.Must(t, err)
			}
		}
		check.Must(t, file.Close())

		err = c.LayOutLoads(ctx)
		if (err != nil) != (damaged == kindLoad) {
			t.Errorf("with a damaged record of kind %d: %v", damaged, err)
		}
		for i, jid := range jids {
			whole := i != 1 || damaged != kindLoad
			if exists(c.files.jobDir(jid)+"/"+loadFile) != whole {
				t.Errorf("with a damaged record of kind %d: the load of job %d is there: %v", damaged, i, !whole)
			}
		}
	}
}

func FuzzIndex(f *testing.F) {
	var index []byte
	var before *record
	for i := range 5 {
		r := &record{kind: kindReturn, jid: jid1, id: fmt.Sprint(i), time: int64(i), at: uint32(100 * i)}
		index = appendEntry(index, r, before)
		before = r
	}
	f.Add(index)
	f.Fuzz(func(t *testing.T, b []byte) {
		parseIndex(b, 1000, func(r *record) {
			if checkRecord(r) != nil || r.at > 1000 {
				t.Errorf("%+v", r)
			}
		})
	})
}

func packedText(t *testing.T, m *value.Map) string {
	t.Helper()
	if m == nil {
		return "none"
	}
	return fmt.Sprintf("%q", packed(t, m))
}
