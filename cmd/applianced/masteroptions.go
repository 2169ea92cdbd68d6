package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/go-multierror"
	"go.yaml.in/yaml/v3"

	"saltern/master/conf"
	"saltern/master/restapi"
	"saltern/supervisor/layout"
	"saltern/supervisor/settings"
)

// optionsOf says where a file holds the master's options: the path of the file, its text, and the
// keys above the options, for each form of the file.
type optionsOf struct {
	path  string
	text  []byte
	above [][]string
}

// inSettings returns the key paths of the master's options in appliance.yaml, inAnswers those in a
// file of answers.
func inSettings() [][]string { return [][]string{{"master", "options"}} }
func inAnswers() [][]string {
	return [][]string{{"settings", "master", "options"}, {"saltern", "settings", "master", "options"}}
}

// checkMaster checks the future configuration of a node's master with the master's own code: the
// options in source, and the administrator's files. The error lists all faults with file and line.
// notes names options that have no effect.
func checkMaster(s *settings.Settings, source optionsOf, stderr io.Writer) (notes []conf.Note, err error) {
	text, err := layout.MasterConfig(s, s.Users.Master, s.UserConfDir())
	if err != nil {
		return nil, err
	}

	dir, err := os.MkdirTemp("", "applianced-check-")
	if err != nil {
		return nil, fmt.Errorf("check the master's options: %w", err)
	}
	defer os.RemoveAll(dir)

	file := filepath.Join(dir, "master")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, fmt.Errorf("check the master's options: %w", err)
	}

	slow := time.AfterFunc(10*time.Second, func() {
		fmt.Fprintf(stderr,
			"%s does not answer; if it is on a shared volume, `applianced storage status` tells why. Waiting.\n",
			s.UserConfDir())
	})
	defer slow.Stop()

	lines := source.optionLines()
	all := new(multierror.Error)
	for _, f := range layout.CheckUserConf(s, s.UserConfDir()) {
		if f.Option != "" && !f.Allowed {
			all = multierror.Append(all, f)
		}
	}

	cfg, err := (&conf.Loader{User: s.Users.Master}).Load(file)
	if err != nil {
		faults, notes := sortFaults(conf.Faults(err), file, source)
		all = multierror.Append(all, faults...)
		return notes, all.ErrorOrNil()
	}

	if s.API.Enabled {
		all = multierror.Append(all, checkAPI(cfg, s)...)
	}

	var others []conf.Note
	for _, n := range cfg.Notes {
		switch {
		case n.Path != file:
			others = append(others, n)
		case lines[n.Option] > 0: // the file sets this option; options without a line are the appliance's
			n.Path, n.Line = source.path, lines[n.Option]
			notes = append(notes, n)
		}
	}

	slices.SortStableFunc(notes, func(a, b conf.Note) int { return a.Line - b.Line })
	return append(notes, others...), all.ErrorOrNil()
}

// sortFaults sorts the faults that conf found in the configuration. Faults in the options of source
// come first, with their line in source. file is the generated part of the configuration. For a
// file that the caller may not read, sortFaults returns a note instead of a fault.
func sortFaults(found []error, file string, source optionsOf) (faults []error, notes []conf.Note) {
	lines := source.optionLines()
	var own, others []error
	for _, e := range found {
		f := (*conf.Fault)(nil)
		switch {
		case !errors.As(e, &f):
			others = append(others, e)
		case f.Path == file:
			f.Path, f.Line = source.path, lines[f.Option]
			own = append(own, f)
		case errors.Is(f, fs.ErrPermission):
			notes = append(notes,
				conf.Note{
					Level: slog.LevelWarn,
					Path:  f.Path,
					Text:  "not checked: only root and the master's user may read it",
				})
		default:
			others = append(others, f)
		}
	}

	slices.SortStableFunc(own, func(a, b error) int { return a.(*conf.Fault).Line - b.(*conf.Fault).Line })
	return append(own, others...), notes
}

// checkAPI returns the faults that salt-api's own code finds in the future configuration of
// salt-api. If the node creates a certificate itself, the certificate may be missing.
func checkAPI(cfg *conf.Master, s *settings.Settings) []error {
	o, err := restapi.Read(cfg, slog.New(slog.DiscardHandler))
	if err == nil && o.Cert != s.APICert() {
		err = o.CheckCertificate()
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return many.Unwrap()
	}
	if err != nil {
		return []error{err}
	}
	return nil
}

// checkOptions checks the master's options of this node, as far as the caller may read them. The
// supervisor checks the rest.
func (f *flags) checkOptions(stderr io.Writer) error {
	s, err := settings.Load(f.config, hostname())
	if err != nil {
		return nil // the supervisor reports that fault
	}
	text, err := os.ReadFile(f.config)
	if err != nil {
		return nil
	}
	_, err = checkMaster(s, optionsOf{f.config, text, inSettings()}, stderr)
	return err
}

// optionLines returns the line of each of the master's options.
func (o optionsOf) optionLines() map[string]int {
	lines := map[string]int{}
	var doc yaml.Node
	if yaml.Unmarshal(o.text, &doc) != nil || len(doc.Content) == 0 {
		return lines
	}

	for _, above := range o.above {
		n := doc.Content[0]
		for _, key := range above {
			n = mapValue(n, key)
		}

		if n == nil || n.Kind != yaml.MappingNode {
			continue
		}

		for i := 0; i+1 < len(n.Content); i += 2 {
			lines[n.Content[i].Value] = n.Content[i].Line
		}
	}

	return lines
}

// mapValue returns the value of a key in a YAML map, or nil when n is not a map or lacks the key.
func mapValue(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// printNotes prints which parts of a valid configuration have no effect.
func printNotes(w io.Writer, notes []conf.Note) {
	for _, n := range notes {
		kind := "note"
		if n.Level >= slog.LevelWarn {
			kind = "warning"
		}
		fmt.Fprintf(w, "%s: %s\n", kind, n)
	}
}
