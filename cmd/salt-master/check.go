package main

import (
	"fmt"
	"io"
	"log/slog"

	"saltern/master/conf"
)

// checked says that a configuration is right, and what in it has no effect or
// deserves a look. A main file that is missing is no fault at a start, as with
// Salt; who asks for a check has named the wrong one.
func checked(cfg *conf.Master, stdout, stderr io.Writer) int {
	if len(cfg.Sources) == 0 || cfg.Sources[0] != cfg.Path {
		fmt.Fprintf(stderr, "salt-master: there is no file %s; name its folder or itself by -c\n", cfg.Path)
		return exitConfig
	}
	files := "1 file"
	if n := len(cfg.Sources); n > 1 {
		files = fmt.Sprintf("%d files", n)
	}
	fmt.Fprintf(stdout, "%s is right: %s read, id %s, ports %d and %d\n", cfg.Path, files, cfg.ID, cfg.PublishPort, cfg.RetPort)
	for _, n := range cfg.Notes {
		kind := "note"
		if n.Level >= slog.LevelWarn {
			kind = "warning"
		}
		fmt.Fprintf(stdout, "%s: %s\n", kind, n)
	}
	return exitOK
}
