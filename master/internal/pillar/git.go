package pillar

import (
	"strings"

	"saltern/master/internal/gitpillar"
	"saltern/master/internal/pillar/extpillar"
	"saltern/master/value"
)

// gitPillar compiles one git entry of ext_pillar (salt/pillar/git_pillar.py ext_pillar). It
// compiles each root of the entry separately, with the root's own top file.
func (c *compilation) gitPillar(n int) *value.Map {
	// Each root gets its own session. A compilation must not hold a session while it waits for a
	// worker: otherwise all workers could wait for each other.
	c.closeSession()
	out := value.NewMap()
	roots := c.gitRoots(n)
	c.trace.addRoots(roots)
	for i, root := range roots {
		if c.pillarenv != "" && root.Env != c.pillarenv || root.Mounted {
			continue
		}

		dirs := []string{root.Dir}
		for j, other := range roots {
			if c.compiler.cfg.GitIncludes && j != i && other.Env == root.Env && other.Dir != root.Dir {
				dirs = append(dirs, other.Dir)
			}
		}

		sub := &compilation{
			compiler:  c.compiler,
			ctx:       c.ctx,
			giveUp:    c.giveUp,
			takeTurn:  c.takeTurn,
			req:       c.req,
			grains:    c.grains,
			saltenv:   root.Env,
			pillarenv: c.pillarenv,
			envs:      []environment{{root.Env, dirs}},
			pillar:    value.NewMap(),
			ignored:   map[string][]string{},
		}

		sub.req.Override = nil
		sub.withoutMemo = c.withoutMemo
		sub.outcome = c.outcome
		sub.trace = c.trace
		leave := c.trace.enterRoot()
		out = c.mergeMaps(out, sub.compileGitRoot())
		leave()
		c.altered = c.altered || sub.altered
	}

	return out
}

// gitRoots returns the directories of one git entry. For a missing directory it adds an error to
// the pillar's _errors.
func (c *compilation) gitRoots(n int) []gitpillar.Root {
	roots, err := c.compiler.cfg.Git.Roots(c.ctx, n, c.pillarenv, c.saltenv)
	c.giveUpIfUnable(err)
	if c.isOver() {
		return nil
	}
	if err != nil {
		c.compiler.log.Error("a git pillar is missing", "minion", c.req.ID, "error", err)
		for line := range strings.Lines(err.Error()) {
			c.errors = append(c.errors, "Failed to load ext_pillar git: "+strings.TrimSpace(line))
		}
	}
	return roots
}

// gitForPython returns the directories of all git entries in the form that Salt's Pillar class
// expects.
func (c *compilation) gitForPython() []any {
	out := []any{}
	if c.compiler.cfg.Git != nil {
		for n := range c.compiler.cfg.Git.Len() {
			out = append(out, gitpillar.ForPython(c.gitRoots(n)))
		}
	}
	return out
}

// compileGitRoot compiles the pillar of one root, without ext_pillar (Pillar.compile_pillar).
func (c *compilation) compileGitRoot() *value.Map {
	defer c.closeSession()
	t := c.mergedTop(c.mergeTops)
	pillar := c.renderSelected(c.matchTops(t)).Clone()
	c.errors = append(c.errors, c.topErrors...)
	c.setErrors(pillar)
	return pillar
}

// chainPart is a part of the ext_pillar chain: one git entry, one entry that Go may run, or several
// consecutive other entries, which Python runs together.
type chainPart struct {
	git    int              // index of the git entry; -1: the part has other entries
	inGo   *extpillar.Entry // nil: Python runs the entries
	others []any
}

// splitChain splits the option ext_pillar into parts.
func splitChain(extPillar []any, mayRunInGo bool) (out []chainPart) {
	n := 0
	other := func(e any) {
		if len(out) == 0 || out[len(out)-1].git >= 0 || out[len(out)-1].inGo != nil {
			out = append(out, chainPart{git: -1})
		}
		last := &out[len(out)-1]
		last.others = append(last.others, e)
	}

	for i, e := range extPillar {
		m, ok := e.(*value.Map)
		if !ok {
			other(e)
			continue
		}

		alone := mayRunInGo && m.Len() == 1
		for k, v := range m.All() {
			if k == "git" {
				out = append(out, chainPart{git: n})
				n++
				continue
			}
			if entry := parseEntry(k, v); alone && entry != nil {
				entry.Number = i + 1
				out = append(out, chainPart{git: -1, inGo: entry, others: []any{e}})
				continue
			}
			other(value.NewMap(k, v))
		}
	}

	return out
}
