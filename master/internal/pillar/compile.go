package pillar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"saltern/master/internal/gitpillar"
	"saltern/master/internal/pillar/renderer"
	"saltern/master/pattern"
	"saltern/master/value"
)

// Errors with which a compilation is given up. They concern this master, not the sources of the
// pillar.
var (
	// ErrUnable means that this master cannot compile the pillar now. The pillar's sources may be
	// fine.
	ErrUnable = errors.New("this master could not make the pillar")
	// errMustWait means that the compilation needs a renderer and all are busy. Later, with a
	// renderer, the pillar is compiled from the beginning.
	errMustWait = errors.New("all renderers are at work")
)

// compilation is the compilation of one pillar.
type compilation struct {
	compiler *Compiler
	ctx      context.Context
	giveUp   context.CancelCauseFunc // ends ctx, and with it the compilation
	// takeTurn is called when a renderer is needed, and reports whether there is one. It may be nil:
	// the compilation waits for a renderer.
	takeTurn           func() bool
	req                Request
	grains             *value.Map
	saltenv, pillarenv string
	envs               []environment
	pillar             *value.Map // the pillar as templates and matchers see it
	ignored            map[string][]string
	errors, topErrors  []string
	session            *renderer.Session
	sessionErr         error
	rendered           int
	withoutMemo        bool // do not use the memo
	altered            bool // a session that has ended changed what its templates see
}

// Compile compiles the pillar of a minion. Faults of the pillar's sources are in the pillar's _errors
// and in the log. An error means that there is no pillar, for example because ctx has ended. The map
// belongs to the caller; the values in it may be shared and must not be changed.
func (c *Compiler) Compile(ctx context.Context, req Request) (*value.Map, error) {
	return c.compile(ctx, req, nil)
}

// compile works like Compile, for a question that waits for its turn. It calls turn when it needs a
// renderer; turn reports whether there is one. If there is none, the error is errMustWait.
func (c *Compiler) compile(ctx context.Context, req Request, turn func() bool) (*value.Map, error) {
	if req.ID == "" {
		return nil, errors.New("compile a pillar: no minion id")
	}

	if req.Ext != nil {
		c.log.Error("an on-demand ext_pillar is refused", "minion", req.ID)
	}

	n := &compilation{
		compiler: c,
		takeTurn: turn,
		req:      req,
		saltenv:  req.Saltenv,
		pillar:   value.NewMap(),
		ignored:  map[string][]string{},
	}

	n.ctx, n.giveUp = context.WithCancelCause(ctx)
	defer n.giveUp(nil)
	n.grains = req.Grains.Clone()
	n.grains.Set("id", req.ID)

	if err := n.chooseEnvs(); err != nil {
		// Do not use another environment: the minion would get values that it did not ask for.
		c.log.Error("a pillar is refused", "minion", req.ID, "error", err)
		return value.NewMap("_errors", []any{err.Error()}), nil
	}

	p, err := c.compileMemoized(n, func(n *compilation) (*value.Map, error) {
		defer n.closeSession()
		if needsPython(c.cfg.Strategy, c.cfg.Renderer) {
			return n.compileInSalt()
		}
		return n.compilePillar()
	})

	if cause := context.Cause(n.ctx); cause != nil {
		err = cause
	}

	if err == nil {
		return p, nil
	}

	if renderer.Unable(err) && !errors.Is(err, ErrUnable) {
		err = fmt.Errorf("%w: %w", ErrUnable, err)
	}

	return nil, fmt.Errorf("compile the pillar of %s: %w", req.ID, err)
}

// giveUpIfUnable gives up the compilation if err means that this master could not do a part of it: a
// pillar without that part would look complete.
func (c *compilation) giveUpIfUnable(err error) {
	if renderer.Unable(err) || gitpillar.Unable(err) {
		c.giveUp(fmt.Errorf("%w: %w", ErrUnable, err))
	}
}

// isOver reports whether the compilation was given up. Later failures are then neither logged nor
// added to the pillar's errors.
func (c *compilation) isOver() bool { return c.ctx.Err() != nil }

// chooseEnvs sets the environments (Pillar.__init__ and __gen_opts). It returns an error if the
// minion asks for an environment that could lead out of the roots.
func (c *compilation) chooseEnvs() error {
	cfg := &c.compiler.cfg
	c.saltenv = cmp.Or(c.saltenv, cfg.Saltenv)
	c.pillarenv = c.compiler.Env(c.req)
	for _, env := range []string{c.saltenv, c.pillarenv} {
		if env != "" && !safeEnv(env) {
			return fmt.Errorf("the environment %.64q cannot be one of a pillar", env)
		}
	}

	for _, name := range cfg.RootOrder {
		if dirs, ok := cfg.Roots[name]; ok && name != "__env__" {
			c.envs = append(c.envs, environment{name, dirs})
		}
	}

	dynamic, ok := cfg.Roots["__env__"]
	if !ok {
		return nil
	}

	env := c.pillarenv
	env = cmp.Or(env, c.saltenv)
	env = cmp.Or(env, "base")
	if c.hasEnv(env) {
		return nil
	}
	if !validEnv(env) {
		return fmt.Errorf("the pillar environment %.64q cannot be a directory name", env)
	}

	dirs := make([]string, len(dynamic))
	for i, d := range dynamic {
		dirs[i] = strings.ReplaceAll(d, "__env__", env)
	}

	c.envs = append(c.envs, environment{env, dirs})
	return nil
}

// safeEnv reports whether a minion's name for an environment is safe as a part of a path. A name with
// slashes may be a branch.
func safeEnv(env string) bool {
	return len(env) <= 255 && utf8.ValidString(env) && !strings.ContainsAny(env, "\\\x00\n\r") &&
		!strings.HasPrefix(env, "/") &&
		!slices.Contains(strings.Split(env, "/"), "..")
}

// validEnv reports whether a minion's name for an environment may be inserted for __env__ in a path.
func validEnv(env string) bool {
	return env != "" && len(env) <= 255 && utf8.ValidString(env) && !strings.HasPrefix(env, ".") &&
		!strings.ContainsAny(env, "/\\\x00\n\r")
}

func (c *compilation) hasEnv(env string) bool {
	return slices.ContainsFunc(c.envs, func(e environment) bool { return e.name == env })
}

// isKnownEnv reports whether an environment exists. base always does.
func (c *compilation) isKnownEnv(env string) bool { return env == "base" || c.hasEnv(env) }

func (c *compilation) envNamed(name string) environment {
	for _, e := range c.envs {
		if e.name == name {
			return e
		}
	}
	return environment{name: name}
}

// envNames returns the names of the environments, base first.
func (c *compilation) envNames() []string {
	out := []string{"base"}
	for _, e := range c.envs {
		if e.name != "base" {
			out = append(out, e.name)
		}
	}
	return out
}

// compilePillar compiles the pillar as Salt's Pillar.compile_pillar does.
func (c *compilation) compilePillar() (*value.Map, error) {
	cfg := &c.compiler.cfg
	envs, files := c.readTops()
	t, err := c.mergeTops(envs, files)
	if err != nil {
		c.topErrors = append(c.topErrors, err.Error())
		t = &topFile{}
	}

	var pillar *value.Map
	if cfg.ExtPillarFirst {
		c.pillar = c.extPillar(c.req.Override.Clone())
		if c.session != nil {
			if err := c.session.SetPillar(c.ctx, c.pillar); err != nil {
				c.giveUpIfUnable(err)
				return nil, err
			}
		}

		first := c.pillar
		pillar = c.mergeMaps(first, c.renderSelected(c.matchTops(t)))
	} else {
		pillar = c.extPillar(c.renderSelected(c.matchTops(t)))
	}

	pillar = pillar.Clone()
	c.errors = append(c.errors, c.topErrors...)
	if cfg.PillarOpts {
		pillar.Set("master", c.masterOpts())
	}

	c.setErrors(pillar)
	if c.req.Override.Len() > 0 {
		pillar = c.mergeMaps(pillar, c.req.Override)
	}

	if cfg.Decrypt {
		pillar = c.decrypt(pillar)
	}

	return pillar, nil
}

func (c *compilation) setErrors(pillar *value.Map) {
	if len(c.errors) == 0 {
		return
	}
	list := make([]any, len(c.errors))
	for i, e := range c.errors {
		// the text may contain parts of the pillar
		c.compiler.log.Debug("pillar error", "minion", c.req.ID, "error", e)
		list[i] = e
	}
	pillar.Set("_errors", list)
}

// renderSelected renders and merges the SLS that the top files chose (render_pillar).
func (c *compilation) renderSelected(matches []selected) *value.Map {
	pillar := c.req.Override.Clone()
	for _, s := range matches {
		mods := map[string]any{}
		for _, name := range c.expandNames(s) {
			if c.isOver() {
				return pillar
			}

			state, errs := c.renderSLS(name, s.env, mods, nil, 0)
			c.errors = append(c.errors, errs...)
			if m, ok := state.(*value.Map); ok {
				pillar = c.mergeMaps(pillar, m)
			}
		}
	}

	return pillar
}

// expandNames replaces patterns among the names of SLS by the names that exist.
func (c *compilation) expandNames(s selected) (out []string) {
	for _, name := range s.sls {
		if !c.isKnownEnv(s.env) {
			c.errors = append(c.errors, noEnv(s.env).Error())
		} else if pattern.HasMeta(name) {
			avail, err := c.compiler.files.available(c.envNamed(s.env))
			if err != nil {
				c.errors = append(c.errors, err.Error())
				continue
			}

			if found := filter(avail, name); len(found) > 0 {
				out = append(out, found...)
				continue
			}
		}

		out = append(out, name)
	}

	return out
}

// extPillar runs the ext_pillar chain on a pillar: git pillars in Go, all others in Python.
func (c *compilation) extPillar(pillar *value.Map) *value.Map {
	if c.req.Override.Len() > 0 {
		pillar = c.mergeMaps(pillar, c.req.Override)
	}

	for _, l := range c.compiler.chain {
		if c.isOver() {
			break
		}
		if l.git >= 0 && c.compiler.cfg.Git != nil {
			pillar = c.mergeMaps(pillar, c.gitPillar(l.git))
			continue
		}

		pillar = c.otherPillars(pillar, l.others)
	}

	return pillar
}

// otherPillars runs entries of the ext_pillar chain in Python.
func (c *compilation) otherPillars(pillar *value.Map, entries []any) *value.Map {
	s, err := c.openSession(nil)
	if err == nil {
		var out *value.Map
		var errs []string
		if out, errs, err = s.ExtPillar(c.ctx, pillar, entries, c.req.Extra); err == nil {
			c.errors = append(c.errors, errs...)
			return out
		}
	}

	c.giveUpIfUnable(err)
	if c.isOver() {
		return pillar
	}

	c.compiler.log.Error("the ext_pillar chain failed", append([]any{"minion", c.req.ID}, c.logAttrs(err)...)...)
	for _, e := range entries {
		name := "?"
		if m, ok := e.(*value.Map); ok && m.Len() > 0 {
			name = m.Keys()[0]
		}
		c.errors = append(c.errors,
			fmt.Sprintf("Failed to load ext_pillar %s: Please see master log for details.", name))
	}

	return pillar
}

// addErrors appends errors to a pillar's _errors.
func addErrors(pillar *value.Map, errs []string) {
	if len(errs) == 0 {
		return
	}
	list := slices.Clone(pillar.List("_errors"))
	for _, e := range errs {
		list = append(list, e)
	}
	pillar.Set("_errors", list)
}

func (c *compilation) decrypt(pillar *value.Map) *value.Map {
	s, err := c.openSession(nil)
	var out *value.Map
	var errs []string
	if err == nil {
		out, errs, err = s.Decrypt(c.ctx, pillar)
	}

	c.giveUpIfUnable(err)
	if c.isOver() {
		return pillar
	}

	if err != nil {
		c.compiler.log.Error("the pillar cannot be decrypted", append([]any{"minion", c.req.ID}, c.logAttrs(err)...)...)
		out = pillar
		errs = []string{"Failed to decrypt the pillar. Please see master log for details."}
	}

	addErrors(out, errs)
	return out
}

// masterOpts returns the value of the key "master" for the option pillar_opts: the options with which
// this pillar is compiled.
func (c *compilation) masterOpts() *value.Map {
	out := c.compiler.cfg.Opts.Clone()
	for _, k := range []string{"pillar", "__context__", "functions", "matchers", "rend"} {
		out.Delete(k)
	}

	for k, v := range maps.All(map[string]any{
		"id":          c.req.ID,
		"minion_id":   c.req.ID,
		"grains":      c.grains,
		"file_client": "local",
		"saltenv":     orNil(c.saltenv),
		"pillarenv":   orNil(c.pillarenv),
	}) {
		out.Set(k, v)
	}

	out.Set("pillar_roots", c.pillarRoots())
	out.Set("state_top", "salt://"+c.compiler.cfg.Top)
	out.Set("saltversion", c.compiler.cfg.SaltVersion)
	return out
}

// compileInSalt compiles everything in Salt's own Pillar class, for merging strategies that need
// Salt's objects. The class gets the directories of the git pillars, so that it fetches nothing.
func (c *compilation) compileInSalt() (*value.Map, error) {
	git := c.gitForPython() // before it takes a worker, because it may wait for a first fetch
	s, err := c.openSession(nil)
	if err != nil {
		c.errors = append(c.errors, c.failureText("top", err))
		p := c.req.Override.Clone()
		c.setErrors(p)
		return p, nil
	}

	p, err := s.Whole(c.ctx, c.req.Override, c.req.Extra, git)
	c.giveUpIfUnable(err)
	var wrong *renderer.Failure
	if errors.As(err, &wrong) {
		c.errors = append(c.errors, c.failureText("top", err))
		p = c.req.Override.Clone()
		c.setErrors(p)
		return p, nil
	}

	if err == nil {
		addErrors(p, c.errors)
	}

	if err == nil && c.compiler.cfg.PillarOpts {
		p = p.Clone()
		p.Set("master", c.masterOpts())
		if v, ok := c.req.Override.Get("master"); ok {
			p = c.mergeMaps(p, value.NewMap("master", v))
		}
	}

	return p, err
}
