package master

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"saltern/master/cache"
	"saltern/master/event"
	"saltern/master/fileserver"
	"saltern/master/jobs"
	"saltern/master/keys"
	"saltern/master/msgpack"
	"saltern/master/runner"
	"saltern/master/target"
)

// SaltVersion is the release of Salt whose protocol and formats this master
// speaks; minions are compared with it (manage.versions).
const SaltVersion = "3008.3"

// runners calls runner functions: those of package runner, and all others by
// Python's salt-run when it is installed.
type runners struct {
	m     *Master
	table *runner.Table
	env   *runner.Env

	mu      sync.Mutex
	running map[string]*msgpack.Map // by job id
}

func (m *Master) newRunners() *runners {
	r := &runners{m: m, table: runner.New(), running: map[string]*msgpack.Map{}}
	m.addClusterRunners(r.table)
	r.table.Add(minionsRunner, m.listMinions)
	r.env = &runner.Env{
		Jobs: m.jobs, Events: runner.OnBus(m.bus), Minions: askMinions{m}, Cache: cacheBanks{m.cache}, Targets: targets{m}, Keys: keyList{m},
		Presence: connectedFrom{m}, Files: fileRunner{m.files}, Pillar: m.pillarRunner(), Options: withoutSecrets(m.cfg.Raw),
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
		data.Set("return", "not kept: it is for the caller alone")
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

// python runs a function that only Python has, such as state.orchestrate or
// an administrator's own runner.
func (r *runners) python(ctx context.Context, fun string, args []any, named *msgpack.Map) (any, error) {
	if strings.HasPrefix(fun, "-") || !strings.Contains(fun, ".") {
		return nil, &runner.UnknownError{Name: fun}
	}
	path, err := r.saltRun()
	if err != nil {
		return nil, fmt.Errorf("'%s' is not available: %w", fun, err)
	}
	argv := []string{"--config-dir", filepath.Dir(r.m.cfg.Path), "--out", "json", "--no-color", "--log-level", "quiet", fun}
	for _, a := range args {
		argv = append(argv, word(a))
	}
	for k, v := range named.All() {
		argv = append(argv, fmt.Sprintf("%v=%s", k, word(v)))
	}
	cmd := exec.CommandContext(ctx, path, argv...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	var out, errs limited
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	var v any
	if jerr := json.Unmarshal(out.b, &v); jerr != nil {
		if err == nil {
			return strings.TrimSpace(string(out.b)), nil
		}
		return nil, fmt.Errorf("salt-run of Python: %w: %s", err, strings.TrimSpace(string(errs.b)))
	}
	return fromJSON(v), nil
}

// word writes an argument for a command line that Salt reads as YAML.
func word(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	b, err := json.Marshal(toJSON(v))
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// limited keeps the beginning of what a program writes.
type limited struct{ b []byte }

const maxRunnerOutput = 32 << 20

func (l *limited) Write(p []byte) (int, error) {
	if room := maxRunnerOutput - len(l.b); room > 0 {
		l.b = append(l.b, p[:min(len(p), room)]...)
	}
	return len(p), nil
}

var errNoSaltRun = errors.New("this master does not have the function itself, and no salt-run of Python was found; set saltern_salt_run")

// saltRun finds Python's salt-run: the option saltern_salt_run, or beside the
// Python of the renderers (which the environment may name, too).
func (r *runners) saltRun() (string, error) {
	candidates := []string{r.m.cfg.Raw.Str("saltern_salt_run")}
	for _, py := range r.m.pythons() {
		if filepath.IsAbs(py) {
			candidates = append(candidates, filepath.Join(filepath.Dir(py), "salt-run"))
		}
	}
	for _, c := range candidates {
		if info, err := os.Stat(c); c != "" && err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return c, nil
		}
	}
	return "", errNoSaltRun
}

func toJSON(v any) any {
	switch v := v.(type) {
	case *msgpack.Map:
		out := make(map[string]any, v.Len())
		for k, e := range v.All() {
			out[fmt.Sprint(k)] = toJSON(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = toJSON(e)
		}
		return out
	case []byte:
		return string(v)
	}
	return v
}

func fromJSON(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := msgpack.NewMap()
		for k, e := range v {
			out.Set(k, fromJSON(e))
		}
		return out
	case []any:
		for i := range v {
			v[i] = fromJSON(v[i])
		}
		return v
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
	}
	return v
}

// The rest of this file lets runners reach the parts of the master.

type askMinions struct{ m *Master }

// Ask publishes a job and gathers returns; minions that are silent after the
// timeout are asked whether they are still at it (find_job) until none is.
func (a askMinions) Ask(ctx context.Context, q runner.Question) (runner.Answer, error) {
	m := a.m
	timeout, gather := q.Timeout, q.Gather
	if timeout <= 0 {
		timeout = m.cfg.Timeout
	}
	if gather <= 0 {
		gather = m.cfg.GatherJobTimeout
	}
	arg := q.Arg
	if arg == nil {
		arg = []any{}
	}
	j, err := m.newJob(msgpack.NewMap("fun", q.Fun, "arg", arg, "tgt", q.Target, "tgt_type", q.TargetType, "ret", "", "user", m.cfg.User))
	ans := runner.Answer{Returns: map[string]*msgpack.Map{}}
	if err != nil || len(j.minions) == 0 {
		return ans, err
	}
	sub := m.bus.Subscribe("runner", 2*len(j.minions)+1024, event.Prefix("salt/job/"))
	defer sub.Close()
	if err := m.start(ctx, j); err != nil {
		return ans, err
	}
	ans.Expected = j.minions
	g := gathering{sub: sub, jid: j.jid, answer: &ans}
	for wait := timeout; ; wait = gather {
		if g.until(ctx, wait) || ctx.Err() != nil {
			return ans, ctx.Err()
		}
		if busy, err := a.stillAt(ctx, &g, gather); err != nil || !busy {
			return ans, err
		}
	}
}

// gathering collects the returns of one job.
type gathering struct {
	sub    *event.Subscription
	jid    string
	answer *runner.Answer
	// probe is the jid of a find_job; found are those who still run the job.
	probe string
	found map[string]bool
	asked int
}

// until gathers for a time; it is true when all have answered.
func (g *gathering) until(ctx context.Context, wait time.Duration) bool {
	t := time.NewTimer(wait)
	defer t.Stop()
	for len(g.answer.Returns) < len(g.answer.Expected) {
		select {
		case e, ok := <-g.sub.C:
			if !ok {
				return true
			}
			g.take(e)
			if g.probe != "" && len(g.found) == g.asked {
				return false
			}
		case <-t.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (g *gathering) take(e event.Event) {
	if id, ok := strings.CutPrefix(e.Tag, event.Tag("job", g.jid, "ret")+"/"); ok {
		g.answer.Returns[id] = e.Data
	}
	if id, ok := strings.CutPrefix(e.Tag, event.Tag("job", g.probe, "ret")+"/"); ok && g.probe != "" {
		running := e.Data.Map("return")
		g.found[id] = running.Len() > 0
	}
}

// stillAt asks the silent minions whether they are at the job.
func (a askMinions) stillAt(ctx context.Context, g *gathering, wait time.Duration) (bool, error) {
	var silent []any
	for _, id := range g.answer.Expected {
		if g.answer.Returns[id] == nil {
			silent = append(silent, id)
		}
	}
	j, err := a.m.newJob(msgpack.NewMap("fun", "saltutil.find_job", "arg", []any{g.jid}, "tgt", silent, "tgt_type", "list", "ret", "", "user", a.m.cfg.User))
	if err != nil || len(j.minions) == 0 {
		return false, err
	}
	if err := a.m.start(ctx, j); err != nil {
		return false, err
	}
	g.probe, g.found, g.asked = j.jid, map[string]bool{}, len(silent)
	defer func() { g.probe = "" }()
	if g.until(ctx, wait) {
		return false, nil
	}
	for _, running := range g.found {
		if running {
			return true, nil
		}
	}
	return false, nil
}

type cacheBanks struct{ c *cache.Store }

func (b cacheBanks) Get(bank, id string) (*msgpack.Map, bool) { return b.c.Get(cache.Bank(bank), id) }
func (b cacheBanks) Set(bank, id string, m *msgpack.Map) error {
	_, err := b.c.Set(cache.Bank(bank), id, m)
	return err
}
func (b cacheBanks) Flush(bank, id string) error       { return b.c.Flush(cache.Bank(bank), id) }
func (b cacheBanks) IDs(bank string) ([]string, error) { return b.c.IDs(cache.Bank(bank)) }

type targets struct{ m *Master }

func (t targets) Match(tgt any, typ string) ([]string, error) {
	ids, _, err := t.m.resolve(tgt, typ, ":")
	return ids, err
}

func (t targets) MatchExact(compound string) ([]string, error) {
	ids, _, err := target.Resolve(t.m.keys.Accepted(), compound, "compound_pillar_exact", t.m.targetEnv(":"))
	return ids, err
}

type keyList struct{ m *Master }

func (k keyList) Accepted() []string { return k.m.keys.Accepted() }
func (k keyList) Delete(id string) error {
	return k.m.keys.Delete(id, keys.Accepted)
}

type connectedFrom struct{ m *Master }

func (c connectedFrom) Connected() map[string]string {
	out := map[string]string{}
	for _, id := range c.m.connected() {
		from, _, _ := c.m.presence.Last(id)
		out[id] = from.String()
	}
	return out
}

type fileRunner struct{ s *fileserver.Server }

func (f fileRunner) Call(ctx context.Context, cmd string, load *msgpack.Map) (any, error) {
	return f.s.Call(ctx, cmd, "", load)
}

func (f fileRunner) Backends(names any) []string { return f.s.Backends(names) }

func (f fileRunner) Envs(_ context.Context, backend string) ([]string, error) {
	return f.s.Envs(backend), nil
}

func (f fileRunner) Update(ctx context.Context, backends []string) error {
	_, err := f.s.Update(ctx, boxed(backends))
	return err
}

func (f fileRunner) ClearCache(_ context.Context, backend string) (bool, error) {
	return len(f.s.ClearCache(backend)) > 0, nil
}

func (f fileRunner) ClearLists(_ context.Context, backends, envs []string) (map[string][]string, error) {
	return f.s.ClearFileListCache(envs, boxed(backends)), nil
}

func boxed(l []string) any {
	if l == nil {
		return nil
	}
	out := make([]any, len(l))
	for i, s := range l {
		out[i] = s
	}
	return out
}
