package main

import (
	"slices"

	"github.com/spf13/cobra"
)

// group is a section in the list of verbs.
type group struct {
	title string
	verbs []string
}

func groups() []group {
	return []group{
		{"See how it is:",
			[]string{"status", "nodes", "events", "history", "audit", "ping", "logs", "support", "version"}},
		{"Minions, keys and log-ins:", []string{"minions", "explain", "minion-config", "keys", "tokens"}},
		{"Nodes of the cluster:",
			[]string{"setup", "join-string", "join", "drain", "undrain", "leave", "remove", "replace",
				"recover", "secret", "cluster-key", "virtual-address", "storage"}},
		{"This node and its machine:",
			[]string{"config", "git", "diff", "readers", "schedule", "secrets", "python", "reload", "restart", "reboot",
				"upgrade", "backup", "restore", "import", "export", "reset", "admin", "firewall",
				"console"}},
		{"Programs and their documentation:", []string{"run", "lb", "man"}},
	}
}

// grouped sorts the verbs in the help by purpose.
func grouped(root *cobra.Command) {
	for _, g := range groups() {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, c := range root.Commands() {
			if slices.Contains(g.verbs, c.Name()) {
				c.GroupID = g.title
			}
		}
		root.SetHelpCommandGroupID(g.title) // the last group also gets the two verbs of cobra
		root.SetCompletionCommandGroupID(g.title)
	}
}
