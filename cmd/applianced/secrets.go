package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"saltern/cmd/internal/tty"
	"saltern/internal/printable"
	"saltern/supervisor/layout"
	"saltern/supervisor/secrets"
	"saltern/supervisor/settings"
)

func secretsCommand(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "secrets", Short: "Secrets in pillars: the keys that open them, and new ones",
		Long: `secrets keeps the keys of gpg with which the masters of all nodes open what is
encrypted in pillars (#!yaml|gpg, decrypt_pillar), and encrypts new values.

What a master can open, whoever has its disks or a backup can open too. It keeps
secrets out of git and from who reads states, not from an administrator of a node.`,
		Example: "  applianced secrets list",
	}
	cmd.AddCommand(secretsImport(f), secretsList(f), secretsPublic(f), secretsEncrypt(f), secretsRemove(f))
	return cmd
}

// keyring returns the place of the cluster's keys.
func (f *flags) keyring() (secrets.Place, error) {
	s, err := f.storage()
	if err != nil {
		return secrets.Place{}, err
	}
	master, err := layout.FindAccount(s.Users.Master)
	return secrets.Place{
		Shared: s.SharedGPGDir(),
		Node:   s.GPGDir(),
		Run:    s.RuntimeDir,
		UID:    master.UID,
		GID:    master.GID,
	}, err
}

// storage reads the node's settings, and checks that the node's shared storage is there.
func (f *flags) storage() (*settings.Settings, error) {
	s, err := settings.Load(f.config, hostname())
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Dir(s.SharedGPGDir())); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the shared storage is not there (%s); next: applianced status", s.StorageDir())
	}
	return s, nil
}

func secretsImport(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Give the masters of all nodes a private key",
		Args:  cobra.ExactArgs(1),
		Long: `import takes a private key that gpg has exported, in armour or not, from a file or
with - from standard input, into the keyring of the cluster: etc/gpgkeys on the
shared storage. All nodes have it within 30 seconds; nothing is restarted. The key
must have no passphrase, since nobody is there to enter it.

Keep the key elsewhere too: what is encrypted with it is lost with it. It is in the
backups of the cluster.`,
		Example: `  applianced secrets import key.asc && shred -u key.asc
  applianced secrets import - < key.gpg`,
	}

	return answering[[]secrets.Key]{
		json: "print the keys for machines",
		ask: func(cmd *cobra.Command, args []string) ([]secrets.Key, error) {
			p, err := f.keyring()
			if err != nil {
				return nil, err
			}

			in := cmd.InOrStdin()
			if args[0] != "-" {
				file, err := os.Open(args[0])
				if err != nil {
					return nil, fmt.Errorf("import: %w", err)
				}
				defer file.Close()
				in = file
			}

			text, err := readAtMost(in, secrets.MaxKey)
			if err != nil {
				return nil, fmt.Errorf("import: %w", err)
			}

			return p.Import(cmd.Context(), text)
		},
		print: func(cmd *cobra.Command, keys []secrets.Key) error {
			for _, k := range keys {
				fmt.Fprintf(cmd.OutOrStdout(), "%s  %s\n", k.Fingerprint, wordUsers(k))
				if k.State != secrets.Ready {
					fmt.Fprintf(cmd.ErrOrStderr(),
						"the key opens what was encrypted before, but nothing new: %s\n", k.State)
				}
			}

			fmt.Fprintln(cmd.OutOrStdout(), "All nodes have it within 30 seconds; next: applianced secrets encrypt")
			return nil
		},
	}.verb(cmd)
}

func secretsList(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the keys that open secrets in pillars",
		Args:  cobra.NoArgs,
		Long: `list shows the keys of the cluster, whether new values can be encrypted with each
(ready), and whether this node's master has it (HERE).`,
		Example: "  applianced secrets list\n  applianced secrets list --json | jq -r '.[].fingerprint'",
	}

	return answering[[]secrets.Key]{
		json: "print the list for machines",
		ask: func(cmd *cobra.Command, _ []string) ([]secrets.Key, error) {
			p, err := f.keyring()
			if err != nil {
				return nil, err
			}

			return p.List(cmd.Context())
		},
		document: func(keys []secrets.Key) any { return append([]secrets.Key{}, keys...) },
		print:    printSecretKeys,
	}.verb(cmd)
}

func printSecretKeys(cmd *cobra.Command, keys []secrets.Key) error {
	if len(keys) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "there is no key yet; see: applianced secrets import --help")
		return nil
	}

	tw := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "FINGERPRINT\tSTATE\tEXPIRES\tHERE\tUSER")
	for _, k := range keys {
		expires, here := "never", "no"
		if k.Expires != nil {
			expires = k.Expires.Format("2006-01-02")
		}

		if k.Here {
			here = "yes"
		}

		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", k.Fingerprint, k.State, expires, here, wordUsers(k))
	}

	return tw.Flush()
}

func wordUsers(k secrets.Key) string { return printable.Clean(strings.Join(k.Users, ", ")) }

func secretsPublic(f *flags) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "public [KEY]",
		Short:             "Print the public key, for who encrypts elsewhere",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: f.secretKeys,
		Long: `public prints a public key in armour: with it anybody encrypts for your pillars,
and nobody opens anything. KEY is the end of its fingerprint, at least 8 characters,
or a part of its user; it may be left out when there is one.`,
		Example: "  applianced secrets public > salt.asc        # and elsewhere: gpg --import salt.asc",
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "print it for machines")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := f.keyring()
		if err != nil {
			return err
		}

		k, text, err := p.Public(cmd.Context(), strings.Join(args, ""))
		if err != nil {
			return wordWhichKey(err)
		}
		if asJSON {
			return writeJSON(cmd.OutOrStdout(), map[string]string{"fingerprint": k.Fingerprint, "public": text})
		}

		_, err = io.WriteString(cmd.OutOrStdout(), text)
		return err
	}

	return cmd
}

func secretsEncrypt(f *flags) *cobra.Command {
	var key, name string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "encrypt",
		Short: "Encrypt a value for a pillar",
		Args:  cobra.NoArgs,
		Long: `encrypt asks for a value, or reads it from standard input, and prints what goes
into an SLS that begins with #!yaml|gpg. Line ends at the end of a value are lost
when it is opened.`,
		Example: `  applianced secrets encrypt --name db_password
  applianced secrets encrypt --name db_password < password.txt >> db.sls
  applianced secrets encrypt --key salt@example.com < id_ed25519`,
	}

	cmd.Flags().StringVar(&key, "key", "",
		"the key: the end of its fingerprint, or a part of its user; needed when there are several")
	cmd.Flags().StringVar(&name, "name", "secret", "the name of the value in the pillar")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the message for machines")
	_ = cmd.RegisterFlagCompletionFunc("key", f.secretKeys)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p, err := f.keyring()
		if err != nil {
			return err
		}

		var value string
		if tty.Is(cmd.InOrStdin()) {
			value, err = askSecret(cmd.Context(), "Value: ")
		} else {
			value, err = readAtMost(cmd.InOrStdin(), secrets.MaxSecret)
		}

		if err != nil {
			return fmt.Errorf("encrypt: %w", err)
		}
		if value == "" {
			return misused("encrypt: there is no value; enter one, or give it on standard input")
		}

		k, message, err := p.Encrypt(cmd.Context(), key, value)
		if err != nil {
			return wordWhichKey(err)
		}
		if asJSON {
			return writeJSON(cmd.OutOrStdout(), map[string]string{"fingerprint": k.Fingerprint, "message": message})
		}

		text, err := yaml.Marshal(map[string]string{name: message})
		if err == nil {
			_, err = cmd.OutOrStdout().Write(text)
		}

		return err
	}

	return cmd
}

func secretsRemove(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "remove KEY",
		Short:             "Take a key from the masters of all nodes",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.secretKeys,
		Long: `remove takes a key out of the keyring of the cluster, and within 30 seconds from all
nodes. What is encrypted with it is not opened any more, but for what a master still
remembers (gpg_cache_ttl, a day); applianced restart master ends that too.`,
		Example: "  applianced secrets remove old@example.com",
	}

	yes := yesFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := f.keyring()
		if err != nil {
			return err
		}

		if err := confirm(cmd, *yes,
			"What is encrypted with the key "+printable.Clean(args[0])+" is lost unless you have a copy of the key.",
			"remove"); err != nil {
			return err
		}

		k, err := p.Remove(cmd.Context(), args[0])
		if err != nil {
			return wordWhichKey(err)
		}

		fmt.Fprintf(cmd.OutOrStdout(), "%s  %s is removed\n", k.Fingerprint, wordUsers(k))
		return nil
	}

	return cmd
}

// wordWhichKey adds a hint to an error about an ambiguous key.
func wordWhichKey(err error) error {
	if errors.Is(err, secrets.ErrWhich) {
		return misused("%w; see: applianced secrets list", err)
	}
	return err
}

// readAtMost reads all of in. If in has more than maxBytes bytes, it returns an error.
func readAtMost(in io.Reader, maxBytes int) (string, error) {
	b, err := io.ReadAll(io.LimitReader(in, int64(maxBytes)+1))
	if err == nil && len(b) > maxBytes {
		err = fmt.Errorf("more than %d KiB", maxBytes>>10)
	}
	return string(b), err
}

// secretKeys completes fingerprints of keys.
func (f *flags) secretKeys(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var out []cobra.Completion
	if p, err := f.keyring(); err == nil && len(args) == 0 {
		keys, _ := p.List(cmd.Context())
		for _, k := range keys {
			out = append(out, cobra.CompletionWithDesc(k.Fingerprint, wordUsers(k)))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
