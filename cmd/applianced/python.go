package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"saltern/internal/printable"
	"saltern/supervisor/layout"
	"saltern/supervisor/python"
)

func pythonCommand(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "python", Short: "Python packages beside Salt, on all nodes",
		Long: `python keeps packages for the Python that runs pillars, renderers, runners and logins
of the masters: Salt extensions (saltext.*) and what they need. They lie as wheels, each
with its hash, in etc/python on the shared storage, so that all nodes, the backups and
the next version of the system have the same.

The code of a package runs with the rights of the master: add what you trust.`,
		Example: "  applianced python list",
	}
	cmd.AddCommand(pythonAdd(f), pythonList(f), pythonRemove(f))
	return cmd
}

// packages returns the place of the cluster's Python packages.
func (f *flags) packages() (python.Place, error) {
	s, err := f.storage()
	if err != nil {
		return python.Place{}, err
	}
	return layout.Packages(s), nil
}

// maxRequirements bounds a file of requirements, in bytes.
const maxRequirements = 1 << 20

// packageFlags holds the flags of python add.
type packageFlags struct {
	from, index, file string
	hashes            []string
}

func pythonAdd(f *flags) *cobra.Command {
	var a packageFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use: "add [NAME[==VERSION] | FILE.whl]...", Short: "Add Python packages on all nodes",
		Long: `add takes wheels, or finds packages by name with all that they need: in an index
(pip's own configuration, PIP_INDEX_URL or --index) or in a folder of wheels (--from).
It says what comes, and changes nothing before you agree. A package that is there
already is replaced.

Only wheels are taken, nothing is built. A package that comes with Salt, or has a
module of the same name as one that does, is refused. All nodes have the packages
within 30 seconds; nothing is restarted.`,
		Example: `  applianced python add saltext.vault
  applianced python add --from /media/wheels psycopg psycopg-binary
  applianced python add --yes ./ours-1.0-py3-none-any.whl --hash sha256:0123...
  applianced python add --requirements requirements.txt`,
	}

	cmd.Flags().StringVar(&a.from, "from", "", "look for names in this folder of wheels, and in no index")
	cmd.Flags().StringVar(&a.index, "index", "",
		"address of the index; with a password in it set PIP_INDEX_URL instead")
	cmd.Flags().StringVarP(&a.file, "requirements", "r", "",
		"a file with names, versions and hashes, as pip-compile writes it")
	cmd.Flags().StringArrayVar(&a.hashes, "hash", nil,
		"the hash that the one package must have: sha256:HEX; may be repeated")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print what was added for machines")
	_ = cmd.MarkFlagDirname("from")
	yes := yesFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		add, err := a.addition(args)
		if err != nil {
			return err
		}

		p, err := f.packages()
		if err != nil {
			return err
		}

		add.Agree = func(fresh []python.Package) error {
			if !asJSON {
				if err := showPackages(cmd.OutOrStdout(), fresh); err != nil {
					return err
				}
			}
			return confirm(cmd, *yes, "The masters of all nodes will run code of these packages.", "add")
		}

		fresh, err := p.Add(cmd.Context(), add)
		switch {
		case err != nil:
			return fmt.Errorf("add: %w", err)
		case asJSON:
			return writeJSON(cmd.OutOrStdout(), fresh)
		}

		fmt.Fprintln(cmd.OutOrStdout(), "All nodes have them within 30 seconds; next: applianced python list")
		return nil
	}

	return cmd
}

// addition returns the packages to add, from the flags and arguments.
func (a packageFlags) addition(args []string) (python.Addition, error) {
	add := python.Addition{From: a.from, Index: a.index}
	if a.from != "" && a.index != "" {
		return add, misused("add: --from looks into a folder and --index into an index; give one of them")
	}

	for _, arg := range args {
		if strings.HasSuffix(arg, ".whl") {
			add.Files = append(add.Files, arg)
		} else {
			add.Names = append(add.Names, python.Requirement{Text: arg})
		}
	}

	if a.file != "" {
		in, err := os.Open(a.file)
		if err != nil {
			return add, fmt.Errorf("add: %w", err)
		}
		defer in.Close()

		text, err := readAtMost(in, maxRequirements)
		if err != nil {
			return add, fmt.Errorf("add: read %s: %w", a.file, err)
		}

		names, err := python.ParseRequirements(text)
		if err != nil {
			return add, fmt.Errorf("add: read %s: %w", a.file, err)
		}

		add.Names = append(add.Names, names...)
	}

	if len(add.Files)+len(add.Names) == 0 {
		return add, misused("add: name a package, or a file of one (.whl)")
	}
	if len(add.Names) == 0 && (a.from != "" || a.index != "") {
		return add, misused("add: --from and --index are where names are looked for, and only files are given")
	}
	if len(a.hashes) > 0 && len(add.Files)+len(add.Names) != 1 {
		return add, misused("add: --hash is for one package; for several write them with their hashes into a " +
			"file, and give --requirements FILE")
	}

	for _, h := range a.hashes {
		sum, ok := strings.CutPrefix(strings.ToLower(h), "sha256:")
		if !ok || len(sum) != 64 || strings.Trim(sum, "0123456789abcdef") != "" {
			return add, misused("add: %.80q is no hash; it is sha256: and 64 hexadecimal digits", h)
		}

		if len(add.Files) == 1 {
			add.Hashes = append(add.Hashes, sum)
		} else {
			add.Names[0].Hashes = append(add.Names[0].Hashes, sum)
		}
	}

	return add, nil
}

func showPackages(out io.Writer, packages []python.Package) error {
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "NAME\tVERSION\tKIB\tSHA256")
	for _, p := range packages {
		fmt.Fprintf(tw, "%s\t%s\t%d\t%s\n", p.Name, p.Version, (p.Size+1023)>>10, p.SHA256)
	}
	return tw.Flush()
}

func pythonList(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the Python packages of the cluster",
		Args:  cobra.NoArgs,
		Long: `list shows the packages that were added, whether somebody asked for each by name (or
another one needs it), and whether this node's Python has it (HERE). What comes with
Salt is not in it.`,
		Example: "  applianced python list\n  applianced python list --json | jq -r '.[].name'",
	}

	return answering[[]python.Item]{
		json: "print the list for machines",
		ask: func(*cobra.Command, []string) ([]python.Item, error) {
			p, err := f.packages()
			if err != nil {
				return nil, err
			}

			return p.List()
		},
		print: printPackages,
	}.verb(cmd)
}

func printPackages(cmd *cobra.Command, items []python.Item) error {
	if len(items) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "there is no package yet; see: applianced python add --help")
		return nil
	}

	word := map[bool]string{true: "yes", false: "no"}
	tw := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "NAME\tVERSION\tASKED\tHERE\tFILE")
	for _, i := range items {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", i.Name, i.Version, word[i.Asked], word[i.Here], i.File)
	}

	return tw.Flush()
}

func pythonRemove(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "remove NAME...",
		Short:             "Remove Python packages from all nodes",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: f.packageNames,
		Long: `remove takes packages out, and those that came with them and that no other needs. A
package that another one needs is refused. All nodes follow within 30 seconds; who has
loaded a package already goes on with it until he is done.`,
		Example: "  applianced python remove saltext-vault",
	}

	yes := yesFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := f.packages()
		if err != nil {
			return err
		}

		if err := confirm(cmd, *yes,
			"Pillars, runners and logins that use "+printable.Clean(strings.Join(args, ", "))+" fail without it.",
			"remove"); err != nil {
			return err
		}

		gone, err := p.Remove(cmd.Context(), args)
		if err != nil {
			return fmt.Errorf("remove: %w", err)
		}

		for _, k := range gone {
			fmt.Fprintf(cmd.OutOrStdout(), "%s %s is removed\n", k.Name, k.Version)
		}

		return nil
	}

	return cmd
}

// packageNames completes the names of packages.
func (f *flags) packageNames(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var out []cobra.Completion
	if p, err := f.packages(); err == nil {
		items, _ := p.List()
		for _, i := range items {
			out = append(out, cobra.CompletionWithDesc(i.Name, i.Version))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
