package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"saltern/internal/release"
	"saltern/supervisor/settings"
)

// flags holds the flags that several verbs share.
type flags struct {
	config string // path of appliance.yaml
	socket string // socket of the local API; "" means the one in the configuration
}

func rootCommand() *cobra.Command {
	var f flags
	root := &cobra.Command{
		Use:   "applianced",
		Short: "A node of a highly available Salt master",
		Long: `applianced runs a node: it starts and watches a salt-master and the load
balancer in front of it, and says how both are.

Exit codes of "applianced status": 0 healthy, 1 cannot tell (the supervisor
does not answer), 2 degraded but serving, 3 not serving, 4 not configured. Every
verb exits with 64 when its command line makes no sense.`,
		Example: `  applianced status                 how is this node, and what to do next
  applianced status --watch         the same, again and again
  sudo applianced config check      is appliance.yaml right?
  applianced logs master -n 100     what salt-master wrote
  applianced lb status              masters and sessions of the load balancer`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		Version:       release.Version(),
	}

	root.PersistentFlags().StringVar(&f.config, "config", settings.DefaultPath,
		"the node's configuration, appliance.yaml")
	root.PersistentFlags().StringVar(&f.socket, "socket", "",
		"socket of the supervisor (default: from the configuration)")
	root.SetVersionTemplate("applianced {{.Version}}\n")
	root.AddCommand(
		runCommand(&f),
		statusCommand(&f),
		logsCommand(&f),
		eventsCommand(&f),
		historyCommand(&f),
		auditCommand(&f),
		restartCommand(&f),
		reloadCommand(&f),
		configCommand(&f),
		lbCommand(&f),
		storageCommand(&f),
		secretsCommand(&f),
		gitCommand(&f),
		diffCommand(&f),
		readersCommand(&f),
		scheduleCommand(&f),
		pythonCommand(&f),
		versionCommand(),
		pamHelperCommand(),
	)
	root.AddCommand(clusterCommands(&f)...)
	root.AddCommand(minionCommands(&f)...)
	root.AddCommand(terminalCommands(&f)...)
	root.AddCommand(systemCommands(&f)...)
	audited(&f, root)
	helped(root)
	grouped(root)
	strict(root)

	return root
}

// apiSocket returns the supervisor's socket: from the flag, otherwise from the configuration,
// otherwise the default.
func (f *flags) apiSocket() string {
	if f.socket != "" {
		return f.socket
	}
	if s, err := settings.Load(f.config, hostname()); err == nil {
		return s.APISocket()
	}
	base := settings.Default(hostname())
	return base.APISocket()
}

// hostname returns the default name of a node: the host's name, or "localhost" when it has none.
func hostname() string {
	h, err := os.Hostname()
	if err != nil || h == "" {
		return "localhost"
	}
	return h
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Args:    cobra.NoArgs,
		Example: "  applianced version",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "applianced %s (%s)\n", release.Version(), runtime.Version())
			return err
		},
	}
}

// newLog creates the program's logger. If the program runs under systemd, the logger adds no time,
// because the journal does.
func newLog(w io.Writer, level, format string) *slog.Logger {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		l = slog.LevelInfo
	}

	opt := &slog.HandlerOptions{Level: l}
	if os.Getenv("JOURNAL_STREAM") != "" {
		opt.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}
	}

	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, opt))
	}

	return slog.New(slog.NewTextHandler(w, opt))
}
