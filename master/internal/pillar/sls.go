package pillar

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"saltern/master/internal/pillar/renderer"
	"saltern/master/pattern"
	"saltern/master/saltyaml"
	"saltern/master/value"
)

// Bounds of one compilation.
const (
	maxIncludeDepth = 100
	maxRendered     = 10000 // SLS rendered in one compilation
)

var errNoRenderers = errors.New("no template renderers are configured on this master")

// compileFile renders one file (salt/template.py compile_template).
func (c *compilation) compileFile(path, env, name string, defaults *value.Map) (any, error) {
	c.imports = nil
	v, err := c.renderFile(path, env, name, defaults)
	// Otherwise both sides of a comparison would have the same error.
	if c.outcome != nil && (errors.Is(err, errNoRenderers) || errors.Is(err, renderer.ErrNoSalt)) {
		v, err = c.refuse(path, env, name, "needs Salt's Python renderers, which this master does not have", defaults)
	}
	if err := c.spendValues(v); err != nil {
		return nil, err
	}
	c.outcome.noteResult(env, name, v)
	v = c.trace.markFile(path, env, name, c.imports, v)
	if c.check != nil {
		c.check.addResult(fileResult{path: path, env: env, name: name}, v, err)
	}
	return v, err
}

func (c *compilation) renderFile(path, env, name string, defaults *value.Map) (any, error) {
	c.rendered++
	if c.rendered > maxRendered {
		return nil, fmt.Errorf("more than %d files are rendered for one minion", maxRendered)
	}

	p, err := c.compiler.files.parsedFile(path)
	if err != nil {
		return nil, err
	}

	if skipped := c.noteFile(p, path, env, name); skipped {
		return c.refuse(path, env, name, "", defaults)
	}

	if c.outcome != nil && errors.Is(p.err, saltyaml.ErrLimit) {
		return c.refuse(path, env, name, "is too large to be compared", defaults)
	}

	return c.renderParsed(p, path, env, name, defaults)
}

// renderWithoutGPG renders a file except for the renderer gpg, if Go does the work of that.
func (c *compilation) renderWithoutGPG(p parsed, path, env, name string, defaults *value.Map) (any, error) {
	// A file that Go cannot parse goes to Salt's renderer, which may succeed, or reports the error
	// with Salt's text.
	fresh := c.check.isFresh() || c.compiler.distrusted.has(path, p.id)
	isDone := p.err == nil && !(p.template && fresh)
	if p.plain && (isDone || c.compiler.cfg.Renderers == nil) {
		return p.value, p.err
	}

	share := c.shareOf(p, path, env, name, defaults)
	if c.isConfined() {
		return c.renderConfined(p, path, env, name, defaults, share)
	}

	v, known := share.cachedResult()
	if known {
		return v, nil
	}

	// While this compilation waited for a worker, the compilation for another minion may have
	// stored the result.
	s, err := c.openSession(func() bool {
		v, known = share.cachedResult()
		return !known
	})

	if known {
		return v, nil
	}

	if err == nil {
		v, err = c.renderInPython(s, renderer.Template{
			Path:    path,
			SLS:     name,
			Saltenv: env,
			Pillar:  true,
			Fresh:   fresh,
			Sealed:  c.outcome != nil || p.gpg != noGPG,
			Context: defaults,
		}, share)
		if err == nil {
			return v, nil
		}

		c.giveUpIfUnable(err)
	}

	var fault *renderer.Failure
	if p.plain && !errors.As(err, &fault) {
		return nil, p.err
	}

	return nil, err
}

// openSession returns the renderer session of this compilation, and opens the session if there is
// none. openSession may have to wait for a worker; after that it calls needed, which reports
// whether the session is still needed. needed may be nil: the session is needed.
func (c *compilation) openSession(needed func() bool) (*renderer.Session, error) {
	if c.session != nil {
		return c.session, nil
	}
	if c.compiler.cfg.Renderers == nil {
		return nil, errNoRenderers
	}
	if c.sessionErr != nil {
		return nil, c.sessionErr
	}
	if c.takeTurn != nil && !c.takeTurn() {
		c.giveUp(errMustWait)
		return nil, errMustWait
	}

	c.session, c.sessionErr = c.compiler.cfg.Renderers.Session(c.ctx, renderer.Minion{
		ID:        c.req.ID,
		Grains:    c.grains,
		Saltenv:   orNil(c.saltenv),
		Pillarenv: orNil(c.pillarenv),
		Pillar:    c.pillar,
		Opts:      value.NewMap("pillar_roots", c.pillarRoots()),
		Watch:     c.compiler.cfg.Memo != nil && !c.withoutMemo && !c.isConfined(),
		Needed:    needed,
	})

	err := c.sessionErr
	if err != nil {
		c.session = nil
	}

	if errors.Is(err, renderer.ErrNotNeeded) {
		c.sessionErr = nil
	}

	c.giveUpIfUnable(err)
	return c.session, err
}

// pillarRoots returns the environments of this minion in the form of the option pillar_roots.
func (c *compilation) pillarRoots() *value.Map {
	roots := value.NewMap()
	for _, e := range c.envs {
		roots.Set(e.name, value.List(e.dirs))
	}
	return roots
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// missingSLS returns the error text for a missing SLS. If the SLS may be missing, or its
// environment is not configured, missingSLS only logs that and returns nil.
func (c *compilation) missingSLS(name, env string) []string {
	if slices.Contains(c.ignored[env], name) {
		c.compiler.log.Debug("an ignored SLS is missing", "minion", c.req.ID, "sls", name, "env", env)
		return nil
	}
	if len(c.envNamed(env).dirs) > 0 {
		return []string{fmt.Sprintf("Specified SLS '%s' in environment '%s' is not available on the salt master",
			name, env)}
	}
	c.compiler.log.Debug("an SLS is in an environment that is not configured", "minion", c.req.ID, "sls", name, "env", env)
	return nil
}

// renderSLS renders one SLS with its includes (render_pstate). state is nil if there is nothing to
// merge. mods holds the SLS that were rendered before in this environment.
func (c *compilation) renderSLS(
	name, env string,
	mods map[string]any,
	defaults *value.Map,
	depth int,
) (state any, errs []string) {
	if c.isOver() {
		return nil, nil
	}

	path, isInit, err := findSLS(c.envNamed(env), name)
	if err != nil {
		return nil, []string{c.failureText(name, "", err)}
	}
	if path == "" {
		return nil, c.missingSLS(name, env)
	}
	if depth > maxIncludeDepth {
		mods[name] = nil
		return nil, []string{c.failureText(name, path, fmt.Errorf("includes are nested more than %d deep", maxIncludeDepth))}
	}

	state, err = c.compileFile(path, env, name, defaults)
	if err != nil {
		mods[name] = nil
		return nil, []string{c.failureText(name, path, err)}
	}

	mods[name] = state
	if !value.Truth(state) {
		return state, nil
	}

	m, ok := state.(*value.Map)
	if !ok {
		return state, []string{fmt.Sprintf("SLS '%s' does not render to a dictionary", name)}
	}

	include, ok := m.Get("include")
	if !ok {
		return m, nil
	}

	list, ok := include.([]any)
	if !ok {
		return m, []string{fmt.Sprintf("Include Declaration in SLS '%s' is not formed as a list", name)}
	}

	m = m.Clone()
	m.Delete("include")
	mods[name] = m
	return c.mergeIncludes(name, env, m, list, isInit, mods, defaults, depth)
}

// mergeIncludes renders the includes of an SLS and merges the results. As in Salt, the defaults of
// an entry apply to the entries after it, too.
func (c *compilation) mergeIncludes(
	name, env string,
	m *value.Map,
	list []any,
	isInit bool,
	mods map[string]any,
	defaults *value.Map,
	depth int,
) (any, []string) {
	var errs []string
	var states []*value.Map
	for _, entry := range list {
		sub, key, d, ok := includeEntry(entry)
		if !ok {
			errs = append(errs,
				fmt.Sprintf("Include Declaration in SLS '%s' has an entry that is neither a name nor a dictionary",
					name))
			continue
		}

		if d != nil {
			defaults = d
		}

		found, err := c.resolveInclude(name, env, sub, isInit)
		if err != nil {
			errs = append(errs, err.Error())
		}

		for _, s := range found {
			c.trace.addInclude(env, name, s, key)
			next, done := mods[s]
			if !done {
				// Salt adds the errors of earlier names again for every further name. Here each
				// error is added only once.
				var more []string
				next, more = c.renderSLS(s, env, mods, defaults, depth+1)
				errs = append(errs, more...)
			}

			if n, isMap := next.(*value.Map); isMap && n.Len() > 0 {
				if key != "" {
					parts := strings.Split(key, ":")
					for _, part := range slices.Backward(parts) {
						n = value.NewMap(part, n)
					}
				}

				if c.compiler.cfg.IncludesOverride {
					m = c.mergeMaps(m, n)
				} else {
					states = append(states, n)
				}
			}
		}
	}

	if c.compiler.cfg.IncludesOverride {
		return m, errs
	}

	// The SLS itself comes last, so that its values win.
	states = append(states, m)
	out := states[0]
	for _, s := range states[1:] {
		out = c.mergeMaps(out, s)
	}

	return out, errs
}

func (c *compilation) mergeMaps(a, b *value.Map) *value.Map {
	if c.trace.marks() {
		return mergeMarked(a, b, c.compiler.cfg.Strategy, c.compiler.cfg.MergeLists)
	}
	return mergeBy(a, b, c.compiler.cfg.Strategy, c.compiler.cfg.MergeLists)
}

// includeEntry reads one entry of an include: the name of an SLS, or a map of one name to its key
// and defaults. key is the key of the pillar under which the included data is put; "" for none. ok
// is false for an entry in another form.
func includeEntry(v any) (name, key string, defaults *value.Map, ok bool) {
	switch v := v.(type) {
	case string:
		return v, "", nil, v != ""
	case *value.Map:
		for k, x := range v.All() {
			name, _ = k.(string)
			how, isMap := x.(*value.Map)
			if name == "" || !isMap {
				return "", "", nil, false
			}

			if defaults = how.Map("defaults"); defaults == nil {
				defaults = value.NewMap()
			}

			return name, how.Str("key"), defaults, true
		}
	}

	return "", "", nil, false
}

// resolveInclude returns the names of the SLS to which a name in an include refers. If an SLS
// exists both under the name itself and under the name below the including SLS, resolveInclude
// returns both, as Salt does.
func (c *compilation) resolveInclude(name, env, sub string, isInit bool) ([]string, error) {
	if !c.isKnownEnv(env) {
		return []string{sub}, noEnv(env)
	}

	avail, err := c.compiler.files.available(c.envNamed(env))
	if err != nil {
		return []string{sub}, err
	}

	found := filter(avail, strings.ReplaceAll(strings.TrimLeft(sub, "."), "/", "."))
	if strings.HasPrefix(sub, ".") {
		parts := strings.Split(name, ".")
		if !isInit {
			parts = parts[:len(parts)-1]
		}
		for c.compiler.cfg.Compare.ofStates() && strings.HasPrefix(sub, "..") && len(parts) > 0 { // salt/state.py render_state
			parts, sub = parts[:len(parts)-1], sub[1:]
		}
		sub = strings.Join(append(slices.Clone(parts), sub[1:]), ".")
	}

	if found = append(found, filter(avail, sub)...); len(found) == 0 {
		found = []string{sub}
	}

	return found, nil
}

func noEnv(env string) error {
	return saltError("No matching pillar environment for environment '" + env + "' found")
}

func filter(n *slsNames, glob string) []string {
	if pattern.HasMeta(glob) {
		return pattern.Filter(n.list, glob)
	}
	if n.hasName(glob) {
		return []string{glob}
	}
	return nil
}
