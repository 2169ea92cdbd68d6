package audit

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"saltern/test/smalldisk"
)

// smallBook has files of few records.
func smallBook(dir string) book {
	return book{
		dir:     dir,
		shelf:   shelf{name: actsShelf, part: 2500, size: 25_000},
		node:    "n1",
		program: "test",
	}
}

// memoryDir is a folder for a test that writes much and need not wait for a disk.
func memoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "saltern-audit-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// fill adds records number from to number to, one at a time, a second apart.
func fill(t testing.TB, b book, from, to int) {
	t.Helper()
	for i := from; i <= to; i++ {
		now := at.Add(time.Duration(i) * time.Second)
		line, err := encode(Record{
			Time:   now,
			Actor:  Actor{User: "alice", Proof: Login, From: Local},
			Action: "key.accept",
			Object: fmt.Sprint("web", i),
			Result: OK,
		})
		if err == nil {
			err = b.appendLines([][]byte{line}, now)
		}

		if err != nil {
			t.Fatal(err)
		}
	}
}

// told is the head of a book now, as another node was told of it.
func told(t testing.TB, b book) Head {
	t.Helper()
	l, err := b.chainEnd()
	if err != nil || l.seq == 0 {
		t.Fatal(l, err)
	}
	return Head{Folder: NodeFolder, Book: b.name, Seq: l.seq, Chain: l.chain, By: "n2", Time: at}
}

func verifyBook(t testing.TB, b book, heads ...Head) Verified {
	t.Helper()
	v, err := b.verify(t.Context(), heads)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// lines are those of a file, each with its end.
func lines(t testing.TB, path string) [][]byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(bytes.Lines(text))
}

func put(t testing.TB, path string, lines ...[]byte) {
	t.Helper()
	if err := os.WriteFile(path, bytes.Join(lines, nil), 0o600); err != nil {
		t.Fatal(err)
	}
}

// What somebody has changed, put in or taken away is found, with file and line. What the
// log does by itself is whole.
func TestChainShowsChanges(t *testing.T) {
	rows := []struct {
		name string
		do   func(t *testing.T, b book, files []string)
		want string // in the only fault; "": it is whole
	}{
		{
			name: "nothing",
			do:   func(*testing.T, book, []string) {},
		},
		{
			name: "a changed record",
			do: func(t *testing.T, _ book, files []string) {
				all := lines(t, files[1])
				all[3] = bytes.Replace(all[3], []byte("alice"), []byte("mallo"), 1)
				put(t, files[1], all...)
			},
			want: ":4: record 15 was changed, or the one before it",
		},
		{
			name: "a record taken out",
			do: func(t *testing.T, _ book, files []string) {
				all := lines(t, files[1])
				put(t, files[1], slices.Delete(all, 3, 4)...)
			},
			want: ":4: record 15 is missing before this line",
		},
		{
			name: "records taken out",
			do: func(t *testing.T, _ book, files []string) {
				all := lines(t, files[1])
				put(t, files[1], slices.Delete(all, 3, 6)...)
			},
			want: ":4: records 15 to 17 are missing before this line",
		},
		{
			name: "a record there twice",
			do: func(t *testing.T, _ book, files []string) {
				all := lines(t, files[1])
				put(t, files[1], slices.Insert(all, 4, all[3])...)
			},
			want: ":5: record 15 stands after record 15",
		},
		{
			name: "a file in the middle removed",
			do:   func(t *testing.T, _ book, files []string) { remove(t, files[1]) },
			want: ":1: records 12 to 22 are missing before this line",
		},
		{
			name: "the oldest file removed",
			do:   func(t *testing.T, _ book, files []string) { remove(t, files[0]) },
			want: "records 1 to 11 are missing at the beginning: they did not go by age",
		},
		{
			name: "the oldest file removed, and new ones begun afterwards",
			do: func(t *testing.T, b book, files []string) {
				remove(t, files[0])
				fill(t, b, 100, 130)
			},
			want: "records 1 to 11 are missing at the beginning",
		},
		{
			name: "the end of a file cut off",
			do: func(t *testing.T, _ book, files []string) {
				all := lines(t, files[1])
				put(t, files[1], all[:5]...)
			},
			want: ":1: records 17 to 22 are missing before this line",
		},
		{
			name: "the newest records cut off",
			do: func(t *testing.T, b book, _ []string) {
				all := lines(t, b.current())
				put(t, b.current(), all[:len(all)-2]...)
			},
			want: "are missing at the end: n2 was told of record",
		},
		{
			name: "the newest file removed",
			do:   func(t *testing.T, b book, _ []string) { remove(t, b.current()) },
			want: "are missing at the end: n2 was told of record",
		},
		{
			name: "the newest records cut off, and new ones written",
			do: func(t *testing.T, b book, _ []string) {
				all := lines(t, b.current())
				put(t, b.current(), all[:len(all)-2]...)
				fill(t, b, 100, 140)
			},
			want: "is not the one that n2 was told of at 2026-11-24 16:00:00 UTC: the chain was made anew",
		},
		{
			name: "a record changed and the chain made anew",
			do: func(t *testing.T, b book, files []string) {
				var l link
				for i, path := range files {
					var out [][]byte
					for _, line := range lines(t, path) {
						r := decode(line)
						r.Seq, r.Chain = 0, ""
						if r.Object == "web12" {
							r.User = "mallory"
						}

						if r.Action == fileAction {
							r.Prev = l.hash()
						}

						text, err := encode(r)
						if err != nil {
							t.Fatal(err)
						}

						text, l = l.linkRecord(text)
						out = append(out, text)
					}

					put(t, files[i], out...)
				}
			},
			want: "is not the one that n2 was told of",
		},
		{
			name: "everything removed",
			do: func(t *testing.T, b book, files []string) {
				for _, path := range files {
					remove(t, path)
				}
			},
			want: "records 1 to 55 are missing at the end",
		},
		{
			name: "everything removed, and begun anew",
			do: func(t *testing.T, b book, files []string) {
				for _, path := range files {
					remove(t, path)
				}
				fill(t, b, 1, 3)
			},
			want: "records 5 to 55 are missing at the end",
		},
	}

	filled := memoryDir(t)
	fill(t, smallBook(filled), 1, 50)
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			dir := memoryDir(t)
			if err := os.CopyFS(dir, os.DirFS(filled)); err != nil {
				t.Fatal(err)
			}

			b := smallBook(dir)
			head := told(t, b)
			files, err := b.fileNames()
			if err != nil || len(files) < 4 {
				t.Fatal(files, err)
			}

			row.do(t, b, files)
			v := verifyBook(t, b, head)
			if row.want == "" {
				if !v.Whole() || v.Records != 55 || v.First != 1 || v.Last != 55 || v.Told == nil ||
					v.Unchained+v.Torn > 0 {
					t.Errorf("%+v", v)
				}
				return
			}

			if len(v.Faults) != 1 || !strings.Contains(v.Faults[0].String(), row.want) {
				t.Errorf("%v, want %q", v.Faults, row.want)
			}
		})
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// Whatever somebody does to the files at random, it shows.
func TestChainShowsAnyChange(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	dir := memoryDir(t)
	fill(t, smallBook(dir), 1, 50)
	head := told(t, smallBook(dir))
	for round := range 400 {
		copied := memoryDir(t)
		if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}

		b := smallBook(copied)
		files, err := b.fileNames()
		if err != nil {
			t.Fatal(err)
		}

		path := files[random.IntN(len(files))]
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		what := ""
		place := random.IntN(len(text))
		switch random.IntN(5) {
		case 0:
			what = "a bit changed"
			text[place] ^= 1 << random.IntN(8)
		case 1:
			what = "cut"
			text = text[:place]
		case 2:
			what = "the beginning cut off"
			text = text[place+1:]
		case 3:
			what = "a piece taken out"
			end := place + 1 + random.IntN(min(600, len(text)-place))
			text = slices.Delete(text, place, end)
		case 4:
			what = "a piece put in"
			text = slices.Insert(text, place, text[max(0, place-random.IntN(600)-1):place+1]...)
		}

		put(t, path, text)
		if v := verifyBook(t, b, head); v.Whole() && v.Torn+v.Unchained == 0 {
			t.Errorf("round %d, %s at %d of %s: not seen", round, what, place, path)
		}
	}
}

// Old files go by room and by age, and that is no gap, at any time.
func TestChainOfOldFilesThatGo(t *testing.T) {
	b := smallBook(memoryDir(t))
	for i := range 40 {
		fill(t, b, 10*i+1, 10*i+10)
		if v := verifyBook(t, b, told(t, b)); !v.Whole() {
			t.Fatalf("after %d: %v", 10*i+10, v.Faults)
		}
	}

	v := verifyBook(t, b)
	if v.First < 100 || v.Last < 400 {
		t.Errorf("nothing went: %+v", v)
	}

	// More than a year without a record: the newest file stays until the chain goes on from it.
	files, err := b.fileNames()
	for _, path := range files {
		err = errors.Join(err, os.Chtimes(path, at, at))
	}

	if err != nil {
		t.Fatal(err)
	}

	fill(t, b, 2*366*86400, 2*366*86400+3)
	late := verifyBook(t, b)
	if !late.Whole() || late.Files != 2 || late.Last != v.Last+5 {
		t.Errorf("%+v", late)
	}
}

// A crash in the middle of a write is no change: what is left of the line is told of, and
// the chain goes on.
func TestChainAfterACrash(t *testing.T) {
	for cut := 1; cut < 300; cut += 7 {
		b := smallBook(memoryDir(t))
		fill(t, b, 1, 5)
		all := lines(t, b.current())
		last := all[len(all)-1]
		put(t, b.current(), append(all[:len(all)-1], last[:max(1, len(last)-cut)])...)

		fill(t, b, 6, 8)
		torn, next := uint64(1), uint64(8)
		if cut == 1 { // the line only lacks its end
			torn, next = 0, 9
		}

		if v := verifyBook(t, b); !v.Whole() || v.Torn != torn || v.Last != next {
			t.Fatalf("cut by %d: %+v", cut, v)
		}
	}
}

// A crash between the steps of beginning a new file leaves a chain that goes on.
func TestChainAfterACrashBetweenFiles(t *testing.T) {
	for name, left := range map[string]func(b book) error{
		"renamed":       func(b book) error { return b.rotate(at) },
		"an empty file": func(b book) error { return errors.Join(b.rotate(at), os.WriteFile(b.current(), nil, 0o600)) },
		"half of its head": func(b book) error {
			return errors.Join(b.rotate(at), os.WriteFile(b.current(), []byte(`{"time":"20`), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := smallBook(memoryDir(t))
			fill(t, b, 1, 3)
			head := told(t, b)
			if err := left(b); err != nil {
				t.Fatal(err)
			}

			if v := verifyBook(t, b, head); !v.Whole() {
				t.Errorf("at once: %v", v.Faults)
			}

			fill(t, b, 4, 6)
			if v := verifyBook(t, b, head); !v.Whole() || v.Last != 8 {
				t.Errorf("%+v", v)
			}
		})
	}
}

// A full disk: what is written after it continues the chain.
func TestChainOfAFullDisk(t *testing.T) {
	dir := t.TempDir()
	smalldisk.MountOn(t, dir, "size=64k")
	b := smallBook(dir)
	b.size = 1 << 20
	i := 1
	for ; ; i++ {
		line, err := encode(Record{Time: at, Action: "a", Object: fmt.Sprint(i)})
		if err == nil {
			err = b.appendLines([][]byte{line}, at)
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}

		break
	}

	if i < 50 {
		t.Fatalf("full after %d", i)
	}

	// With its real bound the oldest files go, and make room for the next.
	b.size = 25_000
	fill(t, b, i, i+30)
	if v := verifyBook(t, b, told(t, b)); !v.Whole() || v.Torn > 0 || v.First == 1 {
		t.Errorf("%+v", v)
	}
}

// Programs write at the same time, and somebody verifies meanwhile.
func TestChainOfSeveralPrograms(t *testing.T) {
	b := smallBook(memoryDir(t))
	b.size = 1 << 20
	var all sync.WaitGroup
	stop := make(chan struct{})
	all.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}

			if v, err := b.verify(t.Context(), nil); err != nil || !v.Whole() {
				t.Errorf("%v %v", v.Faults, err)
				return
			}
		}
	})

	var programs sync.WaitGroup
	for range 4 {
		programs.Go(func() { fill(t, b, 1, 60) })
	}

	programs.Wait()
	close(stop)
	all.Wait()
	if v := verifyBook(t, b, told(t, b)); !v.Whole() || v.Torn > 0 || v.Records != 240+uint64(v.Files) {
		t.Errorf("%+v", v)
	}
}

// Files of a version before have no chain: they are read, and said to have none. The chain
// begins in a file of its own.
func TestChainAfterAVersionWithout(t *testing.T) {
	dir := t.TempDir()
	b := smallBook(dir)
	var old []byte
	for i := range 3 {
		line, err := encode(Record{Time: at, Action: "key.accept", Object: fmt.Sprint("old", i), Result: OK})
		if err != nil {
			t.Fatal(err)
		}
		old = append(old, line...)
	}

	put(t, b.current(), old)
	if v := verifyBook(t, b); !v.Whole() || v.Unchained != 3 || v.Records != 0 {
		t.Errorf("before: %+v", v)
	}

	fill(t, b, 1, 3)
	v := verifyBook(t, b)
	if !v.Whole() || len(v.Warnings) > 0 || v.Unchained != 3 || v.Records != 4 || v.Files != 2 {
		t.Errorf("%+v", v)
	}

	if got := objects(read(t, Query{}, dir)); !slices.Equal(got,
		[]string{"old0", "old1", "old2", "web1", "web2", "web3"}) {
		t.Errorf("%v", got)
	}

	// A program of the version before, or somebody, adds a line without a link.
	f, err := os.OpenFile(b.current(), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.Write(old[:bytes.IndexByte(old, '\n')+1])
		err = errors.Join(err, f.Close())
	}

	if err != nil {
		t.Fatal(err)
	}

	fill(t, b, 4, 5)
	v = verifyBook(t, b)
	if !v.Whole() || len(v.Warnings) != 1 ||
		!strings.Contains(v.Warnings[0].String(), "acts.jsonl:5: a record without a place in the chain") {
		t.Errorf("%+v", v)
	}
}

// What others were told of a node that has its name from another machine says nothing.
func TestHeads(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, nil)
	l.Write(t.Context(), act("web1"))
	l.Write(t.Context(),
		Record{Actor: Actor{User: "bob", Proof: Token, Limited: true}, Action: "job.publish", Result: Started})
	heads, err := Heads(Folder{NodeFolder, dir}, Folder{MasterFolder, filepath.Join(dir, "none")})
	if err != nil || len(heads) != 2 || heads[0].Book != actsShelf || heads[0].Seq != 2 {
		t.Fatalf("%v %v", heads, err)
	}

	other := t.TempDir()
	witness := Open(Config{Dir: other, Node: "n2", Program: "applianced"})
	witness.Write(t.Context(), HeadsRecord("n1", strings.Repeat("ab", 32), heads))
	witness.Write(t.Context(), HeadsRecord("n1", strings.Repeat("cd", 32), heads))
	witness.Close()

	if p := read(t, Query{}, other); len(p.Records) > 0 {
		t.Errorf("heads among acts: %+v", p.Records)
	}

	page, err := Read(t.Context(), "n2", HeadsQuery(), other)
	if err != nil {
		t.Fatal(err)
	}

	said := HeadsOf(page.Records, "n1", strings.Repeat("ab", 32))
	if len(said) != 2 || said[0].By != "n2" || said[0].String() != heads[0].String() {
		t.Fatalf("%+v", said)
	}

	list, err := Verify(t.Context(), Folder{NodeFolder, dir}, said)
	if err != nil || len(list) != len(shelves()) || !list[0].Whole() || list[0].Told == nil {
		t.Fatalf("%+v %v", list, err)
	}

	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}

	if list, err = Verify(t.Context(), Folder{NodeFolder, dir}, said); err != nil || list[0].Whole() {
		t.Fatalf("%+v %v", list, err)
	}
}

func TestParseHeads(t *testing.T) {
	h := strings.Repeat("0af3", 8)
	for text, want := range map[string]string{
		"":                                     "",
		"node/acts:12:" + h:                    "node/acts:12:" + h,
		`msg=x heads="node/acts:12:` + h + `"`: "node/acts:12:" + h,
		"master/users:1:" + h + " node/heads:2:" + h: "master/users:1:" + h + " node/heads:2:" + h,
		"node/acts:0:" + h:                           "",
		"node/none:1:" + h:                           "",
		"node/acts:9999999999999999:" + h:            "",
		"node/acts:99999999999999999999:" + h:        "",
		"node/acts:1:" + h[1:]:                       "",
		"node/acts:1:" + h + "a":                     "",
		"../acts:1:" + h:                             "",
	} {
		if got := HeadsText(ParseHeads(text)); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// FuzzVerify: whatever stands in a file, it is read to its end, and what is said is bounded.
func FuzzVerify(f *testing.F) {
	b := smallBook(f.TempDir())
	fill(f, b, 1, 3)
	good, err := os.ReadFile(b.current())
	if err != nil {
		f.Fatal(err)
	}

	f.Add(good)
	f.Add(good[100:])
	f.Add([]byte("{\"time\":\"2026-11-24T16:00:00Z\",\"action\":\"audit.file\",\"first\":18446744073709551615,\"seq\":9007199254740992,\"chain\":\"" + strings.Repeat("f", hashLen) + "\"}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		b := smallBook(memoryDir(t))
		put(t, b.current(), text)
		v := verifyBook(t, b,
			Head{Folder: NodeFolder, Book: b.name, Seq: 4, Chain: strings.Repeat("0", hashLen), By: "n2"})
		if len(v.Faults) > maxFaults || len(v.Warnings) > maxFaults {
			t.Error(len(v.Faults), len(v.Warnings))
		}

		fill(t, b, 1, 2) // the log goes on after anything
		if got := objects(read(t, Query{Action: "key.accept"}, b.dir)); len(got) < 2 ||
			got[len(got)-1] != "web2" && !slices.Contains(got, "web2") {
			t.Errorf("%v", got)
		}
	})
}

// BenchmarkRecord is one record that somebody waits for, and what the chain costs of it.
func BenchmarkRecord(b *testing.B) {
	line, err := encode(act("web1"))
	if err != nil {
		b.Fatal(err)
	}

	b.Run("link", func(b *testing.B) {
		var l link
		for b.Loop() {
			_, l = l.linkRecord(line)
		}
	})

	b.Run("written", func(b *testing.B) {
		book := bookNamed(b.TempDir(), actsShelf)
		for b.Loop() {
			if err := book.appendLines([][]byte{line}, at); err != nil {
				b.Fatal(err)
			}
		}
	})

	b.Run("hundred", func(b *testing.B) {
		book := bookNamed(b.TempDir(), actsShelf)
		hundred := slices.Repeat([][]byte{line}, 100)
		for b.Loop() {
			if err := book.appendLines(hundred, at); err != nil {
				b.Fatal(err)
			}
		}
	})
}
