package master

import (
	"path/filepath"
	"slices"

	"saltern/master/cache"
	"saltern/master/internal/diff"
	"saltern/master/internal/launch"
	"saltern/master/internal/pillar"
	"saltern/master/internal/pillar/renderer"
	"saltern/master/value"
)

// openDiff creates the service that compares refs with what is served. renderers and pillars are the
// configurations by which the master renders and compiles.
func (m *Master) openDiff(renderers renderer.Config, pillars pillar.Config) {
	c := m.cfg
	folders := c.DiffFolders
	if folders == nil {
		folders = []string{"/srv"}
	}

	m.diff = diff.New(diff.Config{
		Pillar:   pillars,
		Renderer: renderers,
		States:   m.stateFiles(),
		Fleet:    diffFleet{m.targets, m.cache},
		Dir:      filepath.Join(c.CacheDir, "diff"),
		Trusted:  c.DiffTrusted,
		Folders:  folders,
		Takes:    c.DiffTimeout,
		Newest:   m.newestForRunners,
		Log:      m.log,
	})
}

// stateFiles returns the sources of the files for minions.
func (m *Master) stateFiles() diff.StateFiles {
	c := m.cfg
	place := func(backend string) int { return slices.Index(c.FileserverBackend, backend) }
	files := diff.StateFiles{
		Git:      m.repos.Files(),
		GitFirst: place("gitfs") < place("roots"),
		Options:  pillar.States{Merging: c.TopFileMergingStrategy, DefaultTop: c.Raw.Str("default_top")},
	}
	if place("roots") >= 0 {
		files.Roots = c.FileRoots
	}
	return files
}

// diffFleet is the fleet as comparisons see it.
type diffFleet struct {
	*launch.Targets
	cache *cache.Store
}

func (f diffFleet) Grains(id string) (*value.Map, bool) { return f.cache.Get(cache.Grains, id) }
