package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"saltern/supervisor/api"
	"saltern/supervisor/settings"
	"saltern/tui"
)

func consoleCommand(f *flags) *cobra.Command {
	var before bool
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Show the console page: status and a menu",
		Long: `console shows how this node is, again and again, with a menu by number: status
details, logs, network, support bundle, restart, shut down, log in, add an SSH key,
the administrator's password, lines for minions, keys of minions, the join string.

It stands on the consoles of an appliance that is set up, before anybody has
logged in. Whoever stands there can restart and shut down the machine, as he
could with its power switch; what needs the shell asks for a login, and SSH keys,
keys of minions, the join string and another password for the administrator's password. With
console.login in appliance.yaml the page there only shows, and any change wants a
login first: then sudo applianced console.`,
		Example: "  applianced console",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			term := terminal()
			c := tui.NewConsole(cmd.Context(), api.NewClient(f.apiSocket()), func(ctx context.Context) (string, error) {
				return f.writeBundle(ctx, "")
			})
			if before {
				c.BeforeLogin()
				// If the settings cannot be read, require a log-in, too.
				if s, err := settings.Load(f.config, hostname()); err != nil || s.Console.Login {
					c.Lock()
				}
			}

			if a := newAccess(before); a != nil {
				c.Offer(a)
			}

			if err := onTerminal(cmd.Context(), term, c); err != nil {
				return err
			}

			return f.carryOut(c.Action(), term)
		},
	}

	cmd.Flags().BoolVar(&before, "before-login", false, "whoever uses the page has not logged in")
	return cmd
}

// emptyScreen clears the screen and moves the cursor to its top. A Linux console has no second
// screen for the page: without emptyScreen, later output would be written across the page.
const emptyScreen = "\x1b[H\x1b[2J"

// carryOut carries out the action that ended the page.
func (f *flags) carryOut(a tui.Action, term tui.Terminal) error {
	if a != tui.Leave {
		fmt.Fprint(term.Out, emptyScreen)
	}

	switch a {
	case tui.Reboot:
		return systemctl("reboot")
	case tui.PowerOff:
		return systemctl("poweroff")
	case tui.Login:
		if strings.HasPrefix(term.Name(), "pts/") {
			return nil // return to the shell that started the page
		}

		login, err := exec.LookPath("login")
		if err != nil {
			return fmt.Errorf("log in: %w", err)
		}

		fmt.Fprintln(term.Out, "After the log-in, exit leads back to the console page.")
		return syscall.Exec(login, []string{filepath.Base(login)}, os.Environ())
	}

	return nil
}

func systemctl(verb string) error {
	cmd := exec.Command("systemctl", verb)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("systemctl %s: %w", verb, err)
	}
	return nil
}
