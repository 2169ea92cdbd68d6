package launch

import (
	"context"
	"maps"
	"slices"
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
	if err != nil || l.ReachesNobody(j) {
		return runner.Answer{Returns: map[string]*value.Map{}}, err
	}
	return l.Collect(ctx, j, q.Timeout, q.Gather)
}

// Tell implements runner.Minions.
func (l *Launcher) Tell(ctx context.Context, q runner.Question) (minions int, err error) {
	j, err := l.jobOf(ctx, q)
	if err != nil || l.ReachesNobody(j) {
		return 0, err
	}
	return len(l.addressees(j)), l.Start(ctx, j)
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
// configured value applies. The answer has the returns until ctx ended. Its Expected are the minions of this
// master, without syndics, and with order_masters those below syndics that have the job.
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
	if err := l.startGathered(ctx, g); err != nil {
		return ans, err
	}

	err := l.collectAll(ctx, g, timeout, gather)
	ans.Expected = g.expected()
	return ans, err
}

// collectAll collects the returns of a job that has started, as Collect does.
func (l *Launcher) collectAll(ctx context.Context, g *gathering, timeout, gather time.Duration) error {
	for wait := timeout; ; wait = gather {
		if g.collectFor(ctx, max(wait, g.below.timeToTell())) || ctx.Err() != nil {
			return ctx.Err()
		}
		if busy, err := l.askRunning(ctx, g, gather); err != nil || !busy {
			return err
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
	if err := l.startGathered(ctx, g); err != nil {
		return err
	}
	g.collectFor(ctx, wait)
	return nil
}

// StartNamed starts a job and returns the minions that it is known to be for. While none is known, it waits
// until a syndic names some or a minion returns, and for syndic_wait at most. Without an error the job has
// started, even if StartNamed returns no minions, or ctx has ended.
func (l *Launcher) StartNamed(ctx context.Context, j *Job) ([]string, error) {
	ids := l.addressees(j)
	if len(ids) > 0 {
		return ids, l.Start(ctx, j)
	}

	g := l.startGathering("first minions", j, 1024)
	defer g.sub.Close()
	if err := l.startGathered(ctx, g); err != nil {
		return nil, err
	}
	g.firstOnly = true
	g.collectFor(ctx, g.below.timeToTell())
	return g.expected(), nil
}

// gathering collects the returns of one job.
type gathering struct {
	sub    *event.Subscription
	job    *Job
	own    []string        // minions of this master that must answer
	mute   []string        // syndics, which need not
	below  *below          // minions below syndics
	silent map[string]bool // minions that have not returned
	// returned are the minions that have returned, and returns their returns. returns may be nil: the caller
	// needs no returns.
	returned  map[string]bool
	returns   map[string]*value.Map
	firstOnly bool // it is enough to know one minion
	// probe is the job id of the last find_job. stillRunning holds the minions that answered that
	// find_job; the value is true if the minion still runs the job.
	probe        string
	stillRunning map[string]bool
	asked        int
}

// startGathering subscribes to the returns of a job. Call it before starting the job.
func (l *Launcher) startGathering(name string, j *Job, depth int) *gathering {
	below := l.newBelow(j)
	if below.reachesLower { // this master does not know how many answer
		const most = 16_384
		depth = max(depth, most)
	}
	ofJobs := event.Prefix("salt/job/")
	g := &gathering{
		sub:      l.cfg.Bus.Subscribe(name, depth, func(tag string) bool { return ofJobs(tag) || below.wants(tag) }),
		job:      j,
		below:    below,
		silent:   make(map[string]bool, len(j.Minions)),
		returned: map[string]bool{},
	}
	for _, id := range j.Minions {
		if l.cfg.Syndics.Known(id) {
			g.mute = append(g.mute, id)
			continue
		}
		g.own = append(g.own, id)
		g.silent[id] = true
	}
	return g
}

// startGathered starts the job of a gathering.
func (l *Launcher) startGathered(ctx context.Context, g *gathering) error {
	err := l.Start(ctx, g.job)
	g.below.begin(l.cfg.SyndicWait)
	return err
}

// expected returns the minions that have the job, as far as that is known: those of this master first. Of the
// syndics those are among them that have answered as minions.
func (g *gathering) expected() []string {
	ids := slices.Clone(g.own)
	for _, id := range g.mute {
		if g.returned[id] {
			ids = append(ids, id)
		}
	}
	return append(ids, slices.Sorted(maps.Keys(g.below.ids))...)
}

// isComplete reports whether all minions have answered, and no syndic may name further ones; with firstOnly,
// whether one minion below a syndic is known. If lower masters get the job and nobody has answered, it returns
// false: only the end of the wait tells.
func (g *gathering) isComplete() bool {
	if g.firstOnly && len(g.below.ids) > 0 {
		return true
	}
	if len(g.silent) > 0 || g.below.timeToTell() > 0 {
		return false
	}
	return !g.below.reachesLower || len(g.returned) > 0
}

// collectFor collects returns until wait has passed or all minions have answered. It reports
// whether all have answered.
func (g *gathering) collectFor(ctx context.Context, wait time.Duration) bool {
	waitEnds := time.NewTimer(wait)
	defer waitEnds.Stop()
	syndicsDone := time.NewTimer(g.below.timeToTell())
	defer syndicsDone.Stop()

	for !g.isComplete() {
		select {
		case e, ok := <-g.sub.C:
			if !ok {
				return true
			}
			g.takeReturn(e)
			g.takeNamed(e)
			if g.probe != "" && len(g.stillRunning) == g.asked {
				return false
			}
		case <-syndicsDone.C:
		case <-waitEnds.C:
			return false
		case <-ctx.Done():
			return false
		}
	}

	return true
}

// takeNamed awaits the minions that a syndic's event names, and no longer the syndic. The minions may all have
// returned before the event.
func (g *gathering) takeNamed(e event.Event) {
	ids, named := g.below.named(e)
	if !named {
		return
	}

	for _, id := range ids {
		g.silent[id] = true
	}

	syndic := event.Syndic(e.Tag)
	if i := slices.Index(g.own, syndic); i >= 0 && !g.returned[syndic] {
		delete(g.silent, syndic)
		g.own = slices.Delete(g.own, i, i+1)
		g.mute = append(g.mute, syndic)
	}
}

func (g *gathering) takeReturn(e event.Event) {
	if !event.MayOrder(e, event.JobReturn) {
		return // the sender of the event is not the minion that the event names
	}
	if id, ok := strings.CutPrefix(e.Tag, event.Tag("job", g.job.JID, "ret")+"/"); ok {
		g.below.add([]string{id})
		delete(g.silent, id)
		g.returned[id] = true
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
	if len(g.silent) == 0 {
		return false, nil
	}
	silent := value.List(slices.Sorted(maps.Keys(g.silent)))

	j, err := l.New(ctx, l.Own("saltutil.find_job", []any{g.job.JID}, silent, "list", ""))
	if err != nil || l.ReachesNobody(j) {
		return false, err
	}

	if err := l.Start(ctx, j); err != nil {
		return false, err
	}

	if g.below.reachesLower { // the question and its answers pass syndics
		wait += l.cfg.SyndicWait
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
