package master

import (
	"cmp"
	"path/filepath"

	"saltern/master/internal/merge"
)

// openMerge creates the part that tells git servers what new commits would change, by the option
// saltern_merge_reports.
func (m *Master) openMerge() {
	m.merge = merge.New(merge.Config{
		Reports: m.cfg.MergeReports,
		Remotes: m.repos,
		Compare: m.diff,
		Cluster: m.cluster,
		Record: func(id string) string {
			return cmp.Or(m.cluster.MergeRecord(id), filepath.Join(m.cfg.CacheDir, "merge-"+id+".saltern"))
		},
		Problem: m.problems.Report,
		Now:     m.now,
		Log:     m.log,
	})
	m.merge.AddRunners(m.runs.Table)
}
