package minion

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

	"saltern/durable"
	"saltern/master/client"
	"saltern/master/internal/acl"
	"saltern/master/internal/launch"
	"saltern/master/internal/request"
	"saltern/master/jobs"
	"saltern/master/pyrunner"
	"saltern/master/runner"
	"saltern/master/target"
	"saltern/master/value"
)

// peerFields are what a minion's job must have.
var peerFields = []string{"fun", "arg", "tgt", "ret"}

// peerJob makes the job that a minion asked for, when peer permits it
// (salt/master.py __verify_minion_publish).
func (s *Service) peerJob(ctx context.Context, e *target.Effort, c *request.Call) (*launch.Job, bool, error) {
	leave, ok := s.turns.enter(ctx, c.ID)
	if !ok {
		return nil, false, nil
	}
	defer leave()
	load := c.Load
	fun := load.Str("fun")
	if fun == "" || strings.HasPrefix(fun, "publish.") {
		return nil, false, nil
	}
	perms := acl.Peer(s.cfg.Options.Peer, c.ID)
	if len(perms) == 0 {
		s.cfg.Quiet.Info("minion may not publish: peer grants it nothing", "minion", c.ID, "fun", fun)
		return nil, false, nil
	}
	out := value.NewMap("fun", fun, "arg", parseInput(load.List("arg"), noParse(load)), "tgt", load.Value("tgt"),
		"tgt_type", launch.TargetType(load), "ret", load.Value("ret"), "jid", "", "user", s.cfg.Options.User, "kwargs", value.NewMap("id", c.ID))
	if strings.Contains(fun, ",") {
		if !splitCompound(load, out, fun) {
			return nil, false, nil
		}
	}
	if strings.HasPrefix(launch.TargetType(load), "node") {
		group, ok := s.cfg.Options.Nodegroups.Get(load.Str("tgt"))
		if !ok {
			return nil, false, nil
		}
		out.Set("tgt", group)
		out.Set("tgt_type", "compound")
	}
	j, err := s.cfg.Launch.NewWithin(e, out)
	if err != nil {
		s.cfg.Quiet.Info("target of a minion's job cannot be resolved", "minion", c.ID, "error", err)
		return nil, false, nil
	}
	if !s.exactly(e, out, j) {
		s.cfg.Quiet.Warn("minion's job refused: its target would reveal pillar values", "minion", c.ID)
		return nil, false, nil
	}
	funs, _ := launch.Functions(out)
	if slices.ContainsFunc(funs, func(f string) bool { return strings.HasPrefix(f, "publish.") }) {
		return nil, false, nil // jobs that start jobs would not end
	}
	switch err := s.cfg.Launch.Permit(e, j, perms); {
	case errors.Is(err, launch.ErrNotPermitted):
		s.cfg.Quiet.Info("minion may not publish this", "minion", c.ID, "fun", fun)
		return nil, false, nil
	case err != nil:
		s.cfg.Log.Warn("minion's job refused", "minion", c.ID, "error", err)
		return nil, false, nil
	}
	_ = e.Do(stepsPublish + stepsPerMinion*len(j.Minions)) // charged afterwards
	return j, len(j.Minions) > 0, nil
}

// splitCompound takes a job of several functions apart: one text of
// arguments for each.
func splitCompound(load, out *value.Map, fun string) bool {
	if strings.Count(fun, ",") >= launch.MaxFunctions {
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

func noParse(load *value.Map) map[string]bool {
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
	out, named := []any{}, value.NewMap()
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
		case *value.Map:
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
func (s *Service) exactly(e *target.Effort, load *value.Map, j *launch.Job) bool {
	var exact string
	switch strings.ToLower(launch.TargetType(load)) {
	case "pillar", "pillar_pcre":
		exact = "pillar_exact"
	case "compound":
		exact = "compound_pillar_exact"
	default:
		return true
	}
	ids, _, err := s.cfg.Targets.Resolve(e, j.Target, exact, launch.Delimiter(load))
	if err != nil {
		return false
	}
	known := map[string]bool{}
	for _, id := range ids {
		known[id] = true
	}
	return !slices.ContainsFunc(j.Minions, func(id string) bool { return !known[id] })
}

// onMinionPub starts a job for a minion and remembers whose it is.
func (s *Service) onMinionPub(ctx context.Context, e *target.Effort, c *request.Call) (any, error) {
	j, ok, err := s.peerJob(ctx, e, c)
	if err != nil || !ok {
		return value.NewMap(), err
	}
	if err := s.cfg.Launch.Start(ctx, j); err != nil {
		return nil, err
	}
	if err := s.rememberOwner(j.JID, c.ID); err != nil {
		return nil, err
	}
	return value.NewMap("jid", j.JID, "minions", j.Minions), nil
}

func (s *Service) ownerFile(jid string) string {
	return filepath.Join(s.cfg.Options.CacheDir, "publish_auth", jid)
}

// ownerMark names a minion together with its key, so that whoever gets the id
// later with another key does not see the returns of the one before.
func (s *Service) ownerMark(id string) string {
	e, _ := s.cfg.Keys.Lookup(id)
	return fmt.Sprintf("%s\n%x\n", id, sha256.Sum256([]byte(e.PEM)))
}

func (s *Service) rememberOwner(jid, id string) error {
	if err := os.MkdirAll(filepath.Dir(s.ownerFile(jid)), 0o700); err != nil {
		return fmt.Errorf("remember whose job %s is: %w", jid, err)
	}
	if err := durable.Replace(s.ownerFile(jid), []byte(s.ownerMark(id)), 0o600); err != nil {
		return fmt.Errorf("remember whose job %s is: %w", jid, err)
	}
	return nil
}

// ForgetOwners forgets whose job was whose, for jobs that were started before t.
func (s *Service) ForgetOwners(t time.Time) {
	dir := filepath.Dir(s.ownerFile("x"))
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.ModTime().Before(t) {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// onPubRet gives a minion the returns of a job that it started itself.
func (s *Service) onPubRet(ctx context.Context, c *request.Call) (any, error) {
	jid := c.Load.Str("jid")
	if n, ok := c.Load.Int("jid"); ok {
		jid = fmt.Sprint(n)
	}
	if !jobs.Valid(jid) {
		return value.NewMap(), nil
	}
	info, err := os.Lstat(s.ownerFile(jid))
	if errors.Is(err, fs.ErrNotExist) {
		return value.NewMap(), nil
	}
	if err != nil || !info.Mode().IsRegular() || info.Size() > 1024 {
		return value.NewMap(), nil
	}
	owner, err := os.ReadFile(s.ownerFile(jid))
	if err != nil || string(owner) != s.ownerMark(c.ID) {
		return value.NewMap(), nil
	}
	return s.cachedReturns(ctx, jid)
}

// cachedReturns is get_cache_returns of salt/client/__init__.py.
func (s *Service) cachedReturns(ctx context.Context, jid string) (*value.Map, error) {
	rets, err := s.cfg.Jobs.Returns(ctx, jid)
	if err != nil {
		return nil, err
	}
	out := value.NewMap()
	for id, v := range rets.All() {
		d, _ := v.(*value.Map)
		r := value.NewMap("ret", d.Value("return"))
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
func (s *Service) onMinionPublish(ctx context.Context, e *target.Effort, c *request.Call) (any, error) {
	j, ok, err := s.peerJob(ctx, e, c)
	if err != nil || !ok {
		return value.NewMap(), err
	}
	leave, ok := s.cfg.Wait()
	if !ok {
		s.cfg.Quiet.Warn("too many minions wait for jobs of their own; one is refused", "minion", c.ID)
		return value.NewMap(), nil
	}
	defer leave()
	wait := s.cfg.Options.Timeout
	for _, k := range []string{"tmo", "timeout"} {
		if n, ok := c.Load.Int(k); ok && n > 0 {
			wait = time.Duration(n) * time.Second
		}
	}
	if err := s.cfg.Launch.StartAndWait(ctx, j, min(wait, maxPeerWait)); err != nil {
		return nil, err
	}
	rets, err := s.cachedReturns(context.WithoutCancel(ctx), j.JID)
	if err != nil {
		return nil, err
	}
	if c.Load.Str("form") == "full" {
		for id, r := range rets.All() {
			r.(*value.Map).Set("id", id)
		}
		rets.Set("__jid__", j.JID)
		return rets, nil
	}
	out := value.NewMap()
	for id, r := range rets.All() {
		out.Set(id, r.(*value.Map).Value("ret"))
	}
	return out, nil
}

// onMinionRunner calls a runner for a minion, when peer_run permits it.
func (s *Service) onMinionRunner(ctx context.Context, e *target.Effort, c *request.Call) (any, error) {
	fun := c.Load.Str("fun")
	_ = e.Do(stepsRunner) // charged afterwards
	if !acl.Run(acl.Peer(s.cfg.Options.PeerRun, c.ID), fun) {
		s.cfg.Quiet.Warn("minion may not call this runner", "minion", c.ID, "fun", fun)
		return value.NewMap(), nil
	}
	leave, ok := s.cfg.Wait()
	if !ok {
		s.cfg.Quiet.Warn("too many minions wait for runners; one is refused", "minion", c.ID, "fun", fun)
		return value.NewMap(), nil
	}
	defer leave()
	args, named := runner.Arguments(value.NewMap("arg", parseInput(c.Load.List("arg"), noParse(c.Load))))
	ret, err := s.cfg.Runs.Call(ctx, fun, args, named)
	if err == nil || ctx.Err() != nil {
		return ret, err
	}
	s.cfg.Log.Info("runner of a minion failed", "minion", c.ID, "fun", fun, "error", err)
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
