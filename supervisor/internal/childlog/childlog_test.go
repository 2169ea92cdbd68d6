package childlog

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// newRecorder gives a logger and what was logged with it, as text.
func newRecorder() (*slog.Logger, *[]string) {
	var lines []string
	h := slog.NewTextHandler(writer(func(b []byte) { lines = append(lines, strings.TrimSpace(string(b))) }),
		&slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})
	return slog.New(h), &lines
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }

func TestUnderstandsForms(t *testing.T) {
	log, lines := newRecorder()
	c := New("master", t.TempDir(), log, func() time.Time { return start })
	defer c.Close()

	for _, l := range []string{
		"[ERROR   ] it broke", "[INFO    ] fine", "plain", `time=x level=WARN msg="careful"`,
		`{"time":"x","level":"ERROR","msg":"no\u001b[2J","peer":"1.2.3.4","n":3}`, `{"not":"a log"}`, `{broken`, "panic: oh",
	} {
		c.Line(l)
	}

	want := []string{
		`level=ERROR msg="it broke" service=master`, `level=INFO msg=fine service=master`, `level=INFO msg=plain service=master`,
		`level=WARN msg="time=x level=WARN msg=\"careful\"" service=master`, `level=ERROR msg=no service=master n=3 peer=1.2.3.4`,
		`level=INFO msg="{\"not\":\"a log\"}" service=master`, `level=INFO msg={broken service=master`, `level=ERROR msg="panic: oh" service=master`,
	}
	if !slices.Equal(*lines, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(*lines, "\n"), strings.Join(want, "\n"))
	}
}

// A child that floods is cut to a bounded rate and the loss is said.
func TestAttack25LogFlood(t *testing.T) {
	log, lines := newRecorder()
	at := start
	dir := t.TempDir()
	c := New("master", dir, log, func() time.Time { return at })
	defer c.Close()

	for i := range 50000 {
		c.Line(fmt.Sprint("line ", i))
	}

	if len(*lines) != int(rate.Burst) {
		t.Errorf("%d lines at once, want %d", len(*lines), int(rate.Burst))
	}

	at = at.Add(time.Second)
	c.Line("after")
	if got := (*lines)[int(rate.Burst):]; len(got) != 2 || !strings.Contains(got[0], "48000 lines were left out") {
		t.Errorf("then: %v", got)
	}

	b, err := os.ReadFile(filepath.Join(dir, "master.log"))
	if err != nil || strings.Count(string(b), "\n") != int(rate.Burst)+2 {
		t.Errorf("file has %d lines, %v", strings.Count(string(b), "\n"), err)
	}
}

func TestRotates(t *testing.T) {
	log, _ := newRecorder()
	at := start
	dir := t.TempDir()
	c := New("lb", dir, log, func() time.Time { at = at.Add(time.Second); return at })
	defer c.Close()

	for range 3 * logLimit / 8000 {
		c.Line(strings.Repeat("x", 8000))
	}

	var total int64
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, f := range files {
		fi, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		total += fi.Size()
	}

	if len(files) != 2 || total > 2*logLimit+20000 {
		t.Errorf("%v hold %d bytes", files, total)
	}
}

// TestMovedFileIsOpenedAgain: when somebody moves or deletes the file, or its folder, the next line
// goes into a new file. While none can be opened, lines go on into the one that was moved away.
func TestMovedFileIsOpenedAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	path := filepath.Join(dir, "master.log")
	log, said := newRecorder()
	c := New("master", dir, log, func() time.Time { return start })
	defer c.Close()
	holds := func(path string, want ...string) {
		t.Helper()
		b, err := os.ReadFile(path)
		var have []string
		for line := range strings.Lines(string(b)) {
			have = append(have, line[len(line)-2:len(line)-1])
		}
		if err != nil || !slices.Equal(have, want) {
			t.Errorf("%s holds %v, not %v: %v", path, have, want, err)
		}
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	do(os.Mkdir(dir, 0o755))
	c.Line("1")
	do(os.Rename(path, path+".old"))
	c.Line("2")
	do(os.Remove(path))
	c.Line("3")
	holds(path+".old", "1")
	holds(path, "3")

	do(os.Rename(dir, dir+".away"))
	c.Line("4")
	c.Line("5")
	holds(filepath.Join(dir+".away", "master.log"), "3", "4", "5")
	do(os.Mkdir(dir, 0o755))
	c.Line("6")
	holds(path, "6")
	if n := strings.Count(strings.Join(*said, "\n"), "cannot be written"); n != 1 {
		t.Errorf("it was said %d times", n)
	}
}
