package spool

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
	"testing"

	"golang.org/x/sys/unix"
)

func open(t testing.TB, cfg Config) *Spool {
	t.Helper()
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func reader(t testing.TB, s *Spool, name string) *Reader {
	t.Helper()
	r, err := s.Reader(name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// next reads and advances over some records.
func next(t testing.TB, r *Reader, most int) []string {
	t.Helper()
	records, end, err := r.Read(most, 1<<20)
	if err == nil {
		err = r.Advance(end)
	}
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, record := range records {
		texts = append(texts, string(record))
	}
	return texts
}

// TestReadersGetAllInOrder, whatever their pace, over starts of the process that end without a
// word, and with records of all sizes.
func TestReadersGetAllInOrder(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	cfg := Config{Dir: t.TempDir(), Bytes: 1 << 20}
	var want []string
	got := map[string][]string{}
	for range 8 {
		s := open(t, cfg) // the last one was not closed
		readers := map[string]*Reader{"fast": reader(t, s, "fast"), "a/../slow": reader(t, s, "a/../slow")}
		for range 60 {
			record := bytes.Repeat([]byte{byte(random.IntN(256))}, random.IntN(300))
			record = fmt.Appendf(record, "%d", len(want))
			if err := s.Append(record); err != nil {
				t.Fatal(err)
			}

			want = append(want, string(record))
			got["fast"] = append(got["fast"], next(t, readers["fast"], 10)...)
			if random.IntN(3) == 0 {
				got["a/../slow"] = append(got["a/../slow"], next(t, readers["a/../slow"], 2)...)
			}
		}

		if err := s.Forget(); err != nil {
			t.Fatal(err)
		}
	}

	r := reader(t, open(t, cfg), "a/../slow")
	for more := next(t, r, 50); more != nil; more = next(t, r, 50) {
		got["a/../slow"] = append(got["a/../slow"], more...)
	}

	for name, texts := range got {
		if !slices.Equal(texts, want) {
			t.Errorf("seed %d: %s has read %d records, not the %d in their order", seed, name, len(texts), len(want))
		}
	}

	if r.Lost() != 0 || r.Waiting() != 0 {
		t.Errorf("%d lost, %d wait", r.Lost(), r.Waiting())
	}
}

// TestOverflowDropsTheOldest, and each reader counts what it has lost.
func TestOverflowDropsTheOldest(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir, Bytes: 16 << 10})
	away := reader(t, s, "away")
	record := bytes.Repeat([]byte("x"), 92) // 100 bytes with its head
	const appended = 1000
	for range appended {
		if err := s.Append(record); err != nil {
			t.Fatal(err)
		}
	}

	if away.Lost()+away.Waiting() != appended || away.Waiting() < 140 || away.Waiting() > 164 {
		t.Errorf("%d lost, %d wait", away.Lost(), away.Waiting())
	}

	if n := len(next(t, away, appended)); uint64(n) != appended-away.Lost() {
		t.Errorf("%d read, %d lost", n, away.Lost())
	}

	if files, err := os.ReadDir(dir); err != nil || len(files) > 2 {
		t.Errorf("%d files stay of what all have read: %v", len(files), err)
	}

	if err := s.Append(make([]byte, 9<<10)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a record of more than half the spool: %v", err)
	}
}

// TestDamageIsSkipped: no file that was cut or changed keeps a spool from being opened and
// read, nor gives a record that nobody has written.
func TestDamageIsSkipped(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for range 20 {
		cfg := Config{Dir: t.TempDir(), Bytes: 8 << 10}
		s := open(t, cfg)
		reader(t, s, "r")
		written := map[string]bool{}
		for i := range 60 {
			text := fmt.Sprintf("record %d %x", i, random.Uint64())
			written[text] = true
			if err := s.Append([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}

		s.Close()

		files, err := filepath.Glob(filepath.Join(cfg.Dir, "*"))
		if err != nil || len(files) < 2 {
			t.Fatal(files, err)
		}

		for range 1 + random.IntN(3) {
			path := files[random.IntN(len(files))]
			content, err := os.ReadFile(path)
			if err != nil {
				continue // removed by this loop
			}

			switch at := random.IntN(len(content) + 1); random.IntN(4) {
			case 3: // a power cut leaves zeros where nothing was written
				content = append(content[:at:at], make([]byte, random.IntN(100))...)
			case 0:
				content = content[:at]
			case 1:
				content = append(content[:at:at], fmt.Sprint(random.Uint64())...)
			case 2:
				content = nil
				os.Remove(path)
				continue
			}

			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}

		s = open(t, cfg)
		r := reader(t, s, "r")
		if err := s.Append([]byte("after")); err != nil {
			t.Fatal(err)
		}

		var read []string
		for more := next(t, r, 20); more != nil; more = next(t, r, 20) {
			read = append(read, more...)
		}

		if len(read) == 0 || read[len(read)-1] != "after" {
			t.Errorf("seed %d: what was appended afterwards is not read: %q", seed, read)
		}

		for _, text := range read {
			if !written[text] && text != "after" {
				t.Errorf("seed %d: nobody has written %q", seed, text)
			}
		}

		s.Close()
	}
}

// TestDamageUnderWay: what is damaged while the spool is open is left out and counted once, also
// where it was met by a look ahead; what is in front of it is not lost.
func TestDamageUnderWay(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), Bytes: 1 << 20}
	s := open(t, cfg)
	r := reader(t, s, "r")
	for i := range 10 {
		if err := s.Append(fmt.Appendf(nil, "record %d", i)); err != nil {
			t.Fatal(err)
		}
	}

	path := s.segmentPath(s.segments[0].first)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	content[s.segments[0].offsets[4]+headSize] ^= 1
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}

	for range 2 {
		if records, _, err := r.ReadFrom(4, 10, 1<<20); err != nil || len(records) != 0 {
			t.Errorf("a look ahead: %q, %v", records, err)
		}
	}

	if err := s.Append([]byte("after")); err != nil {
		t.Fatal(err)
	}

	var read []string
	for more := next(t, r, 3); more != nil; more = next(t, r, 3) {
		read = append(read, more...)
	}

	if want := []string{"record 0", "record 1", "record 2", "record 3", "after"}; !slices.Equal(read, want) || r.Lost() != 6 {
		t.Errorf("read %q, %d lost, want %q and 6", read, r.Lost(), want)
	}
}

// TestZerosAreNoRecords (a file that a power cut has filled up with zeros).
func TestZerosAreNoRecords(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), Bytes: 1 << 20}
	s := open(t, cfg)
	reader(t, s, "r")
	if err := s.Append([]byte("record")); err != nil {
		t.Fatal(err)
	}

	path := s.segmentPath(s.segments[0].first)
	s.Close()
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}

	s = open(t, cfg)
	if got := next(t, reader(t, s, "r"), 1000); !slices.Equal(got, []string{"record"}) {
		t.Errorf("read %q", got)
	}
}

// TestEnough: so many records, so many bytes, or half of the spool.
func TestEnough(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir(), Bytes: 4 << 10})
	r := reader(t, s, "r")
	if r.Enough(1, 1) {
		t.Error("nothing is enough")
	}

	if err := s.Append(make([]byte, 92)); err != nil {
		t.Fatal(err)
	}

	if !r.Enough(1, 1<<20) || r.Enough(2, 1<<20) || !r.Enough(2, 100) {
		t.Error("one record of 100 bytes")
	}

	for range 20 {
		if err := s.Append(make([]byte, 92)); err != nil {
			t.Fatal(err)
		}
	}

	if !r.Enough(1000, 1<<20) {
		t.Error("half of the spool is not enough")
	}
}

// TestManyAppendAtOnce: each record is there once.
func TestManyAppendAtOnce(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir(), Bytes: 1 << 20, Durable: true})
	r := reader(t, s, "r")
	const all = 100
	var appends sync.WaitGroup
	for i := range all {
		appends.Go(func() {
			if err := s.Append(fmt.Appendf(nil, "%0200d", i)); err != nil {
				t.Error(err)
			}
		})
	}

	found := map[string]bool{}
	for len(found) < all {
		for _, text := range next(t, r, 20) {
			if found[text] {
				t.Errorf("%s comes twice", text)
			}
			found[text] = true
		}

		if len(found) < all && r.Waiting() == 0 {
			<-r.Ready()
		}
	}

	appends.Wait()
}

// TestFileNames: no name of a reader leads out of the folder of the spool or is too long for a file,
// and no two names share a file.
func TestFileNames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	s := open(t, Config{Dir: dir, Bytes: 1 << 20})
	names := []string{"", ".", "..", "...", "../x", "/", "a/b", "a%2Fb", "a.b", "a%2Eb", ",", "%", "\x00", "é\xff", "pgjsonb",
		strings.Repeat("x", 300), strings.Repeat("x", 301), strings.Repeat("é", 300), strings.Repeat(".", 41)}
	files := map[string]string{}
	for _, name := range names {
		reader(t, s, name)
		file := FileName(name)
		if other, known := files[file]; known {
			t.Errorf("%q and %q have the file %s", name, other, file)
		}
		files[file] = name

		if len(file) > 120 || filepath.Base(file) != file || file == "." || file == ".." {
			t.Errorf("%q has the file %q", name, file)
		}
	}

	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(names) {
		t.Errorf("%d files of %d readers, %v", len(entries), len(names), err)
	}
}

// TestNewReaderOnAFullDisk: a reader whose first position cannot be written leaves no empty file, which
// it would later take for a position that was lost: it gets what comes after that, and nothing of before.
func TestNewReaderOnAFullDisk(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir(), Bytes: 1 << 20})
	if err := s.Append([]byte("before")); err != nil {
		t.Fatal(err)
	}

	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	full := limit
	full.Cur = 0 // files can be made and take no byte, as on a full disk
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &full); err != nil {
		t.Fatal(err)
	}
	_, err := s.Reader("new")
	if back := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); back != nil {
		t.Fatal(back)
	}
	if !errors.Is(err, unix.EFBIG) {
		t.Fatalf("a reader was opened: %v", err)
	}

	r := reader(t, s, "new")
	if err := s.Append([]byte("after")); err != nil {
		t.Fatal(err)
	}
	if got := next(t, r, 10); !slices.Equal(got, []string{"after"}) {
		t.Errorf("the reader got %q", got)
	}
}
