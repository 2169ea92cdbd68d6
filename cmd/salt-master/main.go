// salt-master is Saltern's Salt master. It replaces Python's program of the same name and has the
// same options and configuration.
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

	"saltern/cmd/internal/daemon"
	"saltern/cmd/internal/hangup"
	"saltern/internal/memlimit"
	"saltern/internal/release"
	"saltern/internal/writable"
	"saltern/master"
	"saltern/master/conf"
	"saltern/master/health"
)

var program = daemon.Program{
	Name:          "salt-master",
	LogFileOption: "log_file",
	PIDFileOption: "pidfile",
	CheckUsage:    "check the configuration with all that it includes, say what becomes of each option, start nothing and leave",
}

type options struct {
	daemon.Options
	background bool
	versions   bool
	user       string
	saltfile   string
}

func main() {
	hangup.Outlive()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func parse(args []string, stderr io.Writer) (options, *pflag.FlagSet, error) {
	var o options
	f := program.Flags(&o.Options, stderr)
	f.BoolVarP(&o.background, "daemon", "d", false, "run in the background")
	f.StringVarP(&o.user, "user", "u", "", "refused unless it is the user that runs the program; start it as that user")
	f.BoolVarP(&o.versions, "versions-report", "V", false,
		"print the versions of the master and of what it is built with, and leave")
	f.StringVar(&o.saltfile, "saltfile", "",
		"file with defaults of these options; without it that of SALT_SALTFILE, ./Saltfile or ~/.salt/Saltfile is read")
	f.Bool("disable-keepalive", false, "accepted for Salt's sake: there are no processes to start again")

	if err := daemon.Parse(f, args); err != nil {
		return o, f, err
	}

	return o, f, takeSaltfile(f, o.saltfile)
}

func run(args []string, stdout, stderr io.Writer) int {
	o, flags, err := parse(args, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "salt-master: %v\nTry salt-master --help.\n", err)
		return daemon.ExitUsage
	}

	switch {
	case o.Help:
		fmt.Fprintf(stdout, "Usage: salt-master [options]\n\nServes Salt minions. Without options the configuration is read from %s.\n\nOptions:\n%s\n"+
			"Examples:\n  salt-master --check                 is the configuration right? Exit status 0, 2 with warnings, 78 when it is not\n  salt-master -l info                 in the foreground, as a service manager wants it\n  salt-master -c /srv/test/etc -d     in the background, with a configuration of its own\n", conf.DefaultDir, flags.FlagUsages())
		return daemon.ExitOK
	case o.Version:
		fmt.Fprintln(stdout, "salt-master", release.Version())
		return daemon.ExitOK
	case o.versions:
		fmt.Fprint(stdout, release.VersionsReport())
		return daemon.ExitOK
	}

	if err := sameUser(o.user); err != nil {
		fmt.Fprintf(stderr, "salt-master: %v\n", err)
		return daemon.ExitUsage
	}

	cfg, err := conf.Load(o.ConfigDir)
	if err != nil {
		fmt.Fprintln(stderr, "salt-master: the configuration cannot be used:")
		for _, f := range conf.Faults(err) {
			fmt.Fprintln(stderr, f)
		}
		return daemon.ExitConfig
	}

	if err := master.Check(cfg); err != nil {
		fmt.Fprintf(stderr, "salt-master: the configuration cannot be used:\n%v\n", err)
		return daemon.ExitConfig
	}
	if o.Check {
		return checked(cfg, stdout, stderr)
	}

	if o.PIDFile != "" {
		cfg.PidFile = o.PIDFile
	}

	if o.background && os.Getenv(daemonMark) == "" {
		return daemonize(stderr)
	}

	log, closeLog, err := program.OpenLog(cfg.LogConfig("salt.master", cfg.LogFile, o.LogFlags(), stderr), stderr)
	if err != nil {
		fmt.Fprintf(stderr, "salt-master: %v\n", writable.Advise(err))
		return daemon.ExitConfig
	}
	defer closeLog()

	return serve(cfg, log, stderr)
}

// sameUser returns an error if name is not the user of this process. This program never changes its
// user, and must not continue as root if it was started to run as another user.
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
	memlimit.Apply(share) // this limit determines the master's memory budgets
	keeper.Go(func() { keepMemory(ctx, log) })
	raiseFiles(log)
	defer profileOnSignal(log)()
	defer stacksOnSignal(log, stderr)()

	cfg.Report(ctx, log)
	m, err := master.New(ctx, cfg, log)
	if err == nil {
		err = m.Run(ctx)
	} else if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = nil // the process was stopped before it had joined its cluster
	}

	if cfg.PidFile != "" {
		daemon.RemovePID(cfg.PidFile)
	}

	if err != nil {
		err = writable.Advise(err)
		log.Error("salt-master stops", "error", err)
		fmt.Fprintf(stderr, "salt-master: %v\n", err)
		if errors.Is(err, health.ErrCacheShared) {
			return daemon.ExitConfig
		}
		return daemon.ExitFailure
	}

	log.Info("salt-master has stopped")
	return daemon.ExitOK
}

// raiseFiles raises the limit of descriptors as far as the system allows: every minion uses one or
// two.
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
