package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"saltern/internal/printable"
	"saltern/supervisor/status"
)

// gitCommand returns the verbs about the git repositories that the masters serve.
func gitCommand(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "git",
		Short: "Show the git remotes of states and pillars: what each node serves of them",
		Args:  cobra.NoArgs,
		Long: `git asks the masters of all nodes for their git remotes (gitfs_remotes, and git in
ext_pillar): branches and tags with the commits that are served, when they were last
fetched, when they will be, and what is wrong, with its code.

It exits with 0 when all nodes serve the same and nothing is wrong, 2 when a remote
has a fault, nodes serve different commits or one could not be asked, 1 when it
cannot be told.`,
		Example: `  applianced git
  applianced git fetch
  applianced git --json | jq '.nodes[][] | select(.fault)'`,
	}

	gitAnswering(func(cmd *cobra.Command, _ []string) (status.GitList, error) {
		return f.client().Git(cmd.Context(), false, "")
	}).verb(cmd)

	fetch := &cobra.Command{
		Use:               "fetch [REMOTE]",
		Short:             "Fetch now, on all nodes",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: f.gitRemotes,
		Long: `fetch has the masters of all nodes fetch all remotes at once, or the one of that
URL or name (the last part of its URL, without .git). It shows how they are
afterwards; a fetch that takes longer than 10 seconds goes on by itself.

It exits with 0 when all nodes serve the same and nothing is wrong, 2 when a remote
has a fault, nodes serve different commits or one could not be asked, 1 when it
cannot be told.`,
		Example: "  applianced git fetch\n  applianced git fetch https://git.example.com/states.git\n  " +
			"applianced git fetch states",
	}

	gitAnswering(func(cmd *cobra.Command, args []string) (status.GitList, error) {
		remote := ""
		if len(args) > 0 {
			if remote = args[0]; remote == "" {
				return status.GitList{}, misused("fetch: the name of the remote is empty")
			}
		}

		return f.client().Git(cmd.Context(), true, remote)
	}).verb(fetch)

	cmd.AddCommand(fetch)
	return cmd
}

// gitRemotes completes the URLs of git remotes.
func (f *flags) gitRemotes(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}

	ctx, cancel := context.WithTimeout(cmd.Context(), completeTakes)
	defer cancel()
	var urls []cobra.Completion
	if list, err := f.client().Git(ctx, false, ""); err == nil {
		for _, b := range gitBlocks(list) {
			if url := printable.Clean(b.url); !slices.Contains(urls, url) {
				urls = append(urls, url)
			}
		}
	}

	return urls, cobra.ShellCompDirectiveNoFileComp
}

// gitAnswering returns a verb that prints the list that ask returns.
func gitAnswering(ask func(*cobra.Command, []string) (status.GitList, error)) answering[status.GitList] {
	return answering[status.GitList]{
		json: "print the list for machines",
		ask:  ask,
		print: func(cmd *cobra.Command, list status.GitList) error {
			err := writeGit(cmd.OutOrStdout(), gitBlocks(list), time.Now())
			notAsked(cmd.ErrOrStderr(), list.Unasked, "")
			return err
		},
		code: func(list status.GitList) int {
			return degradedIf(len(list.Unasked) > 0 || slices.ContainsFunc(gitBlocks(list), gitBlock.unwell))
		},
	}
}

// gitBlock is one remote on all nodes that have it.
type gitBlock struct {
	url   string
	use   string
	nodes []gitRow
}

type gitRow struct {
	node string
	status.GitRemote
}

// differ reports whether the nodes serve different commits of the remote.
func (b gitBlock) differ() bool {
	return slices.ContainsFunc(b.nodes, func(r gitRow) bool { return r.State != b.nodes[0].State })
}

func (b gitBlock) unwell() bool {
	return b.differ() || slices.ContainsFunc(b.nodes, func(r gitRow) bool { return r.Fault != nil })
}

// gitBlocks groups the nodes' answers by remote. A master may have the same remote twice, with
// different options.
func gitBlocks(list status.GitList) (out []gitBlock) {
	at := map[string]int{}
	for _, node := range slices.Sorted(maps.Keys(list.Nodes)) {
		seen := map[string]int{}
		for _, r := range list.Nodes[node] {
			use := gitUse(r)
			key := use + " " + r.URL
			seen[key]++
			key = fmt.Sprint(seen[key], key)
			i, ok := at[key]
			if !ok {
				i = len(out)
				at[key] = i
				out = append(out, gitBlock{url: r.URL, use: use})
			}

			out[i].nodes = append(out[i].nodes, gitRow{node, r})
		}
	}

	slices.SortStableFunc(out,
		func(a, b gitBlock) int { return cmp.Or(strings.Compare(a.url, b.url), strings.Compare(a.use, b.use)) })
	return out
}

// gitUse returns the use of a remote, in Salt's words.
func gitUse(r status.GitRemote) string {
	var words []string
	if r.Files {
		words = append(words, "gitfs")
	}
	if r.Pillars {
		words = append(words, "git_pillar")
	}
	return strings.Join(words, ", ")
}

func writeGit(w io.Writer, blocks []gitBlock, now time.Time) error {
	if len(blocks) == 0 {
		_, err := fmt.Fprintln(w,
			"No git remote is configured; next: gitfs_remotes or ext_pillar in etc/master.d, then: "+
				"applianced config apply")
		return err
	}

	for i, b := range blocks {
		if i > 0 {
			fmt.Fprintln(w)
		}

		differ := ""
		if b.differ() {
			differ = "; nodes serve different commits"
		}

		fmt.Fprintf(w, "%s (%s)%s\n", printable.Clean(b.url), b.use, differ)
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "  NODE\tSERVES\tFETCHED\tNEXT\tSTATE")
		for _, r := range b.nodes {
			fmt.Fprintf(tw, "  %s\t%s\t%s\t%s\t%s\n", printable.Clean(r.node), gitRefs(r.GitRemote),
				wordSince(r.Fetched, now), wordUntil(r.Next, now), gitState(r.GitRemote, now))
		}

		if err := tw.Flush(); err != nil {
			return err
		}
	}

	return nil
}

// shownRefs is how many branches and tags a line shows at most.
const shownRefs = 3

func gitRefs(r status.GitRemote) string {
	var out []string
	for _, ref := range r.Refs[:min(len(r.Refs), shownRefs)] {
		out = append(out, printable.Clean(ref.Name)+" "+printable.Clean(ref.Commit[:min(len(ref.Commit), 9)]))
	}
	text := strings.Join(out, ", ")
	if n := len(r.Refs) - len(out) + r.More; n > 0 {
		text += fmt.Sprintf(", and %d more", n)
	}
	return cmp.Or(text, "-")
}

func wordUntil(t *time.Time, now time.Time) string {
	switch {
	case t == nil:
		return "-"
	case !t.After(now):
		return "now"
	}
	return "in " + status.Age(t.Sub(now))
}

func gitState(r status.GitRemote, now time.Time) string {
	text := "ok"
	if f := r.Fault; f != nil {
		text = fmt.Sprintf("%s %s for %s: %s", printable.Clean(string(f.Code)), printable.Clean(f.Kind),
			status.Age(max(0, now.Sub(f.Since))), printable.Clean(f.Text))
	} else if r.State == "" {
		text = "not fetched yet"
	}
	if r.Fetching {
		text = strings.TrimPrefix(text+", fetching", "ok, ")
	}
	return text
}
