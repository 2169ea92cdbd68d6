package adopt

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"saltern/internal/durable"
	"saltern/master/conf"
	"saltern/supervisor/layout"
)

// maxTrials bounds how often options are tried. Each trial removes at least one faulty option.
const maxTrials = 50

// tryOptions checks the future configuration with the master's own code: the appliance's options, the
// administrator's existing files, and the imported ones. It drops imported options that would prevent
// a start.
func (o *sorter) tryOptions() error {
	for range maxTrials {
		again, err := o.tryOnce()
		if err != nil || !again {
			return err
		}
	}
	return errors.New("check the options: there are faults after all that can be left out are")
}

func (o *sorter) tryOnce() (again bool, err error) {
	dir, err := os.MkdirTemp("", "applianced-import-")
	if err != nil {
		return false, fmt.Errorf("check the options: %w", err)
	}
	defer os.RemoveAll(dir)

	include := filepath.Join(dir, "master.d")
	if err := o.together(dir, include); err != nil {
		return false, fmt.Errorf("check the options: %w", err)
	}

	cfg, err := (&conf.Loader{User: o.settings.Users.Master, Tool: true}).Load(filepath.Join(dir, "master"))
	if err == nil {
		o.remarks(cfg.Notes, include)
		return false, nil
	}

	var rest error
	for _, e := range conf.Faults(err) {
		f, ok := errors.AsType[*conf.Fault](e)
		if !ok || !o.refuse(f, include) {
			rest = errors.Join(rest, e)
			continue
		}
		again = true
	}

	if rest != nil && !again {
		return false, fmt.Errorf("the options of this node have faults, fix them first (applianced config check): %w",
			rest)
	}

	return again, nil
}

// together writes the future configuration: the main file to dir, the option files to include.
func (o *sorter) together(dir, include string) error {
	main, err := layout.MasterConfig(o.settings, o.settings.Users.Master, include)
	if err == nil {
		err = os.Mkdir(include, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "master"), main, 0o600)
	}

	if err != nil {
		return err
	}

	there, _ := filepath.Glob(filepath.Join(o.settings.EditConfDir(), "*.conf"))
	for _, f := range there[:min(len(there), maxConfs)] {
		b, _, err := durable.ReadFile(f, maxOptions, durable.Follow)
		if err == nil {
			err = os.WriteFile(filepath.Join(include, filepath.Base(f)), b, 0o600)
		}
		if err != nil {
			return err
		}
	}

	for _, f := range o.files {
		if len(f.text) == 0 {
			continue
		}
		if err := os.WriteFile(filepath.Join(include, f.name), f.text, 0o600); err != nil {
			return err
		}
	}

	return nil
}

// importedFile returns the imported file to which the path of a fault or note belongs, or nil.
func (o *sorter) importedFile(file, include string) *optionFile {
	if filepath.Dir(file) != include {
		return nil
	}
	i := slices.IndexFunc(o.files, func(f *optionFile) bool { return f.name == filepath.Base(file) && f.from != nil })
	if i < 0 {
		return nil
	}
	return o.files[i]
}

// refuse drops the option that has a fault. If the fault is not in an imported option, refuse
// returns false.
func (o *sorter) refuse(fault *conf.Fault, include string) bool {
	f := o.importedFile(fault.Path, include)
	if f == nil || fault.Option == "" {
		return false
	}
	if _, has := f.from.options.Get(fault.Option); !has || f.drop[fault.Option] != "" {
		return false
	}
	f.drop[fault.Option] = "the master does not start with it"
	delete(f.change, fault.Option)
	o.noteOption(f.from, fault.Option, false, "left out, the master does not start with it: %v", fault.Err)
	o.leftOut++
	return f.writeText() == nil
}

// remarks adds the master's notes about imported options to the notes of the import.
func (o *sorter) remarks(notes []conf.Note, include string) {
	for _, n := range notes {
		f := o.importedFile(n.Path, include)
		if f == nil || n.Level < slog.LevelInfo {
			continue
		}
		o.noteOption(f.from, n.Option, n.Level < slog.LevelWarn, "%s", n.Text)
	}
}
