package history

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"saltern/test/await"
	"saltern/test/check"
	"saltern/test/logged"
	"saltern/test/smalldisk"
)

// noise returns bytes that cannot be compressed.
func noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

// A full disk costs the oldest runs, and never the newest.
func TestFullDiskDropsTheOldest(t *testing.T) {
	dir := smalldisk.Mount(t, 8, 1000)
	var log logged.Buffer
	s := open(t, Config{
		Dir:          dir,
		Log:          slog.New(slog.NewTextHandler(&log, nil)),
		segmentBytes: 1 << 20,
		segmentRuns:  100_000,
	})
	for i := range 3000 {
		run := plainRun(fmt.Sprint("m", i), begin.Add(time.Duration(i)*time.Second))
		run.Return = noise(8 << 10)
		check.Must(t, s.Append(run))
	}
	check.Must(t, s.Sync())

	got := all(t, s, Filter{Returns: true}, 1000)
	for i, run := range got {
		if run.Minion != fmt.Sprint("m", 2999-i) || len(run.Return) != 8<<10 {
			t.Fatalf("run %d is of %s, with %d bytes", i, run.Minion, len(run.Return))
		}
	}
	st := s.Stats()
	if len(got) < 500 || st.DroppedFull != uint64(3000-len(got)) || st.Bytes < 5<<20 {
		t.Errorf("%d runs, %+v", len(got), st)
	}
	if !strings.Contains(log.String(), diskFull) {
		t.Error("the log does not say that runs were removed")
	}
}

// A run that came late from another master is in a segment of newer ones: its time does not tell what was removed.
func TestWholeSince(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), segmentBytes: 20 << 10, segmentRuns: 100_000}
	s := open(t, cfg)
	if !s.WholeSince().IsZero() {
		t.Errorf("whole since %v without a run", s.WholeSince())
	}
	last := begin
	add := func(at time.Time) {
		t.Helper()
		run := plainRun(fmt.Sprint("m", at.UnixNano()), at)
		run.Return = noise(4 << 10)
		check.Must(t, s.Append(run))
		check.Must(t, s.Sync())
	}
	for range 30 {
		last = last.Add(time.Minute)
		add(last)
		add(last.Add(-20 * time.Minute))
	}
	oldest := s.Oldest()
	if !s.WholeSince().Equal(oldest) {
		t.Errorf("whole since %v, the oldest run is of %v", s.WholeSince(), oldest)
	}

	s.writing.Lock()
	until := time.Unix(0, s.sealed[0].to)
	s.removeOldest(tooLarge)
	s.writing.Unlock()
	if whole := s.WholeSince(); !whole.After(until) || !s.Oldest().Before(until) {
		t.Errorf("whole since %v, runs until %v are removed, and the oldest is of %v", whole, until, s.Oldest())
	}
	check.Must(t, s.Close())
	s = open(t, cfg)
	if whole := s.WholeSince(); !whole.After(until) || whole.After(last) {
		t.Errorf("after a restart whole since %v, until %v", whole, until)
	}
}

// When others have filled the disk, the history keeps the runs that it has, Append returns the
// error, and works again when there is room.
func TestDiskThatOthersFill(t *testing.T) {
	dir := smalldisk.Mount(t, 4, 1000)
	s := open(t, Config{Dir: dir, segmentBytes: 100 << 10, segmentRuns: 100_000})
	i := 0
	add := func() error {
		run := plainRun(fmt.Sprint("m", i), begin.Add(time.Duration(i)*time.Second))
		run.Return = noise(8 << 10)
		err := s.Append(run)
		if err == nil {
			i++
		}
		return err
	}
	for range 100 {
		check.Must(t, add())
	}
	other := dir + "/other"
	full := func() {
		f, err := os.OpenFile(other, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		check.Must(t, err)
		for err == nil {
			_, err = f.Write(noise(4096))
		}
		_ = f.Close()
	}

	full()
	var err error
	for n := 0; err == nil && n < 1000; n++ {
		err = add()
		full()
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("%v after %d runs", err, i)
	}
	kept := i
	if err := s.Sync(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("sync on a full disk: %v", err)
	}

	check.Must(t, os.Remove(other))
	check.Must(t, add())
	check.Must(t, s.Sync())
	check.Must(t, s.Close())
	s = open(t, Config{Dir: dir})
	got := all(t, s, Filter{}, 1000)
	for n, run := range got {
		if run.Minion != fmt.Sprint("m", kept-n) {
			t.Fatalf("run %d is of %s", n, run.Minion)
		}
	}
	if st := s.Stats(); st.Damaged != 0 || st.TornBytes != 0 || len(got) == 0 {
		t.Errorf("%+v", st)
	}
}

func TestHistoryIsBoundedInBytes(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir(), MaxBytes: 4 << 20, segmentRuns: 100_000})
	for i := range 2000 {
		run := plainRun(fmt.Sprint("m", i), begin.Add(time.Duration(i)*time.Second))
		run.Return = noise(8 << 10)
		check.Must(t, s.Append(run))
		if st := s.Stats(); st.Bytes > 4<<20+4<<20/8+2*chunkBody {
			t.Fatalf("%d bytes after %d runs", st.Bytes, i)
		}
	}
	st := s.Stats()
	if st.DroppedLarge == 0 || st.DroppedFull+st.DroppedOld != 0 || st.Bytes < 3<<20 {
		t.Errorf("%+v", st)
	}
	if got := all(t, s, Filter{Minion: "m1999"}, 1); len(got) != 1 {
		t.Error("the newest run is missing")
	}
}

// Old runs are removed although no new ones are appended, one segment at a time.
func TestOldRunsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(Config{Dir: dir, Keep: 16 * 24 * time.Hour})
		check.Must(t, err)
		for range 20 {
			check.Must(t, s.Append(plainRun("m", time.Now())))
			time.Sleep(24 * time.Hour)
		}
		oldest := time.Since(s.Stats().Oldest)
		if oldest < 16*24*time.Hour || oldest > 19*24*time.Hour {
			t.Errorf("the oldest run is of %v ago", oldest)
		}

		time.Sleep(30 * 24 * time.Hour)
		if st := s.Stats(); st.Runs != 0 || st.DroppedOld != 20 {
			t.Errorf("%+v", st)
		}
		check.Must(t, s.Close())
	})
}

// A clock that is wrong by years for an hour costs a few segments, not all of them.
func TestClockThatIsWrongForAnHour(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var wrong time.Duration
		s, err := Open(Config{Dir: dir, segmentRuns: 10, chunkRows: 1, Now: func() time.Time { return time.Now().Add(wrong) }})
		check.Must(t, err)
		for i := range 1000 {
			check.Must(t, s.Append(plainRun(fmt.Sprint("m", i), time.Now())))
			time.Sleep(time.Second)
		}
		s.writing.Lock()
		wrong = 20 * 365 * 24 * time.Hour
		s.writing.Unlock()
		time.Sleep(time.Hour)
		if st := s.Stats(); st.Runs < 900 || st.DroppedOld == 0 {
			t.Errorf("%+v", st)
		}
		check.Must(t, s.Close())
	})
}

// Sync repeats a failed sync, and writes again what that sync may have lost. A segment that cannot
// be synced when it is full is sealed later.
func TestFailingSync(t *testing.T) {
	for _, segmentRuns := range []int{1, 1000} {
		dir := t.TempDir()
		var failing bool
		s := open(t, Config{Dir: dir, segmentRuns: segmentRuns, chunkRows: 1, fault: func(op string) error {
			if failing && op == "sync" {
				return syscall.EIO
			}
			return nil
		}})

		check.Must(t, s.Append(plainRun("m1", begin)))
		failing = true
		if err := s.Sync(); !errors.Is(err, syscall.EIO) {
			t.Errorf("sync: %v", err)
		}
		err := s.Append(plainRun("m2", begin))
		if err == nil {
			err = s.Sync()
		}
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("the next run: %v", err)
		}
		failing = false
		check.Must(t, s.Append(plainRun("m2", begin)))
		check.Must(t, s.Append(plainRun("m3", begin)))
		check.Must(t, s.Sync())
		check.Must(t, s.Close())
		s = open(t, Config{Dir: dir})
		if got := all(t, s, Filter{}, 10); len(got) != 3 || s.Stats().Damaged != 0 {
			t.Errorf("%d runs, %+v", len(got), s.Stats())
		}
	}
}

// childDir is the environment variable that makes the test binary the process to be killed.
const childDir = "SALTERN_TEST_HISTORY_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		first, _ := strconv.Atoi(os.Args[len(os.Args)-1])
		appendUntilKilled(dir, first)
		return
	}
	os.Exit(m.Run())
}

// killedRun returns run i of the process that is killed. Its return can be computed from i.
func killedRun(i int) Run {
	run := plainRun(fmt.Sprint("m", i), begin.Add(time.Duration(i)*time.Millisecond))
	run.Return = []byte(strings.Repeat(run.Minion, 1+i%400))
	return run
}

// appendUntilKilled appends runs from the number first on, and prints up to which they are durable.
func appendUntilKilled(dir string, first int) {
	s, err := Open(Config{Dir: dir, segmentRuns: 50, chunkRows: 600, Now: func() time.Time { return begin }})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	// As a journal does: begin with runs that may be there already.
	for i := max(first-200, 0); ; i++ {
		err := s.Append(killedRun(i))
		if err == nil && i%40 == 0 {
			if err = s.Sync(); err == nil {
				fmt.Println("synced", i)
			}
		}
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	}
}

// A process that appends is killed at a random moment, again and again. All runs that it has synced
// are found once, whole and in order. SALTERN_KILLS sets how often.
func TestKilled(t *testing.T) {
	t.Parallel()
	kills := 8
	if n, err := strconv.Atoi(os.Getenv("SALTERN_KILLS")); err == nil {
		kills = n
	}

	dir := t.TempDir()
	synced := 0
	for range kills {
		cmd := exec.Command(os.Args[0], strconv.Itoa(synced))
		cmd.Env = append(os.Environ(), childDir+"="+dir)
		cmd.Stderr = os.Stderr
		pipe, err := cmd.StdoutPipe()
		check.Must(t, err)
		check.Must(t, cmd.Start())

		// Some are killed while they open the history.
		early := rand.IntN(4) == 0
		delay := time.Duration(rand.IntN(200)) * time.Millisecond
		kill := func() { time.AfterFunc(delay, func() { _ = cmd.Process.Kill() }) }
		if early {
			kill()
		}
		for lines := bufio.NewScanner(pipe); lines.Scan(); {
			if !early {
				kill()
				early = true
			}
			word, number, _ := strings.Cut(lines.Text(), " ")
			if word != "synced" {
				t.Fatal(lines.Text())
			}
			synced, _ = strconv.Atoi(number)
		}
		_ = cmd.Wait()
	}

	s := open(t, Config{Dir: dir})
	got := all(t, s, Filter{Returns: true}, 1000)
	next := len(got) - 1
	for _, run := range got {
		want := killedRun(next)
		if run.Minion != want.Minion || string(run.Return) != string(want.Return) || !run.Time.Equal(want.Time) {
			t.Fatalf("found %s, want %s", run.Minion, want.Minion)
		}
		next--
	}
	t.Logf("%d kills, %d runs were synced, %d are there; %+v", kills, synced, len(got), s.Stats())
	if len(got) <= synced || synced == 0 || s.Stats().Damaged > 0 {
		t.Errorf("%d runs, the last synced one has number %d", len(got), synced)
	}
}

// openUnsynced opens the history of a fuzz test: syncs would take most of the time.
func openUnsynced(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(Config{
		Dir: dir,
		Now: func() time.Time { return begin },
		fault: func(op string) error {
			if op == "sync" {
				return syscall.EIO
			}
			return nil
		},
	})
	check.Must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Whatever a file of the folder contains, it is opened and read within bounds.
func FuzzSegment(f *testing.F) {
	dir := f.TempDir()
	s := open(f, Config{Dir: dir, segmentRuns: 20, chunkRows: 300})
	for i := range 30 {
		run := plainRun(fmt.Sprint("m", i%3), begin.Add(time.Duration(i)*time.Second))
		check.Must(f, s.Append(run))
	}
	check.Must(f, s.Close())
	for _, name := range []string{"/0000000000000001.seg", "/0000000000000002.seg"} {
		b, err := os.ReadFile(dir + name)
		check.Must(f, err)
		f.Add(b, uint32(100), []byte{0})
		f.Add(b, uint32(len(b)-20), []byte{7, 1})
	}

	f.Fuzz(func(t *testing.T, b []byte, at uint32, patch []byte) {
		if int(at) < len(b) {
			copy(b[at:], patch)
		}
		dir := t.TempDir()
		check.Must(t, os.WriteFile(dir+"/0000000000000001.seg", b, 0o600))
		s := openUnsynced(t, dir)
		for _, filter := range []Filter{{Returns: true}, {Minion: "m1"}, {JID: jidAt(begin)}, {State: "x"}} {
			_, err := s.Query(await.Context(t), filter, 100, "")
			check.Must(t, err)
		}
		check.Must(t, s.Append(plainRun("new", begin)))
	})
}

// Frames with right checksums and wrong content, which no damaged disk produces.
func FuzzContent(f *testing.F) {
	c := newChunk()
	for i := range 3 {
		run := plainRun(fmt.Sprint("m", i), begin)
		c.add(&run, false, begin)
	}
	f.Add(c.rows, c.body, uint8(kindChunk))
	f.Add([]byte{0, 2, 1, 'j', 'x', 0}, []byte{}, uint8(kindIndex))
	f.Add(appendDirectory(nil, []chunkPlace{{16, 1, 2}, {90, 2, 3}}), []byte{}, uint8(kindDirectory))
	f.Add([]byte{16, 2, 'j', 'x'}, []byte{}, uint8(kindSparse))
	f.Add((&segment{runs: 1, minJID: "0", maxJID: "9", directory: 16, sparse: 16}).footer(), []byte{}, uint8(kindFooter))
	packer, err := newPacker()
	check.Must(f, err)

	f.Fuzz(func(t *testing.T, rows, body []byte, k uint8) {
		m := mark{1, 2, 3, 4, 5, 6, 7, 8}
		b := append([]byte(segmentMagic), m[:]...)
		b = packer.appendFrame(b, m, kindChunk, rows, body)
		second := len(b)
		b = packer.appendFrame(b, m, kind(k), rows, body)
		if kind(k) == kindFooter {
			b = append(b, 0, 0, 0, 0, 0, 0, byte(second>>8), byte(second))
			b = append(b, trailerMagic...)
		}

		dir := t.TempDir()
		check.Must(t, os.WriteFile(dir+"/0000000000000001.seg", b, 0o600))
		s := openUnsynced(t, dir)
		for _, filter := range []Filter{{Returns: true}, {Minion: "m1"}, {State: "x"}} {
			_, err := s.Query(await.Context(t), filter, 100, "")
			check.Must(t, err)
		}
		_, _ = parseDirectory(rows)
		_, _ = parseSparse(rows)
		_, _, _ = findInBlock(rows, "mx")
		_, _ = parsePosting(rows, 100)
		_, _ = parseCursor(Cursor(rows))
	})
}

// A disk without inodes, which the history hardly needs, costs no runs.
func TestDiskWithFewInodes(t *testing.T) {
	dir := smalldisk.Mount(t, 8, 100)
	s := open(t, Config{Dir: dir, segmentRuns: 10, chunkRows: 1})
	for i := range 100 {
		check.Must(t, s.Append(plainRun(fmt.Sprint("m", i), begin.Add(time.Duration(i)*time.Second))))
	}
	for i := 0; ; i++ {
		if _, files := smalldisk.Free(t, dir); files <= 3 {
			break
		}
		check.Must(t, os.WriteFile(fmt.Sprint(dir, "/other", i), nil, 0o600))
	}

	for i := range 15 {
		check.Must(t, s.Append(plainRun(fmt.Sprint("n", i), begin.Add(time.Hour+time.Duration(i)*time.Second))))
	}
	s.writing.Lock()
	s.tidy()
	s.writing.Unlock()
	if st := s.Stats(); st.Runs != 115 || st.DroppedFull != 0 {
		t.Errorf("%+v", st)
	}
}
