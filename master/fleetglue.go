package master

import (
	"context"
	"strings"

	"saltern/master/internal/fileserver"
	"saltern/master/internal/fleet"
	"saltern/master/internal/minion"
	"saltern/master/internal/syndics"
	"saltern/master/keys"
)

// openFleet creates m.fleet, which answers questions about the runs of all minions, and
// m.revisions, which tell which files the minions were served. Both stay nil on a master without a
// history.
func (m *Master) openFleet() error {
	if m.recorder == nil {
		return nil
	}

	m.fleet = fleet.NewFleet(m.recorder, fleetMinions{m.keys, m.syndics}, m.olderRuns(), m.now)
	pillars, err := fileserver.New(fileserver.Config{
		Roots:       m.cfg.PillarRoots,
		IgnoreRegex: m.cfg.FileIgnoreRegex,
		IgnoreGlob:  m.cfg.FileIgnoreGlob,
		Cachedir:    m.cfg.CacheDir,
		Log:         m.log,
	})
	if err != nil {
		return err
	}
	m.revisions = fleet.NewRevisions([]fleet.Source{m.files, pillarRoots{pillars}, m.repos}, m.now, m.log)
	return nil
}

// fleetMinions are the minions of the master. It implements fleet.Minions.
type fleetMinions struct {
	*keys.Store
	syndics *syndics.Registry
}

// IsSyndic implements fleet.Minions.
func (m fleetMinions) IsSyndic(id string) bool { return m.syndics.Known(id) }

// pillarRoots are the files below pillar_roots.
type pillarRoots struct{ files *fileserver.Server }

func (p pillarRoots) Revision(ctx context.Context) (string, error) {
	text, err := p.files.Revision(ctx)
	return strings.Replace(text, "files", "pillars", 1), err
}

// revisionsForMinions returns nil, not an interface with a nil pointer, on a master without a history.
func (m *Master) revisionsForMinions() minion.Revisions {
	if m.revisions == nil {
		return nil
	}
	return m.revisions
}
