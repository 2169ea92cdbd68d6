package health

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"saltern/internal/control"
)

// Conditions are the faults of the storage below this master. The program that monitors the machine
// names each by its code in a file (saltern_conditions). Conditions logs them when they come and
// go, and a minion whose sign-in fails for one of them gets its code. One goroutine calls Read; any
// goroutine may call Reason.
type Conditions struct {
	path   string
	log    *slog.Logger
	known  map[string]control.Condition
	fault  string // the fault of the last failed read
	stated atomic.Pointer[string]
}

const maxReasons = 3 // in one answer

// NewConditions returns Conditions of the file at path; "" for none.
func NewConditions(path string, log *slog.Logger) *Conditions {
	return &Conditions{path: path, log: log}
}

// Read reads the file and logs what has changed.
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

// Reason returns why nothing can be written to the storage now, or "" when no fault is known.
func (c *Conditions) Reason() string {
	if s := c.stated.Load(); s != nil {
		return *s
	}
	return ""
}
