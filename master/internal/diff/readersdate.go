package diff

import (
	"context"
	"fmt"
	"path/filepath"

	"saltern/internal/printable"
	"saltern/master/internal/git"
)

// date adds lines and commits to the sources.
func (r *readersReport) date(ctx context.Context) {
	d := &dating{files: map[string]string{}, changes: map[string]sourceOrigin{}}
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
	fault        string // why the commit is not known
}

// maxDated bounds the places whose commits are looked up for one report.
const maxDated = 300

// dating finds lines and commits. It asks git once for each place.
type dating struct {
	files   map[string]string
	changes map[string]sourceOrigin
	asked   int
}

func (d *dating) of(ctx context.Context, s findingSource, from fileOrigin) (o sourceOrigin) {
	if s.File == "" {
		return o
	}
	if len(s.keyPath) > 0 {
		o.line = lineOf(d.text(s.File), s.keyPath)
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
	if d.asked > maxDated {
		o.fault = "the commit was not looked up: there are too many places"
		return o
	}
	var err error
	if o.change, err = from.repository.LastChange(ctx, from.commit, from.path, o.line); err != nil {
		o.fault = printable.Line(cut("the commit is not known: "+err.Error(), maxPath))
	}
	d.changes[key] = o
	return o
}

// text returns the text of a file, or "" if it cannot be read.
func (d *dating) text(path string) string {
	text, known := d.files[path]
	if known {
		return text
	}
	text, _ = readText(path) // without a text no line is known
	d.files[path] = text
	return text
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
