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
	"saltern/master/internal/pillar/extpillar"
	"saltern/master/internal/pillar/gpg"
	"saltern/master/internal/pillar/renderer"
	"saltern/master/keys"
	"saltern/master/pattern"
	"saltern/master/value"
)

// Errors that end a compilation without a pillar. Their cause is this master, not the sources of
// the pillar.
var (
	// ErrUnable means that this master cannot compile the pillar now, although the sources of the
	// pillar may be correct.
	ErrUnable = errors.New("this master could not make the pillar")
	// errMustWait means that the compilation needs a renderer and all renderers are busy. The
	// caller waits for a renderer and then compiles the pillar again from the beginning.
	errMustWait = errors.New("all renderers are at work")
)

// compilation is one run of the compiler for the pillar of one minion.
type compilation struct {
	compiler *Compiler
	ctx      context.Context
	giveUp   context.CancelCauseFunc // ends ctx, and with it the compilation
	// takeTurn is called when the compilation needs a renderer, and reports whether one is free. It
	// may be nil: the compilation waits for a renderer.
	takeTurn           func() bool
	req                Request
	grains             *value.Map
	saltenv, pillarenv string
	envs               []environment
	pillar             *value.Map // the pillar that templates and matchers see
	ignored            map[string][]string
	errors, topErrors  []string
	session            *renderer.Session
	sessionErr         error
	rendered           int
	trace              *originLog // may be nil: nobody asks how the pillar comes about
	check              *checkRun  // results of the files, for a comparison; may be nil: none is made
	withoutMemo        bool       // do not use the memo
	altered            bool       // a closed renderer session has changed values that its templates see
	imports            []string   // files that the template of the moment has read, only while origins are traced
	outcome            *Outcome   // for a comparison of two compilations; may be nil: the pillar is served
}

// Compile compiles the pillar of a minion. It reports faults of the pillar's sources in the
// pillar's _errors and in the log. An error means that there is no pillar, for example because ctx
// has ended. The caller owns the returned map, but must not change the values in it, because they
// may be shared.
func (c *Compiler) Compile(ctx context.Context, req Request) (*value.Map, error) {
	return c.compile(ctx, req, nil)
}

// compile works like Compile, but calls takeTurn when it needs a renderer. takeTurn reports whether
// a renderer is free; if it returns false, compile returns errMustWait. takeTurn may be nil:
// compile waits for a renderer.
func (c *Compiler) compile(ctx context.Context, req Request, takeTurn func() bool) (*value.Map, error) {
	if req.ID == "" {
		return nil, errors.New("compile a pillar: no minion id")
	}

	if req.Ext != nil {
		c.log.Error("an on-demand ext_pillar is refused", "minion", req.ID)
	}

	if c.cfg.GPG != nil && req.secrets == nil {
		req.secrets = c.cfg.GPG.Ask()
		defer req.secrets.End()
	}

	if req.asked == nil {
		req.asked = c.cfg.External.Ask()
		defer req.asked.End()
	}

	req.secrets.Restart()
	n := c.newCompilation(ctx, req)
	n.takeTurn = takeTurn
	defer n.giveUp(nil)

	if err := n.admit(); err != nil {
		// Do not fall back to another environment: the minion would get values of an environment
		// for which it did not ask.
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

	if (renderer.Unable(err) || gpg.Unable(err) || extpillar.Unable(err)) && !errors.Is(err, ErrUnable) {
		err = fmt.Errorf("%w: %w", ErrUnable, err)
	}

	return nil, fmt.Errorf("compile the pillar of %s: %w", req.ID, err)
}

// newCompilation returns a compilation of the pillar of a request. The caller must call its giveUp.
func (c *Compiler) newCompilation(ctx context.Context, req Request) *compilation {
	n := &compilation{
		compiler: c,
		req:      req,
		saltenv:  req.Saltenv,
		grains:   req.Grains.Clone(),
		pillar:   value.NewMap(),
		ignored:  map[string][]string{},
	}

	n.ctx, n.giveUp = context.WithCancelCause(ctx)
	n.grains.Set("id", req.ID)
	return n
}

// giveUpIfUnable ends the compilation if err means that this master could not compile a part of the
// pillar. Otherwise the minion would take a pillar without that part for complete.
func (c *compilation) giveUpIfUnable(err error) {
	if renderer.Unable(err) || gitpillar.Unable(err) || gpg.Unable(err) || extpillar.Unable(err) {
		c.giveUp(fmt.Errorf("%w: %w", ErrUnable, err))
	}
}

// isOver reports whether the compilation has ended early. If it has, later errors are neither
// logged nor added to the pillar's _errors.
func (c *compilation) isOver() bool { return c.ctx.Err() != nil }

// anyMinion is the id under which Salt shows the pillar of no certain minion (salt/runners/pillar.py).
const anyMinion = "*"

// admit checks what a request names, and chooses the environments. It returns an error if no minion
// can have the id: the id becomes part of paths, and of commands of ext_pillar.
func (c *compilation) admit() error {
	if c.req.ID != anyMinion {
		if err := keys.ValidID(c.req.ID); err != nil {
			return fmt.Errorf("no pillar for this id: %w", err)
		}
	}
	return c.chooseEnvs()
}

// chooseEnvs sets saltenv and pillarenv as Salt does (Pillar.__init__ and __gen_opts). It returns
// an error if the minion asks for an environment that could lead out of the roots.
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

// safeEnv reports whether the name of an environment that a minion asks for is safe as a part of a
// path. A name may contain slashes, because it may be the name of a branch.
func safeEnv(env string) bool {
	return len(env) <= 255 && utf8.ValidString(env) && !strings.ContainsAny(env, "\\\x00\n\r") &&
		!strings.HasPrefix(env, "/") &&
		!slices.Contains(strings.Split(env, "/"), "..")
}

// validEnv reports whether the name of an environment that a minion asks for may replace __env__ in
// a path.
func validEnv(env string) bool {
	return env != "" && len(env) <= 255 && utf8.ValidString(env) && !strings.HasPrefix(env, ".") &&
		!strings.ContainsAny(env, "/\\\x00\n\r")
}

func (c *compilation) hasEnv(env string) bool {
	return slices.ContainsFunc(c.envs, func(e environment) bool { return e.name == env })
}

// isKnownEnv reports whether an environment exists. The environment base always exists.
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
	t := c.mergedTop(c.mergeTops)

	var pillar *value.Map
	if cfg.ExtPillarFirst {
		first := c.extPillar(c.req.Override.Clone())
		c.pillar = c.hideFromTemplates(c.trace.withoutMarks(first))
		if c.session != nil {
			if err := c.session.SetPillar(c.ctx, c.pillar); err != nil {
				c.giveUpIfUnable(err)
				return nil, err
			}
		}

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

	if cfg.Decrypt && cfg.Compare == nil && !c.trace.marks() {
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
		// Log the error at level debug only: its text may contain parts of the pillar.
		c.compiler.log.Debug("pillar error", "minion", c.req.ID, "error", e)
		list[i] = e
	}
	pillar.Set("_errors", list)
}

// renderSelected renders the SLS that the top files select, and merges the results (render_pillar).
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

// expandNames replaces each pattern in a list of SLS names by the existing names that match it.
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

// extPillar runs the ext_pillar chain on a pillar: git pillars and what package extpillar knows in Go,
// all other entries in Python.
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

		if c.isConfined() {
			continue
		}
		before := pillar
		pillar = c.externalPillar(c.trace.withoutMarks(before), l)
		pillar = c.trace.remarkExternal(before, pillar, namesOf(l.others))
		c.outcome.noteExtPillar(before, pillar)
	}

	return pillar
}

// namesOf returns the names of entries of the ext_pillar chain.
func namesOf(entries []any) string {
	var names []string
	for _, e := range entries {
		if m, ok := e.(*value.Map); ok {
			names = append(names, m.Keys()...)
		}
	}
	return strings.Join(names, ", ")
}

// otherPillars runs entries of the ext_pillar chain in Python. output holds what the command of the only
// entry has said; nil: Python runs what the entries name.
func (c *compilation) otherPillars(pillar *value.Map, entries []any, output []byte) *value.Map {
	s, err := c.openSession(nil)
	if err == nil {
		var out *value.Map
		var errs []string
		if out, errs, err = s.ExtPillar(c.ctx, pillar, entries, output, c.req.Extra); err == nil {
			c.errors = append(c.errors, errs...)
			return out
		}
	}

	c.giveUpIfUnable(err)
	if c.isOver() {
		return pillar
	}

	c.compiler.log.Error("the ext_pillar chain failed", append([]any{"minion", c.req.ID}, c.logAttrs(err, "")...)...)
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
	if c.compiler.cfg.GPG != nil && c.compiler.cfg.DecryptKeys != nil {
		return c.decryptInGo(pillar)
	}

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
		c.compiler.log.Error("the pillar cannot be decrypted", append([]any{"minion", c.req.ID}, c.logAttrs(err, "")...)...)
		out = pillar
		errs = []string{"Failed to decrypt the pillar. Please see master log for details."}
	}

	addErrors(out, errs)
	return out
}

// masterOpts returns the options with which this pillar is compiled. With the option pillar_opts
// they become the value of the key "master" in the pillar.
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

// compileInSalt compiles the complete pillar in Salt's own Pillar class, because some merging
// strategies need Salt's objects. The class gets the directories of the git pillars, so that it
// does not fetch them itself.
func (c *compilation) compileInSalt() (*value.Map, error) {
	git := c.gitForPython() // call this before taking a worker, because it may wait for a first fetch
	s, err := c.openSession(nil)
	if err != nil {
		c.errors = append(c.errors, c.failureText("top", "", err))
		p := c.req.Override.Clone()
		c.setErrors(p)
		return p, nil
	}

	p, err := s.Whole(c.ctx, c.req.Override, c.req.Extra, git)
	c.giveUpIfUnable(err)
	var wrong *renderer.Failure
	if errors.As(err, &wrong) {
		c.errors = append(c.errors, c.failureText("top", "", err))
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
