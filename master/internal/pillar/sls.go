package pillar

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"saltern/master/internal/pillar/renderer"
	"saltern/master/pattern"
	"saltern/master/value"
)

// Limits of one compilation.
const (
	maxIncludeDepth = 100
	maxRendered     = 10000 // SLS
)

var errNoRenderers = errors.New("no template renderers are configured on this master")

// compile renders one file (salt/template.py compile_template).
func (c *compilation) compile(path, env, name string, defaults *value.Map) (any, error) {
	c.rendered++
	if c.rendered > maxRendered {
		return nil, fmt.Errorf("more than %d files are rendered for one minion", maxRendered)
	}

	p, err := c.c.files.read(path)
	if err != nil {
		return nil, err
	}

	// When Go cannot read it, Salt may still can, or knows the words for it.
	if p.plain && (p.err == nil || c.c.cfg.Renderers == nil) {
		return p.value, p.err
	}

	share := c.share(p, path, env, name, defaults)
	v, known := share.known()
	if known {
		return v, nil
	}

	// Who waited for a worker may find that another minion has rendered it meanwhile.
	s, err := c.session(func() bool {
		v, known = share.known()
		return !known
	})

	if known {
		return v, nil
	}

	if err == nil {
		v, err = c.python(s, renderer.Template{
			Path:    path,
			SLS:     name,
			Saltenv: env,
			Pillar:  true,
			Context: defaults,
		}, share)
		if err == nil {
			return v, nil
		}

		c.unable(err)
	}

	var fault *renderer.Failure
	if p.plain && !errors.As(err, &fault) {
		return nil, p.err
	}

	return nil, err
}

// session opens the renderer session of this compilation on first need. When
// there is a worker for it, needed is asked whether it still is; nil: it is.
func (c *compilation) session(needed func() bool) (*renderer.Session, error) {
	if c.rend != nil {
		return c.rend, nil
	}
	if c.c.cfg.Renderers == nil {
		return nil, errNoRenderers
	}
	if c.rendErr != nil {
		return nil, c.rendErr
	}
	if c.turn != nil && !c.turn() {
		c.giveUp(errMustWait)
		return nil, errMustWait
	}

	c.rend, c.rendErr = c.c.cfg.Renderers.Session(c.ctx, renderer.Minion{
		ID:        c.req.ID,
		Grains:    c.grains,
		Saltenv:   orNil(c.saltenv),
		Pillarenv: orNil(c.pillarenv),
		Pillar:    c.pillar,
		Opts:      value.NewMap("pillar_roots", c.roots()),
		Watch:     c.c.cfg.Memo != nil && !c.apart,
		Needed:    needed,
	})

	err := c.rendErr
	if err != nil {
		c.rend = nil
	}

	if errors.Is(err, renderer.ErrNotNeeded) {
		c.rendErr = nil
	}

	c.unable(err)
	return c.rend, err
}

// roots are the environments of this minion as the option pillar_roots.
func (c *compilation) roots() *value.Map {
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

// missing notes an SLS that is not there, and reports whether it is ignored.
func (c *compilation) missing(name, env string) []string {
	if slices.Contains(c.ignored[env], name) {
		c.c.log.Debug("an ignored SLS is missing", "minion", c.req.ID, "sls", name, "env", env)
		return nil
	}
	if len(c.env(env).dirs) > 0 {
		return []string{fmt.Sprintf("Specified SLS '%s' in environment '%s' is not available on the salt master",
			name, env)}
	}
	c.c.log.Debug("an SLS is in an environment that is not configured", "minion", c.req.ID, "sls", name, "env", env)
	return nil
}

// failed words an error of rendering. What a template shows in its errors
// may be secret, so minions get the details only when the option says so.
func (c *compilation) failed(name string, err error) string {
	if c.over() {
		return ""
	}

	attrs := append([]any{"minion", c.req.ID, "sls", name}, c.told(err)...)
	switch {
	case errors.Is(err, errNoRenderers), errors.Is(err, renderer.ErrNoSalt):
		c.c.log.Error("a pillar SLS needs Salt's Python renderers, which this master does not have; install the Salt library for Python, or write the SLS as plain YAML",
			attrs...)
		return fmt.Sprintf("Rendering SLS '%s' failed: it needs Salt's Python renderers, which are not available on the salt master. Please see master log for details.",
			name)
	}

	c.c.log.Error("a pillar SLS cannot be rendered", attrs...)
	if c.c.cfg.ShowRenderErrors {
		return fmt.Sprintf("Rendering SLS '%s' failed, render error:\n%v", name, err)
	}

	return fmt.Sprintf("Rendering SLS '%s' failed. Please see master log for details.", name)
}

// lineNumber finds the line that an error of a template names.
var lineNumber = regexp.MustCompile(`\bline (\d{1,9})\b`)

// jinjaFault is the beginning of an error of Jinja that names nothing but
// variables of the template.
var jinjaFault = regexp.MustCompile(`^Jinja variable '[\w ]{1,64}' (is undefined|has no attribute '[\w-]{1,64}')(; line \d{1,9})?`)

// told gives what a log that many read says of an error: for one of a template
// or module its class and line, since its text shows excerpts of the pillar,
// which are logged at level debug only.
func (c *compilation) told(err error) []any {
	var f *renderer.Failure
	if !errors.As(err, &f) {
		text, _, _ := strings.Cut(err.Error(), "\n")
		return []any{"error", text}
	}

	c.c.log.Debug("an error of a template or module", "minion", c.req.ID, "error", err, "trace", f.Trace)
	attrs := []any{"class", f.Kind}
	if what := jinjaFault.FindString(f.Message); what != "" {
		attrs = append(attrs, "fault", what)
	}

	if m := lineNumber.FindStringSubmatch(f.Message); m != nil {
		attrs = append(attrs, "line", m[1])
	}

	return append(attrs, "details", "at log level debug")
}

// render is one SLS with its includes (render_pstate). state is nil when
// there is nothing to merge; mods holds what was rendered in this
// environment.
func (c *compilation) render(
	name, env string,
	mods map[string]any,
	defaults *value.Map,
	depth int,
) (state any, errs []string) {
	if c.over() {
		return nil, nil
	}

	path, isInit, err := sls(c.env(env), name)
	if err != nil {
		return nil, []string{c.failed(name, err)}
	}
	if path == "" {
		return nil, c.missing(name, env)
	}
	if depth > maxIncludeDepth {
		mods[name] = nil
		return nil, []string{c.failed(name, fmt.Errorf("includes are nested more than %d deep", maxIncludeDepth))}
	}

	state, err = c.compile(path, env, name, defaults)
	if err != nil {
		mods[name] = nil
		return nil, []string{c.failed(name, err)}
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
	return c.includes(name, env, m, list, isInit, mods, defaults, depth)
}

// includes renders and merges what an SLS includes. As in Salt, defaults that
// one entry gives also hold for those after it.
func (c *compilation) includes(
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

		found, err := c.included(name, env, sub, isInit)
		if err != nil {
			errs = append(errs, err.Error())
		}

		for _, s := range found {
			next, done := mods[s]
			if !done {
				// Salt repeats these errors for every further name; once is enough.
				var more []string
				next, more = c.render(s, env, mods, defaults, depth+1)
				errs = append(errs, more...)
			}

			if n, isMap := next.(*value.Map); isMap && n.Len() > 0 {
				if key != "" {
					parts := strings.Split(key, ":")
					for _, part := range slices.Backward(parts) {
						n = value.NewMap(part, n)
					}
				}

				if c.c.cfg.IncludesOverride {
					m = c.merge(m, n)
				} else {
					states = append(states, n)
				}
			}
		}
	}

	if c.c.cfg.IncludesOverride {
		return m, errs
	}

	// The SLS itself comes last: its values win.
	states = append(states, m)
	out := states[0]
	for _, s := range states[1:] {
		out = c.merge(out, s)
	}

	return out, errs
}

func (c *compilation) merge(a, b *value.Map) *value.Map {
	return merge(a, b, c.c.cfg.Strategy, c.c.cfg.MergeLists)
}

// includeEntry reads one entry of an include: a name, or a map of a name to
// its key and defaults.
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

// included resolves the name in an include to the SLS that it stands for. A
// name may be found twice, once as written and once below the SLS that
// includes it; both count, as in Salt.
func (c *compilation) included(name, env, sub string, isInit bool) ([]string, error) {
	if !c.known(env) {
		return []string{sub}, noEnv(env)
	}

	avail, err := c.c.files.available(c.env(env))
	if err != nil {
		return []string{sub}, err
	}

	found := filter(avail, strings.ReplaceAll(strings.TrimLeft(sub, "."), "/", "."))
	if strings.HasPrefix(sub, ".") {
		parts := strings.Split(name, ".")
		if !isInit {
			parts = parts[:len(parts)-1]
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

func filter(n *names, glob string) []string {
	if pattern.HasMeta(glob) {
		return pattern.Filter(n.list, glob)
	}
	if n.has(glob) {
		return []string{glob}
	}
	return nil
}
