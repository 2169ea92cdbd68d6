package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"saltern/image/bundle"
	"saltern/internal/printable"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
	"saltern/supervisor/upgrade"
)

// offer is the JSON output of the command "applianced upgrade check".
type offer struct {
	Address string    `json:"address"`
	Version string    `json:"version"`
	Created time.Time `json:"created"`
	Runs    string    `json:"runs"`
	Newer   bool      `json:"newer"`
	// Installs is the earliest time at which the upgrade window installs the version by itself. It
	// may be nil: never.
	Installs *time.Time `json:"installs,omitempty"`
}

// installs returns the earliest time at which an upgrade window installs a version built at
// created. The time may be nil: never.
func installs(u settings.Upgrade, created, now time.Time) *time.Time {
	w, err := u.Opens()
	if err != nil {
		return nil
	}
	at := now
	if old := created.Add(u.Delay); old.After(at) {
		at = old
	}
	if open, opens := w.At(at); !open {
		at = opens
	}
	at = at.UTC()
	return &at
}

func upgradeCheckCommand(f *flags, sys *upgrade.System) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "check [URL]",
		Short: "Ask whether there is a newer version of the system",
		Args:  cobra.MaximumNArgs(1),
		Long: `check reads the beginning of the upgrade at URL, or at upgrade.url of
appliance.yaml, proves its signature with the keys that this machine trusts, and says
whether it is newer than what runs. Nothing is installed; where upgrade.window is set,
it says when that will be.

Exit codes: 0 what runs is the newest, 2 there is a newer version, 1 cannot tell.`,
		Example: `  applianced upgrade check
  applianced upgrade check https://files.example.net/saltern-{flavour}.upgrade`,
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "print the answer for machines")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := settings.Load(f.config, hostname())
		if err != nil && len(args) == 0 {
			return err
		}

		address := ""
		switch {
		case len(args) > 0:
			address = args[0]
		case s.Upgrade.URL != "":
			address = s.Upgrade.URL
		default:
			return errors.New("upgrade: nowhere to ask: give an address, or set upgrade.url in appliance.yaml")
		}

		st, err := sys.Status()
		if err != nil {
			return err
		}

		keys, err := bundle.Keys(upgrade.KeyDirs()...)
		if err != nil {
			return err
		}

		m, err := st.Offered(cmd.Context(), address, keys)
		if err != nil {
			return err
		}

		o := offer{
			Address: address,
			Version: m.Version,
			Created: m.Created,
			Runs:    st.Version,
			Newer:   st.Newer(m),
		}
		if o.Newer && len(args) == 0 {
			o.Installs = installs(s.Upgrade, m.Created, time.Now())
		}

		built := m.Created.UTC().Format("2006-01-02")
		switch {
		case asJSON:
			err = writeJSON(cmd.OutOrStdout(), o)
		case o.Newer:
			next := "fetch it, then: applianced upgrade --all FILE"
			if o.Installs != nil {
				next = "it is installed by itself in the window (" + s.Upgrade.Window +
					" UTC), not before " + o.Installs.Format("2006-01-02 15:04 UTC") + "; at once: " + next
			}

			_, err = fmt.Fprintf(cmd.OutOrStdout(),
				"version %s, built %s, is there; %s runs here\nnext: %s\n", m.Version, built,
				printable.Clean(st.Version), next)
		default:
			_, err = fmt.Fprintf(cmd.OutOrStdout(),
				"there is nothing newer than %s, which runs here: %s was built %s\n",
				printable.Clean(st.Version), m.Version, built)
		}

		if err == nil && o.Newer {
			err = exitError(status.ExitDegraded)
		}

		return err
	}

	return cmd
}
