package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"saltern/supervisor"
	"saltern/supervisor/settings"
)

func runCommand(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run this node (the service; usually started by systemd)",
		Long: `run starts the salt-master and the load balancer, watches and restarts them, and
serves the local API. It stays up without a configuration, or with a wrong one,
and says so in its status until the file is mended.

SIGTERM stops the children in reverse order; SIGHUP starts anew with the
configuration as it is then (a wrong one changes nothing).`,
		Example: `  applianced run
  applianced run --config ./appliance.yaml`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
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
		s := supervisor.New(supervisor.Options{ConfigPath: path, Hostname: hostname(), Version: version(), Executable: exe, Socket: f.socket,
			Log: log, Notify: supervisor.NewSystemd()})

		hup := make(chan os.Signal, 1)
		signal.Notify(hup, syscall.SIGHUP)
		ended := make(chan struct{})
		defer func() {
			signal.Stop(hup) // no more sends after this
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
		return s.Run(cmd.Context())
	}
	return cmd
}
