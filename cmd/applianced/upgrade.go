package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/syslog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"saltern/image/bundle"
	"saltern/supervisor/api"
	"saltern/supervisor/status"
	"saltern/supervisor/upgrade"
)

// After a restart the new version is confirmed when the node has been well for confirmSteady.
// confirmLook is the interval of the checks.
const (
	confirmLook   = 5 * time.Second
	confirmSteady = 2 * time.Minute
	confirmLimit  = 10 * time.Minute
)

func upgradeCommand(f *flags) *cobra.Command {
	var all bool
	var sys upgrade.System
	u := upgradeAll{askEvery: time.Second}
	r := newRestart()
	one := upgradeOne{sys: &sys, restart: r}
	cmd := &cobra.Command{
		Use:   "upgrade FILE|URL",
		Short: "Put a new version of the whole system on this machine",
		Long: `upgrade writes a signed version into the half of the disk that does not run, and
has it tried at the next boot. If the node is not well with it for two minutes
within ten, or the machine does not boot, the version before comes back by
itself. Keys, data and settings stay.

With --reboot the machine restarts as "applianced reboot" does: when no other node
of the cluster is away or restarts, and after its minions have moved. With --wait
that may be called on all nodes at once; they are upgraded one after another, each
after the one before serves with its new version. A node that is not well is not
upgraded, unless --force says so.

With --all every machine of the cluster takes the version from FILE: each checks the
signature and writes it, then one after another restarts, this one last; the next one
is not before the one before serves with the new version and its copy of the data is
whole. It stops at the first that does not, says where each node stands, and goes on
when it is run again. It goes on without this terminal, and asks first, unless --yes
is given. Exit codes: 0 all nodes have the version, or this one restarts as the last,
1 not.

A version older than the one that runs is refused, although its signature is
good: --allow-downgrade takes it, and the system's log says so. It is not fetched
over http:// unless --allow-http is given: the signature shows that nobody changed
it, not that it is the newest, and whoever sits on the way could keep old ones
coming.`,
		Example: `  applianced upgrade saltern-cloud.upgrade --reboot
  applianced upgrade https://example.net/saltern-cloud.upgrade --reboot --wait 2h
  applianced upgrade --all saltern-cloud.upgrade
  applianced upgrade --all --dry-run saltern-cloud.upgrade
  applianced upgrade check
  applianced upgrade status
  applianced upgrade back`,
		Args: cobra.ExactArgs(1),
	}

	cmd.Flags().BoolVar(&one.reboot, "reboot", false, "boot the new version at once")
	cmd.Flags().BoolVar(&one.force, "force", false, "even if the node or its cluster is not well")
	cmd.Flags().BoolVar(&one.older, "allow-downgrade", false, "also a version older than the one that runs")
	cmd.Flags().BoolVar(&one.plain, "allow-http", false, "also from an address without encryption")
	cmd.Flags().BoolVar(&all, "all", false, "all machines of the cluster, one after another")
	cmd.Flags().BoolVar(&u.dry, "dry-run", false, "with --all: say what would be done, no more")
	cmd.Flags().BoolVar(&u.yes, "yes", false, "with --all: do not ask (needed where there is no terminal)")
	cmd.Flags().BoolVar(&u.asJSON, "json", false, "with --all: print the result (schema 1) for machines")
	r.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if all {
			for _, alone := range []string{"reboot", "force", "allow-downgrade", "allow-http", "wait", "drain"} {
				if cmd.Flags().Changed(alone) {
					return misused("upgrade: --%s is not for --all: the nodes restart in their turn, and a "+
						"node that should be left out or forced is upgraded on itself",
						alone)
				}
			}

			u.path = args[0]
			return u.upgradeNodes(cmd, f.client())
		}

		if u.dry || u.yes || u.asJSON {
			return misused("upgrade: --dry-run, --yes and --json are for --all")
		}

		return one.upgradeNode(cmd, args[0], f.client())
	}

	cmd.AddCommand(upgradeStatusCommand(&sys), upgradeCheckCommand(f, &sys), upgradeBackCommand(&sys),
		upgradeConfirmCommand(f, &sys))
	return cmd
}

// upgradeOne installs a version on this machine alone.
type upgradeOne struct {
	reboot, force, older, plain bool

	sys     *upgrade.System
	restart *restartTurn
}

func (o *upgradeOne) upgradeNode(cmd *cobra.Command, from string, c *api.Client) error {
	if _, err := o.sys.Status(); err != nil {
		return err
	}

	if !o.force {
		if err := mayUpgrade(cmd.Context(), c); err != nil {
			return err
		}
	}

	keys, err := bundle.Keys(upgrade.KeyDirs()...)
	if err != nil {
		return err
	}

	in, err := openVersion(cmd.Context(), from, o.plain)
	if err != nil {
		return err
	}
	defer in.Close()

	o.sys.Older = o.older
	before, err := o.sys.Status()
	if err != nil {
		return err
	}

	m, err := o.sys.Install(cmd.Context(), in, keys, func(s string) { fmt.Fprintln(cmd.OutOrStdout(), s) })
	if err != nil {
		return err
	}

	if o.older {
		sysLog(fmt.Sprintf("upgrade: version %s, built %s, was installed with --allow-downgrade by uid %s; "+
			"version %s ran",
			m.Version, m.Created.UTC().Format(time.RFC3339),
			cmp.Or(os.Getenv("SUDO_UID"), fmt.Sprint(os.Getuid())), before.Version))
	}

	if o.reboot {
		fmt.Fprintf(cmd.OutOrStdout(), "version %s is tried at the next boot\n", m.Version)
		o.restart.out, o.restart.force = cmd.OutOrStdout(), o.force
		return o.restart.restartNode(cmd.Context(), c)
	}

	_, err = fmt.Fprintf(cmd.OutOrStdout(),
		"version %s is tried at the next boot; to boot: applianced reboot\n", m.Version)
	return err
}

// mayUpgrade returns an error while this node is not well. It does not check whether the cluster
// can spare the node: that matters only before the restart, because writing the new version
// disturbs nobody.
func mayUpgrade(ctx context.Context, c *api.Client) error {
	ctx, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	doc, err := c.Status(ctx)
	if err != nil {
		return fmt.Errorf("upgrade: how the node is cannot be told: %w (--force upgrades all the same)", err)
	}
	if doc.Exit != status.ExitHealthy && doc.Exit != status.ExitDegraded && doc.Exit != status.ExitUnconfigured {
		return fmt.Errorf("upgrade: this node is %s; fix it first, see applianced status (--force upgrades "+
			"all the same)",
			doc.Health)
	}
	return nil
}

// sysLog writes a line to the system's authorisation log. If there is no such log, it does nothing.
func sysLog(line string) {
	w, err := syslog.New(syslog.LOG_AUTHPRIV|syslog.LOG_NOTICE, "applianced")
	if err != nil {
		return
	}
	_ = w.Notice(line)
	_ = w.Close()
}

// openVersion opens a file or a URL for reading. Unless plain is set, it refuses unencrypted URLs,
// and redirections to them.
func openVersion(ctx context.Context, from string, plain bool) (io.ReadCloser, error) {
	if !strings.HasPrefix(from, "http://") && !strings.HasPrefix(from, "https://") {
		f, err := os.Open(from)
		if err != nil {
			return nil, fmt.Errorf("upgrade: %w", err)
		}
		return f, nil
	}
	return upgrade.Fetch(ctx, from, plain)
}

func upgradeStatusCommand(sys *upgrade.System) *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "Show the versions on this machine",
		Args:    cobra.NoArgs,
		Example: "  applianced upgrade status",
		RunE: func(cmd *cobra.Command, _ []string) error {
			st, err := sys.Status()
			if err != nil {
				return err
			}

			for _, slot := range []string{"a", "b"} {
				v := st.Versions[slot]
				v = cmp.Or(v, "empty")
				var notes []string
				if slot == st.Running {
					notes = append(notes, "running")
				}

				if slot == st.Good {
					notes = append(notes, "known to be good")
				}

				if slot == st.Running && st.Trying {
					notes = append(notes, "on trial")
				}

				if slot == st.Next && slot != st.Running {
					notes = append(notes, "tried at the next boot")
				}

				if slot == st.GaveUp {
					notes = append(notes,
						"tried from "+st.GaveUpAt.UTC().Format("2006-01-02 15:04 UTC")+
							" on, left by itself: not well in ten minutes, or it did not boot")
				}

				fmt.Fprintf(cmd.OutOrStdout(), "slot %s  %-20s %s\n", slot, v, strings.Join(notes, ", "))
			}

			return tellKeys(cmd.OutOrStdout(), upgrade.KeyDirs())
		},
	}
}

// tellKeys prints a warning if no key is trusted, so that no upgrade can be accepted.
func tellKeys(w io.Writer, dirs []string) error {
	keys, err := bundle.Keys(dirs...)
	if err == nil && len(keys) == 0 {
		_, err = fmt.Fprintf(w,
			"no key is trusted: this machine accepts no upgrade until the public key of who builds them is "+
				"put into %s/NAME.pem\n",
			dirs[len(dirs)-1])
	}
	return err
}

func upgradeBackCommand(sys *upgrade.System) *cobra.Command {
	return &cobra.Command{
		Use:     "back",
		Short:   "Boot the version before from now on",
		Args:    cobra.NoArgs,
		Example: "  applianced upgrade back && applianced reboot",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := sys.Back(); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(),
				"the version before is booted from now on; to boot: systemctl reboot")
			return err
		},
	}
}

// wellWithVersion reports whether the node itself works with the version that it runs. The masters
// of other nodes do not count.
func wellWithVersion(d status.Document) bool {
	return d.ServesItself() || d.Exit == status.ExitUnconfigured
}

func upgradeConfirmCommand(f *flags, sys *upgrade.System) *cobra.Command {
	var now bool
	cmd := &cobra.Command{
		Use:     "confirm",
		Short:   "Mark the running version good once the node is well, else go back",
		Args:    cobra.NoArgs,
		Example: "  applianced upgrade confirm --now",
		Long: `confirm is what the machine runs by itself after it has booted a new version. The
node must be healthy, or degraded but serving by its own master and with its
shared volume mounted, for two minutes without a break; a node that has not been
set up must answer. After ten minutes the machine is
rebooted, and the boot loader takes the version before when the tries are used
up.`,
	}

	cmd.Flags().BoolVar(&now, "now", false, "do not wait: this version is good")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if now {
			return sys.Good()
		}

		c := api.NewClient(f.apiSocket())
		err := sys.Confirm(cmd.Context(), func(ctx context.Context) bool {
			ctx, stop := context.WithTimeout(ctx, 10*time.Second)
			defer stop()
			doc, err := c.Status(ctx)
			return err == nil && wellWithVersion(doc)
		}, confirmLook, confirmSteady, confirmLimit)
		if errors.Is(err, upgrade.ErrNotWell) {
			fmt.Fprintln(cmd.ErrOrStderr(), err)
			return systemctl("reboot")
		}

		return err
	}

	return cmd
}
