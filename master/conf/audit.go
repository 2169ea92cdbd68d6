package conf

import (
	"cmp"

	"saltern/audit"
)

// Audit is where programs of a master's account keep the record of who did what.
func (m *Master) Audit(program string) audit.Config {
	return audit.Config{Dir: audit.MasterDir(m.CacheDir), Node: cmp.Or(m.Node, m.ID), Program: program}
}
