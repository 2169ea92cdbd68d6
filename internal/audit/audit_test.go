package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"saltern/test/await"
	"saltern/test/smalldisk"
)

var at = time.Date(2026, 11, 24, 16, 0, 0, 0, time.UTC)

func open(t *testing.T, dir string, now func() time.Time) *Log {
	t.Helper()
	l := Open(Config{Dir: dir, Node: "n1", Program: "test", Now: now})
	t.Cleanup(l.Close)
	return l
}

func read(t *testing.T, q Query, dirs ...string) Page {
	t.Helper()
	p, err := Read(t.Context(), "n1", q, dirs...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func objects(p Page) (out []string) {
	for _, r := range p.Records {
		out = append(out, r.Object)
	}
	return out
}

func act(object string) Record {
	return Record{
		Actor:  Actor{User: "alice", As: "root", Proof: Login, From: Local},
		Action: "key.accept",
		Object: object,
		Result: OK,
	}
}

func TestRecordsAreThereAtOnceAndAfterARestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, nil)
	l.Write(t.Context(), act("web1"))
	if p := read(t, Query{}, dir); len(p.Records) != 1 || p.Records[0].Program != "test" ||
		p.Records[0].Time.IsZero() || p.Records[0].User != "alice" {
		t.Fatalf("%+v", p)
	}

	l.Note(act("web2"))
	l.Close()
	l.Note(act("too late"))
	open(t, dir, nil).Write(t.Context(), act("web3"))

	if got := objects(read(t, Query{}, dir)); !slices.Equal(got, []string{"web1", "web2", "web3"}) {
		t.Errorf("%v", got)
	}

	st, err := os.Stat(bookNamed(dir, actsShelf).current())
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}

	var none *Log
	none.Note(act("x"))
	none.Write(t.Context(), act("x"))
	none.Close()

	if none.Fault() != nil {
		t.Error("no log has a fault")
	}
}

func TestQueries(t *testing.T) {
	dirs := []string{t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "none")}
	for i := range 40 {
		r := act(fmt.Sprint(i))
		r.Time = at.Add(time.Duration(i) * time.Minute)
		if i%4 == 3 {
			r.User = "bob"
			r.As = ""
			r.Action = "job.publish"
		}
		if i%10 == 6 { // 6, 16, 26, 36
			r.Action, r.Function = "runner.call", "pillar.readers"
			if i == 36 {
				r.Result = Refused
			}
		}

		l := open(t, dirs[i%2], nil)
		l.Write(t.Context(), r)
		l.Close()
	}

	for _, c := range []struct {
		q    Query
		n    int
		last string
		more bool
	}{
		{Query{}, 40, "39", false},
		{Query{Last: 3}, 3, "39", true},
		{Query{Since: at.Add(38 * time.Minute)}, 2, "39", false},
		{Query{Since: at.Add(time.Hour)}, 0, "", false},
		{Query{User: "alice"}, 30, "38", false},
		{Query{User: "root", Last: 1}, 1, "38", true},
		{Query{Action: "job.*"}, 10, "39", false},
		{Query{Action: "job"}, 0, "", false},
		{Query{Acts: true}, 37, "39", false},
		{Query{Acts: true, Action: "runner.call"}, 1, "36", false},
		{Query{Refused: true}, 1, "36", false},
		{Query{Refused: true, Action: "job.*"}, 0, "", false},
	} {
		// Through the form in which nodes ask each other.
		q, err := ParseQuery(c.q.Values())
		if err != nil || !q.Since.Equal(c.q.Since) {
			t.Fatalf("%+v: %+v %v", c.q, q, err)
		}

		p := read(t, q, dirs...)
		got := objects(p)
		if len(got) != c.n || p.More != c.more || c.n > 0 && got[c.n-1] != c.last {
			t.Errorf("%+v: %v, more %v", c.q, got, p.More)
		}

		if !slices.IsSortedFunc(p.Records, func(a, b Record) int { return a.Time.Compare(b.Time) }) {
			t.Errorf("%+v: out of order", c.q)
		}
	}

	for _, bad := range []url.Values{
		{"since": {"yesterday"}},
		{"last": {"-1"}},
		{"last": {"x"}},
		{"action": {"[a"}},
		{"user": {strings.Repeat("x", 4000)}},
	} {
		if _, err := ParseQuery(bad); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
}

// A folder is bounded, and the oldest records go: by size, and by age.
func TestBounds(t *testing.T) {
	dir := t.TempDir()
	b := book{dir: dir, shelf: shelf{name: actsShelf, part: 4000, size: 20000}}
	for i := range 400 {
		line, err := encode(Record{Time: at, Action: "a", Object: fmt.Sprint(i)})
		if err == nil {
			err = b.appendLines([][]byte{line}, at.Add(time.Duration(i)*time.Second))
		}
		if err != nil {
			t.Fatal(err)
		}
	}

	files, err := b.fileNames()
	var size int64
	for _, f := range files {
		st, serr := os.Stat(f)
		err = errors.Join(err, serr)
		size += st.Size()
	}

	if err != nil || size > 20000 || size < 12000 {
		t.Errorf("%d bytes in %d files: %v", size, len(files), err)
	}

	got := objects(read(t, Query{}, dir))
	if len(got) < 50 || got[len(got)-1] != "399" || got[0] != fmt.Sprint(400-len(got)) {
		t.Errorf("%v", got)
	}

	// A year later the next file that is begun takes the old ones away.
	for _, f := range files {
		if err := os.Chtimes(f, at, at); err != nil {
			t.Fatal(err)
		}
	}

	long := bytes.Repeat([]byte("x"), 3900)
	if err := b.appendLines([][]byte{append(long, '\n')}, at.Add(MaxAge+time.Hour)); err != nil {
		t.Fatal(err)
	}

	if files, _ := b.fileNames(); len(files) > 2 {
		t.Errorf("left: %v", files)
	}
}

// A file of a node that does little ends by age, so that its records can go.
func TestFilesEndByAge(t *testing.T) {
	dir := t.TempDir()
	b := bookNamed(dir, actsShelf)
	for i, day := range []int{0, 29, 31, 60, 62} {
		now := at.Add(time.Duration(day) * 24 * time.Hour)
		line, err := encode(Record{Time: now, Action: "a"})
		if err == nil {
			err = b.appendLines([][]byte{line}, now)
		}
		files, ferr := b.fileNames()
		if err := errors.Join(err, ferr); err != nil || len(files) != []int{1, 1, 2, 2, 3}[i] {
			t.Errorf("day %d: %v %v", day, files, err)
		}
	}
}

// Passwords in addresses are not kept.
func TestRedacted(t *testing.T) {
	for in, want := range map[string]string{
		"https://u:p@h/x": "https://***@h/x", "fetch ssh://git@h:22/x failed": "fetch ssh://***@h:22/x failed", "web*": "web*", "a://b": "a://b",
		"x://a:b@c y://d:e@f": "x://***@c y://***@f", "https://u:p@ss@h?q": "https://***@h?q", "m@h": "m@h", "://@": "://***@",
	} {
		if got := (Record{Object: in}).bounded().Object; got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}

// TestKilled: what a program was told to be written is there after SIGKILL, and nothing
// is torn.
func TestKilled(t *testing.T) {
	if dir := os.Getenv("AUDIT_TEST_DIR"); dir != "" {
		l := Open(Config{Dir: dir, Node: "n1", Program: "test"})
		for i := 0; ; i++ {
			l.Note(act("noted"))
			l.Write(t.Context(), act(fmt.Sprint(i)))
			fmt.Println("written", i)
		}
	}

	for round := range 5 {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0], "-test.run", "^TestKilled$")
		cmd.Env = append(os.Environ(), "AUDIT_TEST_DIR="+dir)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}

		if err != nil {
			t.Fatal(err)
		}

		last := -1
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if _, err := fmt.Sscanf(lines.Text(), "written %d", &last); err == nil && last == 20+7*round {
				_ = cmd.Process.Kill()
			}
		}

		_ = cmd.Wait() // it was killed
		p := read(t, Query{}, dir)
		n := 0
		for _, r := range p.Records {
			if r.Object == fmt.Sprint(n) {
				n++
			}
		}

		if last < 20 || n <= last || p.Damaged > 0 {
			t.Errorf("%d were said to be written, %d are, %d are torn", last+1, n, p.Damaged)
		}
	}
}

// Several programs write to one folder, and begin new files: nothing is lost, torn
// or there twice.
func TestPrograms(t *testing.T) {
	dir := t.TempDir()
	const programs, each = 4, 300
	var all sync.WaitGroup
	for p := range programs {
		all.Go(func() {
			b := book{dir: dir, shelf: shelf{name: actsShelf, part: 3000, size: 1 << 20}}
			for i := range each {
				line, err := encode(Record{Time: at, Action: "a", Object: fmt.Sprint(p, " ", i)})
				if err == nil {
					err = b.appendLines([][]byte{line}, time.Now())
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}

	all.Wait()
	p := read(t, Query{}, dir)
	got := objects(p)
	slices.Sort(got)

	if len(got) != programs*each || len(slices.Compact(got)) != programs*each || p.Damaged > 0 {
		t.Errorf("%d records, %d damaged", len(got), p.Damaged)
	}
}

// Files that are begun at the same time, or before others, take nobody's place.
func TestSameTime(t *testing.T) {
	b := book{dir: t.TempDir(), shelf: shelf{name: actsShelf, part: 900, size: 1 << 20}}
	const each = 50
	for i, now := range []time.Time{at, at, at.Add(-time.Hour), at.Add(time.Nanosecond)} {
		for k := range each {
			line, err := encode(Record{Time: at, Action: "a", Object: fmt.Sprintf("%d %02d", i, k)})
			if err == nil {
				err = b.appendLines([][]byte{line}, now)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}

	if got := objects(read(t, Query{}, b.dir)); len(got) != 4*each || !slices.IsSorted(got) {
		t.Errorf("%d records: %v", len(got), got)
	}
}

// A power cut leaves half a line; what is written next is whole.
func TestTornLine(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(bookNamed(dir, actsShelf).current(),
		[]byte(`{"time":"2026-11-24T16:00:00Z","action":"a","object":"1","result":"ok"}`+"\n"+`{"time":"2026-`),
		0o600); err != nil {
		t.Fatal(err)
	}
	open(t, dir, nil).Write(t.Context(), act("2"))
	if p := read(t, Query{}, dir); !slices.Equal(objects(p), []string{"1", "2"}) || p.Damaged != 1 {
		t.Errorf("%+v", p)
	}
}

// bookNamed returns a book of a folder.
func bookNamed(dir, name string) book { return book{dir: dir, shelf: shelfNamed(name)} }

// A disk that is full: whoever acts goes on, it is told, and told how much is missing.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	smalldisk.MountOn(t, dir, "size=64k")
	filler := filepath.Join(dir, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}

	l := open(t, dir, nil)
	l.Write(t.Context(), act("first"))
	for {
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			break
		}
	}

	f.Close()
	r := act("until it is full")
	r.Detail = strings.Repeat("x", 1000)
	began := time.Now()
	const notes = 2*maxWaiting + 3000
	for range notes {
		l.Note(r)
	}

	if d := time.Since(began); d > 30*time.Second {
		t.Errorf("%d notes took %s", notes, d)
	}

	await.That(t, "the fault is told", func() bool {
		err := l.Fault()
		return errors.Is(err, syscall.ENOSPC) && strings.Contains(err.Error(), "are lost")
	})

	// A record that is just being written and taken back again may be seen half.
	await.That(t, "records are whole", func() bool {
		page := read(t, Query{}, dir)
		return page.Damaged == 0 && len(page.Records) > 0
	})

	if err := errors.Join(os.Remove(filler), syscall.Mount("", dir, "", syscall.MS_REMOUNT, "size=64m")); err != nil {
		t.Fatal(err)
	}

	await.That(t, "it is written on", func() bool { return l.Fault() == nil })
	l.Write(t.Context(), act("last"))
	p := read(t, Query{}, dir)
	kept, lost := len(p.Records), 0
	for _, r := range p.Records {
		lost += int(r.Lost)
	}

	if p.More || kept+lost != notes+2 || lost < 1000 || p.Records[kept-1].Object != "last" {
		t.Errorf("%d kept, %d said to be missing, last %+v", kept, lost, p.Records[kept-1])
	}
}

// A program that holds the lock and is stopped, or a disk that hangs, costs a second
// at most, and is told.
func TestHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Log{
			cfg:  Config{Now: time.Now},
			wake: make(chan struct{}, 1),
			stop: make(chan struct{}),
			done: make(chan struct{}),
		}

		began := time.Now()
		l.writing = began // and never ends
		l.Write(t.Context(), act("x"))
		if d := time.Since(began); d != WriteTakes {
			t.Errorf("it took %s", d)
		}

		if l.Fault() != nil {
			t.Error("told too early")
		}

		time.Sleep(hangsAfter)
		if err := l.Fault(); err == nil || !strings.Contains(err.Error(), "has not answered for 6s") {
			t.Errorf("%v", err)
		}

		l.Close()
		if d := time.Since(began); d != WriteTakes+hangsAfter+closeTakes {
			t.Errorf("Close ended after %s", d)
		}
	})
}

func TestNamesAreReadAgain(t *testing.T) {
	many := make([]string, 25)
	for i := range many {
		many[i] = fmt.Sprintf("web%d", i)
	}
	for _, tt := range []struct {
		ids   []string
		whole bool
	}{{many[:1], true}, {many[:20], true}, {many, false}} {
		text := Names(tt.ids)
		got, whole := ParseNames(text)
		if whole != tt.whole || !slices.Equal(got, tt.ids[:min(len(tt.ids), 20)]) {
			t.Errorf("%q: %q %v", text, got, whole)
		}
	}

	long := Record{Detail: strings.Repeat("web1.example.com, ", 100)}.bounded()
	if _, whole := ParseNames(long.Detail); whole {
		t.Errorf("%q is whole", long.Detail)
	}
}
