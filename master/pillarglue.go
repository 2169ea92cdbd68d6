package master

import (
	"saltern/internal/control"
	"saltern/internal/release"
	"saltern/master/cache"
	"saltern/master/conf"
	"saltern/master/internal/fileserver"
	"saltern/master/internal/pillar"
	"saltern/master/internal/pillar/memo"
	"saltern/master/internal/pillar/renderer"
	"saltern/master/internal/repos"
	"saltern/master/pyrunner"
	"saltern/master/value"
)

// Check returns the errors in options that conf.Load does not find.
func Check(cfg *conf.Master) error { return repos.Check(cfg) }

// pillarsKept returns whether and where the option pillar_cache keeps pillars.
func pillarsKept(c *conf.Master) cache.Pillars {
	if c.PillarCache && c.PillarCacheBackend == "memory" {
		return cache.Pillars{Memory: cacheMemory, Only: !c.MinionDataCache}
	}
	return cache.Pillars{Off: !c.PillarCache}
}

// openPillar creates the compiler of pillars and the pool of its renderers. It starts no Python
// process: the first template that needs Python does.
func (m *Master) openPillar() {
	c := m.cfg
	without := value.NewMap()
	for _, name := range conf.OwnSecrets() {
		without.Set(name, nil) // hide this option: templates see all others
	}

	without.Set("gpg_decrypt_must_succeed", c.GPGMustSucceed) // releases of Salt have other defaults

	renderers := renderer.Config{
		Python:     pyrunner.Pythons(m.cfg.RendererPython),
		ConfigFile: c.Path,
		Layer:      func() string { return pyrunner.Layer(c.PythonLayer) },
		Overrides:  without,
		MaxWorkers: c.RendererMax,
		IdleStop:   c.RendererIdle,
		Log:        m.log,
	}
	m.renderers = renderer.New(renderers)

	var results *memo.Store
	if c.PillarMemo {
		results = memo.New(memo.Config{Now: m.now})
	}

	m.gpg = m.openGPG()
	m.extPillar = m.openExtPillar()
	pillars := pillar.Config{
		Roots:               c.PillarRoots,
		RootOrder:           c.PillarEnvs,
		Top:                 c.StateTop,
		Renderer:            c.Renderer,
		RestrictedRenderers: len(c.RendererWhitelist)+len(c.RendererBlacklist) > 0,
		CustomJinja:         c.JinjaEnv.Len()+c.JinjaSLSEnv.Len() > 0,
		TrimJinja:           value.Truth(c.Raw.Value("jinja_trim_blocks")) || value.Truth(c.Raw.Value("jinja_lstrip_blocks")),
		Strategy:            c.PillarMergeStrategy,
		MergeLists:          c.PillarMergeLists,
		IncludesOverride:    c.PillarIncludesOverride,
		ShowRenderErrors:    !c.PillarSafeRenderError,
		EnvOrder:            c.EnvOrder,
		Pillarenv:           c.PillarEnv,
		Saltenv:             c.SaltEnv,
		PillarenvFromEnv:    c.PillarenvFromSaltenv,
		Nodegroups:          c.Nodegroups,
		ExtPillar:           c.ExtPillar,
		ExtPillarFirst:      c.ExtPillarFirst,
		Git:                 m.repos.Pillars(),
		GitIncludes:         c.GitPillarIncludes,
		Decrypt:             len(c.DecryptPillar) > 0,
		DecryptKeys:         pillar.ReadDecryptKeys(c.Raw),
		GPG:                 m.gpg,
		External:            m.extPillar,
		MasterTops:          c.MasterTops.Len() > 0,
		PillarOpts:          c.PillarOpts,
		Opts:                conf.WithoutSecrets(c.Raw),
		SaltVersion:         release.Salt,
		Ignore:              fileserver.NewIgnore(c.FileIgnoreRegex, c.FileIgnoreGlob, m.log),
		Renderers:           m.renderers,
		Memo:                results,
		Log:                 m.log,
	}
	m.compiler = pillar.New(pillars)
	m.openDiff(renderers, pillars)

	sc := pillar.ServiceConfig{
		Compiler:   m.compiler,
		Memo:       results,
		Cache:      m.cache,
		Keep:       c.PillarCache,
		TTL:        c.PillarCacheTTL,
		Data:       c.MinionDataCache,
		Turns:      m.renderers.Workers(),
		CheckEach:  c.PillarCheck,
		QueueBytes: int64(max(0, c.PillarQueue)) << 20,
		Ending:     m.background.Ending(),
		Unable:     func(err error) { m.problems.Set(control.PillarFault, err) },
		Now:        m.now,
		Log:        m.log,
	}

	if !m.cluster.Alone() {
		sc.Tell = m.fire
	}

	m.pillars = pillar.NewService(sc)
}
