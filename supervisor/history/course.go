package history

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"saltern/internal/control"
	"saltern/internal/durable"
	"saltern/supervisor/internal/service"
)

// maxCourse bounds the file of a [Course] in bytes.
const maxCourse = 256 << 10

// Sample is the state of a node at one moment. A nil value is not known.
type Sample struct {
	At      time.Time
	Minions *int
	Returns *uint64        // number of returns that the node's master has taken since the master started
	Latency *time.Duration // how long a ping through the front took
	Memory  func() uint64  // returns bytes of memory; called once for each point
}

// Course keeps the metrics history of the last day: [control.MaxPoints] points, in memory and in a
// file on the node's own disk. It writes the file once for each point, so that a restart of the
// supervisor loses five minutes at most. A worker goroutine does the I/O, because the disk may
// hang. The methods are safe for concurrent use.
type Course struct {
	path  string
	log   *slog.Logger
	files service.Worker

	mu     sync.Mutex
	read   bool // whether the file was read, or does not exist
	points []control.Point
	now    slot
	broken bool
}

// slot collects the samples of one point.
type slot struct {
	began       time.Time // begin of the point; zero: no sample yet
	first, last time.Time // times of the first and the last sample with a count of returns
	count, more uint64    // the newest count, and how many returns have come since first
	point       control.Point
	memory      func() uint64
}

// NewCourse returns a metrics history that is stored in the file path. It does not read the file
// before the first Note.
func NewCourse(path string, log *slog.Logger) *Course { return &Course{path: path, log: log} }

// Note adds a sample to the history. It does not block.
func (c *Course) Note(s Sample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.read {
		c.files.Start(c.loadPoints)
	}

	if began := s.At.Truncate(control.PointEvery); !began.Equal(c.now.began) {
		if !c.now.began.IsZero() {
			c.points = append(c.points, c.now.asPoint())
			c.points = c.points[max(0, len(c.points)-control.MaxPoints):]
			if c.read {
				c.files.Start(c.savePoints)
			}
		}

		c.now = slot{began: began}
	}

	c.now.addSample(s)
}

func (s *slot) addSample(x Sample) {
	if x.Minions != nil {
		n := float64(*x.Minions)
		s.point.Minions = &n
	}

	if x.Latency != nil {
		ms := float64(x.Latency.Microseconds()) / 1000
		if s.point.Latency == nil || *s.point.Latency < ms {
			s.point.Latency = &ms
		}
	}

	if x.Returns != nil {
		switch n := *x.Returns; {
		case s.first.IsZero():
			s.first = x.At
		case n >= s.count:
			s.more += n - s.count
		default: // the master has restarted, and its counter with it
			s.more += n
		}

		s.count, s.last = *x.Returns, x.At
	}

	s.memory = x.Memory
}

// asPoint returns the point that the samples add up to.
func (s *slot) asPoint() control.Point {
	p := s.point
	p.At = s.began.Add(control.PointEvery).UTC()
	if d := s.last.Sub(s.first).Seconds(); d > 0 {
		rate := float64(s.more) / d
		p.Returns = &rate
	}
	if s.memory != nil {
		if n := float64(s.memory()); n > 0 {
			p.Memory = &n
		}
	}
	return p
}

// Points returns the points of the last day before now, the oldest first.
func (c *Course) Points(now time.Time) []control.Point {
	c.mu.Lock()
	defer c.mu.Unlock()
	return pointsSince(c.points, now)
}

func pointsSince(points []control.Point, now time.Time) []control.Point {
	out := []control.Point{}
	for _, p := range points {
		if age := now.Sub(p.At); age < 24*time.Hour && age > -control.PointEvery {
			out = append(out, p)
		}
	}
	return out
}

// loadPoints reads the points that earlier starts have saved, and inserts them before the points of
// this start.
func (c *Course) loadPoints() {
	var old []control.Point
	b, err := durable.Read(c.path, maxCourse)
	if err == nil && json.Unmarshal(b, &old) != nil {
		old = nil // an unreadable file counts as missing
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.log.Warn("what the node did before is not shown: its file cannot be read", "path", c.path, "error", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = true
	c.points = append(old, c.points...)
	c.points = c.points[max(0, len(c.points)-control.MaxPoints):]
}

func (c *Course) savePoints() {
	c.mu.Lock()
	b, err := json.Marshal(c.points)
	c.mu.Unlock()
	if err == nil {
		err = durable.Replace(c.path, b, 0o640)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && !c.broken {
		c.log.Warn("how the node does cannot be written down; it is kept in memory", "path", c.path, "error", err)
	}
	c.broken = err != nil
}

// Wait waits until pending writes are done, at most for two seconds, because the disk may hang.
func (c *Course) Wait() { c.files.Wait(2 * time.Second) }
