package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"saltern/internal/memlimit"
	"saltern/internal/printable"
	"saltern/lbproxy"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// gcPercent is how much the load balancer's heap may grow above its live data.
const gcPercent = 50

// lbFlags holds the flags of the load balancer's verbs.
type lbFlags struct {
	*flags
	admin string
}

func lbCommand(f *flags) *cobra.Command {
	l := &lbFlags{flags: f}
	var path, level, format string
	cmd := &cobra.Command{
		Use:   "lb --config FILE",
		Short: "Run the load balancer, or ask the one that runs",
		Long: `lb without a verb is the load balancer itself: it listens on the ports minions
know and joins each connection to a master that is well. The supervisor starts
it; it also runs alone with a configuration file of its own.

Started beside one that runs with the same hand-over socket (admin.handover), it
takes that one's place: no connection is refused, and the earlier process lets
its sessions go slowly and ends.

The verbs talk to the one that runs on this node through its admin socket.`,
		Example: `  applianced lb --config /etc/saltern/lb.yaml
  applianced lb status
  applianced lb drain sca-2          no new minions there; move the old ones slowly
  applianced lb weight sca-2 50      half the usual share
  applianced lb cut sca-2            cut its sessions now; minions come back elsewhere`,
		Args: cobra.NoArgs,
	}

	cmd.Flags().StringVar(&path, "config", "", "the load balancer's configuration")
	cmd.Flags().StringVar(&level, "log-level", "info", "debug, info, warn, error")
	cmd.Flags().StringVar(&format, "log-format", "text", "text or json")
	cmd.PersistentFlags().StringVar(&l.admin, "admin", "", "admin socket (default: from the configuration)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if path == "" {
			return misused("lb: --config FILE is needed to run the load balancer (applianced lb --help)")
		}

		cfg, err := lbproxy.LoadConfig(path)
		if err != nil {
			return err
		}

		// Allow one processor more than there are loops, even on a machine with one core: a loop
		// occupies a processor while it waits for the next message.
		runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), cfg.Loops+1))

		// The data of sessions is small and long-lived, and there is little garbage: keeping
		// the heap close to the live data costs hardly any time.
		if os.Getenv("GOGC") == "" {
			debug.SetGCPercent(gcPercent)
		}

		ctx, end := followMemory(cmd.Context())
		defer end()
		return lbproxy.Serve(ctx, cfg, newLog(lossyPipe(cmd.ErrOrStderr()), level, format))
	}

	cmd.AddCommand(l.statusCommand(), l.newVerb("drain",
		"Give a master no new minions and move its old ones slowly", (*lbproxy.Client).Drain),
		l.newVerb("undrain", "Use a master again: ends drain and maint", (*lbproxy.Client).Undrain),
		l.newVerb("maint", "Give a master no new minions and check it no more; those it has stay (see cut)",
			(*lbproxy.Client).Maint), l.cutCommand(), l.weightCommand())

	return cmd
}

// followMemory keeps the runtime within the memory limit of the process until ctx ends or end is
// called. end waits until the goroutine of followMemory has ended.
func followMemory(ctx context.Context) (followed context.Context, end func()) {
	ctx, stop := context.WithCancel(ctx)
	var keeper sync.WaitGroup
	memlimit.Apply(memlimit.Most)
	keeper.Go(func() { memlimit.Follow(ctx, memlimit.Most, func() {}) })
	return ctx, func() {
		stop()
		keeper.Wait()
	}
}

func (l *lbFlags) client() *lbproxy.Client {
	if l.admin != "" {
		return lbproxy.NewClient(l.admin)
	}
	s, err := settings.Load(l.config, hostname())
	if err != nil {
		d := settings.Default(hostname())
		s = &d
	}
	return lbproxy.NewClient(s.LBSocket())
}

func (l *lbFlags) newVerb(name, short string, act func(*lbproxy.Client, context.Context, string) error) *cobra.Command {
	return &cobra.Command{
		Use:     name + " BACKEND",
		Short:   short,
		Args:    cobra.ExactArgs(1),
		Example: "  applianced lb " + name + " sca-2",
		RunE:    func(cmd *cobra.Command, args []string) error { return act(l.client(), cmd.Context(), args[0]) },
	}
}

func (l *lbFlags) cutCommand() *cobra.Command {
	var frontend string
	cmd := &cobra.Command{
		Use: "cut BACKEND", Short: "Cut the sessions of a master now", Args: cobra.ExactArgs(1),
		Example: "  applianced lb cut sca-2\n  applianced lb cut sca-2 --frontend publish",
	}

	cmd.Flags().StringVar(&frontend, "frontend", "",
		"only the sessions of this frontend, by name: publish or request in an appliance")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		n, err := l.client().Cut(cmd.Context(), args[0], frontend)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d sessions cut\n", n)
		return err
	}

	return cmd
}

func (l *lbFlags) weightCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "weight BACKEND N",
		Short:   "Change a master's share of new sessions (1 to 1000, usually 100)",
		Args:    cobra.ExactArgs(2),
		Example: "  applianced lb weight sca-2 50",
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[1])
			if err != nil {
				return fmt.Errorf("weight %q is not a number", args[1])
			}
			return l.client().Weight(cmd.Context(), args[0], n)
		},
	}
}

func (l *lbFlags) statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show frontends, masters and sessions",
		Args:    cobra.NoArgs,
		Example: "  applianced lb status\n  applianced lb status --json",
		Long: "status exits with 0 when every frontend for minions has a master, 3 when one has none, 1 " +
			"when the load balancer does not answer.",
	}

	return answering[lbproxy.Status]{
		json: "print the whole document for machines",
		ask: func(cmd *cobra.Command, _ []string) (lbproxy.Status, error) {
			return l.client().Status(cmd.Context())
		},
		empty: func(err error) any {
			return map[string]any{
				"version":   1,
				"health":    status.Unasked,
				"frontends": []any{},
				"backends":  []any{},
				"problems":  []string{err.Error()},
			}
		},
		print: func(cmd *cobra.Command, st lbproxy.Status) error {
			return writeBalancer(cmd.OutOrStdout(), st, time.Now())
		},
		code: func(st lbproxy.Status) int {
			for _, f := range st.Frontends {
				if !f.Serving && f.Mode != lbproxy.API {
					return status.ExitNotServing
				}
			}
			return 0
		},
	}.verb(cmd)
}

func writeBalancer(w io.Writer, st lbproxy.Status, now time.Time) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "FRONTEND\tMODE\tLISTENS ON\tSESSIONS\tACCEPTED\tSERVING")
	for _, f := range st.Frontends {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%d\t%v\n", f.Name, f.Mode, strings.Join(f.Listen, " "), f.Sessions,
			f.Accepted, f.Serving)
	}

	heading := "\t\t\t\t\t\nLIMITED SOURCE\tFRONTEND\tSESSIONS\tREFUSED\tLAST\t\n"
	for _, f := range st.Frontends {
		for _, l := range f.Limited {
			fmt.Fprintf(tw, "%s%s\t%s\t%d\t%d\t%s ago\t\n", heading, l.Source, f.Name, l.Sessions, l.Refused,
				status.Age(now.Sub(l.Last)))
			heading = ""
		}
	}

	fmt.Fprintln(tw, "\t\t\t\t\t")
	fmt.Fprintln(tw, "BACKEND\tFRONTEND\tADDRESS\tSTATE\tSESSIONS\tWEIGHT\tNOTE")
	for _, b := range st.Backends {
		for _, p := range b.Ports {
			note := ""
			switch {
			case b.Removing:
				note = "being removed"
			case b.Maint:
				note = "maintenance"
			case b.Drain:
				note = "draining"
			}

			if p.State != lbproxy.Up && p.LastError != "" {
				note = strings.TrimPrefix(note+"; "+printable.Clean(p.LastError), "; ")
			}

			fmt.Fprintf(tw, "%s\t%s\t%s\t%s %s\t%d\t%d\t%s\n", b.Name, p.Frontend, p.Address, p.State,
				status.Age(now.Sub(p.Since)), p.Sessions, b.Weight, note)
		}
	}

	return tw.Flush()
}
