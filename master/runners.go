package master

import (
	"os"

	"saltern/internal/release"
	"saltern/master/conf"
	"saltern/master/event"
	"saltern/master/internal/appliance"
	"saltern/master/internal/diff"
	"saltern/master/internal/fileserver"
	"saltern/master/internal/fleet"
	"saltern/master/internal/local"
	"saltern/master/internal/peers"
	"saltern/master/internal/pillar"
	"saltern/master/internal/reactor"
	"saltern/master/pyrunner"
	"saltern/master/runner"
	"saltern/master/value"
)

// machines returns access to the nodes of this appliance through the supervisor's admin socket.
func machines(c *conf.Master) appliance.Appliance { return appliance.New(c.Door, os.Geteuid()) }

// openRunners creates the runner functions, and the caller of wheel functions that only Python has.
func (m *Master) openRunners() {
	c := m.cfg
	m.python = pyrunner.NewHost(pyrunner.HostConfig{
		Pythons:      pyrunner.OfSaltRun(c.SaltRun, pyrunner.Pythons(c.RendererPython), m.log),
		Layer:        c.PythonLayer,
		MaxWorkers:   c.RunnerMax,
		MaxComputing: c.RunnerComputing,
		Memory:       int64(c.RunnerMemory) << 20,
		Idle:         c.RendererIdle,
		Log:          m.log,
	})

	table := runner.New()
	if !m.cluster.Alone() {
		peers.AddRunners(table, m.cluster, m.now)
	}

	table.Add("presence.minions", m.presence.List)
	table.Add("audit.records", local.Records(c.Audit("salt-master", nil), m.now))
	local.AddTokenRunners(table, m.callers, m.audit, m.now)
	m.repos.AddRunners(table)
	fleet.AddRunners(table, m.fleet)
	diff.AddRunners(table, m.diff)
	machines(c).AddRunners(table)
	table.Add("audit.all", local.AllRecords(machines(c).Records, m.now))
	rules := reactor.RulesConfig{
		Entries: c.Reactor.Rules,
		File:    c.Reactor.File,
		ID:      c.ID,
		Now:     m.now,
		Log:     m.log,
	}
	if !m.cluster.Alone() {
		rules.Tell = func(changes *value.Map) { m.fire(event.TagReactorRules, changes) }
	}

	m.reactions = reactor.NewRules(rules)
	env := m.runnerEnv()
	m.runs = runner.NewRuns(runner.RunsConfig{
		Table: table,
		Python: pyrunner.New(pyrunner.Config{
			Host:       m.python,
			ConfigFile: c.Path,
			Layer:      c.PythonLayer,
			Git:        m.repos.ForPython,
			Log:        m.log,
		}),
		Env:     env,
		ID:      c.ID,
		User:    c.User,
		Keep:    c.JobCache && c.ExtJobCache == "",
		Forget:  !c.RunnerReturns,
		Fire:    m.fire,
		Sockets: m.sockets,
		Newest:  m.newestForRunners,
		IDs:     m.jids,
		Now:     m.now,
		Log:     m.log,
	})

	if !m.cluster.Alone() {
		m.pauses = m.cluster.NewPauses(m.bus, m.fire, env)
		env.PausesElsewhere = m.pauses
		m.batchAsks = m.cluster.NewBatches(m.bus, m.fire, m.batches)
		env.BatchesElsewhere = m.batchAsks
		env.StopOrders = m.stopOrders
	}

	m.openWheel()
}

// runnerEnv returns the parts of the master that runners need.
func (m *Master) runnerEnv() *runner.Env {
	c := m.cfg
	return &runner.Env{
		Jobs:      m.jobs,
		Older:     m.olderJobs(),
		JobFiles:  m.localJobs,
		Events:    runner.OnBus(m.bus),
		Minions:   m.launch,
		Cache:     runner.OnCache(m.cache, m.pillars.Clear),
		Targets:   m.targets,
		Resources: m.resources,
		Keys:      runner.OnKeys(m.keys),
		Syndics:   m.syndics,
		Presence:  m.presence,
		Files:     fileserver.Runners{Server: m.files, Newest: m.newestForRunners, All: m.newestEverywhere},
		Pillar:    pillar.Runners{Service: m.pillars, Newest: m.newestForRunners},
		Reactor:   m.reactions,
		Batches:   m.batches,
		Pauses:    runner.NewPauses(c.CacheDir),
		Options:   conf.WithoutSecrets(c.Raw),
		Version:   release.Salt,
		Log:       m.log,
	}
}
