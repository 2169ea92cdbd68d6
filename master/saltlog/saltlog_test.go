package saltlog

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestFormat(t *testing.T) {
	var b strings.Builder
	h := New("salt.master", Sink{&b, slog.LevelInfo, DefaultFile, "%Y-%m-%d %H:%M:%S"})
	r := slog.NewRecord(time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC), slog.LevelWarn, "minion signed in", 0)
	r.AddAttrs(slog.String("minion", "web1"), slog.String("why", "two words"))
	if err := h.WithAttrs([]slog.Attr{slog.Int("port", 4506)}).Handle(context.Background(), r); err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^2026-01-02 03:04:05,006 \[salt\.master      :0   \]\[WARNING \]\[\d+\] minion signed in port=4506 minion=web1 why="two words"\n$`)
	if !want.MatchString(b.String()) {
		t.Errorf("wrote %q", b.String())
	}
}

func TestLevels(t *testing.T) {
	var file, console strings.Builder
	log := slog.New(New("salt.master", Sink{&file, slog.LevelDebug, "%(message)s", ""},
		Sink{&console, slog.LevelError, "[%(levelname)s] %(message)s", ""}))
	log.Debug("one")
	log.Error("two")
	log.Log(context.Background(), LevelTrace, "three")

	if file.String() != "one\ntwo\n" || console.String() != "[ERROR] two\n" {
		t.Errorf("file %q, console %q", file.String(), console.String())
	}

	for name, want := range map[string]slog.Level{"WARNING": slog.LevelWarn, "quiet": LevelQuiet, "all": LevelGarbage} {
		if got, err := ParseLevel(name); err != nil || got != want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}

	if _, err := ParseLevel("loud"); err == nil {
		t.Error("a level that is none")
	}
}

func TestAttack25LogInjection(t *testing.T) {
	for _, evil := range []string{"a\nb", "a\r\nb", "\x1b[31mred", "a\x00b", "x\u2028y", "\u009b31m",
		"bad \xff byte", "tab\tbed"} {
		var b strings.Builder
		log := slog.New(New("salt.master", Sink{&b, slog.LevelInfo, "%(message)s", ""}))
		log.Info(evil, "minion", evil)
		line := b.String()
		if strings.Count(line, "\n") != 1 ||
			strings.ContainsFunc(strings.TrimSuffix(line, "\n"),
				func(r rune) bool { return r < 0x20 || r == 0x7f || (r >= 0x80 && r < 0xa0) || r == '\u2028' }) {
			t.Errorf("%q was written as %q", evil, line)
		}
	}
}

func TestReopen(t *testing.T) {
	p := filepath.Join(t.TempDir(), "log", "master")
	f, err := OpenFile(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	write := func(s string) {
		t.Helper()
		if _, err := f.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}

	write("a")
	if err := os.Rename(p, p+".1"); err != nil {
		t.Fatal(err)
	}

	if err := f.Reopen(); err != nil {
		t.Fatal(err)
	}

	write("b")
	if b, _ := os.ReadFile(p); string(b) != "b" {
		t.Errorf("new file holds %q", b)
	}
}
