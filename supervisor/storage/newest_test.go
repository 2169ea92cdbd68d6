package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"saltern/test/await"
)

// runMirror runs a mirror until the test ends, and returns its source and its copy.
func runMirror(t *testing.T, m *mirror) (from, to string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	from, to = t.TempDir(), t.TempDir()
	for _, tree := range []string{"srv/salt", "srv/pillar"} {
		if err := os.MkdirAll(filepath.Join(from, tree), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	spec := mirrorSpec{Source: from, Dest: to, Trees: []string{"srv/salt", "srv/pillar"}, Any: true, Stage: stageDir}
	if m.child.command == nil {
		m.child.command = []string{self, "as-helper", "mirror", spec.argument()}
	}

	m.passWanted = make(chan struct{}, 1)
	m.pace = mirrorPace{time.Hour, time.Hour, time.Hour}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.keepCopying(t.Context(), time.Now, func() bool { return true }, func() (uint64, bool) { return 0, true },
			func(mirrorReport) {})
	}()

	t.Cleanup(func() { <-ended })
	return from, to
}

// Finding B4: what was written before the question is in the copy after the answer,
// whatever was done to the tree. The operations are drawn at random.
func TestNewestCopyIsTheSource(t *testing.T) {
	var m mirror
	from, to := runMirror(t, &m)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	tree := changer{root: filepath.Join(from, "srv"), draw: rand.New(rand.NewPCG(seed, 1))}
	for round := range 60 {
		var done []string
		for range 1 + tree.draw.IntN(6) {
			done = append(done, tree.change(t))
		}

		asked := time.Now()
		asOf, err := m.newest(t.Context())
		if err != nil || asOf.Before(asked.Add(-time.Millisecond)) {
			t.Fatalf("round %d: as of %v, asked at %v: %v", round, asOf, asked, err)
		}

		if a, b := listTree(t, filepath.Join(from, "srv")), listTree(t, filepath.Join(to, "srv")); a != b {
			t.Fatalf("round %d, after %s: the source is\n%s\nand the copy\n%s", round, strings.Join(done, "; "), a, b)
		}
	}
}

// changer changes a tree as editors, rsync, git and people do.
type changer struct {
	root string
	draw *rand.Rand
	text int
}

// hostileNames are names that files may have. Two are those of the copier's own files.
var hostileNames = []string{
	"\n", "a\nb.sls", "\xff.sls", "-rf", " ", "\\", "\x1b[31m",
	strings.Repeat("n", 255), tempPrefix + "a", tempFile,
}

// place draws one of a few names, so that files, directories and links meet.
func (c *changer) place() string {
	p := []string{c.root, []string{"salt", "pillar"}[c.draw.IntN(2)]}
	for range c.draw.IntN(3) {
		p = append(p, string(rune('a'+c.draw.IntN(3))))
	}
	name := string(rune('a' + c.draw.IntN(4)))
	if c.draw.IntN(8) == 0 {
		name = hostileNames[c.draw.IntN(len(hostileNames))]
	}
	return filepath.Join(append(p, name)...)
}

// change does one thing and says what. One that is not possible now does nothing.
func (c *changer) change(t *testing.T) string {
	t.Helper()
	p, q := c.place(), c.place()
	c.text++
	text := fmt.Appendf(nil, "%08d", c.text) // all of one size
	switch op := c.draw.IntN(15); op {
	case 0:
		_ = os.MkdirAll(filepath.Dir(p), 0o755)
		_ = os.WriteFile(p, text, 0o644)
		return "write " + p
	case 1:
		if os.WriteFile(p+".tmp", text, 0o644) == nil && os.Rename(p+".tmp", p) != nil {
			_ = os.Remove(p + ".tmp")
		}
		return "rename over " + p
	case 2: // the same size, and the time that it had
		fi, err := os.Stat(p)
		if err == nil && fi.Mode().IsRegular() && os.WriteFile(p, text, 0o644) == nil {
			_ = os.Chtimes(p, fi.ModTime(), fi.ModTime())
		}
		return "write with the old time " + p
	case 3:
		_ = os.RemoveAll(p)
		return "remove " + p
	case 4:
		_ = os.RemoveAll(p)
		_ = os.MkdirAll(p, 0o755)
		_ = os.WriteFile(filepath.Join(p, "init.sls"), text, 0o644)
		return "a directory at " + p
	case 5:
		_ = os.Rename(p, q)
		return "mv " + p + " " + q
	case 6:
		_ = os.Link(p, q)
		return "link " + p + " " + q
	case 7:
		_ = os.Remove(p)
		_ = os.Symlink(filepath.Base(q), p)
		return "symlink " + p
	case 8:
		_ = os.Chtimes(p, time.Now(), time.Unix(1e9, 0))
		return "touch " + p
	case 9:
		if fi, err := os.Lstat(p); err == nil && fi.Mode().IsRegular() {
			_ = os.Chmod(p, 0o600+fs.FileMode(c.draw.IntN(2))*0o044)
		}
		return "chmod " + p
	case 10:
		if f, err := os.OpenFile(p, os.O_WRONLY, 0); err == nil {
			_, _ = f.WriteAt(text[4:], 4)
			_ = f.Close()
		}
		return "write into " + p
	case 11: // as rsync -t does, with the size and the time that it had
		fi, err := os.Stat(p)
		if err == nil && os.WriteFile(q+".tmp", text, 0o644) == nil {
			_ = os.Chtimes(q+".tmp", fi.ModTime(), fi.ModTime())
			_ = os.Rename(q+".tmp", p)
			_ = os.Remove(q + ".tmp")
		}
		return "rsync -t " + p
	case 12: // as git checkout does
		_ = os.Remove(p)
		_ = os.WriteFile(p, text, 0o644)
		return "git checkout " + p
	case 13:
		_ = os.Remove(p)
		_ = os.Symlink([]string{".", filepath.Base(p)}[c.draw.IntN(2)], p)
		return "symlink loop " + p
	default:
		if _, err := os.Lstat(p); err == nil {
			_ = os.RemoveAll(q)
			_ = os.Rename(p, q)
			_ = os.Mkdir(p, 0o755)
		}
		return "mv and mkdir " + p
	}
}

// listTree is a tree in one text.
func listTree(t *testing.T, root string) string {
	t.Helper()
	var out bytes.Buffer
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		fi, err := d.Info()
		if err != nil {
			return err
		}

		what := ""
		switch {
		case fi.Mode().IsRegular():
			what = content(p)
		case fi.Mode()&fs.ModeSymlink != 0:
			what, _ = os.Readlink(p)
		}

		fmt.Fprintf(&out, "%s %v %s\n", strings.TrimPrefix(p, root), fi.Mode(), what)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	return out.String()
}

// The volume takes the times of a change from the node that makes it: a file may change
// and keep its size and times. What was read just after a change is read again.
func TestSameTimesAfterAnEarlyRead(t *testing.T) {
	c, src, dst := testCopier(t)
	c.spec.Stage = stageDir
	file := filepath.Join(src, "srv/salt/f")
	put(t, file, "one")
	pass(t, c)
	put(t, file, "two")
	fi, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}

	k := c.known["srv/salt/f"]
	k.MTime, k.CTime = fi.ModTime().UnixNano(), changeTime(fi) // as if they had been these already
	c.known["srv/salt/f"] = k
	pass(t, c)

	if got := content(filepath.Join(dst, "srv/salt/f")); got != "two" {
		t.Errorf("the copy has %q", got)
	}

	if r := pass(t, c); r.Copied != 0 {
		t.Errorf("nothing changed, and the pass did %+v", r)
	}
}

// The clocks of nodes may differ by minutes: a file may keep its times for as long, whatever is
// written into it. Then it is read again.
func TestSameTimesWithClocksApart(t *testing.T) {
	now := time.Now()
	for name, row := range map[string]struct {
		changed time.Duration // ago, by its writer's clock
		read    time.Duration // ago, by this node's clock
		apart   time.Duration // how far clocks are known to differ
		early   bool
	}{
		"it had just changed":                 {changed: time.Minute, read: 59 * time.Second, early: true},
		"its writer is ahead by minutes":      {changed: -3 * time.Minute, early: true},
		"its writer is ahead by a year":       {changed: -365 * 24 * time.Hour, early: true},
		"a later writer is behind, noticed":   {changed: 3 * time.Minute, apart: 5 * time.Minute, early: true},
		"this node was ahead, and is no more": {changed: time.Minute, read: -time.Hour, early: true},
		"when it was read is not known":       {changed: time.Hour, read: now.Sub(time.Unix(0, 0)), early: true},
		"all clocks agree":                    {changed: 3 * time.Minute, early: false},
		"clocks differ, and it is long ago":   {changed: time.Hour, apart: 5 * time.Minute, early: false},
	} {
		t.Run(name, func(t *testing.T) {
			k := copied{
				CTime: now.Add(-row.changed).UnixNano(),
				Read:  now.Add(-row.read).UnixNano(),
			}
			if got := k.readTooEarly(now, row.apart); got != row.early {
				t.Errorf("early: %v, want %v", got, row.early)
			}
		})
	}
}

// A file whose time of change lies in the future is read in each pass: it may change and keep
// its times.
func TestSameTimesFromTheFuture(t *testing.T) {
	c, src, dst := testCopier(t)
	c.spec.Stage = stageDir
	file := filepath.Join(src, "srv/salt/f")
	put(t, file, "one")
	pass(t, c)
	put(t, file, "two")
	fi, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}

	k := c.known["srv/salt/f"]
	k.MTime = fi.ModTime().UnixNano()
	k.CTime = changeTime(fi)
	k.Read = k.CTime - int64(3*time.Minute)
	c.known["srv/salt/f"] = k
	pass(t, c)

	if got := content(filepath.Join(dst, "srv/salt/f")); got != "two" {
		t.Errorf("the copy has %q", got)
	}
}

// How far clocks of nodes are apart, as the copy of files takes it.
func TestClocksApart(t *testing.T) {
	now := time.Now()
	m := Manager{cfg: Config{Now: func() time.Time { return now }}}
	for name, row := range map[string]struct {
		ahead    []clockDiff
		measured []time.Duration // one after the other, of one node
		want     time.Duration
	}{
		"alone":         {nil, nil, 0},
		"within bounds": {[]clockDiff{{2 * time.Second, now}, {-12 * time.Second, now}}, nil, 0},
		"one is ahead":  {[]clockDiff{{3 * time.Minute, now}, {-time.Second, now}}, nil, 3 * time.Minute},
		"both ways":     {[]clockDiff{{3 * time.Minute, now}, {-2 * time.Minute, now}}, nil, 5 * time.Minute},
		"long ago":      {[]clockDiff{{3 * time.Minute, now.Add(-2 * clockKept)}}, nil, 0},
		"measured":      {[]clockDiff{{-20 * time.Second, now}}, []time.Duration{-15 * time.Second}, 15 * time.Second},
		"small":         {nil, []time.Duration{-4 * time.Second}, 0},
		"put right":     {nil, []time.Duration{-15 * time.Second, 0}, 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			m.ahead = map[string]clockDiff{}
			m.measured = map[string]clockDiff{}
			for _, d := range row.measured {
				m.NoteClocks(map[string]time.Duration{"n2": d})
			}
			for i, c := range row.ahead {
				m.ahead[fmt.Sprint(i)] = c
			}
			if got := m.clockSpread(); got != row.want {
				t.Errorf("%v, want %v", got, row.want)
			}
		})
	}
}

// A node whose clock is behind by less than its stamps on the volume can show changes a file soon after another one
// did: the volume keeps the file's times, as it never puts them back.
func TestChangeByANodeWhoseClockIsBehind(t *testing.T) {
	for seed := range uint64(200) {
		chance := rand.New(rand.NewPCG(seed, 1))
		behind := time.Duration(5000+chance.IntN(20_000)) * time.Millisecond
		m := Manager{
			cfg:      Config{Now: time.Now},
			ahead:    map[string]clockDiff{"n2": {-behind - time.Duration(chance.Int64N(int64(clocksEvery))), time.Now()}},
			measured: map[string]clockDiff{},
		}
		m.NoteClocks(map[string]time.Duration{"n2": -behind, "n3": 10 * time.Millisecond})

		changed := time.Now().Add(-time.Hour)
		read := time.Duration(chance.Int64N(int64(behind))) // after that, and before the change by n2
		k := copied{CTime: changed.UnixNano(), Read: changed.Add(read).UnixNano()}
		if !k.readTooEarly(time.Now(), m.clockSpread()) {
			t.Errorf("behind by %v, read %v after the change before: it is not read again", behind, read)
		}
	}
}

// Whatever a file is called, it is in the copy, with a stage and without; and a message that
// names it stays one line.
func TestNamesOfFilesInTheCopy(t *testing.T) {
	for _, stage := range []string{"", stageDir} {
		c, src, dst := testCopier(t)
		c.spec.Stage = stage
		for round := range 2 {
			for _, name := range hostileNames {
				put(t, filepath.Join(src, "srv/salt/"+name, name), fmt.Sprint(name, round))
			}
			pass(t, c)
			if a, b := listTree(t, filepath.Join(src, "srv")), listTree(t, filepath.Join(dst, "srv")); a != b {
				t.Fatalf("stage %q, round %d: the source is\n%q\nand the copy\n%q", stage, round, a, b)
			}
		}

		if _, err := os.Lstat(filepath.Join(dst, tempFile)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("stage %q: a temporary file is left: %v", stage, err)
		}
	}

	for _, files := range []int{1, 2} {
		text := (&Unsteady{files, "srv/salt/a\nb\x1b[31m" + strings.Repeat("n", 4000)}).Error()
		if strings.ContainsAny(text, "\n\x1b") || len(text) > 2*maxExample {
			t.Errorf("said: %q", text)
		}
	}
}

// What lies in the copy in the place of a directory, be it a pipe that nobody writes to, gives way to it.
func TestPipeInTheCopy(t *testing.T) {
	for _, stage := range []string{"", stageDir} {
		c, src, dst := testCopier(t)
		c.spec.Stage = stage
		pass(t, c)
		put(t, filepath.Join(src, "srv/salt/sub/a.sls"), "text")

		if err := syscall.Mkfifo(filepath.Join(dst, "srv/salt/sub"), 0o600); err != nil {
			t.Fatal(err)
		}

		done := make(chan error, 1)
		go func() {
			_, err := c.runPass()
			done <- err
		}()

		select {
		case err := <-done:
			if err != nil {
				t.Fatalf("stage %q: %v", stage, err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("stage %q: the pass waits for a writer", stage)
		}

		if b, err := os.ReadFile(filepath.Join(dst, "srv/salt/sub/a.sls")); string(b) != "text" {
			t.Errorf("stage %q: the copy is %q, %v", stage, b, err)
		}
	}
}

// A reader of the copy sees what refers to a file no sooner than the file, and nothing
// of what is on its way.
func TestCopyComesInTheOrderOfChanges(t *testing.T) {
	c, src, dst := testCopier(t)
	c.spec.Stage = stageDir
	pass(t, c)
	for _, name := range []string{"z.sls", "m.sls", "a.sls"} {
		put(t, filepath.Join(src, "srv/salt", name), name)
		waitForTick(t)
	}

	dest, err := os.OpenRoot(dst)
	if err != nil {
		t.Fatal(err)
	}
	defer dest.Close()

	var r mirrorReport
	w := &walk{copier: c, dest: dest, report: &r, copiedNow: map[string]copied{}, emptyNow: map[string]emptied{}}
	if err := w.copyTree("srv/salt", 0); err != nil {
		t.Fatal(err)
	}

	if got := listTree(t, filepath.Join(dst, "srv/salt")); strings.Count(got, "\n") != 1 {
		t.Errorf("before all is there, the copy has\n%s", got)
	}

	var order []string
	if err := w.placeEach(func(f stagedFile) { order = append(order, filepath.Base(f.to)) }); err != nil {
		t.Fatal(err)
	}

	if got := strings.Join(order, " "); got != "z.sls m.sls a.sls" {
		t.Errorf("put into place in the order %s", got)
	}

	w.unstage()
	if _, err := os.Stat(filepath.Join(dst, stageDir)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the stage is left: %v", err)
	}
}

// What becomes something else after it was listed is in the copy as one or the other, and
// never missing.
func TestEntryReplacedDuringAPass(t *testing.T) {
	for _, staged := range []string{"", stageDir} {
		c, src, dst := testCopier(t)
		c.spec.Stage = staged
		at := filepath.Join(src, "srv/salt/a")
		put(t, at, "a file")
		pass(t, c)
		c.skip = func(p string) bool {
			if p == "srv/salt/a" {
				if err := os.Remove(at); err != nil {
					t.Fatal(err)
				}
				put(t, filepath.Join(at, "init.sls"), "of a directory")
				c.skip = nil
			}

			return false
		}

		pass(t, c)
		if got := content(filepath.Join(dst, "srv/salt/a/init.sls")); got != "of a directory" {
			t.Errorf("stage %q: %s", staged, got)
		}
	}
}

// waitForTick waits until files get a later time than now: they are as coarse as the
// kernel's tick.
func waitForTick(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tick")
	now := func() int64 {
		put(t, file, "")
		fi, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return changeTime(fi)
	}
	first := now()
	await.That(t, "files get a later time", func() bool { return now() > first })
}

// A volume that hangs costs whoever asks some seconds once, then nothing, and is said.
func TestNewestOfAHangingVolume(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	m := mirror{child: worker{command: []string{self, "as-helper", "hangs"}}}
	runMirror(t, &m)
	if !await.Within(time.Minute, func() bool { m.mu.Lock(); defer m.mu.Unlock(); return !m.beganAt.IsZero() }) {
		t.Fatal("no pass began")
	}

	m.mu.Lock()
	m.beganAt = m.beganAt.Add(-newestLeast)
	m.mu.Unlock()

	asked := time.Now()
	if _, err := m.newest(t.Context()); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("a pass that hangs: %v", err)
	}

	if took := time.Since(asked); took > newestLeast/2 {
		t.Errorf("it took %v to say that a pass hangs already", took)
	}
}

// Finding B4: whoever waits for a pass while somebody writes into a file is served what had
// been written before he asked, or is told that this file is older.
func TestFileWrittenWhileItIsCopied(t *testing.T) {
	var m mirror
	from, to := runMirror(t, &m)
	file := filepath.Join(from, "srv/salt/f")
	var written atomic.Int64
	write := func(n int64) {
		if err := os.WriteFile(file, fmt.Appendf(nil, "%0200000d", n), 0o644); err != nil {
			t.Error(err)
		}
		written.Store(n)
	}

	write(1)
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for n := int64(2); ; n++ {
			select {
			case <-stop:
				return
			default:
				write(n)
			}
		}
	}()

	said := 0
	for range 100 {
		before := written.Load()
		asked := time.Now()
		asOf, err := m.newest(t.Context())
		var unsteady *Unsteady
		if errors.As(err, &unsteady) {
			said++
			if unsteady.Example != "srv/salt/f" || asOf.Before(asked.Add(-time.Millisecond)) {
				t.Errorf("as of %v, asked at %v: %v", asOf, asked, err)
			}
			continue
		}

		if err != nil {
			t.Fatal(err)
		}

		text := content(filepath.Join(to, "srv/salt/f"))
		n, err := strconv.ParseInt(text, 10, 64)
		if n < before && len(text) == 200000 { // a shorter one was there while it was written
			t.Errorf("the copy is of change %d (%v), and change %d was made before it was asked for", n, err, before)
		}
	}

	close(stop)
	<-ended
	if _, err := m.newest(t.Context()); err != nil || content(filepath.Join(to, "srv/salt/f")) != content(file) {
		t.Errorf("when nobody writes any more: %v", err)
	}

	t.Logf("of %d changes, 100 questions met %d", written.Load(), said)
}

// TestRefreshWhileAFileIsWritten: options are applied, whatever somebody writes into the
// files for minions meanwhile.
func TestRefreshWhileAFileIsWritten(t *testing.T) {
	fault := errors.New("input/output error")
	for name, row := range map[string]struct{ pass, want error }{
		"all is well": {nil, nil},
		"it failed":   {fault, fault},
	} {
		t.Run(name, func(t *testing.T) {
			var m Manager
			m.mirror.passWanted = make(chan struct{}, 1)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				<-m.mirror.passWanted
				now := time.Now()
				m.mirror.beginPass(now)
				m.mirror.endPass(now, now, mirrorReport{Changing: 1, Example: "srv/salt/big.iso"}, row.pass)
			}()

			if err := m.Refresh(t.Context()); !errors.Is(err, row.want) {
				t.Errorf("got %v, want %v", err, row.want)
			}

			<-ended
		})
	}
}

// While copies are healed, each file is asked for: lists of directories lack some. How far clocks
// differ is told to each pass.
func TestPassAsksForEachFileWhenListsMayLackThem(t *testing.T) {
	for _, unsure := range []bool{false, true} {
		m := mirror{
			attributesMayLack: func() bool { return unsure },
			clockSpread:       func() time.Duration { return time.Minute },
		}
		if got, want := m.question(true), (mirrorQuestion{ListAll: true, AskEach: unsure, ClockSpread: time.Minute}); got != want {
			t.Errorf("unsure %v, for somebody who waits: %+v", unsure, got)
		}
		if got := m.question(false); got != (mirrorQuestion{ClockSpread: time.Minute}) {
			t.Errorf("unsure %v, nobody waits: %+v", unsure, got)
		}
	}
}
