package master

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"time"

	"saltern/master/internal/engine"
	"saltern/master/internal/engine/entry"
	"saltern/master/internal/returner"
	"saltern/master/pyrunner"
)

// defaultSpool is the size of the spool for returners in MiB when saltern_returner_spool is not
// set.
const defaultSpool = 256

// spools returns the folder of the spool for returners, which is on this node's own disk, and the
// greatest size of the spool in bytes.
func (m *Master) spools() (dir string, maxBytes int64) {
	return filepath.Join(m.cfg.CacheDir, "returners"), int64(cmp.Or(max(m.cfg.ReturnerSpool, 0), defaultSpool)) << 20
}

// services returns a caller of Python for returners and engines, which run as long as this master.
func (m *Master) services() *pyrunner.Caller {
	return pyrunner.New(pyrunner.Config{
		Host:       m.python,
		ConfigFile: m.cfg.Path,
		Layer:      m.cfg.PythonLayer,
		Git:        m.repos.ForPython,
		Log:        m.log,
	})
}

// openJobReturners creates the returners of master_job_cache and ext_job_cache, which store jobs
// besides the job cache. If there are any, m.jobs becomes a cache that also passes them everything
// that it stores.
func (m *Master) openJobReturners() error {
	dir, maxBytes := m.spools()
	kept, err := returner.OpenJobs(m.jobs, returner.JobsConfig{
		Dir:          dir,
		Bytes:        maxBytes,
		Master:       m.cfg.MasterJobCache,
		External:     m.cfg.ExtJobCache,
		StoreEndtime: m.cfg.JobCacheStoreEndtime,
		Open: func(ctx context.Context) (returner.Worker, error) {
			return m.services().OpenJobReturner(ctx)
		},
		Now: m.now,
		Log: m.log,
	})
	if err != nil || kept == nil {
		return err
	}

	closeBelow := m.closeJobs
	m.jobReturners = kept
	m.jobs = kept
	m.closeJobs = func(ctx context.Context) error { return errors.Join(kept.Close(), closeBelow(ctx)) }
	return nil
}

// openReturners creates the returners of events, and the engines.
func (m *Master) openReturners() {
	c := m.cfg
	python := m.services()
	entries, faults := entry.Parse(c.Engines)
	if len(faults) > 0 {
		m.log.Error("not all engines run", "error", errors.Join(faults...))
	}

	m.engines = engine.New(engine.Config{
		Entries: entries,
		Own:     m.cluster.Own,
		Open: func(ctx context.Context, e entry.Entry) (engine.Process, error) {
			return python.OpenEngine(ctx, e.Module, e.Arguments)
		},
		Log: m.log,
	})

	if len(c.EventReturn) == 0 {
		return
	}

	dir, maxBytes := m.spools()
	m.eventReturn = returner.NewEvents(returner.EventsConfig{
		Dir:       dir,
		Bytes:     maxBytes,
		Returners: c.EventReturn,
		Whitelist: c.EventReturnWhitelist,
		Blacklist: c.EventReturnBlacklist,
		Queue:     c.EventReturnQueue,
		MaxWait:   time.Duration(c.EventReturnQueueMaxSeconds) * time.Second,
		Bus:       m.bus,
		Open:      func(ctx context.Context) (returner.Worker, error) { return python.OpenReturner(ctx) },
		Log:       m.log,
	})
}
