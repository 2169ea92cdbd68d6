package saltlog

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
)

// Config is the log of a program: a console and a file.
type Config struct {
	Name          string // the program's logger
	Stderr        io.Writer
	Console, File Output
	Path          string         // of the file, or a URL of a syslog as [ParseAddress] reads it; "" for none
	Granular      map[string]any // log_granular_levels
	JID           string         // log_fmt_jid
	MinionID      string         // log_fmt_minion_id
}

// Output is how lines are written to a place, and which: Levels are names of levels,
// of which the first that is not "" counts; without one it is warning.
type Output struct {
	Levels          []string
	Format, DateFmt string // as in Sink
}

func (o Output) leastLevel() (slog.Level, error) {
	for _, n := range o.Levels {
		if n != "" {
			return ParseLevel(n)
		}
	}
	return slog.LevelWarn, nil
}

// Target is where the lines of a log file go: a *File or a *Syslog.
type Target interface {
	io.WriteCloser
	// Reopen opens a file's path again.
	Reopen() error
}

// Open makes the logger of a program. The Target is nil when there is none, as at the level
// quiet; else its owner closes it.
func Open(c Config) (*slog.Logger, Target, error) {
	level, err := c.Console.leastLevel()
	if err != nil {
		return nil, nil, err
	}

	console := Sink{c.Stderr, level, cmp.Or(c.Console.Format, DefaultConsole),
		cmp.Or(c.Console.DateFmt, DefaultConsoleDate)}
	if CheckFormat(console.Format) != nil {
		console.Format = DefaultConsole
	}

	sinks := []Sink{console}

	level, err = c.File.leastLevel()
	if err != nil {
		return nil, nil, err
	}

	var target Target
	if c.Path != "" && level < LevelQuiet {
		target, err = openTarget(c.Path, c.Stderr)
		if err != nil {
			return nil, nil, err
		}
		sinks = append(sinks, Sink{target, level, c.File.Format, c.File.DateFmt})
	}

	h := New(c.Name, sinks...)
	h.jid = compileOr(c.JID, defaultJID)
	h.minion = compileOr(c.MinionID, defaultMinionID)
	h.granular = granularLevels{}
	for logger, level := range c.Granular {
		if h.granular.setLevel(logger, level) != nil {
			h.granular[logger] = slog.LevelError // as Salt does
		}
	}

	return slog.New(h), target, nil
}

// Salt's formats of ids.
const (
	defaultJID      = "[JID: %(jid)s]"
	defaultMinionID = "[%(minion_id)s]"
)

// openTarget opens a log file or a syslog. What concerns it is told on stderr.
func openTarget(path string, stderr io.Writer) (Target, error) {
	say := func(text string) { fmt.Fprintf(stderr, "[WARNING ] log: %s\n", text) }
	to, err := ParseAddress(path)
	if err != nil {
		return nil, fmt.Errorf("log file: %w", err)
	}
	if to != nil {
		return OpenSyslog(to, say), nil
	}
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("log file: %w", err)
	}
	return OpenFile(path, say)
}
