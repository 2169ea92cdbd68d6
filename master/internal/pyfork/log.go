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
	// maxLine bounds a line of the processes' log, in bytes. The rest of a longer line is dropped.
	maxLine = 16 << 10
	// maxLines bounds the lines that are logged in each logWindow.
	maxLines  = 200
	logWindow = 10 * time.Second
)

// record is one log line as JSONLines in prelude.py writes it.
type record struct {
	Level  int    `json:"level"`
	Logger string `json:"logger"`
	Text   string `json:"text"`
	JID    string `json:"jid"` // job id of the job that a worker runs; may be empty
}

// relayLog reads the lines that the processes write to r, and logs them until r ends. A line that
// is not a record was printed by Python code, and is logged at a low level. Overflow policy: lines
// beyond maxLines in a logWindow are dropped and counted.
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

// relayLine logs one line.
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

	// The lines after the first may contain tracebacks and parts of templates.
	head, _, more := strings.Cut(rec.Text, "\n")
	log.Log(context.Background(), level, name+": "+head, attrs...)
	if more {
		log.Debug(name+": "+rec.Text, attrs...)
	}
}
