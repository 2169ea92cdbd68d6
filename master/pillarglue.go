package master

import (
	"context"
	"fmt"
	"strings"

	"saltern/master/cache"
	"saltern/master/conf"
	"saltern/master/eauth"
	"saltern/master/fileserver"
	"saltern/master/msgpack"
	"saltern/master/pillar"
	"saltern/master/pillar/renderer"
	"saltern/master/runner"
)

// openPillar makes the compiler of pillars and the pool of its renderers. No
// Python starts before a template needs it.
func (m *Master) openPillar() error {
	c := m.cfg
	without := msgpack.NewMap()
	for _, name := range conf.OwnSecrets() {
		without.Set(name, nil) // templates see options; these are not for them
	}
	m.renderers = renderer.New(renderer.Config{
		Python: m.pythons(), ConfigFile: c.Path, Overrides: without, MaxWorkers: c.RendererMax, IdleStop: c.RendererIdle, Log: m.log,
	})
	merge := c.Raw.Bool("pillar_merge_lists")
	m.pillars = pillar.New(pillar.Config{
		Roots: c.PillarRoots, RootOrder: c.Raw.Map("pillar_roots").Keys(), Top: c.StateTop, Renderer: c.Renderer,
		RestrictedRenderers: len(c.RendererWhitelist)+len(c.RendererBlacklist) > 0,
		CustomJinja:         c.JinjaEnv.Len()+c.JinjaSLSEnv.Len() > 0, Strategy: c.PillarMergeStrategy, MergeLists: merge,
		IncludesOverride: c.PillarIncludesOverride, ShowRenderErrors: !c.PillarSafeRenderError, EnvOrder: c.EnvOrder,
		Pillarenv: c.PillarEnv, Saltenv: c.SaltEnv, PillarenvFromEnv: c.PillarenvFromSaltenv, Nodegroups: c.Nodegroups,
		ExtPillar: c.ExtPillar, ExtPillarFirst: c.ExtPillarFirst, Decrypt: len(c.DecryptPillar) > 0, MasterTops: c.MasterTops.Len() > 0,
		PillarOpts: c.PillarOpts, Opts: conf.WithoutSecrets(c.Raw), SaltVersion: SaltVersion,
		Ignore: fileserver.NewIgnore(c.FileIgnoreRegex, c.FileIgnoreGlob, m.log), Renderers: m.renderers, Log: m.log,
	})
	return nil
}

// notePillar counts pillars and those with errors, and tells of the latter.
func (m *Master) notePillar(id string, data *msgpack.Map) {
	m.count.pillars.Add(1)
	errs := data.List("_errors")
	if len(errs) == 0 {
		if m.pillarFaults.forget(id) {
			m.log.Info("pillar compiles again", "minion", id)
		}
		return
	}
	m.pillarFailed(id, fmt.Sprint(errs[0]), len(errs))
}

// headline is the first line of a pillar's error without passwords: what
// follows shows excerpts of the pillar.
func headline(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	text, _ = conf.Shown(text).(string)
	return text
}

// pillarFailed tells of a pillar that a minion did not get whole.
func (m *Master) pillarFailed(id, first string, errs int) {
	first = headline(first)
	m.count.pillarErrors.Add(1)
	m.pillarFaults.note(id, first, m.now())
	m.log.Error("pillar has errors", "minion", id, "errors", errs, "first", first)
}

// renderFile renders an SLS on the master's own behalf: reactions.
func (m *Master) renderFile(ctx context.Context, path string, vars *msgpack.Map) (*msgpack.Map, error) {
	v, err := m.renderers.Render(ctx, renderer.Minion{ID: m.cfg.ID, Master: true},
		renderer.Template{Path: path, Renderer: m.cfg.Renderer, Context: vars})
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case nil:
		return msgpack.NewMap(), nil
	case *msgpack.Map:
		return v, nil
	}
	return nil, fmt.Errorf("%s gives a %T instead of a map", path, v)
}

// pythonLogin asks an external_auth system that only Salt's library knows
// (pam, ldap, file and others).
func (m *Master) pythonLogin(ctx context.Context, system, user, password string) (eauth.Verdict, error) {
	return eauth.Python(m.pythons(), m.cfg.Path)(ctx, system, user, password)
}

// pillarRunner lets the runners pillar.* reach the compiler.
func (m *Master) pillarRunner() runner.Pillar { return pillarRunner{m.pillars, m} }

type pillarRunner struct {
	c *pillar.Compiler
	m *Master
}

func (p pillarRunner) Compile(ctx context.Context, id string, grains *msgpack.Map, saltenv, pillarenv string) (*msgpack.Map, error) {
	return p.c.Compile(ctx, pillar.Request{ID: id, Grains: grains, Saltenv: saltenv, Pillarenv: pillarenv})
}

func (p pillarRunner) Top(ctx context.Context, id string, grains *msgpack.Map, saltenv string) (*msgpack.Map, []string, error) {
	return nil, nil, runner.ErrUnavailable
}

// Cached implements runner.Pillar.
func (p pillarRunner) Cached(id, pillarenv string) (*msgpack.Map, bool) {
	if !p.m.cfg.PillarCache && pillarenv == "" {
		return p.m.cache.Get(cache.Pillar, id)
	}
	env := p.c.Env(pillar.Request{Saltenv: "base", Pillarenv: pillarenv})
	return p.m.cache.Compiled(id, env, p.m.now(), p.m.cfg.PillarCacheTTL)
}

// Caches implements runner.Pillar.
func (p pillarRunner) Caches() bool { return p.m.cfg.PillarCache || p.m.cfg.MinionDataCache }
