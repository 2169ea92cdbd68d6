package childlog

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRead: whoever follows the log gets each line once, in order, also when the
// file is replaced in between; one whose place has been removed goes on with the
// oldest.
func TestRead(t *testing.T) {
	at := start
	dir := t.TempDir()
	c := New("master", dir, slog.New(slog.DiscardHandler), func() time.Time { return at })
	defer c.Close()

	n := 0
	write := func(lines int) {
		for range lines {
			at = at.Add(time.Second)
			n++
			c.Line(fmt.Sprintf("line %07d %s", n, strings.Repeat("x", 4000)))
		}
	}

	number := func(line string) (i int) {
		if _, err := fmt.Sscanf(line, "2026-11-21T%s line %d", new(string), &i); err != nil {
			t.Fatalf("%.60s: %v", line, err)
		}
		return i
	}

	if page, err := c.Last(5); err != nil || len(page.Lines) != 0 {
		t.Fatalf("%v %v", page, err)
	}

	write(10)
	page, err := c.Last(3)
	if err != nil || len(page.Lines) != 3 || number(page.Lines[0]) != 8 {
		t.Fatalf("%d lines, %v", len(page.Lines), err)
	}

	follow := func(next int) {
		t.Helper()
		for more := true; more; more = page.More {
			if page, err = c.After(page.Cursor); err != nil {
				t.Fatal(err)
			}

			for _, l := range page.Lines {
				if number(l) != next {
					t.Fatalf("line %d, not %d", number(l), next)
				}
				next++
			}
		}

		if next != n+1 {
			t.Fatalf("ended before %d of %d", next, n)
		}
	}

	write(1500)
	follow(11)
	write(1000) // the file is replaced
	if _, err := os.Stat(filepath.Join(dir, "master.log.1")); err != nil {
		t.Fatal(err)
	}

	follow(1511)

	// Half a line is left for later.
	f, err := os.OpenFile(filepath.Join(dir, "master.log"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	if _, err := f.WriteString("2026-11-21T1"); err != nil {
		t.Fatal(err)
	}

	if page, err = c.After(page.Cursor); err != nil || len(page.Lines) != 0 || page.More {
		t.Fatalf("%v %v", page, err)
	}

	if _, err := f.WriteString("3:00:00.000Z line 2511\n"); err != nil {
		t.Fatal(err)
	}

	n++
	follow(2511)
	cursor, err := c.Since(start.Add(2400 * time.Second))
	if err == nil {
		page, err = c.After(cursor)
	}

	if err != nil || number(page.Lines[0]) != 2400 {
		t.Errorf("%v", err)
	}

	// Both files of before are gone.
	page.Cursor = "1:77"
	write(5000)
	if page, err = c.After(page.Cursor); err != nil || len(page.Lines) == 0 || number(page.Lines[0]) < 2000 {
		t.Fatalf("%d lines: %v", len(page.Lines), err)
	}

	for _, bad := range []string{"", "x", "1", "1:-5"} {
		if _, err := c.After(bad); err == nil {
			t.Errorf("cursor %q is taken", bad)
		}
	}
}

// TestPage: a cursor counts for more than a time, and a time for more than a number of lines.
func TestPage(t *testing.T) {
	at := start
	c := New("master", t.TempDir(), slog.New(slog.DiscardHandler), func() time.Time { return at })
	defer c.Close()
	for i := range 5 {
		at = start.Add(time.Duration(i) * time.Second)
		c.Line(fmt.Sprintf("line %d", i))
	}

	cursor, err := c.Since(start.Add(3 * time.Second))
	if err != nil {
		t.Fatal(err)
	}

	for name, k := range map[string]struct {
		q    Query
		want string // the first line
	}{
		"cursor": {Query{Cursor: cursor, Since: start, Last: 1}, "line 3"},
		"time":   {Query{Since: start.Add(time.Second), Last: 1}, "line 1"},
		"lines":  {Query{Last: 1}, "line 4"},
	} {
		t.Run(name, func(t *testing.T) {
			page, err := c.Page(k.q)
			if err != nil || len(page.Lines) == 0 || !strings.HasSuffix(page.Lines[0], k.want) {
				t.Errorf("%q, %v; want %q first", page.Lines, err, k.want)
			}
		})
	}

	var none *Log
	if page, err := none.Page(Query{Cursor: "x"}); err != nil || page.Lines == nil || len(page.Lines) != 0 {
		t.Errorf("a service without a log: %+v %v", page, err)
	}
}
