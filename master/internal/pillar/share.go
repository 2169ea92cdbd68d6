package pillar

import (
	"errors"

	"saltern/master/internal/pillar/memo"
	"saltern/master/internal/pillar/renderer"
	"saltern/master/value"
)

// sharedTemplate is a template whose result may be used for other minions (saltern_pillar_memo). A
// *sharedTemplate may be nil: the result is not shared.
type sharedTemplate struct {
	compilation *compilation
	sum         memo.Sum // digest of the template's text
	key         memo.Sum // hash of the template's inputs
}

// shareOf returns the sharedTemplate of a template, or nil if its result must not be shared.
func (c *compilation) shareOf(p parsed, path, env, name string, defaults *value.Map) *sharedTemplate {
	cfg := &c.compiler.cfg
	if cfg.Memo == nil || cfg.Renderers == nil || c.withoutMemo || !p.shareable || c.session.Altered() {
		return nil
	}
	// Library starts a Python process if none has started yet. To start it, the compilation needs a
	// turn.
	if c.takeTurn != nil && !cfg.Renderers.Known() && !c.takeTurn() {
		c.giveUp(errMustWait)
		return nil
	}

	library, err := cfg.Renderers.Library(c.ctx)
	if err != nil {
		return nil // openSession will report the error
	}

	key, err := memo.KeyOf(path, p.sum[:], env, name, value.List(c.envNamed(env).dirs), c.pillarRoots(),
		orNil(c.saltenv), orNil(c.pillarenv), defaults.Clone(), library)
	if err != nil {
		return nil
	}

	return &sharedTemplate{compilation: c, sum: p.sum, key: key}
}

func (s *sharedTemplate) minion() memo.Minion {
	return memo.Minion{Grains: s.compilation.grains, Pillar: s.compilation.pillar}
}

// cachedResult returns the result from the memo. It returns false if the memo has none.
func (s *sharedTemplate) cachedResult() (any, bool) {
	if s == nil {
		return nil, false
	}
	c := s.compilation
	v, files, known := c.compiler.cfg.Memo.Find(s.key, s.minion(), c.compiler.files.contentSum)
	if known {
		c.noteImports(files)
	}
	return v, known
}

// noteImports records the files that the template of the moment has read, if origins are traced.
func (c *compilation) noteImports(files []memo.File) {
	if !c.trace.marks() {
		return
	}
	for _, f := range files {
		if !f.Missing {
			c.imports = append(c.imports, f.Path)
		}
	}
}

// renderInPython renders a template in Python. If the result can be shared, it stores the result in
// the memo.
func (c *compilation) renderInPython(session *renderer.Session, t renderer.Template, s *sharedTemplate) (any, error) {
	store := c.compiler.cfg.Memo
	if store == nil || c.check != nil {
		return session.Render(c.ctx, t)
	}
	if s == nil || store.Alone(s.key) {
		store.CountAlone()
		return session.Render(c.ctx, t)
	}

	v, trace, err := session.Record(c.ctx, t)
	var alone renderer.Unshareable
	switch {
	case errors.As(err, &alone):
		c.compiler.log.Debug("a pillar SLS is rendered for each minion by itself", "path", t.Path, "minion",
			c.req.ID, "reason", string(alone))
		store.PutAlone(s.key)
		store.CountAlone()
		return v, nil
	case err != nil:
		return nil, err
	case trace.Sum != s.sum: // the file was replaced after Go had read it
		store.CountAlone()
		return v, nil
	}

	store.Put(s.key, s.minion(), trace, v)
	return v, nil
}

// compileMemoized compiles the pillar of a request with the memo. If a template or an ext_pillar
// changes the grains, the pillar or the options, the results of other templates depend on which
// templates run before them and, with Salt 3008, on what these earlier templates have read. In that
// case compileMemoized compiles the complete pillar again without the memo, and does not use the
// memo for this minion for some minutes.
func (c *Compiler) compileMemoized(n *compilation, compile func(*compilation) (*value.Map, error)) (*value.Map, error) {
	if c.cfg.Memo == nil {
		return compile(n)
	}

	key, err := memo.KeyOf(n.req.ID)
	if err != nil {
		return nil, err
	}

	again := *n
	if n.withoutMemo = c.cfg.Memo.Alone(key); n.withoutMemo {
		return compile(n)
	}

	p, err := compile(n)
	if !n.altered || err != nil {
		return p, err
	}

	c.log.Debug("a pillar is compiled without the memo: something in it changes grains, the pillar or options",
		"minion", n.req.ID)
	c.cfg.Memo.PutAlone(key)
	again.withoutMemo = true
	again.pillar = value.NewMap()
	again.ignored = map[string][]string{}

	return compile(&again)
}

// closeSession closes the session of a compilation, if a session is open.
func (c *compilation) closeSession() {
	if c.session == nil {
		return
	}
	c.altered = c.altered || c.session.Altered()
	c.session.Close()
	c.session = nil
}
