package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"saltern/master/conf"
	"saltern/master/saltlog"
)

// exitLogFile is the exit code of a tool that cannot open the log file of its command line
// (salt/_logging/impl.py setup_logfile_handler).
const exitLogFile = 2

// openGivenLogFile adds the log file of the command line, if there is one, to the tool's log.
func (t *tool) openGivenLogFile() error {
	option := t.logFileOption()
	if !t.values.Explicit(option) || t.values.Str(option) == "" {
		return nil
	}
	if err := t.openLogFile(t.values.Str(option)); err != nil {
		t.log.Error("Failed to open log file", "error", err)
		return exit(exitLogFile)
	}
	return nil
}

// openKeyLogFile adds key_logfile to the log of salt-key, unless the command line names another
// file. It runs as the account that works on the keys, so that whoever owns the folder of the file
// cannot redirect root. A failure never keeps an administrator from changing a key: openKeyLogFile
// warns, or is silent if permission is missing and mustWrite is false.
func (t *tool) openKeyLogFile(mustWrite bool) {
	if t.logFile != nil {
		return
	}

	path := t.cfg.KeyLogFile
	if path == conf.DefaultKeyLogFile {
		if _, err := os.Stat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) {
			return // Salt is not installed here, and nobody named a file
		}
	}

	err := t.openLogFile(path)
	if errors.Is(err, fs.ErrPermission) && !mustWrite {
		return
	}
	if err != nil {
		t.log.Warn("key_logfile is not written", "path", path, "error", err)
	}
}

// openLogFile makes the tool's log go to a file, or the URL of a syslog, as well as to the terminal.
// exitCode closes it.
func (t *tool) openLogFile(path string) error {
	flags := conf.LogFlags{}
	if t.values.Explicit("log_level") {
		flags.Level = t.values.Str("log_level")
	}
	if t.values.Explicit("log_level_logfile") {
		flags.FileLevel = t.values.Str("log_level_logfile")
	}

	c := t.cfg.LogConfig(loggerOfTool(t.optionParser.Prog), path, flags, t.stderr)
	c.Console.Levels = []string{"quiet"} // the terminal has a log of its own, see newLog
	log, file, err := saltlog.Open(c)
	if err != nil {
		return err
	}

	t.logFile = file
	t.fileLog = log
	t.log = slog.New(slog.NewMultiHandler(t.log.Handler(), log.Handler()))
	return nil
}

// loggerOfTool returns the name of the logger of Salt's tool.
func loggerOfTool(prog string) string {
	if prog == "salt-key" {
		return "salt.key"
	}
	return "salt.cli." + prog
}

// logFileOption returns the name under which a Saltfile or the command line sets the tool's log
// file (salt/utils/parsers.py, _logfile_config_setting_name_).
func (t *tool) logFileOption() string {
	if t.optionParser.Prog == "salt-key" {
		return "key_logfile"
	}
	return "log_file"
}

// noteInFile logs to the tool's log file only. The terminal shows the same in other words.
func (t *tool) noteInFile(level slog.Level, text string, attrs ...any) {
	if t.fileLog != nil {
		t.fileLog.Log(context.Background(), level, text, attrs...)
	}
}

// closeLogFile sends the lines that wait for a syslog, for at most a second, and closes the log
// file.
func (t *tool) closeLogFile() {
	if t.logFile == nil {
		return
	}
	if err := t.logFile.Close(); err != nil {
		fmt.Fprintf(t.stderr, "[WARNING ] log file: %v\n", err)
	}
}
