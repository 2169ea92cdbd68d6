package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"saltern/internal/audit"
	"saltern/internal/printable"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// auditVerifier checks the chains of this node's audit records, and compares them with the heads that
// other nodes have recorded.
type auditVerifier struct {
	f       *flags
	dirs    []string // NAME=DIR
	against string
	node    string // name of the node whose records are checked
	asJSON  bool
	in      io.Reader
	out     io.Writer
	errOut  io.Writer
}

func auditVerifyCommand(f *flags) *cobra.Command {
	v := &auditVerifier{f: f}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Show whether records of this node are missing or were changed",
		Args:  cobra.NoArgs,
		Long: `verify reads what this node has written down. Its records are chained by hashes: one
that is missing or was changed shows, with its file and line. Every quarter of an
hour a node tells the others the newest record of each chain, and writes it to the
system's log: what was cut off at the end since then shows as well, and a chain that
was made anew.

Old files that go by age or for want of room are no gap, nor is a line that was cut
short by a crash; files of a version without a chain are told of as that.

Whoever has become root of a node can make this program say anything. To be sure,
copy the files elsewhere, and compare them with what the other nodes, the system's
log, or a SIEM were told: --dir, --against.

Exit codes: 0 all is there; 1 something is missing or was changed; 2 nothing is known
to be missing, and a part is proven by nothing: see what is printed.`,
		Example: `  applianced audit verify
  applianced audit verify --against told.log
  applianced audit verify --dir node=/mnt/n1/log/audit --dir master=/mnt/n1/cache/audit --against siem.jsonl`,
	}

	cmd.Flags().StringArrayVar(&v.dirs, "dir", nil,
		"a copy to read instead of this node's files: node=DIR or master=DIR")
	cmd.Flags().StringVar(&v.against, "against", "",
		"a file with what was told of this node: lines of its log, or records; - is standard input")
	cmd.Flags().StringVar(&v.node, "node", hostname(),
		"whose record the copies are, for --against with records of several nodes")
	cmd.Flags().BoolVar(&v.asJSON, "json", false, "print what was found (schema 1) for machines")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v.in = cmd.InOrStdin()
		v.out = cmd.OutOrStdout()
		v.errOut = cmd.ErrOrStderr()
		return v.verifyRecords(cmd.Context())
	}

	return cmd
}

func (v *auditVerifier) verifyRecords(ctx context.Context) error {
	folders, recorded, asked, err := v.sources(ctx)
	if err != nil {
		return err
	}

	if v.against != "" {
		more, err := v.readTold()
		if err != nil {
			return err
		}
		recorded = append(recorded, more...)
	}

	var list []audit.Verified
	for _, folder := range folders {
		found, err := audit.Verify(ctx, folder, recorded)
		if err != nil {
			return fmt.Errorf("audit verify: %w", err)
		}
		list = append(list, found...)
	}

	code := verifiedCode(list)
	if v.asJSON {
		err = writeJSON(v.out, verifiedReport{Schema: 1, Whole: code != status.ExitUnknown, Asked: asked, Books: list})
	} else {
		err = writeVerified(v.out, list)
	}

	if err != nil {
		return err
	}

	if code == status.ExitHealthy && !asked {
		code = status.ExitDegraded
	}

	if code != status.ExitHealthy {
		return exitError(code)
	}

	return nil
}

// sources returns the folders to read, and the heads that others have recorded. asked is false if a
// node that may have recorded heads did not answer.
func (v *auditVerifier) sources(ctx context.Context) (folders []audit.Folder, recorded []audit.Head, asked bool, err error) {
	for _, given := range v.dirs {
		name, dir, ok := strings.Cut(given, "=")
		if !ok || dir == "" || name != audit.NodeFolder && name != audit.MasterFolder {
			return nil, nil, false, misused("audit verify: --dir takes node=DIR or master=DIR")
		}
		folders = append(folders, audit.Folder{Name: name, Dir: dir})
	}

	if len(folders) > 0 {
		return folders, nil, true, nil
	}

	s, err := settings.Load(v.f.config, hostname())
	if err != nil {
		return nil, nil, false, err
	}

	folders = []audit.Folder{
		{Name: audit.NodeFolder, Dir: s.AuditDir()},
		{Name: audit.MasterFolder, Dir: audit.MasterDir(s.CacheDir())},
	}

	v.node = s.Node
	key, err := nodeKey(s)
	if err != nil {
		return nil, nil, false, err
	}

	recorded, asked, err = v.toldChains(ctx, s, key)
	return folders, recorded, asked, err
}

// nodeKey returns the key by which the other nodes know this node, or "" for a single node.
func nodeKey(s *settings.Settings) (string, error) {
	if !s.Peering.Enabled {
		return "", nil
	}
	id, err := nodeapi.ReadIdentity(s.NodeDir())
	if err != nil {
		return "", err
	}
	return id.Hash, nil
}

// toldChains returns the heads of this node's chains that its own supervisor and the other nodes
// have recorded. asked is false if one of these nodes did not answer.
func (v *auditVerifier) toldChains(
	ctx context.Context,
	s *settings.Settings,
	key string,
) (recorded []audit.Head, asked bool, err error) {
	own, err := audit.Read(ctx, s.Node, audit.HeadsQuery(), s.AuditDir())
	if err != nil {
		return nil, false, err
	}

	recorded = audit.HeadsOf(own.Records, s.Node, key)

	list, err := v.f.client().Audit(ctx, audit.HeadsQuery())
	if err != nil {
		fmt.Fprintf(v.errOut, "the other nodes cannot be asked what they were told: %s\n", printable.Clean(err.Error()))
		return recorded, false, nil
	}

	missing := notAsked(v.errOut, list.Unasked, ", what it was told is not compared")

	// The records of the other nodes come first, because root on this node cannot change them.
	others := slices.DeleteFunc(audit.HeadsOf(list.Records, s.Node, key),
		func(h audit.Head) bool { return h.By == s.Node })
	return append(others, recorded...), !missing, nil
}

// maxAgainst bounds the file of --against in bytes.
const maxAgainst = 256 << 20

func (v *auditVerifier) readTold() ([]audit.Head, error) {
	in := v.in
	by := "standard input"
	if v.against != "-" {
		file, err := os.Open(v.against)
		if err != nil {
			return nil, fmt.Errorf("audit verify: %w", err)
		}
		defer file.Close()
		in, by = file, v.against
	}

	heads, err := audit.ReadHeads(io.LimitReader(in, maxAgainst), v.node)
	if err != nil {
		return nil, fmt.Errorf("audit verify: read what was told: %w", err)
	}
	if len(heads) == 0 {
		return nil, fmt.Errorf("audit verify: %s names no head of a chain; a line of the log has them as "+
			"node/acts:NUMBER:HASH",
			by)
	}

	for i := range heads {
		heads[i].By = by
	}

	return heads, nil
}

// verifiedReport is the result for programs, schema 1.
type verifiedReport struct {
	Schema int              `json:"schema"`
	Whole  bool             `json:"whole"` // nothing is missing or changed
	Asked  bool             `json:"asked"` // every node that may have recorded heads has answered
	Books  []audit.Verified `json:"books"`
}

// verifiedCode returns the exit code for the result.
func verifiedCode(list []audit.Verified) int {
	code := status.ExitHealthy
	for _, v := range list {
		switch {
		case !v.Whole():
			return status.ExitUnknown
		case len(v.Warnings) > 0:
			code = status.ExitDegraded
		}
	}
	return code
}

// writeVerified prints the result.
func writeVerified(w io.Writer, list []audit.Verified) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "RECORD\tFILES\tNUMBERS\tFROM\tTO\tSTATE")
	for _, v := range list {
		if v.Files == 0 && v.Whole() {
			continue
		}
		fmt.Fprintf(tw, "%s/%s\t%d\t%s\t%s\t%s\t%s\n", v.Folder, v.Book, v.Files, numbersOf(v),
			auditTime(v.Since), auditTime(v.Till), stateOf(v))
	}

	if err := tw.Flush(); err != nil {
		return err
	}

	for _, v := range list {
		for _, fault := range v.Faults {
			fmt.Fprintf(w, "FAULT %s/%s: %s\n", v.Folder, v.Book, printable.Clean(fault.String()))
		}

		if v.MoreFaults > 0 {
			fmt.Fprintf(w, "FAULT %s/%s: and %d more\n", v.Folder, v.Book, v.MoreFaults)
		}

		for _, note := range v.Warnings {
			fmt.Fprintf(w, "note %s/%s: %s\n", v.Folder, v.Book, printable.Clean(note.String()))
		}
	}

	return nil
}

func auditTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

func numbersOf(v audit.Verified) string {
	if v.Records == 0 {
		return "-"
	}
	return fmt.Sprintf("%d-%d", v.First, v.Last)
}

func chainFaults(v audit.Verified) string {
	if n := len(v.Faults) + v.MoreFaults; n != 1 {
		return fmt.Sprintf("%d faults", n)
	}
	return "1 fault"
}

// stateOf describes the state of a chain in a few words.
func stateOf(v audit.Verified) string {
	var parts []string
	switch {
	case !v.Whole():
		parts = append(parts, chainFaults(v))
	case v.Records > 0:
		parts = append(parts, "whole")
	}

	switch {
	case v.Told != nil && v.Told.Seq == v.Last:
		parts = append(parts, "end proven by "+v.Told.By)
	case v.Told != nil:
		parts = append(parts, fmt.Sprintf("proven to %d by %s", v.Told.Seq, v.Told.By))
	case v.Records > 0:
		parts = append(parts, "nobody was told of its end yet")
	}

	if v.Unchained > 0 {
		parts = append(parts, fmt.Sprintf("%d records without a chain", v.Unchained))
	}

	return cmp.Or(printable.Brief(strings.Join(parts, ", "), 200), "-")
}
