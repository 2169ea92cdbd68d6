package health

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"saltern/internal/control"
)

// Conditions holds the faults of the storage that this master uses. The program that monitors the
// machine writes them to a file (saltern_conditions), each with its code. Conditions logs when a
// fault begins and when it ends. If a minion's sign-in fails because of such a fault, the minion
// gets the fault's code. Only one goroutine may call Read; any may call Reason.
type Conditions struct {
	path   string
	log    *slog.Logger
	known  map[string]control.Condition
	fault  string // error of the last read; "" after a successful read
	stated atomic.Pointer[string]
}

const maxReasons = 3 // largest number of faults in one answer

// NewConditions returns the Conditions in the file at path. If path is "", there are no conditions.
func NewConditions(path string, log *slog.Logger) *Conditions {
	return &Conditions{path: path, log: log}
}

// Read reads the file and logs the faults that have begun or ended.
func (c *Conditions) Read(now time.Time) {
	if c.path == "" {
		return
	}

	list, err := control.ReadConditions(c.path, now)
	text := ""
	if err != nil {
		text = err.Error()
		if text != c.fault {
			c.log.Warn("faults of the storage are not known", "path", c.path, "error", err)
		}
	}

	c.fault = text
	next := map[string]control.Condition{}
	codes := []string(nil)
	titles := []string(nil)
	for _, x := range list {
		key := x.Code + " " + x.Title
		if _, twice := next[key]; twice {
			continue
		}

		next[key] = x
		if _, old := c.known[key]; !old {
			c.log.Error("fault of the storage", "code", x.Code, "what", x.Title, "cause", x.Cause, "next", x.Next)
		}

		if x.NoWrites && len(codes) < maxReasons {
			codes, titles = append(codes, x.Code), append(titles, x.Title)
		}
	}

	for key, x := range c.known {
		if _, still := next[key]; !still {
			c.log.Info("fault of the storage is over", "code", x.Code, "what", x.Title)
		}
	}

	c.known = next
	reason := ""
	if len(codes) > 0 {
		reason = strings.Join(codes, ", ") + ": " + strings.Join(titles, ", ")
	}

	c.stated.Store(&reason)
}

// Reason returns why nothing can be written to the storage now, or "" when no such fault is known.
func (c *Conditions) Reason() string {
	if s := c.stated.Load(); s != nil {
		return *s
	}
	return ""
}
