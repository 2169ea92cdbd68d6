package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"saltern/cmd/internal/tty"
	"saltern/internal/printable"
	"saltern/supervisor/setup"
)

// adminCommand returns the command admin, with its verbs for the administrators' account.
func adminCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "admin",
		Short:   "The account that administrators log in as",
		Args:    cobra.NoArgs,
		Example: "  applianced admin add-key < id_ed25519.pub",
	}

	var from string
	add := &cobra.Command{
		Use:   "add-key",
		Short: "Let SSH keys log in as admin",
		Args:  cobra.NoArgs,
		Long: `add-key adds public keys to those that may log in over SSH as admin. It reads them
from the standard input, one in a line, or fetches them from an address, where a
key cannot be pasted. Keys that are there already change nothing. It needs root.`,
		Example: `  applianced admin add-key < id_ed25519.pub
  applianced admin add-key --from https://git.example/jane.keys`,
	}

	add.Flags().StringVar(&from, "from", "", "fetch the keys from this https address")
	add.RunE = func(cmd *cobra.Command, _ []string) error {
		if os.Geteuid() != 0 {
			return misused("admin add-key: it needs root: sudo applianced admin add-key")
		}

		in := cmd.InOrStdin()
		if from != "" {
			body, err := fetchKeys(cmd.Context(), from)
			if err != nil {
				return err
			}
			defer body.Close()
			in = body
		} else if tty.Is(cmd.OutOrStdout()) {
			fmt.Fprintln(cmd.ErrOrStderr(), "public keys, one in a line; Ctrl-D ends:")
		}

		keys, err := setup.ReadKeys(in)
		if err != nil {
			return err
		}

		if err := setup.Accounts(cmd.Context(), setup.Admin{SSHKeys: keys}); err != nil {
			return err
		}

		return sayKeys(cmd.OutOrStdout(), keys)
	}

	cmd.AddCommand(add)
	return cmd
}

// sayKeys prints the keys with their fingerprints, which the user can compare with ssh-keygen -l.
func sayKeys(w io.Writer, keys []string) error {
	text := fmt.Sprintf("%d keys may log in as %s:\n", len(keys), setup.AdminAccount)
	for _, line := range keys {
		k, err := setup.ParseSSHKey(line)
		if err != nil {
			return err
		}
		text += fmt.Sprintf("  %s %s %s\n", k.Fingerprint, k.Type, printable.Line(k.Comment))
	}
	_, err := io.WriteString(w, text)
	return err
}

func fetchKeys(ctx context.Context, from string) (io.ReadCloser, error) {
	if !strings.HasPrefix(from, "https://") {
		return nil, misused("admin add-key: --from wants an https address: whoever can change the answer could log in")
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, fmt.Errorf("fetch keys: %w", err)
	}

	client := http.Client{Timeout: 30 * time.Second, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if r.URL.Scheme != "https" || len(via) > 5 {
			return http.ErrUseLastResponse
		}
		return nil
	}}

	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("fetch keys: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("fetch keys from %s: the answer is %s", from, resp.Status)
	}

	return resp.Body, nil
}
