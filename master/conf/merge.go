package conf

import (
	"log/slog"

	"saltern/master/internal/merge/options"
)

// outgoing reads the options about what the master sends to other servers.
func (a *assembly) outgoing(m *Master) {
	a.notifications(m)
	a.mergeReports(m)
}

// mergeReports reads saltern_merge_reports, and adds a note for each entry that cannot be obeyed.
func (a *assembly) mergeReports(m *Master) {
	var faults []error
	m.MergeReports, faults = options.Parse(m.MergeOption, m.DiffTrusted)
	for _, err := range faults {
		a.remark(slog.LevelError, "saltern_merge_reports", "%v: it reports nothing", err)
	}
}
