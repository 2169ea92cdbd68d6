package conf

import (
	"cmp"
	"io"
	"log/slog"

	"saltern/master/saltlog"
)

// LogFlags holds the log options on a program's command line. If a field is "", the command line
// does not contain that option.
type LogFlags struct{ Level, File, FileLevel string }

// LogConfig returns the log configuration of a program. flags override the options of the master.
// file is the path of the log file according to these options.
func (m *Master) LogConfig(name, file string, flags LogFlags, stderr io.Writer) saltlog.Config {
	granular := map[string]any{}
	for logger, level := range m.LogGranular.All() {
		granular[textOrEmpty(logger)] = level
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

// checkLog adds faults about log files that cannot be written, and notes about log options that the
// master ignores.
func (a *assembly) checkLog(m *Master) {
	for _, option := range []string{"log_file", "key_logfile", "api_logfile"} {
		if _, err := saltlog.ParseAddress(a.opts.Str(option)); err != nil {
			a.addFault(option, err)
		}
	}

	for _, option := range []string{"log_fmt_console", "log_fmt_logfile", "log_fmt_jid", "log_fmt_minion_id"} {
		format := a.fromFiles.Str(option)
		if format == "" {
			continue
		}
		if err := saltlog.CheckFormat(format); err != nil {
			a.remark(slog.LevelWarn, option, "%v: Salt's default is used", err)
		}
	}

	for logger, level := range m.LogGranular.All() {
		if err := saltlog.CheckGranular(textOrEmpty(logger), level); err != nil {
			a.partRemark("log_granular_levels", textOrEmpty(logger), "%v: error is used, as with Salt", err)
		}
	}
}
