package master

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"saltern/master/conf"
	"saltern/master/event"
	"saltern/master/jobs"
	"saltern/master/msgpack"
	"saltern/master/pyrunner"
	"saltern/master/runner"
)

// SaltVersion is the release of Salt whose protocol and formats this master
// speaks; minions are compared with it (manage.versions).
const SaltVersion = "3008.3"

// runners calls runner functions: those of package runner, and all others by
// Salt's library in Python when it is installed.
type runners struct {
	m     *Master
	table *runner.Table
	env   *runner.Env
	py    *pyrunner.Caller
	wheel *pyrunner.Caller // wheel functions that only Python has

	mu      sync.Mutex
	running map[string]*msgpack.Map // by job id
}

func (m *Master) newRunners() *runners {
	r := &runners{m: m, table: runner.New(), py: m.pythonRunners(), wheel: m.pythonWheels(), running: map[string]*msgpack.Map{}}
	m.addClusterRunners(r.table)
	r.table.Add(minionsRunner, m.listMinions)
	r.env = &runner.Env{
		Jobs: m.jobs, Events: runner.OnBus(m.bus), Minions: askMinions{m}, Cache: cacheBanks{m.cache, m.clearPillar}, Targets: targets{m}, Keys: keyList{m},
		Presence: connectedFrom{m}, Files: fileRunner{m.files}, Pillar: m.pillarRunner(), Options: conf.WithoutSecrets(m.cfg.Raw),
		Version: SaltVersion, Running: r.list, Log: m.log,
	}
	return r
}

// track makes a runner visible to jobs.master until done is called.
func (r *runners) track(data *msgpack.Map) (done func()) {
	jid := data.Str("jid")
	entry := data.Clone()
	entry.Set("pid", int64(os.Getpid()))
	entry.Set("_stamp", event.Stamp(r.m.now()))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running[jid] = entry
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.running, jid)
	}
}

// list is what track holds, oldest first.
func (r *runners) list() []*msgpack.Map {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*msgpack.Map, 0, len(r.running))
	for _, jid := range slices.Sorted(maps.Keys(r.running)) {
		out = append(out, r.running[jid].Clone())
	}
	return out
}

// keepRun keeps the result of a runner or wheel function in the job cache, as
// the return of this master (salt/client/mixins.py low, salt/utils/job.py
// store_job).
func (m *Master) keepRun(ctx context.Context, jid string, data *msgpack.Map) {
	if !m.cfg.JobCache || m.cfg.ExtJobCache != "" {
		return
	}
	if secretRunner(data.Str("fun")) {
		data = data.Clone()
		data.Set("return", notForAll)
	}
	load := msgpack.NewMap("id", m.cfg.ID, "tgt", m.cfg.ID, "jid", jid, "return", data, "fun", data.Str("fun"), "user", data.Str("user"))
	if _, err := m.jobs.SaveReturn(ctx, jobs.ReturnOf(load)); err != nil {
		m.log.Error("result of a runner or wheel function is not kept", "jid", jid, "fun", data.Str("fun"), "error", err)
	}
}

func (r *runners) call(ctx context.Context, fun string, args []any, named *msgpack.Map) (any, error) {
	if r.table.Has(fun) {
		ret, err := r.table.Call(ctx, r.env, fun, args, named)
		if !errors.Is(err, runner.ErrUnavailable) {
			return ret, err
		}
	}
	return r.python(ctx, fun, args, named)
}

// pythonRunners calls functions that only Python has, such as state.orchestrate
// or an administrator's own runner; pythonWheels those of wheel modules.
func (m *Master) pythonRunners() *pyrunner.Caller {
	return pyrunner.New(pyrunner.Config{Pythons: m.runnerPythons(), ConfigFile: m.cfg.Path, Log: m.log})
}

func (m *Master) pythonWheels() *pyrunner.Caller {
	return pyrunner.New(pyrunner.Config{Pythons: m.runnerPythons(), ConfigFile: m.cfg.Path, Wheel: true, Log: m.log})
}

// python calls a function of Python's, in the words of our own runners.
func (r *runners) python(ctx context.Context, fun string, args []any, named *msgpack.Map) (any, error) {
	ret, err := r.py.Call(ctx, fun, args, named)
	var unknown *pyrunner.UnknownError
	switch {
	case errors.As(err, &unknown):
		return nil, &runner.UnknownError{Name: fun}
	case errors.Is(err, pyrunner.ErrNoSalt):
		return nil, fmt.Errorf("'%s' is not available: this master does not have the function itself, and %w; set saltern_renderer_python", fun, err)
	}
	return ret, err
}

// resultOf is what the event of a runner or wheel function that has ended says.
// What failed in Python comes with Salt's own words.
func resultOf(form, fun string, ret any, err error) (result any, success bool) {
	var failed *pyrunner.Failure
	switch {
	case err == nil:
		return ret, true
	case errors.As(err, &failed):
		return failed.Return, false
	}
	if usage := runner.Result(err); usage != nil {
		return usage, true
	}
	return fmt.Sprintf("Exception occurred in %s %s: %v", form, fun, err), false
}
