package launch

import (
	"context"
	"strings"
	"time"

	"saltern/master/event"
	"saltern/master/runner"
	"saltern/master/value"
)

// Ask publishes a job and collects its returns, for runners. After the timeout it asks the silent
// minions whether they still run the job (find_job), and repeats that until no minion does.
func (l *Launcher) Ask(ctx context.Context, q runner.Question) (runner.Answer, error) {
	j, err := l.jobOf(ctx, q)
	if err != nil || len(j.Minions) == 0 {
		return runner.Answer{Returns: map[string]*value.Map{}}, err
	}
	return l.Collect(ctx, j, q.Timeout, q.Gather)
}

// Tell implements runner.Minions.
func (l *Launcher) Tell(ctx context.Context, q runner.Question) (minions int, err error) {
	j, err := l.jobOf(ctx, q)
	if err != nil || len(j.Minions) == 0 {
		return 0, err
	}
	return len(j.Minions), l.Start(ctx, j)
}

// jobOf returns the job of a question of a runner.
func (l *Launcher) jobOf(ctx context.Context, q runner.Question) (*Job, error) {
	arg := q.Arg
	if arg == nil {
		arg = []any{}
	}
	return l.New(ctx, l.Own(q.Fun, arg, q.Target, q.TargetType, ""))
}

// Collect starts a job and collects its returns as Ask does. If timeout or gather is zero, the
// configured value applies. The answer has the returns until ctx ended.
func (l *Launcher) Collect(ctx context.Context, j *Job, timeout, gather time.Duration) (runner.Answer, error) {
	if timeout <= 0 {
		timeout = l.cfg.Timeout
	}

	if gather <= 0 {
		gather = l.cfg.GatherTimeout
	}

	ans := runner.Answer{Returns: map[string]*value.Map{}}
	g := l.startGathering("runner", j, 2*len(j.Minions)+1024)
	defer g.sub.Close()
	g.returns = ans.Returns
	if err := l.Start(ctx, j); err != nil {
		return ans, err
	}

	ans.Expected = j.Minions
	for wait := timeout; ; wait = gather {
		if g.collectFor(ctx, wait) || ctx.Err() != nil {
			return ans, ctx.Err()
		}
		if busy, err := l.askRunning(ctx, g, gather); err != nil || !busy {
			return ans, err
		}
	}
}

// StartAndWait starts a job. It returns when all minions of the job have returned, or when wait has
// passed.
func (l *Launcher) StartAndWait(ctx context.Context, j *Job, wait time.Duration) error {
	g := l.startGathering("minion_publish", j, 4096)
	defer g.sub.Close()
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if err := l.Start(ctx, j); err != nil {
		return err
	}
	g.collectFor(ctx, wait)
	return nil
}

// gathering collects the returns of one job.
type gathering struct {
	sub    *event.Subscription
	job    *Job
	silent map[string]bool // minions that have not returned
	// returns holds the returns by minion. It may be nil: the caller needs no returns.
	returns map[string]*value.Map
	// probe is the job id of the last find_job. stillRunning holds the minions that answered that
	// find_job; the value is true if the minion still runs the job.
	probe        string
	stillRunning map[string]bool
	asked        int
}

// startGathering subscribes to the returns of a job. Call it before starting the job.
func (l *Launcher) startGathering(name string, j *Job, depth int) *gathering {
	g := &gathering{
		sub:    l.cfg.Bus.Subscribe(name, depth, event.Prefix("salt/job/")),
		job:    j,
		silent: make(map[string]bool, len(j.Minions)),
	}
	for _, id := range j.Minions {
		g.silent[id] = true
	}
	return g
}

// collectFor collects returns until wait has passed or all minions have answered. It reports
// whether all have answered.
func (g *gathering) collectFor(ctx context.Context, wait time.Duration) bool {
	t := time.NewTimer(wait)
	defer t.Stop()
	for len(g.silent) > 0 {
		select {
		case e, ok := <-g.sub.C:
			if !ok {
				return true
			}
			g.takeReturn(e)
			if g.probe != "" && len(g.stillRunning) == g.asked {
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

func (g *gathering) takeReturn(e event.Event) {
	if !event.MayOrder(e, event.JobReturn) {
		return // the sender of the event is not the minion that the event names
	}
	if id, ok := strings.CutPrefix(e.Tag, event.Tag("job", g.job.JID, "ret")+"/"); ok {
		delete(g.silent, id)
		if g.returns != nil {
			g.returns[id] = e.Data
		}
	}
	if id, ok := strings.CutPrefix(e.Tag, event.Tag("job", g.probe, "ret")+"/"); ok && g.probe != "" {
		running := e.Data.Map("return")
		g.stillRunning[id] = running.Len() > 0
	}
}

// askRunning asks the silent minions whether they still run the job. It returns false if no minion
// does.
func (l *Launcher) askRunning(ctx context.Context, g *gathering, wait time.Duration) (bool, error) {
	var silent []any
	for _, id := range g.job.Minions {
		if g.silent[id] {
			silent = append(silent, id)
		}
	}

	j, err := l.New(ctx, l.Own("saltutil.find_job", []any{g.job.JID}, silent, "list", ""))
	if err != nil || len(j.Minions) == 0 {
		return false, err
	}

	if err := l.Start(ctx, j); err != nil {
		return false, err
	}

	g.probe = j.JID
	g.stillRunning = map[string]bool{}
	g.asked = len(silent)
	defer func() { g.probe = "" }()

	if g.collectFor(ctx, wait) {
		return false, nil
	}

	for _, running := range g.stillRunning {
		if running {
			return true, nil
		}
	}

	return false, nil
}
