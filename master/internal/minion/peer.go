package minion

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"saltern/internal/durable"
	"saltern/master/internal/acl"
	"saltern/master/internal/launch"
	"saltern/master/internal/queue"
	"saltern/master/internal/request"
	"saltern/master/jobs"
	"saltern/master/pyrunner"
	"saltern/master/runner"
	"saltern/master/target"
	"saltern/master/value"
)

// peerFields are the required fields of a minion's job.
var peerFields = []string{"fun", "arg", "tgt", "ret"}

// peerJob returns the job that a minion asks to start, or nil if the option peer does not permit it
// (salt/master.py __verify_minion_publish). If it returns an error, the request gets no answer.
func (s *Service) peerJob(ctx context.Context, e *target.Effort, c *request.Call, r jobRequest) (*launch.Job, error) {
	leave, err := s.turns.waitTurn(ctx, c)
	if err != nil {
		return nil, err
	}
	defer leave()
	e.Restart(minionEffort)

	j := s.permittedJob(e, c, r)
	if err := e.Spent(); err != nil {
		return nil, unanswered(err)
	}
	return j, nil
}

// permittedJob returns the job if the option peer permits it, and otherwise nil.
func (s *Service) permittedJob(e *target.Effort, c *request.Call, r jobRequest) *launch.Job {
	if r.fun == "" || strings.HasPrefix(r.fun, "publish.") {
		return nil
	}

	perms := acl.Peer(s.cfg.Options.Peer, c.ID)
	if len(perms) == 0 {
		s.cfg.Quiet.Info("minion may not publish: peer grants it nothing", "minion", c.ID, "fun", r.fun)
		return nil
	}

	fun, arg, ok := r.functionsAndArgs()
	if !ok {
		return nil
	}

	if strings.HasPrefix(r.tgtType, "node") {
		name, _ := r.tgt.(string)
		if r.tgt, ok = s.cfg.Options.Nodegroups.Get(name); !ok {
			return nil
		}
		r.tgtType = "compound"
	}

	out := value.NewMap("fun", fun, "arg", arg, "tgt", r.tgt, "tgt_type", r.tgtType, "ret", r.ret)
	by := launch.Caller{
		User:        s.cfg.Options.User,
		Account:     "minion/" + c.ID,
		Minion:      c.ID,
		Permissions: perms,
	}
	if s.refused(c.ID, s.cfg.Launch.MayTarget(by, out)) {
		return nil
	}

	j, err := s.cfg.Launch.NewWithin(e, out)
	if err != nil {
		s.cfg.Quiet.Info("target of a minion's job cannot be resolved", "minion", c.ID, "error", err)
		return nil
	}

	funs, _ := launch.Functions(out)
	if slices.ContainsFunc(funs, func(f string) bool { return strings.HasPrefix(f, "publish.") }) {
		return nil // a job that starts jobs might never end
	}

	switch err := s.cfg.Launch.Permit(e, j, by); {
	case errors.Is(err, launch.ErrNotPermitted):
		s.cfg.Quiet.Info("minion may not publish this", "minion", c.ID, "fun", r.fun)
		return nil
	case s.refused(c.ID, err):
		return nil
	case err != nil:
		s.cfg.Log.Warn("minion's job refused", "minion", c.ID, "error", err)
		return nil
	}

	_ = e.Do(stepsPublish + stepsPerMinion*len(j.Minions)) // charge the minion for the work done
	if s.cfg.Launch.ReachesNobody(j) {
		return nil
	}

	return j
}

// refused reports whether err is a refusal of a minion's job with a reason, and logs the reason.
// Only the log gets the reason, because Salt's answer to the minion has no field for a reason.
func (s *Service) refused(id string, err error) bool {
	_, ok := errors.AsType[*launch.Refusal](err)
	if ok {
		s.cfg.Quiet.Warn("minion's job refused", "minion", id, "error", err)
	}
	return ok
}

// onMinionPub starts a job for a minion and stores the minion as its owner.
func (s *Service) onMinionPub(ctx context.Context, e *target.Effort, c *request.Call) (any, error) {
	j, err := s.peerJob(ctx, e, c, newJobRequest(c.Load))
	if err != nil {
		return nil, err
	}
	if j == nil {
		return value.NewMap(), nil
	}

	err = s.cfg.Launch.Start(ctx, j)
	if s.refused(c.ID, err) {
		return value.NewMap(), nil
	}
	if err != nil {
		return nil, err
	}

	if err := s.rememberOwner(j.JID, c.ID); err != nil { // no error for the minion: it would start the job again
		s.cfg.Log.Error("a minion cannot ask for the returns of its job", "minion", c.ID, "jid", j.JID, "error", err)
	}

	return value.NewMap("jid", j.JID, "minions", j.Minions), nil
}

func (s *Service) ownerFile(jid string) string {
	return filepath.Join(s.cfg.Options.CacheDir, "publish_auth", jid)
}

// ownerMark returns a text that identifies a minion together with its key. A later minion with the
// same id but another key therefore cannot read the returns of this minion's jobs.
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

// ForgetOwners drops the owners of jobs that were started before t.
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

// onPubRet returns to a minion the returns of a job that this minion started.
func (s *Service) onPubRet(ctx context.Context, c *request.Call) (any, error) {
	jid := jidRequest(c.Load)
	if !jobs.Valid(jid) {
		return value.NewMap(), nil
	}
	owner, err := durable.Read(s.ownerFile(jid), 1024)
	if err != nil || string(owner) != s.ownerMark(c.ID) {
		return value.NewMap(), nil
	}
	return s.cachedReturns(ctx, jid)
}

// cachedReturns returns the returns of a job in the form of get_cache_returns in
// salt/client/__init__.py.
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

const (
	// maxPeerWait bounds how long a minion may wait for the returns of a job that it started.
	maxPeerWait = 45 * time.Second
	// maxWaiters bounds the number of minions that wait for returns at once.
	maxWaiters = 64
	// minRunners and runnersPerCPU determine how many runners of minions run at once: minRunners,
	// or runnersPerCPU for each processor if that is more. Many runners mostly wait for another
	// service. Salt runs worker_threads of them, 5 by default.
	minRunners    = 8
	runnersPerCPU = 2
	// queueBytes bounds the size in bytes of the requests that wait in each of the two queues.
	queueBytes = 64 << 20
)

// newQueue returns a queue in which at most turns requests run at once.
func newQueue(turns int) *queue.Queue[any] {
	return queue.New[any](queue.Config{Turns: turns, Bytes: queueBytes, Now: time.Now})
}

// runInTurn calls work when the queue serves the request. The request is parked while it waits in
// the queue. If the queue is full, or the minion disconnects while it waits, the request gets no
// answer: the minion would take an empty answer for the result of the runner.
func runInTurn(ctx context.Context, q *queue.Queue[any], c *request.Call, work func() (any, error)) (answer any, err error) {
	asked := queue.Question{Minion: c.ID, Bytes: c.Size()}
	turn, ok := q.Try(asked)
	if !ok {
		err = c.Park(ctx, func(left context.Context) (err error) {
			turn, _, err = q.Wait(left, asked)
			return err
		})
	}

	if turn != nil {
		defer func() { turn.End(nil, nil) }() // nil, because no other request waits for the answer
	}

	if err != nil {
		return nil, unanswered(err)
	}

	return work()
}

// onMinionPublish starts a job for a minion, waits for the returns and answers with them. Minions
// of maintained releases do not use it; they ask for the returns by pub_ret.
func (s *Service) onMinionPublish(ctx context.Context, e *target.Effort, c *request.Call) (any, error) {
	r := newJobRequest(c.Load)
	j, err := s.peerJob(ctx, e, c, r)
	if err != nil {
		return nil, err
	}
	if j == nil {
		return value.NewMap(), nil
	}

	return runInTurn(ctx, s.waiters, c, func() (any, error) {
		ctx := context.WithoutCancel(ctx)
		wait := min(cmp.Or(r.wait, s.cfg.Options.Timeout), maxPeerWait)
		err := s.cfg.Launch.StartAndWait(ctx, j, wait)
		if s.refused(c.ID, err) {
			return value.NewMap(), nil
		}
		if err != nil {
			return nil, err
		}

		rets, err := s.cachedReturns(ctx, j.JID)
		if err != nil {
			return nil, err
		}

		return r.formatReturns(j.JID, rets), nil
	})
}

// formatReturns returns the returns of a job in the form that the minion asked for.
func (r jobRequest) formatReturns(jid string, rets *value.Map) *value.Map {
	if r.full {
		for id, ret := range rets.All() {
			ret.(*value.Map).Set("id", id)
		}
		rets.Set("__jid__", jid)
		return rets
	}
	out := value.NewMap()
	for id, ret := range rets.All() {
		out.Set(id, ret.(*value.Map).Value("ret"))
	}
	return out
}

// onMinionRunner calls a runner for a minion if peer_run permits it. It answers with an empty map
// only if peer_run does not permit the runner (salt/master.py minion_runner).
func (s *Service) onMinionRunner(ctx context.Context, e *target.Effort, c *request.Call) (any, error) {
	fun := c.Load.Str("fun")
	_ = e.Do(stepsRunner) // charge the minion for the work done
	if !acl.Run(acl.Peer(s.cfg.Options.PeerRun, c.ID), fun) {
		s.cfg.Quiet.Warn("minion may not call this runner", "minion", c.ID, "fun", fun)
		return value.NewMap(), nil
	}

	return runInTurn(ctx, s.runners, c, func() (any, error) {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Minute)
		defer stop()
		if s.cfg.Ending != nil {
			defer context.AfterFunc(s.cfg.Ending, stop)()
		}
		return s.callRunner(ctx, c)
	})
}

// callRunner calls the runner that a minion asks for. It returns the same answer as Salt's
// minion_runner, also if the runner fails.
func (s *Service) callRunner(ctx context.Context, c *request.Call) (any, error) {
	r := newJobRequest(c.Load)
	args, named := runner.Arguments(value.NewMap("arg", r.arguments()))
	var err error
	data := s.cfg.Runs.AnnounceFor(c.ID, r.fun, args, named).Do(ctx, func(failed error) { err = failed })
	if err == nil {
		ret, _ := data.Get("return")
		return ret, nil
	}

	if cut := ctx.Err(); cut != nil {
		return nil, unanswered(cut)
	}

	s.cfg.Log.Info("runner of a minion failed", "minion", c.ID, "fun", r.fun, "error", err)
	var failed *pyrunner.Failure
	var unknown *runner.UnknownError
	switch {
	case errors.As(err, &failed):
		return failed.Return, nil
	case errors.As(err, &unknown):
		return unknown.Error(), nil // as in Salt's minion_runner
	}

	if usage := runner.Result(err); usage != nil {
		return usage, nil
	}

	return nil, err
}
