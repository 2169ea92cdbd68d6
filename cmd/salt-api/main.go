// salt-api is Salt's API over HTTP, as rest_cherrypy serves it, for the master of
// this host: a drop-in for Python's program of the same name.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"

	"github.com/spf13/pflag"

	"saltern/internal/control"
	"saltern/internal/durable"
	"saltern/internal/memlimit"
	"saltern/internal/release"
	"saltern/internal/writable"
	"saltern/master/conf"
	"saltern/master/restapi"
	"saltern/master/saltlog"
)

// Exit statuses, as salt-master's.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 64
	exitConfig  = 78
)

// Where Salt's salt-api logs, and where it writes its process id.
const (
	defaultLog = "/var/log/salt/api"
	defaultPID = "/var/run/salt-api.pid"
)

type options struct {
	configDir, logLevel, logFile, logFileLevel, pidFile string
	version, help, check                                bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func parse(args []string, stderr io.Writer) (options, *pflag.FlagSet, error) {
	var o options
	f := pflag.NewFlagSet("salt-api", pflag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVarP(&o.configDir, "config-dir", "c", conf.DefaultDir, "folder of the file master and of master.d/")
	f.StringVarP(&o.logLevel, "log-level", "l", "",
		"level of the log on the console: quiet, critical, error, warning, info, profile, debug, trace, garbage")
	f.StringVar(&o.logFile, "log-file", "", "log file, instead of the option api_logfile")
	f.StringVar(&o.logFileLevel, "log-file-level", "", "level of the log file, instead of log_level_logfile")
	f.StringVar(&o.pidFile, "pid-file", "", "file for the process id, instead of the option api_pidfile")
	f.BoolVar(&o.check, "check", false, "check the configuration, name what is wrong, start nothing and leave")
	f.BoolVar(&o.version, "version", false, "print the version and leave")
	f.BoolVarP(&o.help, "help", "h", false, "print this help and leave")
	f.Usage = func() {}

	if err := f.Parse(args); err != nil {
		return o, f, err
	}
	if f.NArg() > 0 {
		return o, f, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}

	return o, f, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, flags, err := parse(args, stderr)
	if err != nil {
		fmt.Fprintf(stderr,
			"salt-api: %v\nTry salt-api --help. It stays in the foreground; a service manager puts it into the background.\n",
			err)
		return exitUsage
	}

	switch {
	case o.help:
		fmt.Fprintf(stdout, "Usage: salt-api [options]\n\nServes Salt's API over HTTP (rest_cherrypy) beside salt-master. Without options the\nconfiguration is the master's, in %s: its section rest_cherrypy.\n\nOptions:\n%s\n"+
			"Examples:\n  salt-api --check                    is the configuration right? Exit status 0 or 78\n  salt-api -l info                    in the foreground, as a service manager wants it\n", conf.DefaultDir, flags.FlagUsages())
		return exitOK
	case o.version:
		fmt.Fprintln(stdout, "salt-api", release.Version())
		return exitOK
	}

	m, err := (&conf.Loader{Tool: true}).Load(o.configDir)
	if err != nil {
		fmt.Fprintln(stderr, "salt-api: the configuration cannot be used:")
		for _, f := range conf.Faults(err) {
			fmt.Fprintln(stderr, f)
		}
		return exitConfig
	}

	log, closeLog, err := openLog(m, o, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "salt-api: %v\n", writable.Advise(err))
		return exitConfig
	}
	defer closeLog()

	section, err := restapi.Read(m, log)
	if err != nil {
		fmt.Fprintf(stderr, "salt-api: the configuration cannot be used:\n%v\n", err)
		return exitConfig
	}

	if o.check {
		if err := section.CheckCertificate(); err != nil {
			fmt.Fprintf(stderr, "salt-api: the configuration cannot be used:\n%v\n", err)
			return exitConfig
		}

		fmt.Fprintf(stdout, "the configuration of salt-api is right\n%s%s\n", control.APIServedOn, section.URL())
		if at := section.ConsoleURL(); at != "" {
			fmt.Fprintf(stdout, "%s%s\n", control.ConsoleServedOn, at)
		}

		if section.Behind != "" {
			fmt.Fprintf(stdout, "%s%s\n", control.APIBehind, section.Behind)
		}

		return exitOK
	}

	if err := serve(ctx, m, section, log, o); err != nil {
		err = writable.Advise(err)
		log.Error("salt-api stops", "error", err)
		fmt.Fprintf(stderr, "salt-api: %v\n", err)
		return exitFailure
	}

	log.Info("salt-api has stopped")
	return exitOK
}

func serve(ctx context.Context, m *conf.Master, section restapi.Options, log *slog.Logger, o options) error {
	memlimit.Apply(memlimit.Most)
	s, err := restapi.New(m, section, log, os.Getenv)
	if err != nil {
		return err
	}
	defer s.Close()

	var keeper sync.WaitGroup
	defer keeper.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()

	keeper.Go(func() { memlimit.Follow(ctx, memlimit.Most, s.FitMemory) })

	ln, err := s.Listen()
	if err != nil {
		return err
	}

	if path := text(o.pidFile, m, "api_pidfile", defaultPID); path != "" {
		pid := strconv.Itoa(os.Getpid())
		if err := durable.Replace(path, []byte(pid), 0o644); err != nil {
			log.Warn("the file with the process id cannot be written", "path", path, "error", err)
		}

		defer func() {
			if b, err := durable.Read(path, 64); err == nil && string(b) == pid {
				_ = os.Remove(path)
			}
		}()
	}

	log.Info("salt-api is ready", "address", cmp.Or(section.Behind, section.Address()), "tls", section.Cert != "")
	return s.Serve(ctx, ln)
}

// text is the first of a flag, an option and a default that says something.
func text(flag string, m *conf.Master, option, preset string) string {
	if flag != "" {
		return flag
	}
	if v, ok := m.Raw.Get(option); ok {
		s, _ := v.(string)
		return s
	}
	return preset
}

// openLog opens the log file and the console, each at its level.
func openLog(m *conf.Master, o options, stderr io.Writer) (*slog.Logger, func(), error) {
	flags := conf.LogFlags{Level: o.logLevel, File: o.logFile, FileLevel: o.logFileLevel}
	c := m.LogConfig("salt.api", text(o.logFile, m, "api_logfile", defaultLog), flags, stderr)
	if o.check {
		c.Path = ""
	}
	log, f, err := saltlog.Open(c)
	if f == nil {
		return log, func() {}, err
	}
	return log, func() { _ = f.Close() }, nil
}
