// Package saltlog writes log lines as Salt does, so that what reads Salt's
// logs (logrotate, log shippers, people) reads ours: the file named by
// log_file in log_fmt_logfile, standard error in log_fmt_console, each with a
// level of its own.
//
// The fields asctime, msecs, name, lineno, levelname, process, processName
// and message of Python's formats are known; attributes follow the message as
// key=value. Control characters in messages and values are escaped, so that a
// stranger's text cannot start a line of its own.
package saltlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Levels of Salt beside those of slog.
const (
	LevelGarbage  = slog.Level(-16)
	LevelTrace    = slog.Level(-12)
	LevelProfile  = slog.Level(-6)
	LevelCritical = slog.Level(12)
	LevelQuiet    = slog.Level(100)
)

// Names of levels as options and lines write them.
var levels = map[string]slog.Level{
	"all": LevelGarbage, "garbage": LevelGarbage, "trace": LevelTrace, "debug": slog.LevelDebug, "profile": LevelProfile,
	"info": slog.LevelInfo, "warning": slog.LevelWarn, "error": slog.LevelError, "critical": LevelCritical, "quiet": LevelQuiet,
}

// ParseLevel knows Salt's names of levels, without regard to case.
func ParseLevel(name string) (slog.Level, error) {
	if l, ok := levels[strings.ToLower(name)]; ok {
		return l, nil
	}
	return 0, fmt.Errorf("log level %.20q is unknown; known are quiet, critical, error, warning, info, profile, debug, trace, garbage", name)
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
	case l >= slog.LevelDebug:
		return "DEBUG"
	case l >= LevelTrace:
		return "TRACE"
	}
	return "GARBAGE"
}

// Sink is one place that lines go to.
type Sink struct {
	Writer  io.Writer
	Level   slog.Level
	Format  string // Python's, e.g. log_fmt_logfile
	DateFmt string // strftime's, e.g. log_datefmt_logfile
}

// Handler is a slog.Handler for Salt's format. It is safe for concurrent use.
type Handler struct {
	mu    *sync.Mutex
	sinks []sink
	name  string
	attrs string
	group string
}

type sink struct {
	Sink
	date string // layout of time
}

// New makes a handler. name is the logger that lines show ("salt.master").
func New(name string, sinks ...Sink) *Handler {
	h := &Handler{mu: &sync.Mutex{}, name: name}
	for _, s := range sinks {
		h.sinks = append(h.sinks, sink{s, layout(s.DateFmt)})
	}
	return h
}

// layout turns a strftime format into one of Go; unknown fields stay.
func layout(strftime string) string {
	return strings.NewReplacer("%Y", "2006", "%m", "01", "%d", "02", "%H", "15", "%M", "04", "%S", "05", "%y", "06",
		"%b", "Jan", "%a", "Mon", "%z", "-0700", "%Z", "MST", "%I", "03", "%p", "PM", "%%", "%").Replace(strftime)
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
	var b strings.Builder
	b.WriteString(escape(cut(r.Message, maxMessage)))
	b.WriteString(h.attrs)
	r.Attrs(func(a slog.Attr) bool { appendAttr(&b, h.group, a); return true })
	message := b.String()
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, s := range h.sinks {
		if r.Level >= s.Level {
			_, err := io.WriteString(s.Writer, s.line(h.name, r, message)+"\n")
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
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
	most := maxValue
	switch a.Key {
	case "error", "first":
		most = maxError
	case "stack", "panic":
		most = maxStack
	}
	text = cut(text, most)
	if text == "" || strings.ContainsAny(text, " =\"") || escape(text) != text {
		b.WriteString(strconv.Quote(text))
		return
	}
	b.WriteString(text)
}

// Bounds of what is written of a line, in bytes before the rest of it is counted
// only. Values are often somebody else's text.
const (
	maxMessage = 1024
	maxValue   = 256
	maxError   = 1024
	maxStack   = 16 << 10
)

// cut shortens a text that would take more than most bytes when it is escaped, and
// says by how much.
func cut(s string, most int) string {
	if len(s) <= most/4 {
		return s
	}
	keep := min(len(s), most)
	if len(strconv.Quote(s[:keep])) > most+most/4 {
		keep = most / 4 // the longest escape is \x00
	}
	if keep == len(s) {
		return s
	}
	for keep > 0 && !utf8.RuneStart(s[keep]) {
		keep--
	}
	return s[:keep] + "... (" + strconv.Itoa(len(s)-keep) + " bytes more)"
}

// escape writes control characters so that they show.
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

// field is one %(name)… of a Python format.
var field = regexp.MustCompile(`%\((\w+)\)(-?)(0?)(\d*)(?:\.\d+)?([sdf])`)

func (s sink) line(name string, r slog.Record, message string) string {
	return field.ReplaceAllStringFunc(s.Format, func(f string) string {
		p := field.FindStringSubmatch(f)
		var v string
		switch p[1] {
		case "asctime":
			v = r.Time.Format(s.date)
		case "msecs":
			v = strconv.Itoa(r.Time.Nanosecond() / 1e6)
		case "name":
			v = name
		case "levelname", "colorlevel":
			v = levelName(r.Level)
		case "process":
			v = strconv.Itoa(os.Getpid())
		case "processName":
			v = "MainProcess"
		case "message", "colormsg":
			v = message
		case "lineno":
			v = "0"
		default:
			return ""
		}
		width, _ := strconv.Atoi(p[4])
		for pad := width - len(v); pad > 0; pad-- {
			switch {
			case p[2] == "-":
				v += " "
			case p[3] == "0":
				v = "0" + v
			default:
				v = " " + v
			}
		}
		return v
	})
}

// Output is how lines are written to a place, and which: Levels are names of levels,
// of which the first that is not "" counts; without one it is warning.
type Output struct {
	Levels          []string
	Format, DateFmt string // as in Sink
}

func (o Output) level() (slog.Level, error) {
	for _, n := range o.Levels {
		if n != "" {
			return ParseLevel(n)
		}
	}
	return slog.LevelWarn, nil
}

// Open makes the logger of a program with a console and a file. A path that is not
// absolute is no file, as one at the level quiet is none: then the File is nil.
func Open(name string, stderr io.Writer, console Output, path string, file Output) (*slog.Logger, *File, error) {
	level, err := console.level()
	if err != nil {
		return nil, nil, err
	}
	sinks := []Sink{{stderr, level, console.Format, console.DateFmt}}
	if level, err = file.level(); err != nil {
		return nil, nil, err
	}
	var f *File
	if filepath.IsAbs(path) && level < LevelQuiet {
		if f, err = OpenFile(path); err != nil {
			return nil, nil, err
		}
		sinks = append(sinks, Sink{f, level, file.Format, file.DateFmt})
	}
	return slog.New(New(name, sinks...)), f, nil
}

// File is a log file that can be opened anew after it was moved away.
type File struct {
	path string
	mu   sync.Mutex
	f    *os.File
}

// OpenFile opens a log file for appending, mode 0600 as Salt makes it, with
// its folder.
func OpenFile(path string) (*File, error) {
	l := &File{path: path}
	return l, l.Reopen()
}

// Reopen closes the file and opens the path again, for logrotate.
func (l *File) Reopen() error {
	if err := os.MkdirAll(filepath.Dir(l.path), 0o755); err != nil {
		return fmt.Errorf("create the folder of the log file: %w", err)
	}
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log file: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != nil {
		_ = l.f.Close()
	}
	l.f = f
	return nil
}

// Write implements io.Writer.
func (l *File) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Write(b)
}

// Close closes the file.
func (l *File) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Close()
}
