package master

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"saltern/master/acl"
	"saltern/master/client"
	"saltern/master/crypt"
	"saltern/master/event"
	"saltern/master/jobs"
	"saltern/master/msgpack"
	"saltern/master/pyrunner"
	"saltern/master/request"
	"saltern/master/runner"
	"saltern/master/target"
)

// peerFields are what a minion's job must have.
var peerFields = []string{"fun", "arg", "tgt", "ret"}

// peerJob makes the job that a minion asked for, when peer permits it
// (salt/master.py __verify_minion_publish).
func (m *Master) peerJob(ctx context.Context, e *target.Effort, c *request.Call) (*job, bool, error) {
	leave, ok := m.turns.enter(ctx, c.ID)
	if !ok {
		return nil, false, nil
	}
	defer leave()
	load := c.Load
	fun := load.Str("fun")
	if fun == "" || strings.HasPrefix(fun, "publish.") {
		return nil, false, nil
	}
	perms := acl.Peer(m.cfg.Peer, c.ID)
	if len(perms) == 0 {
		m.quiet.Info("minion may not publish: peer grants it nothing", "minion", c.ID, "fun", fun)
		return nil, false, nil
	}
	out := msgpack.NewMap("fun", fun, "arg", parseInput(load.List("arg"), noParse(load)), "tgt", get(load, "tgt"),
		"tgt_type", targetType(load), "ret", get(load, "ret"), "jid", "", "user", m.cfg.User, "kwargs", msgpack.NewMap("id", c.ID))
	if strings.Contains(fun, ",") {
		if !splitCompound(load, out, fun) {
			return nil, false, nil
		}
	}
	if strings.HasPrefix(targetType(load), "node") {
		group, ok := m.cfg.Nodegroups.Get(load.Str("tgt"))
		if !ok {
			return nil, false, nil
		}
		out.Set("tgt", group)
		out.Set("tgt_type", "compound")
	}
	j, err := m.newJobWithin(e, out)
	if err != nil {
		m.quiet.Info("target of a minion's job cannot be resolved", "minion", c.ID, "error", err)
		return nil, false, nil
	}
	if !m.exactly(e, out, j) {
		m.quiet.Warn("minion's job refused: its target would reveal pillar values", "minion", c.ID)
		return nil, false, nil
	}
	funs, _ := functions(out)
	if slices.ContainsFunc(funs, func(f string) bool { return strings.HasPrefix(f, "publish.") }) {
		return nil, false, nil // jobs that start jobs would not end
	}
	r := acl.Request{Funs: funs, Args: arguments(out, len(funs)), Minions: j.minions}
	if !acl.Publish(perms, r, m.compoundWithin(e)) {
		m.quiet.Info("minion may not publish this", "minion", c.ID, "fun", fun)
		return nil, false, nil
	}
	if err := m.restrict(j, perms, r); err != nil {
		m.log.Warn("minion's job refused", "minion", c.ID, "error", err)
		return nil, false, nil
	}
	_ = e.Do(stepsPublish + stepsPerMinion*len(j.minions)) // charged afterwards
	return j, len(j.minions) > 0, nil
}

// splitCompound takes a job of several functions apart: one text of
// arguments for each.
func splitCompound(load, out *msgpack.Map, fun string) bool {
	if strings.Count(fun, ",") >= maxFunctions {
		return false
	}
	names := strings.Split(fun, ",")
	funs, args := make([]any, len(names)), make([]any, len(names))
	given := load.List("arg")
	for i, n := range names {
		funs[i], args[i] = n, []any{}
		if i >= len(given) {
			continue
		}
		text, ok := given[i].(string)
		if !ok {
			return false
		}
		words := []any{}
		for _, w := range strings.Fields(text) {
			words = append(words, w)
		}
		args[i] = words
	}
	out.Set("fun", funs)
	out.Set("arg", args)
	return true
}

func noParse(load *msgpack.Map) map[string]bool {
	out := map[string]bool{}
	for _, s := range load.Texts("no_parse") {
		out[s] = true
	}
	return out
}

// parseInput reads arguments that may be written as on a command line
// (salt/utils/args.py parse_input): texts are YAML, name=value is a named
// argument.
func parseInput(args []any, noParse map[string]bool) []any {
	out, named := []any{}, msgpack.NewMap()
	for _, a := range args {
		switch a := a.(type) {
		case string:
			name, value, ok := client.ParseKwarg(a)
			switch {
			case ok && noParse[name]:
				named.Set(name, value)
			case ok:
				named.Set(name, client.Yamlify(value))
			default:
				out = append(out, client.Yamlify(a))
			}
		case *msgpack.Map:
			if !a.Bool("__kwarg__") {
				out = append(out, a)
				continue
			}
			for k, v := range a.All() {
				if k != "__kwarg__" {
					named.Set(k, v)
				}
			}
		default:
			out = append(out, a)
		}
	}
	if named.Len() > 0 {
		named.Set("__kwarg__", true)
		out = append(out, named)
	}
	return out
}

// exactly refuses targets that match more minions by pillar patterns than by
// exact pillar values, which would let a minion guess at pillars.
func (m *Master) exactly(e *target.Effort, load *msgpack.Map, j *job) bool {
	var exact string
	switch strings.ToLower(targetType(load)) {
	case "pillar", "pillar_pcre":
		exact = "pillar_exact"
	case "compound":
		exact = "compound_pillar_exact"
	default:
		return true
	}
	ids, _, err := m.resolveWithin(e, j.tgt, exact, delimiter(load))
	if err != nil {
		return false
	}
	known := map[string]bool{}
	for _, id := range ids {
		known[id] = true
	}
	for _, id := range j.minions {
		if !known[id] {
			return false
		}
	}
	return true
}

// onMinionPub starts a job for a minion and remembers whose it is.
func (m *Master) onMinionPub(ctx context.Context, e *target.Effort, c *request.Call) (any, error) {
	j, ok, err := m.peerJob(ctx, e, c)
	if err != nil || !ok {
		return msgpack.NewMap(), err
	}
	if err := m.start(ctx, j); err != nil {
		return nil, err
	}
	if err := m.rememberOwner(j.jid, c.ID); err != nil {
		return nil, err
	}
	return msgpack.NewMap("jid", j.jid, "minions", j.minions), nil
}

func (m *Master) ownerFile(jid string) string {
	return filepath.Join(m.cfg.CacheDir, "publish_auth", jid)
}

// ownerMark names a minion together with its key, so that whoever gets the id
// later with another key does not see the returns of the one before.
func (m *Master) ownerMark(id string) string {
	e, _ := m.keys.Lookup(id)
	return fmt.Sprintf("%s\n%x\n", id, sha256.Sum256([]byte(e.PEM)))
}

func (m *Master) rememberOwner(jid, id string) error {
	if err := os.MkdirAll(filepath.Dir(m.ownerFile(jid)), 0o700); err != nil {
		return fmt.Errorf("remembering whose job %s is: %w", jid, err)
	}
	if err := crypt.WriteFile(m.ownerFile(jid), []byte(m.ownerMark(id)), 0o600); err != nil {
		return fmt.Errorf("remembering whose job %s is: %w", jid, err)
	}
	return nil
}

// onPubRet gives a minion the returns of a job that it started itself.
func (m *Master) onPubRet(ctx context.Context, c *request.Call) (any, error) {
	jid := c.Load.Str("jid")
	if n, ok := c.Load.Int("jid"); ok {
		jid = fmt.Sprint(n)
	}
	if !jobs.Valid(jid) {
		return msgpack.NewMap(), nil
	}
	info, err := os.Lstat(m.ownerFile(jid))
	if errors.Is(err, fs.ErrNotExist) {
		return msgpack.NewMap(), nil
	}
	if err != nil || !info.Mode().IsRegular() || info.Size() > 1024 {
		return msgpack.NewMap(), nil
	}
	owner, err := os.ReadFile(m.ownerFile(jid))
	if err != nil || string(owner) != m.ownerMark(c.ID) {
		return msgpack.NewMap(), nil
	}
	return m.cachedReturns(ctx, jid)
}

// cachedReturns is get_cache_returns of salt/client/__init__.py.
func (m *Master) cachedReturns(ctx context.Context, jid string) (*msgpack.Map, error) {
	rets, err := m.jobs.Returns(ctx, jid)
	if err != nil {
		return nil, err
	}
	out := msgpack.NewMap()
	for id, v := range rets.All() {
		d, _ := v.(*msgpack.Map)
		r := msgpack.NewMap("ret", get(d, "return"))
		if o, ok := d.Get("out"); ok && o != nil {
			r.Set("out", o)
		}
		out.Set(id, r)
	}
	return out, nil
}

// maxPeerWait bounds how long a minion may wait for a job of its own.
const maxPeerWait = 45 * time.Second

// onMinionPublish starts a job for a minion and waits for its returns.
func (m *Master) onMinionPublish(ctx context.Context, e *target.Effort, c *request.Call) (any, error) {
	j, ok, err := m.peerJob(ctx, e, c)
	if err != nil || !ok {
		return msgpack.NewMap(), err
	}
	leave, ok := m.background.Wait()
	if !ok {
		m.quiet.Warn("too many minions wait for jobs of their own; one is refused", "minion", c.ID)
		return msgpack.NewMap(), nil
	}
	defer leave()
	wait := m.cfg.Timeout
	for _, k := range []string{"tmo", "timeout"} {
		if n, ok := c.Load.Int(k); ok && n > 0 {
			wait = time.Duration(n) * time.Second
		}
	}
	ctx, cancel := context.WithTimeout(ctx, min(wait, maxPeerWait))
	defer cancel()
	sub := m.bus.Subscribe("minion_publish", 4096, event.Prefix("salt/job/"))
	defer sub.Close()
	if err := m.start(ctx, j); err != nil {
		return nil, err
	}
	waiting := map[string]bool{}
	for _, id := range j.minions {
		waiting[id] = true
	}
	prefix := event.Tag("job", j.jid, "ret") + "/"
	for len(waiting) > 0 {
		select {
		case e, ok := <-sub.C:
			if !ok {
				waiting = nil
			}
			if id, ok := strings.CutPrefix(e.Tag, prefix); ok {
				delete(waiting, id)
			}
			continue
		case <-ctx.Done():
		}
		break
	}
	rets, err := m.cachedReturns(context.WithoutCancel(ctx), j.jid)
	if err != nil {
		return nil, err
	}
	if c.Load.Str("form") == "full" {
		for id, r := range rets.All() {
			r.(*msgpack.Map).Set("id", id)
		}
		rets.Set("__jid__", j.jid)
		return rets, nil
	}
	out := msgpack.NewMap()
	for id, r := range rets.All() {
		out.Set(id, get(r.(*msgpack.Map), "ret"))
	}
	return out, nil
}

// onMinionRunner calls a runner for a minion, when peer_run permits it.
func (m *Master) onMinionRunner(ctx context.Context, e *target.Effort, c *request.Call) (any, error) {
	fun := c.Load.Str("fun")
	_ = e.Do(stepsRunner) // charged afterwards
	if !acl.Run(acl.Peer(m.cfg.PeerRun, c.ID), fun) {
		m.quiet.Warn("minion may not call this runner", "minion", c.ID, "fun", fun)
		return msgpack.NewMap(), nil
	}
	leave, ok := m.background.Wait()
	if !ok {
		m.quiet.Warn("too many minions wait for runners; one is refused", "minion", c.ID, "fun", fun)
		return msgpack.NewMap(), nil
	}
	defer leave()
	args, named := callArguments(msgpack.NewMap("arg", parseInput(c.Load.List("arg"), noParse(c.Load))))
	ret, err := m.runners.call(ctx, fun, args, named)
	if err == nil || ctx.Err() != nil {
		return ret, err
	}
	m.log.Info("runner of a minion failed", "minion", c.ID, "fun", fun, "error", err)
	var failed *pyrunner.Failure
	var unknown *runner.UnknownError
	switch {
	case errors.As(err, &failed):
		return failed.Return, nil
	case errors.As(err, &unknown):
		return unknown.Error(), nil // what Salt's minion_runner answers
	}
	if usage := runner.Result(err); usage != nil {
		return usage, nil
	}
	return ret, err
}
