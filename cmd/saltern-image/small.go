package main

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"saltern/image/bundle"
	"saltern/image/tree"
)

func treeCommand() *cobra.Command {
	var c common
	cmd := &cobra.Command{
		Use: "tree", Short: "Make the root directory only, for containers and tests", Args: cobra.NoArgs,
		Long: "tree makes WORK/tree, without a kernel, and prints its path. systemd-nspawn boots it.",
	}

	c.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if c.o.Work == "" {
			return errors.New("tree: say where: --work FOLDER")
		}

		o, cleanUp, err := c.options(cmd)
		defer cleanUp()
		if err != nil {
			return err
		}

		o.NoKernels = true
		if o, err = c.withTime(cmd, o); err != nil {
			return err
		}

		dir, err := tree.Build(cmd.Context(), o)
		if err == nil {
			fmt.Fprintln(cmd.OutOrStdout(), dir)
		}

		return err
	}

	return cmd
}

func keygenCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "keygen FILE",
		Short: "Make a key that signs new versions",
		Args:  cobra.ExactArgs(1),
		Long: `keygen writes a private key to FILE (mode 0600) and the public half to FILE.pub.
Images built with --sign FILE trust it; other nodes do when the public half lies
in /etc/saltern/upgrade-keys/NAME.pem.`,
		RunE: func(_ *cobra.Command, args []string) error {
			private, public, err := bundle.GenerateKey()
			if err != nil {
				return err
			}

			f, err := os.OpenFile(args[0], os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			if err != nil {
				return fmt.Errorf("keygen: %w", err)
			}

			_, err = f.Write(private)
			return errors.Join(err, f.Sync(), f.Close(), os.WriteFile(args[0]+".pub", public, 0o644))
		},
	}
}

// trusted reads the private key in a file and returns its public half as tree.Options.Keys.
func trusted(path string) (map[string][]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	key, err := bundle.PrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public().(ed25519.PublicKey))
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return map[string][]byte{"release.pem": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})}, nil
}
