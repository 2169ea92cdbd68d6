package master

import (
	"cmp"

	"saltern/master/internal/explain"
)

// openExplain creates the part that explains minions, and adds the runner fleet.explain.
func (m *Master) openExplain() {
	c := m.cfg
	m.explain = explain.New(explain.Config{
		Node:       cmp.Or(c.Node, c.ID),
		Options:    c,
		Nodes:      machines(c),
		Keys:       m.keys,
		Presence:   m.presence,
		SignIns:    m.signIns,
		Refusals:   m.requests,
		Unanswered: m.unanswered,
		Syndics:    m.syndics,
		Jobs:       m.jobs,
		Bus:        m.bus,
		Launch:     m.launch,
		Targets:    m.targets,
		Resources:  m.resources,
		Cache:      m.cache,
		Fleet:      m.fleet,
		Compiler:   m.compiler,
		Pillars:    m.pillars,
		Files:      m.files,
		Notify:     m.notify,
		Problems:   m.problems,
		Now:        m.now,
		Log:        m.log,
	})
	m.explain.AddRunner(m.runs.Table)
}
