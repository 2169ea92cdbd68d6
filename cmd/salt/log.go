package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"

	"saltern/internal/printable"
)

// newLog returns a logger that writes like Salt's console log, "[ERROR ] text". If yaml is set,
// each line begins with "# ", so that the output stays valid YAML.
func newLog(w io.Writer, level string, yaml bool) *slog.Logger {
	h := &consoleLog{w: w, mu: &sync.Mutex{}}
	if yaml {
		h.prefix = "# "
	}

	switch level {
	case "all", "garbage", "trace", "debug", "profile":
		h.least = slog.LevelDebug
	case "info":
		h.least = slog.LevelInfo
	case "error":
		h.least = slog.LevelError
	case "critical", "fatal", "quiet":
		h.least = slog.LevelError + 4
	default:
		h.least = slog.LevelWarn
	}

	return slog.New(h)
}

type consoleLog struct {
	w      io.Writer
	mu     *sync.Mutex
	least  slog.Level
	prefix string
	attrs  string
}

func (h *consoleLog) Enabled(_ context.Context, l slog.Level) bool { return l >= h.least }

func (h *consoleLog) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Message + h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})

	name := r.Level.String()
	if r.Level == slog.LevelWarn {
		name = "WARNING"
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := fmt.Fprintf(h.w, "%s[%-8s] %s\n", h.prefix, name, printable.Text(b.String()))
	return err
}

func (h *consoleLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	for _, a := range attrs {
		c.attrs += fmt.Sprintf(" %s=%v", a.Key, a.Value)
	}
	return &c
}

func (h *consoleLog) WithGroup(string) slog.Handler { return h }
