// Package childlog writes a child's output to our own log and to a bounded file.
package childlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"saltern/internal/printable"
	"saltern/internal/ratelimit"
)

// Log receives the lines of one child. It drops and counts lines above a rate, because a child that
// floods its output must not fill the disk (attack 25). It is safe for concurrent use.
type Log struct {
	name string
	log  *slog.Logger
	now  func() time.Time
	path string

	mu      sync.Mutex
	file    *os.File
	opened  fs.FileInfo // identity of file when it was opened
	size    int64
	broken  bool // the file could not be written; logged once
	said    ratelimit.Bucket
	dropped int
}

// logLimit is the largest size of one file, in bytes. One older file is kept.
const logLimit = 8 << 20

// rate limits the lines that a child may write.
var rate = ratelimit.Rate{Burst: 2000, PerSecond: 200}

// New returns the log of the child name. The first line opens the file name.log below dir.
func New(name, dir string, log *slog.Logger, now func() time.Time) *Log {
	return &Log{name: name, log: log, now: now, path: filepath.Join(dir, name+".log")}
}

// Line writes one line of the child. It is a sink of [service.Lines].
func (c *Log) Line(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if !c.said.Take(now, rate, 1) {
		c.dropped++
		return
	}

	if c.dropped > 0 {
		note := fmt.Sprintf("%d lines were left out: too many at once", c.dropped)
		c.dropped = 0
		c.log.Warn(note, "service", c.name)
		c.writeLine(now, note)
	}

	lvl, msg, attrs := parseLine(text)
	c.log.LogAttrs(context.Background(), lvl, msg, append([]slog.Attr{slog.String("service", c.name)}, attrs...)...)
	c.writeLine(now, text)
}

func (c *Log) writeLine(now time.Time, text string) {
	err := c.openFile()
	if c.file != nil {
		n, failed := fmt.Fprintf(c.file, "%s %s\n", now.UTC().Format(stamp), text)
		c.size += int64(n)
		err = errors.Join(err, failed)
	}
	if err != nil && !c.broken {
		c.log.Warn("log file of a service cannot be written", "service", c.name, "error", err)
	}
	c.broken = err != nil
}

// openFile opens the file if it is not open. If the file is full, openFile renames it and opens a
// new one. If somebody has moved or deleted the file, openFile opens the path again; if that fails,
// the moved file stays open.
func (c *Log) openFile() error {
	moved := c.file != nil && c.moved()
	switch {
	case c.file == nil, moved:
	case c.size < logLimit:
		return nil
	default:
		_ = c.file.Close()
		c.file = nil
		if err := os.Rename(c.path, c.path+".1"); err != nil {
			return err
		}
	}

	f, err := os.OpenFile(c.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return err
	}

	fi, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return err
	}

	if c.file != nil {
		_ = c.file.Close()
	}
	c.file = f
	c.opened = fi
	c.size = fi.Size()
	return nil
}

// moved reports whether the path no longer leads to the open file.
func (c *Log) moved() bool {
	there, err := os.Stat(c.path)
	return errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(there, c.opened)
}

// Close closes the file. A later line opens it again.
func (c *Log) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file != nil {
		_ = c.file.Close()
		c.file = nil
	}
}

var (
	errorWord = regexp.MustCompile(`\[(ERROR|CRITICAL) *\]|\blevel=(ERROR|error)\b|"level":"(ERROR|error)"|^(panic|fatal error):|^Traceback`)
	warnWord  = regexp.MustCompile(`\[WARNING *\]|\blevel=(WARN|warn)|"level":"(WARN|warn)`)
	debugWord = regexp.MustCompile(`\[(DEBUG|TRACE) *\]|\blevel=(DEBUG|debug)\b|"level":"(DEBUG|debug)"`)
)

// parseLine splits a child's line into level, message and attributes. It knows slog's JSON form,
// slog's text form (of which it reads only the level) and Salt's "[LEVEL ] text". For any other
// line the whole line is the message.
func parseLine(text string) (slog.Level, string, []slog.Attr) {
	if !strings.HasPrefix(text, "{") {
		if m := saltForm.FindStringSubmatch(text); m != nil {
			return readLevel(text), m[1], nil
		}
		return readLevel(text), text, nil
	}

	var fields map[string]any
	if json.Unmarshal([]byte(text), &fields) != nil {
		return readLevel(text), text, nil
	}

	msg, ok := fields[slog.MessageKey].(string)
	if !ok {
		return readLevel(text), text, nil
	}

	lvl := readLevel(text)
	for _, k := range []string{slog.MessageKey, slog.LevelKey, slog.TimeKey} {
		delete(fields, k)
	}

	var attrs []slog.Attr
	for _, k := range slices.Sorted(maps.Keys(fields)) {
		v := fields[k]
		if s, ok := v.(string); ok {
			v = printable.Clean(s)
		}
		attrs = append(attrs, slog.Any(k, v))
	}

	return lvl, printable.Clean(msg), attrs
}

var saltForm = regexp.MustCompile(`^\[(?:TRACE|DEBUG|INFO|WARNING|ERROR|CRITICAL) *\] (.*)$`)

// readLevel returns the level of a line in slog's text form or Salt's form.
func readLevel(text string) slog.Level {
	head := text[:min(len(text), 256)]
	switch {
	case errorWord.MatchString(head):
		return slog.LevelError
	case warnWord.MatchString(head):
		return slog.LevelWarn
	case debugWord.MatchString(head):
		return slog.LevelDebug
	}
	return slog.LevelInfo
}
