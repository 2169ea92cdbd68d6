package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"saltern/cmd/internal/daemon"
	"saltern/master/conf"
)

// exitWarnings is the exit status of --check when a master would start with the configuration but
// something in it needs attention.
const exitWarnings = 2

// checked prints the result of --check for a valid configuration: warnings, and how the master
// treats each option. It returns the exit status. As with Salt, a master starts without
// configuration files. For --check a missing file is a fault, because the caller has named the
// wrong path. Only the file master may be missing in a folder: the packages install files in
// master.d.
func checked(cfg *conf.Master, stdout, stderr io.Writer) int {
	if len(cfg.Sources) == 0 || cfg.Sources[0] != cfg.Path && filepath.Base(cfg.Path) != "master" {
		fmt.Fprintf(stderr, "salt-master: there is no file %s; name its folder or itself by -c\n", cfg.Path)
		return daemon.ExitConfig
	}

	files := "1 file"
	if n := len(cfg.Sources); n > 1 {
		files = fmt.Sprintf("%d files", n)
	}

	fmt.Fprintf(stdout, "%s is right: %s read, id %s, ports %d and %d\n", cfg.Sources[0], files, cfg.ID,
		cfg.PublishPort, cfg.RetPort)
	code := daemon.ExitOK
	for _, n := range cfg.Notes {
		switch {
		case n.Level < slog.LevelWarn: // a note below a warning is not printed
		case n.Option == "" && n.Path == cfg.Path && cfg.Sources[0] != cfg.Path: // files in master.d are enough
		// root may check a configuration for the account that the master will have
		case n.Option == "user" && os.Geteuid() == 0:
			fmt.Fprintf(stdout, "note: %s\n", n)
		default:
			fmt.Fprintf(stdout, "warning: %s\n", n)
			code = exitWarnings
		}
	}

	for _, s := range cfg.Set {
		fmt.Fprintf(stdout, "%s: %s\n", becomes(s),
			conf.Note{Option: s.Option, Path: s.Path, Line: s.Line, Text: s.Remark})
	}

	return code
}

// becomes returns how the master treats an option that a file sets.
func becomes(s conf.Setting) string {
	switch s.Use {
	case "used":
		return "used"
	case "python":
		return "through Python"
	case "other":
		return "not by the master"
	case "":
		return "not known"
	}
	return "not used"
}
