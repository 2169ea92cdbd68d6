package saltlog

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
)

// Config configures the log of a program, which goes to a console and to a file.
type Config struct {
	Name          string // logger of the program, such as "salt.master"
	Stderr        io.Writer
	Console, File Output
	Path          string         // path of the file, or URL of a syslog (see [ParseAddress]); "" for none
	Granular      map[string]any // log_granular_levels: least level by logger
	JID           string         // log_fmt_jid: format of %(jid)s
	MinionID      string         // log_fmt_minion_id: format of %(minion_id)s
}

// Output configures which lines go to one destination, and their format. Levels holds names of
// levels: the first that is not "" applies. If there is none, the level is warning.
type Output struct {
	Levels          []string
	Format, DateFmt string // see Sink
}

func (o Output) leastLevel() (slog.Level, error) {
	for _, n := range o.Levels {
		if n != "" {
			return ParseLevel(n)
		}
	}
	return slog.LevelWarn, nil
}

// Target is the destination of a log besides the console: a *File or a *Syslog.
type Target interface {
	io.WriteCloser
	// Reopen opens the file that is now at the path of the log. It does nothing for a syslog.
	Reopen() error
}

// Open returns the logger of a program and the Target of Config.Path, which the caller must close.
// The Target is nil if the log goes neither to a file nor to a syslog, and at the level quiet.
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
			h.granular[logger] = slog.LevelError // as in Salt, an unknown level means the level error
		}
	}

	return slog.New(h), target, nil
}

// Salt's default formats of job and minion ids in a line.
const (
	defaultJID      = "[JID: %(jid)s]"
	defaultMinionID = "[%(minion_id)s]"
)

// openTarget opens a log file or a syslog. It writes messages about later failures to stderr.
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
