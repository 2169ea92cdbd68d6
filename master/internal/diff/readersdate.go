package diff

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"saltern/internal/printable"
	"saltern/master/internal/git"
)

// datingTakes bounds the time in which lines and commits are looked up. Then the report has those that are
// known: others wait for their turn to ask.
const datingTakes = 30 * time.Second

// date adds lines and commits to the sources.
func (r *readersReport) date(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, datingTakes)
	defer cancel()

	d := &dating{
		lines:   findLines(ctx, r.Groups),
		changes: map[string]sourceOrigin{},
	}
	for _, g := range r.Groups {
		for _, s := range g.Sources {
			g.origins = append(g.origins, d.of(ctx, s, r.roots[s.File]))
		}
	}
}

// fileOrigin is where a file of a git pillar comes from.
type fileOrigin struct {
	repository   *git.Repository
	commit, path string
}

// sourceOrigin is the line of a source, and the commit that has brought it.
type sourceOrigin struct {
	line         int // 0: it is not known
	remote, path string
	change       git.Change
	fault        string // why the line or the commit is not known
}

// maxDated bounds the places whose commits are looked up for one report.
const maxDated = 300

// dating finds lines and commits. It asks git once for each place.
type dating struct {
	lines   map[string]*fileLines
	changes map[string]sourceOrigin
	asked   int
}

func (d *dating) of(ctx context.Context, s findingSource, from fileOrigin) (o sourceOrigin) {
	if s.File == "" {
		return o
	}
	if len(s.keyPath) > 0 {
		lines := d.lines[s.File]
		o.line = lines.found[joined(s.keyPath)]
		o.fault = lines.fault
	}
	if from.repository == nil {
		return o
	}

	key := fmt.Sprintf("%s\x00%d", s.File, o.line)
	if known, there := d.changes[key]; there {
		return known
	}
	o.remote = from.repository.URL()
	o.path = printable.Clean(from.path)
	d.asked++
	switch {
	case d.asked > maxDated:
		o.fault = "the commit was not looked up: there are too many places"
		return o
	case ctx.Err() != nil:
		o.fault = "the commit was not looked up: no time left"
		return o
	}
	var err error
	if o.change, err = from.repository.LastChange(ctx, from.commit, from.path, o.line); err != nil {
		o.fault = printable.Line(cut("the commit is not known: "+err.Error(), maxPath))
	}
	d.changes[key] = o
	return o
}

// noteRoot records where a file of a git pillar comes from. The caller holds mu.
func (r *readersReport) noteRoot(file string, m *minionSearch) {
	if _, known := r.roots[file]; known || file == "" {
		return
	}
	for _, root := range m.origins.Roots {
		rel, err := filepath.Rel(root.Dir, file)
		if err == nil && root.Origin.Mountpoint != "" {
			rel, err = filepath.Rel(root.Origin.Mountpoint, rel)
		}
		if err != nil || !filepath.IsLocal(rel) || root.Origin.Repository == nil {
			continue
		}
		r.roots[file] = fileOrigin{
			repository: root.Origin.Repository,
			commit:     root.Origin.Commit,
			path:       filepath.Join(root.Origin.Path, rel),
		}
		return
	}
}
