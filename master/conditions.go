package master

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"saltern/printable"
)

// conditions are the faults of the storage below this master, as the program
// knows them that watches over the machine: it names each by its code in a file
// (saltern_conditions). They are logged when they come and go, and a minion
// whose sign-in fails for one of them is told its code.
//
// read is for one goroutine, reason for any.
type conditions struct {
	path   string
	log    *slog.Logger
	known  map[string]condition
	fault  string // of the last read that failed
	stated atomic.Pointer[string]
}

// condition is one fault of the file.
type condition struct {
	Code  string `json:"code"`
	Title string `json:"title"`
	Cause string `json:"cause"`
	Next  string `json:"next"`
	// NoWrites: while it lasts, what has to be written to the storage fails.
	NoWrites bool `json:"no_writes"`
}

const (
	maxConditionFile = 64 << 10
	maxConditions    = 20
	maxConditionText = 300
	maxReasons       = 3 // in one answer
	// conditionsOld is when a file that nobody renews counts no more; it is
	// written every 20 s.
	conditionsOld = 2 * time.Minute
)

func newConditions(path string, log *slog.Logger) *conditions {
	return &conditions{path: path, log: log}
}

// read takes the file as it is at now, and logs what has changed.
func (c *conditions) read(now time.Time) {
	if c.path == "" {
		return
	}
	list, err := readConditions(c.path, now)
	text := ""
	if err != nil {
		text = err.Error()
		if text != c.fault {
			c.log.Warn("faults of the storage are not known", "path", c.path, "error", err)
		}
	}
	c.fault = text
	next, codes, titles := map[string]condition{}, []string(nil), []string(nil)
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

// reason says why nothing can be written to the storage now; empty: nothing is
// known to be wrong.
func (c *conditions) reason() string {
	if s := c.stated.Load(); s != nil {
		return *s
	}
	return ""
}

func readConditions(path string, now time.Time) ([]condition, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || now.Sub(fi.ModTime()) > conditionsOld {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxConditionFile+1))
	if err == nil && len(b) > maxConditionFile {
		err = fmt.Errorf("more than %d bytes", maxConditionFile)
	}
	if err != nil {
		return nil, err
	}
	var doc struct {
		Conditions []condition `json:"conditions"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	list := doc.Conditions[:min(len(doc.Conditions), maxConditions)]
	for i := range list {
		for _, s := range []*string{&list[i].Code, &list[i].Title, &list[i].Cause, &list[i].Next} {
			*s = oneLine(*s)
		}
	}
	return list, nil
}

// oneLine makes a text fit for one line of a log.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s[:min(len(s), maxConditionText)], ""))
	return printable.Line(strings.TrimSpace(s))
}

func (m *Master) readConditions(context.Context) { m.conditions.read(m.now()) }
