package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"saltern/supervisor/setup"
	"saltern/supervisor/status"
)

// minionConfig is the output of minion-config for programs.
type minionConfig struct {
	Masters     []string `json:"masters"`
	Finger      string   `json:"masterFinger,omitempty"` // "" if this node does not know the fingerprint
	PublishPort int      `json:"publishPort"`
	RequestPort int      `json:"requestPort"`
	Text        string   `json:"text"` // lines for the minion's configuration file
}

func minionConfigCommand(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "minion-config",
		Short: "Print the lines with which a minion finds this cluster",
		Args:  cobra.NoArgs,
		Long: `minion-config prints the addresses of the masters, the fingerprint of their key,
and the ports when they are not Salt's usual ones, as lines for a minion's
/etc/salt/minion.d/master.conf. Nothing of it is secret.`,
		Example: `  applianced minion-config
  applianced minion-config --json | jq -r .masterFinger`,
	}

	return answering[minionConfig]{
		json: "print it for machines",
		ask: func(cmd *cobra.Command, _ []string) (conf minionConfig, err error) {
			c := f.client()
			doc, err := c.Status(cmd.Context())
			if err != nil {
				return conf, err
			}

			progress, err := c.SetupProgress(cmd.Context())
			if err != nil {
				return conf, err
			}

			return configOfMinions(doc, progress.Done)
		},
		print: func(cmd *cobra.Command, conf minionConfig) error {
			if conf.Finger == "" {
				fmt.Fprintln(cmd.ErrOrStderr(),
					"the fingerprint of the masters' key is not known here: a minion trusts the first master "+
						"that it meets (sudo salt-key -F master prints it)")
			}

			_, err := io.WriteString(cmd.OutOrStdout(), conf.Text)
			return err
		},
	}.verb(cmd)
}

// configOfMinions returns the values of the set-up, or the values of the status if the node was
// configured by hand: then setUp is nil.
func configOfMinions(d status.Document, setUp *setup.Done) (minionConfig, error) {
	out := minionConfig{Masters: d.Front.Addresses, PublishPort: d.Front.PublishPort, RequestPort: d.Front.RequestPort}
	switch {
	case d.Arbiter() || setUp != nil && setUp.Arbiter:
		return out, errors.New("this node is the cluster's arbiter and serves no minions: ask another node")
	case setUp != nil:
		out.Masters, out.Finger = setUp.Addresses, setUp.Finger
	case d.Virtual != nil:
		out.Masters = []string{d.Virtual.Address}
	}

	if len(out.Masters) == 0 {
		return out, errors.New("the addresses for minions are not known yet: applianced status says how far " +
			"this node is")
	}

	out.Text = setup.MinionConf(out.Masters, out.Finger,
		setup.Ports{Publish: out.PublishPort, Request: out.RequestPort})
	return out, nil
}
