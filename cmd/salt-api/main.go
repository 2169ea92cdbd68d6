// salt-api serves Salt's API over HTTP for the master of this host, with the interface of Salt's
// rest_cherrypy. It replaces Python's program of the same name.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"saltern/cmd/internal/daemon"
	"saltern/cmd/internal/hangup"
	"saltern/internal/control"
	"saltern/internal/memlimit"
	"saltern/internal/release"
	"saltern/internal/writable"
	"saltern/master/conf"
	"saltern/master/restapi"
)

// Default paths of the log and of the file with the process ID, as in Salt's salt-api.
const (
	defaultLog = "/var/log/salt/api"
	defaultPID = "/var/run/salt-api.pid"
)

var program = daemon.Program{
	Name:          "salt-api",
	LogFileOption: "api_logfile",
	PIDFileOption: "api_pidfile",
	CheckUsage:    "check the configuration, name what is wrong, start nothing and leave",
}

func main() {
	hangup.Outlive()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o daemon.Options
	flags := program.Flags(&o, stderr)
	if err := daemon.Parse(flags, args); err != nil {
		fmt.Fprintf(stderr,
			"salt-api: %v\nTry salt-api --help. It stays in the foreground; a service manager puts it into the background.\n",
			err)
		return daemon.ExitUsage
	}

	switch {
	case o.Help:
		fmt.Fprintf(stdout, "Usage: salt-api [options]\n\nServes Salt's API over HTTP (rest_cherrypy) beside salt-master. Without options the\nconfiguration is the master's, in %s: its section rest_cherrypy.\n\nOptions:\n%s\n"+
			"Examples:\n  salt-api --check                    is the configuration right? Exit status 0 or 78\n  salt-api -l info                    in the foreground, as a service manager wants it\n", conf.DefaultDir, flags.FlagUsages())
		return daemon.ExitOK
	case o.Version:
		fmt.Fprintln(stdout, "salt-api", release.Version())
		return daemon.ExitOK
	}

	m, err := (&conf.Loader{Tool: true}).Load(o.ConfigDir)
	if err != nil {
		fmt.Fprintln(stderr, "salt-api: the configuration cannot be used:")
		for _, f := range conf.Faults(err) {
			fmt.Fprintln(stderr, f)
		}
		return daemon.ExitConfig
	}

	log, closeLog, err := openLog(m, o, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "salt-api: %v\n", writable.Advise(err))
		return daemon.ExitConfig
	}
	defer closeLog()

	section, err := restapi.Read(m, log)
	if err != nil {
		fmt.Fprintf(stderr, "salt-api: the configuration cannot be used:\n%v\n", err)
		return daemon.ExitConfig
	}

	if o.Check {
		if err := section.CheckCertificate(); err != nil {
			fmt.Fprintf(stderr, "salt-api: the configuration cannot be used:\n%v\n", err)
			return daemon.ExitConfig
		}

		fmt.Fprintf(stdout, "the configuration of salt-api is right\n%s%s\n", control.APIServedOn, section.URL())
		if at := section.ConsoleURL(); at != "" {
			fmt.Fprintf(stdout, "%s%s\n", control.ConsoleServedOn, at)
		}

		if section.Behind != "" {
			fmt.Fprintf(stdout, "%s%s\n", control.APIBehind, section.Behind)
		}

		return daemon.ExitOK
	}

	if err := serve(ctx, m, section, log, o); err != nil {
		err = writable.Advise(err)
		log.Error("salt-api stops", "error", err)
		fmt.Fprintf(stderr, "salt-api: %v\n", err)
		return daemon.ExitFailure
	}

	log.Info("salt-api has stopped")
	return daemon.ExitOK
}

func serve(ctx context.Context, m *conf.Master, section restapi.Options, log *slog.Logger, o daemon.Options) error {
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

	if path := text(o.PIDFile, m, "api_pidfile", defaultPID); path != "" {
		daemon.WritePID(path, log)
		defer daemon.RemovePID(path)
	}

	log.Info("salt-api is ready", "address", cmp.Or(section.Behind, section.Address()), "tls", section.Cert != "")
	return s.Serve(ctx, ln)
}

// text returns the flag if it is set, otherwise the option, otherwise preset.
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

// openLog opens the log file and the console log, each with its own level. It returns the log and a
// function that closes it.
func openLog(m *conf.Master, o daemon.Options, stderr io.Writer) (*slog.Logger, func(), error) {
	c := m.LogConfig("salt.api", text(o.LogFile, m, "api_logfile", defaultLog), o.LogFlags(), stderr)
	if o.Check {
		c.Path = ""
	}
	return program.OpenLog(c, stderr)
}
