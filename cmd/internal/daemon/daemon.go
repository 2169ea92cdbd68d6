// Package daemon is the common part of salt-master and salt-api as services: exit statuses, command
// line options, a log that handles SIGHUP, and the file with the process ID.
package daemon

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/spf13/pflag"

	"saltern/internal/durable"
	"saltern/master/conf"
	"saltern/master/saltlog"
)

// Exit statuses, as Salt's (salt/defaults/exitcodes.py).
const (
	ExitOK      = 0
	ExitFailure = 1
	ExitUsage   = 64
	ExitConfig  = 78
)

// Program describes salt-master or salt-api to this package.
type Program struct {
	Name          string
	LogFileOption string // the configuration option that --log-file replaces
	PIDFileOption string // the configuration option that --pid-file replaces
	CheckUsage    string // help text of --check
}

// Options are the command line options that both programs have.
type Options struct {
	ConfigDir    string
	LogLevel     string
	LogFile      string
	LogFileLevel string
	PIDFile      string
	Check        bool
	Version      bool
	Help         bool
}

// Flags returns a set of flags whose values are stored in o. The caller prints usage and errors,
// and may add flags.
func (p Program) Flags(o *Options, stderr io.Writer) *pflag.FlagSet {
	f := pflag.NewFlagSet(p.Name, pflag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {}

	f.StringVarP(&o.ConfigDir, "config-dir", "c", conf.DefaultDir, "folder of the file master and of master.d/")
	f.StringVarP(&o.LogLevel, "log-level", "l", "",
		"level of the log on the console: quiet, critical, error, warning, info, profile, debug, trace, garbage")
	f.StringVar(&o.LogFile, "log-file", "", "log file, instead of the option "+p.LogFileOption)
	f.StringVar(&o.LogFileLevel, "log-file-level", "", "level of the log file, instead of log_level_logfile")
	f.StringVar(&o.PIDFile, "pid-file", "", "file for the process id, instead of the option "+p.PIDFileOption)
	f.BoolVar(&o.Check, "check", false, p.CheckUsage)
	f.BoolVar(&o.Version, "version", false, "print the version and leave")
	f.BoolVarP(&o.Help, "help", "h", false, "print this help and leave")
	return f
}

// Parse parses args with f. If an argument is not a flag, it returns an error.
func Parse(f *pflag.FlagSet, args []string) error {
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	return nil
}

// LogFlags returns the log options in the form that the configuration takes.
func (o Options) LogFlags() conf.LogFlags {
	return conf.LogFlags{Level: o.LogLevel, File: o.LogFile, FileLevel: o.LogFileLevel}
}

// OpenLog opens the program's log. Until closeLog is called, SIGHUP reopens the log file. Before
// OpenLog and after closeLog, only package hangup keeps the signal from ending the program. A log
// file that was moved is reopened without a signal (see [saltlog.File]).
func (p Program) OpenLog(c saltlog.Config, stderr io.Writer) (log *slog.Logger, closeLog func(), err error) {
	log, file, err := saltlog.Open(c)
	if err != nil {
		return nil, nil, err
	}

	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range hangups {
			if file == nil {
				continue
			}
			if err := file.Reopen(); err != nil {
				fmt.Fprintf(stderr, "%s: %v\n", p.Name, err)
			}
		}
	}()

	closeLog = func() {
		signal.Stop(hangups)
		close(hangups)
		<-done
		if file != nil {
			_ = file.Close()
		}
	}
	return log, closeLog, nil
}

// WritePID writes the id of this process to the file path. A failure is only logged.
func WritePID(path string, log *slog.Logger) {
	err := durable.Replace(path, []byte(ownPID()), 0o644)
	if err != nil {
		log.Warn("the file with the process id cannot be written", "path", path, "error", err)
	}
}

// RemovePID removes the file path if it holds the id of this process.
func RemovePID(path string) {
	b, err := durable.Read(path, 64)
	if err == nil && string(b) == ownPID() {
		_ = os.Remove(path)
	}
}

func ownPID() string { return strconv.Itoa(os.Getpid()) }
