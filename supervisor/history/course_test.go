package history

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"saltern/internal/control"
)

// TestCourse: a point says the newest count of minions, the slowest ping, the rate of
// returns over a restart of the master, and outlives the supervisor.
func TestCourse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "course.json")
	log := slog.New(slog.DiscardHandler)
	began := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	at := func(second int) time.Time { return began.Add(time.Duration(second) * time.Second) }
	note := func(c *Course, second, minions int, returns uint64, latency time.Duration) {
		c.Note(Sample{
			At:      at(second),
			Minions: &minions,
			Returns: &returns,
			Latency: &latency,
			Memory:  func() uint64 { return 7 << 20 },
		})
	}

	c := NewCourse(path, log)
	note(c, 0, 1, 100, time.Millisecond)
	c.Wait()
	note(c, 100, 5, 700, 9*time.Millisecond)
	note(c, 200, 3, 400, 2*time.Millisecond) // the master began anew
	note(c, 300, 8, 400, time.Millisecond)
	c.Wait()
	got := c.Points(at(310))
	if len(got) != 1 {
		t.Fatalf("%d points", len(got))
	}

	if p := got[0]; !p.At.Equal(at(300)) || *p.Minions != 3 || *p.Latency != 9 || *p.Returns != 5 ||
		*p.Memory != 7<<20 {
		t.Errorf("%v: %v minions, %v ms, %v returns a second, %v bytes", p.At, *p.Minions, *p.Latency,
			*p.Returns, *p.Memory)
	}

	next := NewCourse(path, log)
	t.Cleanup(next.Wait)
	next.Note(Sample{At: at(610)})
	next.Wait()
	next.Note(Sample{At: at(900)})

	if got = next.Points(at(900)); len(got) != 2 || *got[0].Minions != 3 || got[1].Minions != nil ||
		got[1].Returns != nil || got[1].Memory != nil {
		t.Errorf("after a restart: %+v", got)
	}

	if got = next.Points(at(300 + 24*3600)); len(got) != 1 {
		t.Errorf("a day later: %d points", len(got))
	}
}

// A file that cannot be read, or is too long, is begun anew; a series has its bound.
func TestCourseBounds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "course.json")
	if err := os.WriteFile(path, []byte("[{"), 0o600); err != nil {
		t.Fatal(err)
	}

	c := NewCourse(path, slog.New(slog.DiscardHandler))
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	c.points = make([]control.Point, control.MaxPoints)
	for range 3 {
		c.Note(Sample{At: now})
		c.Wait()
		now = now.Add(control.PointEvery)
	}

	if n := len(c.points); n != control.MaxPoints {
		t.Errorf("%d points are kept", n)
	}

	if fi, err := os.Stat(path); err != nil || fi.Size() > maxCourse {
		t.Errorf("the file: %v, %v", fi, err)
	}
}
