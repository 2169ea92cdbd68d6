package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"saltern/cmd/applianced/adopt"
	"saltern/internal/printable"
	"saltern/supervisor/api"
	"saltern/supervisor/backup"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
)

// importer imports the data of another master to this node.
type importer struct {
	f                  *flags
	dry, asJSON        bool
	request            adopt.Request
	out, errOut        io.Writer
	in                 io.Reader
	report             importReport
	stamp, treeToClean string
}

// importReport is the report of an import for programs, schema 1.
type importReport struct {
	Schema      int           `json:"schema"`
	Source      string        `json:"source"`
	DryRun      bool          `json:"dryRun"`
	Done        bool          `json:"done"` // all files are in place
	Fingerprint string        `json:"fingerprint,omitempty"`
	Counts      []adopt.Count `json:"counts"`
	Bytes       int64         `json:"bytes"` // bytes written, or to be written in a dry run
	Conflicts   []adopt.Note  `json:"conflicts,omitempty"`
	Refused     []string      `json:"refused,omitempty"`
	Notes       []adopt.Note  `json:"notes,omitempty"`
	Unlisted    int           `json:"unlisted,omitempty"` // number of conflicts and notes that are not listed
	Kept        string        `json:"kept,omitempty"`     // folder with the replaced files
	Next        []string      `json:"next,omitempty"`
}

func importCommand(f *flags) *cobra.Command {
	m := &importer{f: f}
	cmd := &cobra.Command{
		Use:   "import TREE",
		Short: "Take over a Salt master in Python: keys, options, states and pillars",
		Long: `import brings what a Salt master in Python has onto this node, or onto its cluster:
the key by which minions know their master, the keys of minions in all states, the
options in /etc/salt/master and what it includes, the files in file_roots and
pillar_roots, lists of autosign, and keys of gpg. Minions need no change as long as
they reach the node by the address they know.

TREE is a folder in which etc/salt and the roots lie as on that master (/ for this
machine), a tar archive of one, plain or with gzip, or - for one on standard input:

  ssh old sudo tar cz -C / etc/salt srv | applianced import -

Stop the old master first, at the latest for the last import.

All of it is read and checked before anything is written. What the node has with
another content is a conflict and refuses the import; --force takes what is
imported and keeps the node's own in a folder .before-import-TIME on the storage.
What is in place already is left alone: an import that was interrupted is finished
by the same command. In a cluster of several nodes their masters take the key and
the options one after the other; a node that is away does so when it starts. Options
that the appliance sets itself, or with which the master would not start, are left
out, each with its file and line. Jobs, tokens, and caches are not imported.

Exit codes: 0 all is imported (or would be), 1 nothing was imported, or the last
line says what is missing, 2 imported, and something was left out that you should
look at.`,
		Example: `  applianced import --dry-run /mnt/oldmaster
  applianced import /mnt/oldmaster
  applianced import - < oldmaster.tar.gz`,
		Args: cobra.ExactArgs(1),
	}

	cmd.Flags().BoolVar(&m.dry, "dry-run", false, "say what would be done, and change nothing")
	cmd.Flags().BoolVar(&m.request.Force, "force", false,
		"take what is imported where this node has something else, which is kept aside")
	cmd.Flags().BoolVar(&m.request.WithoutKey, "without-key", false,
		"this node keeps its own key, which the minions do not know")
	cmd.Flags().StringVar(&m.request.ConfigDir, "config-dir", "/etc/salt",
		"where the old master's configuration lies in the tree")
	cmd.Flags().BoolVar(&m.asJSON, "json", false, "print the report (schema 1) for machines")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		m.in = cmd.InOrStdin()
		m.out = cmd.OutOrStdout()
		m.errOut = cmd.ErrOrStderr()
		return m.runImport(cmd.Context(), args[0])
	}

	return cmd
}

func (m *importer) runImport(ctx context.Context, source string) error {
	s, err := settings.Load(m.f.config, hostname())
	if err != nil {
		return fmt.Errorf("%w; set this node up first: applianced setup", err)
	}

	if err := backup.RequireVolume(s); err != nil {
		return fmt.Errorf("import: %w", err)
	}

	unlock, err := adopt.Lock(s)
	if err != nil {
		return err
	}
	defer unlock()

	if err := m.others(ctx, s); err != nil {
		return err
	}

	m.stamp = time.Now().UTC().Format("20060102T150405Z")
	m.request.Settings = s
	m.report = importReport{Schema: 1, Source: source, DryRun: m.dry}
	tree, notes, err := m.openSource(ctx, source)

	if m.treeToClean != "" {
		defer os.RemoveAll(m.treeToClean)
	}

	if err != nil {
		return fmt.Errorf("import: %w; nothing was changed", err)
	}
	defer tree.Close()

	p, err := adopt.Look(ctx, tree, m.request)
	if err != nil {
		return fmt.Errorf("import: %w; nothing was changed", err)
	}

	p.Notes = append(notes, p.Notes...)
	if m.dry || p.Refused() {
		return m.printReport(p)
	}

	if m.report.Kept, err = p.Apply(ctx, m.stamp); err != nil {
		return err
	}

	m.report.Done = true
	if err := m.restartMaster(ctx, s, p); err != nil {
		return err
	}

	return m.printReport(p)
}

// openSource opens the source. If the source is an archive, openSource first unpacks it, and
// returns notes about the omitted files.
func (m *importer) openSource(ctx context.Context, source string) (*adopt.Tree, []adopt.Note, error) {
	in := m.in
	if source != "-" {
		fi, err := os.Stat(source)
		if err != nil {
			return nil, nil, err
		}
		if fi.IsDir() {
			t, err := adopt.Open(source)
			return t, nil, err
		}

		f, err := os.Open(source)
		if err != nil {
			return nil, nil, err
		}
		defer f.Close()

		in = f
	}

	dir, err := adopt.TreeDir(m.request.Settings)
	if err != nil {
		return nil, nil, err
	}

	m.treeToClean = dir
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()

	notes, err := adopt.Unpack(ctx, in, root, adopt.Limits{})
	if err != nil {
		return nil, nil, err
	}

	t, err := adopt.Open(dir)
	return t, notes, err
}

// others sets Beside if the cluster has other nodes. It returns an error if these nodes cannot take
// over the imported data now.
func (m *importer) others(ctx context.Context, s *settings.Settings) error {
	if aloneInCluster(s) == nil {
		return nil
	}

	m.request.Beside = true
	t, err := m.f.client().Turn(ctx)
	switch {
	case m.dry:
		return nil
	case err != nil:
		return fmt.Errorf("import: ask this node whether the others can take it: %w; nothing was changed; "+
			"next: systemctl start applianced",
			err)
	case t.Now != nil && !t.Mine:
		return fmt.Errorf("import: %w; nothing was changed: try again when it is done", &nodes.HeldError{Turn: *t.Now})
	}

	return nil
}

// rollMasters restarts the masters of all nodes, one after the other, so that they use the imported
// data.
func (m *importer) rollMasters(ctx context.Context, s *settings.Settings, p *adopt.Plan) error {
	client := m.f.client()
	_, err := os.Stat(filepath.Join(s.SharedPKIDir(), setup.NextKey+".pem"))
	if p.Rekeyed || !m.request.WithoutKey && err == nil {
		if err := client.TakeKey(ctx, p.KeyHash); err != nil {
			return fmt.Errorf("import: all is in place, and the cluster keeps its key: %w; run the same command again",
				err)
		}
	}

	left, err := rollMasters(ctx, client, m.errOut)
	if err != nil {
		return fmt.Errorf("import: all is in place: %w", err)
	}

	for _, n := range left {
		p.Notes = append(p.Notes, adopt.Note{Text: fmt.Sprintf("node %s takes it when it starts: %s", n.Name, n.Cause)})
	}

	return nil
}

// restartMaster restarts this node's master, or in a cluster all masters, to use the imported data.
func (m *importer) restartMaster(ctx context.Context, s *settings.Settings, p *adopt.Plan) error {
	if m.request.Beside {
		return m.rollMasters(ctx, s, p)
	}

	client := m.f.client()
	restart := func() error { return client.Restart(ctx, "master") }
	if s.Peering.Enabled {
		if !m.request.WithoutKey {
			if err := adoptRestoredKey(ctx, s); err != nil {
				return fmt.Errorf("import: keys and files are in place, the table of nodes is not: %w; run "+
					"the same command again",
					err)
			}
		}

		if p.Rekeyed {
			restart = func() error { return client.Reload(ctx) }
		} else {
			restart = func() error { return nil }
			m.addNextStep("applianced config apply     # the masters take the options, one after the other")
		}
	}

	switch err := restart(); {
	case errors.Is(err, api.ErrNotRunning):
		m.addNextStep("systemctl start applianced")
	case err != nil:
		return fmt.Errorf("all is in place; restart the master: %w; next: applianced restart master", err)
	}

	return nil
}

func (m *importer) addNextStep(step string) { m.report.Next = append(m.report.Next, step) }

// printReport prints the report.
func (m *importer) printReport(p *adopt.Plan) error {
	r := &m.report
	r.Fingerprint = p.Fingerprint
	r.Counts = p.Counts()
	r.Bytes = p.Bytes()
	r.Refused = p.Refusals

	var notes, conflicts int // numbers of notes and conflicts that are not listed
	r.Notes, notes = adopt.Listed(p.Notes)
	r.Conflicts, conflicts = adopt.Listed(p.Conflicts)
	r.Unlisted = notes + conflicts

	switch {
	case p.Refused():
	case r.DryRun:
		m.addNextStep("stop the old master, then the same command without --dry-run")
		if p.Rekeyed && m.request.Beside {
			m.addNextStep("the masters of all nodes then take the key and the options, one after the other")
		}
	default:
		m.addNextStep("give this node the address that the minions know, or change it in DNS")
		m.addNextStep("applianced status            # then: salt '*' test.ping")
		m.addNextStep("salt '*' saltutil.refresh_pillar   # for targets by grains and pillars")
	}

	if m.asJSON {
		if err := writeJSON(m.out, r); err != nil {
			return err
		}
	} else if err := m.printPlan(p); err != nil {
		return err
	}

	left := false
	for _, n := range p.Notes {
		left = left || !n.Info
	}

	switch {
	case p.Refused() && m.asJSON:
		return exitError(status.ExitUnknown)
	case len(p.Refusals) > 0:
		return errors.New("import: it is refused, see above; nothing was changed")
	case p.Refused():
		return errors.New("import: this node has something else in the places above; nothing was changed. To " +
			"take what is imported and keep the node's own aside: --force")
	case left:
		return exitError(exitUndone)
	}

	return nil
}

func (m *importer) printPlan(p *adopt.Plan) error {
	r := m.report
	for _, n := range r.Notes {
		kind := "look at"
		if n.Info {
			kind = "note"
		}
		fmt.Fprintf(m.out, "%s: %s\n", kind, printable.Clean(n.String()))
	}

	for _, n := range r.Conflicts {
		fmt.Fprintf(m.out, "conflict: %s\n", printable.Clean(n.String()))
	}

	if r.Unlisted > 0 {
		fmt.Fprintf(m.out, "and %d more\n", r.Unlisted)
	}

	for _, t := range r.Refused {
		fmt.Fprintf(m.out, "refused: %s\n", printable.Clean(t))
	}

	tw := tabwriter.NewWriter(m.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\tNEW\tSAME\tOTHER HERE\tLEFT OUT")
	for _, c := range r.Counts {
		fmt.Fprintf(tw, "%s\t%d\t%d\t%d\t%d\n", c.Kind, c.New, c.Same, c.Other, c.Left)
	}

	if err := tw.Flush(); err != nil {
		return err
	}

	if r.Fingerprint != "" {
		fmt.Fprintf(m.out, "master key %s\n", r.Fingerprint)
	}

	switch {
	case p.Refused():
	case r.DryRun:
		fmt.Fprintf(m.out, "would write %s; nothing was changed\n", status.Size(uint64(r.Bytes)))
	default:
		fmt.Fprintf(m.out, "imported: %s written\n", status.Size(uint64(r.Bytes)))
	}

	if r.Kept != "" {
		fmt.Fprintf(m.out, "what was replaced is in %s; it may hold keys: remove it when all is well\n", r.Kept)
	}

	for _, n := range r.Next {
		fmt.Fprintf(m.out, "next: %s\n", n)
	}

	return nil
}
