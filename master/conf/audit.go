package conf

import (
	"cmp"
	"log/slog"

	"saltern/internal/audit"
)

// Audit returns the configuration of the audit record for a program that runs under the master's
// account. Messages about lost records go to log, which may be nil.
func (m *Master) Audit(program string, log *slog.Logger) audit.Config {
	return audit.Config{
		Dir:     audit.MasterDir(m.CacheDir),
		Node:    cmp.Or(m.Node, m.ID),
		Program: program,
		Log:     log,
	}
}
