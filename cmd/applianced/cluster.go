package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"saltern/cmd/internal/tty"
	"saltern/internal/pause"
	"saltern/internal/printable"
	"saltern/supervisor/api"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
)

// clusterCommands returns the verbs about the nodes of the cluster.
func clusterCommands(f *flags) []*cobra.Command {
	return []*cobra.Command{nodesCommand(f), joinStringCommand(f), joinCommand(f), leaveCommand(f),
		removeCommand(f), replaceCommand(f),
		drainCommand(f), undrainCommand(f), secretCommand(f), clusterKeyCommand(f), recoverCommand(f), pingCommand(f)}
}

func (f *flags) client() *api.Client { return api.NewClient(f.apiSocket()) }

func nodesCommand(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "nodes",
		Short:   "List the cluster's nodes and how they are",
		Args:    cobra.NoArgs,
		Long:    "nodes exits with 0 when every node is ready, 2 when one is not, 1 when it cannot be told.",
		Example: "  applianced nodes\n  applianced nodes --json | jq -r '.[] | select(.state != \"ready\") | .name'",
	}

	return answering[status.Document]{
		json: "print the list for machines, as in applianced status --json",
		ask: func(cmd *cobra.Command, _ []string) (status.Document, error) {
			return f.client().Status(cmd.Context())
		},
		empty:    func(error) any { return []status.Node{} },
		document: func(d status.Document) any { return d.Nodes },
		print: func(cmd *cobra.Command, d status.Document) error {
			return status.WriteNodes(cmd.OutOrStdout(), d)
		},
		code: func(d status.Document) int {
			return degradedIf(slices.ContainsFunc(d.Nodes, func(n status.Node) bool { return n.State != "ready" }))
		},
	}.verb(cmd)
}

func joinStringCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "join-string",
		Short: "Print the line with which another node joins",
		Args:  cobra.NoArgs,
		Long: `join-string prints one line that holds everything a new node needs: the hash that
proves the cluster to it, the cluster's secret, and where to ask. Whoever has the
line can join: keep it as you keep a password. It changes when a node is removed.`,
		Example: "  applianced join-string",
		RunE: func(cmd *cobra.Command, _ []string) error {
			line, err := f.client().JoinString(cmd.Context())
			if err == nil {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), line)
			}
			return err
		},
	}
}

func joinCommand(f *flags) *cobra.Command {
	var node, address, file string
	var arbiter bool
	cmd := &cobra.Command{
		Use:   "join",
		Short: "Set this machine up as a node of a cluster that exists",
		Args:  cobra.NoArgs,
		Long: `join reads the join string from the standard input (so that it is in no history
and no list of processes), checks this machine and the cluster, and begins. The
same as the set-up with the join string as its only answer.

With --arbiter the machine keeps no data and serves no minions: it decides between
the two copies of a cluster of two nodes on a shared volume, so that either of them
may be lost. A small machine does: 1 GiB of memory, 1 GiB on a file system that is
not the root file system.`,
		Example: "  applianced join < join-string.txt\n" +
			"  applianced join --node sca-4 --address 10.0.0.14   (asks for the join string)\n" +
			"  applianced join --arbiter --node sca-3 < join-string.txt\n" +
			"  applianced join-string | ssh sca-4 sudo applianced join --node sca-4   (on a node of the cluster)",
	}

	cmd.Flags().StringVar(&node, "node", "", "name of this node (default: the host name)")
	cmd.Flags().StringVar(&address, "address", "", "address for other nodes (default: that of the default route)")
	cmd.Flags().BoolVar(&arbiter, "arbiter", false,
		"keep no data and serve nobody: let two nodes go on when one is lost")
	cmd.Flags().StringVar(&file, "file", "", "read the join string from this file")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		in := cmd.InOrStdin()
		if file != "" {
			b, err := os.Open(file)
			if err != nil {
				return err
			}
			defer b.Close()
			in = b
		} else if tty.Is(cmd.OutOrStdout()) {
			fmt.Fprint(cmd.ErrOrStderr(), "join string: ")
		}

		line, err := bufio.NewReader(io.LimitReader(in, 4096)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}

		c := f.client()
		a := setup.Answers{Mode: setup.Join, JoinString: strings.TrimSpace(line), Node: node, Address: address}
		if arbiter {
			a.Storage.Role = setup.RoleArbiter
		}

		if err := c.SetupStart(cmd.Context(), a); err != nil {
			return err
		}

		return followSetup(cmd, c)
	}

	return cmd
}

// followSetup prints each finished step, until the node is ready or the set-up has stopped.
func followSetup(cmd *cobra.Command, c *api.Client) error {
	out := cmd.OutOrStdout()
	printed := map[string]string{}
	began := false
	for {
		p, err := c.SetupProgress(cmd.Context())
		// an unreachable socket is no error: it moves once during the set-up
		if err != nil && !errors.Is(err, api.ErrNotRunning) {
			return err
		}

		for _, s := range p.Steps {
			words := s.State
			if s.Message != "" && s.State != "done" {
				words += ": " + s.Message
			}

			if s.State != "todo" && printed[s.Name] != words {
				printed[s.Name] = words
				fmt.Fprintf(out, "%s: %s\n", s.Name, printable.Clean(words))
			}
		}

		switch {
		case p.Failure != nil:
			for _, h := range p.Failure.Check {
				fmt.Fprintf(out, "check: %s\n", printable.Clean(h))
			}
			return exitError(status.ExitNotServing)
		case err == nil && p.State == status.SetupNew && began:
			return errors.New("somebody has taken the set-up back; next: applianced setup")
		case p.State == status.SetupReady:
			words := "this node serves minions"
			if p.Done != nil && p.Done.Arbiter {
				words = "this node is the cluster's arbiter"
			}
			fmt.Fprintln(out, "ready: "+words)
			return nil
		}

		began = began || err == nil && p.State != status.SetupNew
		if err := pause.For(cmd.Context(), 300*time.Millisecond); err != nil {
			return err
		}
	}
}

func leaveCommand(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "leave",
		Short: "Take this node out of its cluster",
		Args:  cobra.NoArgs,
		Long: `leave moves this node's minions to the others, gives up its copy of the data once
that is not needed any more, and has the other nodes take it out. Afterwards it
serves nobody. The cluster's secret changes. On a terminal it asks first.`,
		Example: "  applianced leave\n  applianced leave --yes",
	}

	yes := yesFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d, err := f.client().Status(cmd.Context())
		if err != nil {
			return err
		}

		if err := confirm(cmd, *yes, leaveEffect(d), printable.Clean(d.Node)); err != nil {
			return err
		}

		if err := f.client().Leave(cmd.Context()); err != nil {
			return err
		}

		_, err = fmt.Fprintln(cmd.OutOrStdout(),
			"this node has left the cluster; applianced reset --yes erases its keys and data, and makes it a new machine")
		return err
	}

	return cmd
}

// leaveEffect returns a text about what happens to a node that leaves, and to the others.
func leaveEffect(d status.Document) string {
	var b strings.Builder
	fmt.Fprintf(&b,
		"%s will leave the cluster %s and serve nobody. It can join again only as a new machine.",
		printable.Clean(d.Node), printable.Clean(d.Cluster))

	if d.Arbiter() {
		b.WriteString(" It is the arbiter: with one of two copies lost the volume stops then, if it is the first one.")
		return b.String()
	}

	for _, n := range d.Nodes {
		if n.Name == d.Node && n.Minions != nil && *n.Minions > 0 {
			fmt.Fprintf(&b, " Its %d minions move to the other nodes.", *n.Minions)
		}
	}

	serving := slices.DeleteFunc(slices.Clone(d.Nodes),
		func(n status.Node) bool { return n.Role == status.RoleArbiter })
	switch len(serving) {
	case 0, 1:
		b.WriteString(" There is no other node: nobody would serve the minions.")
	case 2:
		b.WriteString(" One node is left: its keys and files have no second copy then.")
	}

	return b.String()
}

func removeCommand(f *flags) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:               "remove NODE",
		Short:             "Take a dead node out of the cluster",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.otherNodes,
		Long: `remove refuses NODE for ever: its key opens nothing any more, its master is taken
out, and the cluster's secret changes, so that earlier join strings are void.
A node that still answers is removed with --force only; it stops serving when it
hears of it. On a terminal it asks first.`,
		Example: "  applianced remove sca-3\n  applianced remove sca-3 --yes",
	}

	cmd.Flags().BoolVar(&force, "force", false, "even if it answers")
	yes := yesFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := confirm(cmd, *yes, removeEffect(args[0]), args[0]); err != nil {
			return err
		}

		if err := f.client().Remove(cmd.Context(), args[0], force); err != nil {
			return err
		}

		_, err := fmt.Fprintf(cmd.OutOrStdout(),
			"%s was removed; the cluster's secret has changed: applianced join-string\n", args[0])
		return err
	}

	return cmd
}

func removeEffect(node string) string {
	return printable.Clean(node) + " will be refused for ever under its present key, and the cluster's " +
		"secret changes: earlier join strings are void."
}

func replaceCommand(f *flags) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:               "replace NODE",
		Short:             "Make room for a new machine in a dead node's place",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.otherNodes,
		Long: `replace removes NODE and prints what a new machine of the same name needs. The
new machine may have the old address too, so that minions need no change. On a
terminal it asks first.`,
		Example: "  applianced replace sca-3",
	}

	cmd.Flags().BoolVar(&force, "force", false, "even if it answers")
	yes := yesFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := confirm(cmd, *yes, removeEffect(args[0]), args[0]); err != nil {
			return err
		}

		c := f.client()
		d, err := c.Status(cmd.Context())
		if err != nil {
			return err
		}

		before, err := c.JoinString(cmd.Context())
		if err != nil {
			return err
		}

		if err := c.Remove(cmd.Context(), args[0], force); err != nil {
			return err
		}

		line := before
		for range 40 { // wait up to ten seconds for the new secret
			if line, err = c.JoinString(cmd.Context()); err != nil || !sameSecret(line, before) {
				break
			}
			if err := pause.For(cmd.Context(), 250*time.Millisecond); err != nil {
				return err
			}
		}

		if err != nil {
			return err
		}

		waitLetGo(cmd, c, args[0])
		_, err = fmt.Fprintf(cmd.OutOrStdout(),
			"%s was removed. On the new machine: applianced join%s --node %s\nwith this join string:\n%s\n",
			args[0], roleFlag(d, args[0]), args[0], line)

		return err
	}

	return cmd
}

// roleFlag returns the flag for joining a machine in the place of a node: " --arbiter" or "".
func roleFlag(d status.Document, node string) string {
	if slices.ContainsFunc(d.Nodes,
		func(n status.Node) bool { return n.Name == node && n.Role == status.RoleArbiter }) {
		return " --arbiter"
	}
	return ""
}

// waitLetGo waits until the shared volume, if there is one, no longer uses a removed node. Until
// then the cluster admits no machine with that node's name.
func waitLetGo(cmd *cobra.Command, c *api.Client, node string) {
	announced := false
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); {
		st, err := c.Storage(cmd.Context())
		if err != nil || st.LetGo(node) {
			return // there is no volume, or the volume does not use the node
		}

		if !announced {
			fmt.Fprintln(cmd.ErrOrStderr(), "waiting until the shared volume needs its copy no more")
			announced = true
		}

		if pause.For(cmd.Context(), time.Second) != nil {
			return
		}
	}

	fmt.Fprintf(cmd.ErrOrStderr(),
		"the shared volume has not let %s go yet: a machine of that name can join when applianced storage "+
			"status shows no copy of it\n",
		node)
}

func sameSecret(a, b string) bool {
	x, err1 := setup.ParseJoin(a)
	y, err2 := setup.ParseJoin(b)
	return err1 == nil && err2 == nil && x.Secret == y.Secret
}

func drainCommand(f *flags) *cobra.Command {
	return drainVerb(f, "drain", "Give a node no new minions and move its old ones slowly", false)
}

func undrainCommand(f *flags) *cobra.Command {
	return drainVerb(f, "undrain", "Use a node again: ends drain", true)
}

// drainVerb returns the verb that drains a node, or that ends the drain.
func drainVerb(f *flags, verb, short string, end bool) *cobra.Command {
	return &cobra.Command{
		Use:               verb + " NODE",
		Short:             short,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.allNodes,
		Example:           "  applianced " + verb + " sca-2",
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.client().Drain(cmd.Context(), args[0], end)
		},
	}
}

func pingCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:               "ping NODE",
		Short:             "Try everything that this node needs of another one",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.otherNodes,
		Long:              "ping exits with 0 when all of it works, 3 when something does not.",
		Example:           "  applianced ping sca-3",
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := f.client().Ping(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if printChecks(cmd.OutOrStdout(), list) {
				return exitError(status.ExitNotServing)
			}

			return nil
		},
	}
}

// printChecks prints checks, and reports whether one has failed.
func printChecks(w io.Writer, list []setup.Check) (failed bool) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range list {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", c.Result, printable.Clean(c.What), printable.Clean(c.Detail))
		failed = failed || c.Result == setup.Fail
	}
	_ = tw.Flush()
	for _, c := range list {
		if c.Hint != "" {
			fmt.Fprintf(w, "check: %s: %s\n", printable.Clean(c.What), printable.Clean(c.Hint))
		}
	}
	return failed
}
