// salt-master is Saltern's Salt master: a drop-in for Python's program of the
// same name, with the same options and configuration.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"os/user"
	"sync"
	"syscall"

	"github.com/spf13/pflag"

	"saltern/internal/memlimit"
	"saltern/internal/release"
	"saltern/internal/writable"
	"saltern/master"
	"saltern/master/conf"
	"saltern/master/health"
	"saltern/master/saltlog"
)

// Exit statuses, as Salt's (salt/defaults/exitcodes.py).
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 64
	exitConfig  = 78
)

type options struct {
	configDir, logLevel, logFile, logFileLevel, pidFile, user, saltfile string
	daemon, version, versions, help, check                              bool
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func parse(args []string, stderr io.Writer) (options, *pflag.FlagSet, error) {
	var o options
	f := pflag.NewFlagSet("salt-master", pflag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVarP(&o.configDir, "config-dir", "c", conf.DefaultDir, "folder of the file master and of master.d/")
	f.StringVarP(&o.logLevel, "log-level", "l", "",
		"level of the log on the console: quiet, critical, error, warning, info, profile, debug, trace, garbage")
	f.StringVar(&o.logFile, "log-file", "", "log file, instead of the option log_file")
	f.StringVar(&o.logFileLevel, "log-file-level", "", "level of the log file, instead of log_level_logfile")
	f.BoolVarP(&o.daemon, "daemon", "d", false, "run in the background")
	f.StringVar(&o.pidFile, "pid-file", "", "file for the process id, instead of the option pidfile")
	f.StringVarP(&o.user, "user", "u", "", "refused unless it is the user that runs the program; start it as that user")
	f.BoolVar(&o.check, "check", false,
		"check the configuration with all that it includes, say what becomes of each option, start nothing and leave")
	f.BoolVar(&o.version, "version", false, "print the version and leave")
	f.BoolVarP(&o.versions, "versions-report", "V", false,
		"print the versions of the master and of what it is built with, and leave")
	f.StringVar(&o.saltfile, "saltfile", "",
		"file with defaults of these options; without it that of SALT_SALTFILE, ./Saltfile or ~/.salt/Saltfile is read")
	f.Bool("disable-keepalive", false, "accepted for Salt's sake: there are no processes to start anew")
	f.BoolVarP(&o.help, "help", "h", false, "print this help and leave")
	f.Usage = func() {}

	if err := f.Parse(args); err != nil {
		return o, f, err
	}
	if f.NArg() > 0 {
		return o, f, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}

	return o, f, takeSaltfile(f, o.saltfile)
}

func run(args []string, stdout, stderr io.Writer) int {
	o, flags, err := parse(args, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "salt-master: %v\nTry salt-master --help.\n", err)
		return exitUsage
	}

	switch {
	case o.help:
		fmt.Fprintf(stdout, "Usage: salt-master [options]\n\nServes Salt minions. Without options the configuration is read from %s.\n\nOptions:\n%s\n"+
			"Examples:\n  salt-master --check                 is the configuration right? Exit status 0, 2 with warnings, 78 when it is not\n  salt-master -l info                 in the foreground, as a service manager wants it\n  salt-master -c /srv/test/etc -d     in the background, with a configuration of its own\n", conf.DefaultDir, flags.FlagUsages())
		return exitOK
	case o.version:
		fmt.Fprintln(stdout, "salt-master", release.Version())
		return exitOK
	case o.versions:
		fmt.Fprint(stdout, release.VersionsReport())
		return exitOK
	}

	if err := sameUser(o.user); err != nil {
		fmt.Fprintf(stderr, "salt-master: %v\n", err)
		return exitUsage
	}

	cfg, err := conf.Load(o.configDir)
	if err != nil {
		fmt.Fprintln(stderr, "salt-master: the configuration cannot be used:")
		for _, f := range conf.Faults(err) {
			fmt.Fprintln(stderr, f)
		}
		return exitConfig
	}

	if err := master.Check(cfg); err != nil {
		fmt.Fprintf(stderr, "salt-master: the configuration cannot be used:\n%v\n", err)
		return exitConfig
	}
	if o.check {
		return checked(cfg, stdout, stderr)
	}

	if o.pidFile != "" {
		cfg.PidFile = o.pidFile
	}

	if o.daemon && os.Getenv(daemonMark) == "" {
		return daemonize(stderr)
	}

	log, closeLog, err := openLog(cfg, o, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "salt-master: %v\n", writable.Advise(err))
		return exitConfig
	}
	defer closeLog()

	return serve(cfg, log, stderr)
}

// sameUser refuses a user that is not the one we run as: this program never
// changes its user, and going on as root would be the opposite of what was
// asked for.
func sameUser(name string) error {
	if name == "" {
		return nil
	}
	u, err := user.Current()
	if err != nil {
		return fmt.Errorf("find out who runs this program: %w", err)
	}
	if u.Username != name {
		return fmt.Errorf("--user=%s: this program runs as %s and does not change its user; start it as %s (systemd: User=)",
			name, u.Username, name)
	}
	return nil
}

func serve(cfg *conf.Master, log *slog.Logger, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	var keeper sync.WaitGroup
	defer keeper.Wait()

	defer stop()
	memlimit.Apply(share) // the master's budgets go by it
	keeper.Go(func() { keepMemory(ctx, log) })
	raiseFiles(log)
	defer profileOnSignal(log)()

	cfg.Report(ctx, log)
	m, err := master.New(ctx, cfg, log)
	if err == nil {
		err = m.Run(ctx)
	} else if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = nil // stopped before it had joined its cluster
	}

	if cfg.PidFile != "" {
		if b, rerr := os.ReadFile(cfg.PidFile); rerr == nil && string(b) == fmt.Sprint(os.Getpid()) {
			_ = os.Remove(cfg.PidFile)
		}
	}

	if err != nil {
		err = writable.Advise(err)
		log.Error("salt-master stops", "error", err)
		fmt.Fprintf(stderr, "salt-master: %v\n", err)
		if errors.Is(err, health.ErrCacheShared) {
			return exitConfig
		}
		return exitFailure
	}

	log.Info("salt-master has stopped")
	return exitOK
}

// openLog opens the log file and the console, each at its level. SIGHUP opens
// the file anew; one that was moved away is opened anew without it.
func openLog(cfg *conf.Master, o options, stderr io.Writer) (*slog.Logger, func(), error) {
	flags := conf.LogFlags{Level: o.logLevel, File: o.logFile, FileLevel: o.logFileLevel}
	log, f, err := saltlog.Open(cfg.LogConfig("salt.master", cfg.LogFile, flags, stderr))
	if f == nil {
		return log, func() {}, err
	}
	return log, reopenOnHangup(f, stderr), nil
}

func reopenOnHangup(f saltlog.Target, stderr io.Writer) (stop func()) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range hup {
			if err := f.Reopen(); err != nil {
				fmt.Fprintf(stderr, "salt-master: %v\n", err)
			}
		}
	}()

	return func() {
		signal.Stop(hup)
		close(hup)
		<-done
		_ = f.Close()
	}
}

// raiseFiles asks for as many descriptors as the system lets us have: every
// minion holds one or two.
func raiseFiles(log *slog.Logger) {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return
	}
	if r.Cur < r.Max {
		r.Cur = r.Max
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
			log.Warn("limit of open files cannot be raised", "error", err)
		}
	}
	if r.Cur < 20000 {
		log.Warn("limit of open files is low; each minion needs up to two", "limit", r.Cur)
	}
}
