// Package saltlog writes log lines as Salt does, so that the programs and people that read Salt's
// logs (logrotate, log shippers) can read Saltern's logs. The file in log_file gets lines in the
// format log_fmt_logfile, and standard error gets lines in the format log_fmt_console, each with
// its own level. Attributes follow the message as key=value. Control characters in messages and
// values are escaped, so that text from untrusted senders cannot begin a new line. Each logger has
// the name of the Salt module that does the same work; log_granular_levels uses these names.
//
// log_file may also be the URL of a syslog; see [Syslog].
package saltlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Levels that Salt has and slog lacks.
const (
	LevelGarbage  = slog.Level(-16)
	LevelTrace    = slog.Level(-12)
	LevelProfile  = slog.Level(-2)
	LevelCritical = slog.Level(12)
	LevelQuiet    = slog.Level(100)
)

// levels maps the names of levels, as options write them.
var levels = map[string]slog.Level{
	"all": LevelGarbage, "garbage": LevelGarbage, "trace": LevelTrace, "debug": slog.LevelDebug, "profile": LevelProfile,
	"info": slog.LevelInfo, "warning": slog.LevelWarn, "error": slog.LevelError, "critical": LevelCritical, "quiet": LevelQuiet,
}

// ParseLevel returns the level with one of Salt's names, in upper or lower case.
func ParseLevel(name string) (slog.Level, error) {
	if l, ok := levels[strings.ToLower(name)]; ok {
		return l, nil
	}
	return 0, fmt.Errorf("log level %.20q is unknown; known are quiet, critical, error, warning, info, profile, debug, trace, garbage",
		name)
}

func levelName(l slog.Level) string {
	switch {
	case l >= LevelCritical:
		return "CRITICAL"
	case l >= slog.LevelError:
		return "ERROR"
	case l >= slog.LevelWarn:
		return "WARNING"
	case l >= slog.LevelInfo:
		return "INFO"
	case l >= LevelProfile:
		return "PROFILE"
	case l >= slog.LevelDebug:
		return "DEBUG"
	case l >= LevelTrace:
		return "TRACE"
	}

	return "GARBAGE"
}

// Sink is a destination of lines. If its Writer is a *Syslog, the handler also passes it the level
// of each line.
type Sink struct {
	Writer  io.Writer
	Level   slog.Level
	Format  string // format string of Python's logging; Salt's default replaces an invalid or empty format
	DateFmt string // format of strftime, e.g. log_datefmt_logfile
}

// Handler is a slog.Handler that writes lines in Salt's format. It is safe for concurrent use.
type Handler struct {
	mu       *sync.Mutex
	sinks    []sink
	name     string
	granular granularLevels
	jid      format // format of the field jid
	minion   format // format of the field minion_id
	attrs    string // text of the attributes that WithAttrs added
	ids      ids    // values of the ids among these attributes
	group    string
}

// ids holds the values of the attributes that have fields of their own in a format.
type ids struct{ jid, minion string }

type sink struct {
	Sink
	format format
}

// New returns a handler. name is the logger for lines from packages that have no logger of their
// own ("salt.master").
func New(name string, sinks ...Sink) *Handler {
	h := &Handler{mu: &sync.Mutex{}, name: name}
	for _, s := range sinks {
		if s.DateFmt == "" {
			s.DateFmt = DefaultFileDate
		}
		h.sinks = append(h.sinks, sink{s, compileOr(s.Format, DefaultFile)})
	}
	return h
}

// Enabled implements slog.Handler.
func (h *Handler) Enabled(_ context.Context, l slog.Level) bool {
	return slices.ContainsFunc(h.sinks, func(s sink) bool { return l >= s.Level })
}

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	var b strings.Builder
	for _, a := range attrs {
		appendAttr(&b, h.group, a)
		c.ids.noteAttr(a)
	}
	c.attrs += b.String()
	return &c
}

// WithGroup implements slog.Handler.
func (h *Handler) WithGroup(name string) slog.Handler {
	c := *h
	c.group += name + "."
	return &c
}

// Handle implements slog.Handler.
func (h *Handler) Handle(_ context.Context, r slog.Record) error {
	line := newLine(r, h.name)
	if r.Level < h.granular.levelOf(line.logger) {
		return nil
	}

	var b strings.Builder
	b.WriteString(escape(cutEscaped(r.Message, maxMessage)))
	b.WriteString(h.attrs)
	known := h.ids
	r.Attrs(func(a slog.Attr) bool {
		appendAttr(&b, h.group, a)
		known.noteAttr(a)
		return true
	})

	line.message = b.String()
	line.jid = idText(h.jid, known.jid)
	line.minion = idText(h.minion, known.minion)

	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, s := range h.sinks {
		if r.Level >= s.Level {
			errs = append(errs, s.writeLine(line))
		}
	}

	return errors.Join(errs...)
}

// writeLine formats a line and writes it to the sink.
func (s sink) writeLine(l *line) error {
	text := s.format.formatLine(l, s.DateFmt)
	if syslog, ok := s.Writer.(*Syslog); ok {
		syslog.queueLine(l.level, text)
		return nil
	}
	_, err := io.WriteString(s.Writer, text+"\n")
	return err
}

// noteAttr records the value of an attribute for which a format may contain a field.
func (i *ids) noteAttr(a slog.Attr) {
	switch a.Key {
	case "jid":
		i.jid = a.Value.String()
	case "minion":
		i.minion = a.Value.String()
	}
}

// idText returns an id in its format f, or "" without an id (salt/_logging/impl.py makeRecord).
func idText(f format, id string) string {
	if id == "" {
		return ""
	}
	id = escape(cutEscaped(id, maxValue))
	return f.formatLine(&line{jid: id, minion: id}, "")
}

func appendAttr(b *strings.Builder, group string, a slog.Attr) {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		for _, x := range v.Group() {
			appendAttr(b, group+a.Key+".", x)
		}
		return
	}

	text := v.String()
	if v.Kind() == slog.KindTime {
		text = v.Time().Format(time.RFC3339Nano)
	}

	b.WriteString(" " + group + a.Key + "=")
	limit := maxValue
	switch a.Key {
	case "error", "first":
		limit = maxError
	case "stack", "panic":
		limit = maxStack
	}

	text = cutEscaped(text, limit)
	if text == "" || strings.ContainsAny(text, " =\"") || escape(text) != text {
		b.WriteString(strconv.Quote(text))
		return
	}

	b.WriteString(text)
}

// Limits of the parts of a line, in bytes. For a longer part, the line shows only how many bytes
// were removed. Values often contain text from untrusted senders.
const (
	maxMessage = 1024
	maxValue   = 256
	maxError   = 1024
	maxStack   = 16 << 10
)

// cutEscaped shortens a text that would have more than limit bytes when escaped, and appends the
// number of removed bytes. It returns any other text unchanged.
func cutEscaped(s string, limit int) string {
	if len(s) <= limit/4 {
		return s
	}

	keep := min(len(s), limit)
	if len(strconv.Quote(s[:keep])) > limit+limit/4 {
		keep = limit / 4 // the longest escape, \x00, has four bytes
	}

	if keep == len(s) {
		return s
	}

	for keep > 0 && !utf8.RuneStart(s[keep]) {
		keep--
	}

	return s[:keep] + "... (" + strconv.Itoa(len(s)-keep) + " bytes more)"
}

// escape replaces control characters by visible escapes.
func escape(s string) string {
	clean := true
	for _, r := range s {
		if r < 0x20 || r == 0x7f || (r >= 0x80 && r < 0xa0) || r == '\u2028' || r == '\u2029' || r == '\ufffd' {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	q := strconv.Quote(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}
