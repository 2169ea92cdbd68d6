package conf

import (
	"cmp"
	"io"
	"log/slog"

	"saltern/master/saltlog"
)

// LogFlags are what a program's command line says of its log; "" for what it does not.
type LogFlags struct{ Level, File, FileLevel string }

// LogConfig is the log of a program by the options and its command line. file is the
// option's path.
func (m *Master) LogConfig(name, file string, flags LogFlags, stderr io.Writer) saltlog.Config {
	granular := map[string]any{}
	for logger, level := range m.LogGranular.All() {
		granular[text(logger)] = level
	}

	return saltlog.Config{
		Name:   name,
		Stderr: stderr,
		Console: saltlog.Output{
			Levels:  []string{flags.Level, m.LogLevel},
			Format:  m.LogFmtConsole,
			DateFmt: m.LogDatefmt,
		},
		File: saltlog.Output{
			Levels:  []string{flags.FileLevel, m.LogLevelLogfile, flags.Level, m.LogLevel},
			Format:  m.LogFmtLogfile,
			DateFmt: m.LogDatefmtLogfile,
		},
		Path:     cmp.Or(flags.File, file),
		Granular: granular,
		JID:      m.LogFmtJID,
		MinionID: m.LogFmtMinionID,
	}
}

// log refuses log files that could not be written, and notes what is not obeyed of the
// options of the log.
func (a *assembly) log(m *Master) {
	for _, option := range []string{"log_file", "api_logfile"} {
		if _, err := saltlog.ParseAddress(a.opts.Str(option)); err != nil {
			a.bad(option, err)
		}
	}

	for _, option := range []string{"log_fmt_console", "log_fmt_logfile", "log_fmt_jid", "log_fmt_minion_id"} {
		format := a.over.Str(option)
		if format == "" {
			continue
		}
		if err := saltlog.CheckFormat(format); err != nil {
			a.remark(slog.LevelWarn, option, "%v: Salt's default is used", err)
		}
	}

	for logger, level := range m.LogGranular.All() {
		if err := saltlog.CheckGranular(text(logger), level); err != nil {
			a.partRemark("log_granular_levels", text(logger), "%v: error is used, as with Salt", err)
		}
	}
}
