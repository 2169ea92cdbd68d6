package master

import (
	"cmp"
	"context"
	"path/filepath"
	"time"

	"saltern/master/internal/batch"
	"saltern/master/internal/launch"
	"saltern/master/internal/saved"
	"saltern/master/internal/schedule"
	"saltern/master/jobs"
	"saltern/master/runner"
	"saltern/master/value"
)

// savedFile is the name of the file with the saved targets, jobs and schedules. In a cluster it is in
// the folder that all masters share.
const savedFile = "saved.saltern"

// openSavedStore opens the file of saved objects. A file system that hangs does not hold up the start
// for long: the objects count when it answers.
func (m *Master) openSavedStore(ctx context.Context) {
	dir := m.cfg.PKIDir
	if !m.cluster.Alone() {
		dir = m.cfg.ClusterPKIDir
	}
	m.savedStore = saved.NewStore(filepath.Join(dir, savedFile), m.cfg.Nodegroups, m.now, m.log)
	_ = m.savedStore.Look(ctx) // Follow reports what is wrong
}

// openSaved creates the service of saved objects, and adds its runners.
func (m *Master) openSaved() {
	c := m.cfg
	m.saved = saved.New(saved.Config{
		Store:      m.savedStore,
		Minions:    savedMinions{m.launch, m.batches, m.jids},
		Schedule:   m.schedule,
		Configured: c.Nodegroups,
		Scheduled:  c.Schedule,
		Blacklist:  blacklist(c),
		Audit:      m.audit,
		Now:        m.now,
		Log:        m.log,
	})
	m.saved.AddRunners(m.runs.Table)
}

// savedEntries are the saved schedules. It implements schedule.Saved.
type savedEntries struct{ store *saved.Store }

// Schedules implements schedule.Saved.
func (e savedEntries) Schedules() schedule.SavedEntries {
	objects := e.store.Objects()
	entries, since := objects.Schedules()
	return schedule.SavedEntries{Version: objects.Version, Entries: entries, Since: since}
}

// savedMinions starts the jobs of saved jobs. It implements saved.Minions.
type savedMinions struct {
	launch  *launch.Launcher
	batches *batch.Manager
	ids     *jobs.IDs
}

// ownBatches runs batches for callers. It implements local.Batches.
type ownBatches struct {
	*batch.Manager
	ids *jobs.IDs
}

// NewID implements local.Batches.
func (b ownBatches) NewID() string { return b.ids.New() }

func behalf(by saved.User) launch.Behalf {
	b := launch.Behalf{User: by.Name, Eauth: by.Eauth, Saved: by.Saved}
	if by.Limited {
		b.Account = cmp.Or(by.Eauth, "host") + "/" + by.Name
	}
	return b
}

// Start implements saved.Minions.
func (s savedMinions) Start(ctx context.Context, load *value.Map, by saved.User) (string, []string, error) {
	j, err := s.launch.NewFor(ctx, load, behalf(by))
	if err != nil || s.launch.ReachesNobody(j) {
		return "", nil, err
	}
	minions, err := s.launch.StartNamed(ctx, j)
	return j.JID, minions, err
}

// Ask implements saved.Minions.
func (s savedMinions) Ask(
	ctx context.Context,
	load *value.Map,
	by saved.User,
	timeout time.Duration,
) (string, runner.Answer, error) {
	j, err := s.launch.NewFor(ctx, load, behalf(by))
	if err != nil || s.launch.ReachesNobody(j) {
		return "", runner.Answer{}, err
	}
	answer, err := s.launch.Collect(ctx, j, timeout, 0)
	return j.JID, answer, err
}

// Batch implements saved.Minions.
func (s savedMinions) Batch(ctx context.Context, own batch.Own, by saved.User, state *batch.State) (string, error) {
	own.JID = s.ids.New()
	own.Account = behalf(by).Account
	own.Saved = by.Saved
	load := value.NewMap("fun", own.Fun, "arg", own.Arg, "ret", own.Return, "tgt", own.Target)
	if err := s.launch.RoomForBatch(own.Account, load, len(state.Pending), state.Size); err != nil {
		return "", err
	}
	return own.JID, s.batches.Begin(ctx, own, state)
}
