package pyfork

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"time"
)

const (
	// maxLine bounds a line of the processes' log, in bytes; the rest of it is left out.
	maxLine = 16 << 10
	// maxLines is how many lines are passed on in each logWindow.
	maxLines  = 200
	logWindow = 10 * time.Second
)

// record is one line that prelude.py's JSONLines writes.
type record struct {
	Level  int    `json:"level"`
	Logger string `json:"logger"`
	Text   string `json:"text"`
	JID    string `json:"jid"` // of the job that a worker runs; may be empty
}

// relayLog turns lines of the processes into log records until r ends. What is no record
// was printed, and counts as little. Overflow policy: what is beyond maxLines in a
// logWindow is dropped and counted.
func relayLog(r io.Reader, name string, log *slog.Logger) {
	lines := bufio.NewReaderSize(r, maxLine)
	var window time.Time
	var passed, dropped int
	for {
		line, more, err := lines.ReadLine()
		if err != nil {
			return
		}

		text := string(line)
		for more && err == nil {
			_, more, err = lines.ReadLine()
		}

		if now := time.Now(); now.Sub(window) > logWindow {
			if dropped > 0 {
				log.Warn(name+" wrote too many log lines", "dropped", dropped)
			}
			window = now
			passed = 0
			dropped = 0
		}

		if passed == maxLines {
			dropped++
			continue
		}

		passed++
		relayLine(text, name, log)
	}
}

// relayLine makes a log record of one line.
func relayLine(text, name string, log *slog.Logger) {
	var rec record
	if json.Unmarshal([]byte(text), &rec) != nil {
		log.Debug(name+" output", "text", text)
		return
	}

	level := slog.LevelDebug
	switch {
	case rec.Level >= 40:
		level = slog.LevelError
	case rec.Level >= 30:
		level = slog.LevelWarn
	case rec.Level >= 20:
		level = slog.LevelInfo
	}

	attrs := []any{"logger", rec.Logger}
	if rec.JID != "" {
		attrs = append(attrs, "jid", rec.JID)
	}

	// Below the first line are tracebacks and excerpts of templates.
	head, _, more := strings.Cut(rec.Text, "\n")
	log.Log(context.Background(), level, name+": "+head, attrs...)
	if more {
		log.Debug(name+": "+rec.Text, attrs...)
	}
}
