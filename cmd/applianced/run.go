package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"saltern/cmd/internal/hangup"
	"saltern/internal/release"
	"saltern/supervisor"
	"saltern/supervisor/layout"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
	"saltern/supervisor/systemd"
	"saltern/supervisor/upgrade"
	"saltern/supervisor/userdata"
)

func runCommand(f *flags) *cobra.Command {
	var base setup.Base
	var answers string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run this node (the service; usually started by systemd)",
		Long: `run starts the salt-master and the load balancer, watches and restarts them, and
serves the local API. It stays up without a configuration, or with a wrong one,
and says so in its status until the file is fixed.

Without a configuration it looks for answers that were given with the machine
(variables SALTERN_… of the environment, kernel command line, cidata disk, EC2
user-data, OVF properties, a file) and sets the node up with them. When there are none it waits for applianced setup.

SIGTERM stops the children in reverse order; SIGHUP starts anew with the
configuration as it is then (a wrong one changes nothing), and with the program
as it is then if that was replaced.

The load balancer goes on through SIGHUP, and when this process is killed; the
next life adopts it. If its program or configuration has changed, a new one
takes its place and no connection is refused.`,
		Example: `  applianced run
  applianced run --config ./appliance.yaml
  applianced run --answers ./answers.yaml     set up with these, if that was not done yet`,
		Args: cobra.NoArgs,
	}

	cmd.Flags().StringVar(&base.DataDir, "data-dir", "",
		"data directory of a node that is not configured yet (default /var/lib/saltern)")
	cmd.Flags().StringVar(&base.RuntimeDir, "runtime-dir", "",
		"runtime directory of a node that is not configured yet (default /run/saltern)")
	cmd.Flags().StringVar(&answers, "answers", "", "look for answers in this file, and nowhere else")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		hangup.Outlive()
		hup := make(chan os.Signal, 1)
		signal.Notify(hup, syscall.SIGHUP)

		path, err := filepath.Abs(f.config)
		if err != nil {
			return fmt.Errorf("configuration: %w", err)
		}

		level, format := "info", "text"
		if s, err := settings.Load(path, hostname()); err == nil {
			level, format = s.Log.Level, s.Log.Format
		}

		exe, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find our own program: %w", err)
		}

		log := newLog(cmd.ErrOrStderr(), level, format)
		if err := noCores(); err != nil {
			log.Warn("core dumps cannot be forbidden", "error", err)
		}

		places := userdata.Default(log)
		if answers != "" {
			places = userdata.Places{File: answers, Log: log}
		}

		s := supervisor.New(supervisor.Options{
			Base:       base,
			Source:     places.Look,
			ConfigPath: path,
			Hostname:   hostname(),
			Version:    release.Version(),
			Executable: exe,
			Socket:     f.socket,
			Log:        log,
			Notify:     systemd.NewUnit(),
			OnTrial:    onTrial(log),
			InImage:    layout.InImage(""),
			Renew: func() {
				execNewer(exe, log)
				signal.Notify(hup, syscall.SIGHUP)
			},
		})

		ended := make(chan struct{})
		defer func() {
			signal.Stop(hup) // after this call no signal is sent to hup
			close(hup)
			<-ended
		}()

		go func() {
			defer close(ended)
			for range hup {
				if err := s.Reload(); err != nil {
					log.Error("reload refused", "error", err)
				}
			}
		}()

		ctx, end := followMemory(cmd.Context())
		defer end()
		defer f.serveMetrics(ctx, s.Status, log)()

		return s.Run(ctx)
	}

	return cmd
}

// execNewer replaces this process by the program at path if the file has changed. For systemd it
// stays the same process. If execNewer returns, no channel may receive SIGHUP any more: the caller
// must call signal.Notify again.
func execNewer(path string, log *slog.Logger) {
	now, err := os.Stat(path)
	if err != nil {
		log.Error("our own program", "path", path, "error", err)
		return
	}
	own, err := os.Stat("/proc/self/exe")
	if err != nil || os.SameFile(now, own) {
		return
	}
	log.Info("the program was replaced: going on as the new one", "path", path)
	if err := hangup.Exec(path, os.Args, os.Environ()); err != nil {
		log.Error("the new program cannot be run; going on as the old one", "path", path, "error", err)
	}
}

// onTrial returns a function that reports whether this version of the system is still on trial. If
// the function cannot find that out, it returns false.
func onTrial(log *slog.Logger) func() bool {
	return func() bool {
		var sys upgrade.System
		yes, err := sys.OnTrial()
		if err != nil {
			log.Error("whether this version is on trial", "error", err)
		}
		return yes || err != nil
	}
}
