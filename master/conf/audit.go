package conf

import (
	"cmp"
	"log/slog"

	"saltern/internal/audit"
)

// Audit is where programs of a master's account keep the record of who did what. log is
// told of acts that are lost to it; it may be nil: nobody is told.
func (m *Master) Audit(program string, log *slog.Logger) audit.Config {
	return audit.Config{
		Dir:     audit.MasterDir(m.CacheDir),
		Node:    cmp.Or(m.Node, m.ID),
		Program: program,
		Log:     log,
	}
}
