package explain

import (
	"context"
	"strings"
	"time"

	"saltern/internal/control"
	"saltern/internal/printable"
	"saltern/master/cluster/wire"
	"saltern/master/event"
	"saltern/master/history/summary"
	"saltern/master/value"
)

// running is the function by which the minion is asked what it does. A minion at work answers it, too.
const running = "saltutil.running"

// settle is how long after an answer another one under the same id is awaited.
const settle = 500 * time.Millisecond

// answer is the outcome of the question to the minion.
type answer struct {
	asked   bool
	failed  error  // why it could not be asked; nil: it was
	answers int    // returns under its id
	peer    string // master that took the first return; "": this one
	at      time.Time
	took    time.Duration
	running []control.ExplainedJob
	text    string // what it returned instead of a list; "": a list
}

// askMinion asks the minion what it runs.
func (s *Service) askMinion(ctx context.Context, f *facts, silent bool) {
	if silent || !f.accepted() && !f.mayBeBelow() {
		return
	}

	sub := s.cfg.Bus.Subscribe("explain", 64, func(tag string) bool { return event.Returner(tag) == f.id })
	defer sub.Close()
	a := &f.answer
	a.asked = true
	job, err := s.cfg.Launch.New(ctx, s.cfg.Launch.Own(running, []any{}, []any{f.id}, "list", ""))
	if err == nil {
		err = s.cfg.Launch.Start(ctx, job)
	}
	if err != nil {
		a.failed = err
		return
	}

	began := time.Now()
	until := time.NewTimer(askFor)
	defer until.Stop()
	for {
		select {
		case e, ok := <-sub.C:
			if !ok {
				return
			}
			if e.Data.Str("jid") != job.Load.Str("jid") {
				continue
			}
			a.answers++
			if a.answers == 1 {
				a.take(e.Data, job.Load.Str("jid"))
				a.at = s.cfg.Now()
				a.took = time.Since(began)
				if e.Origin == event.Peer {
					a.peer = clip(e.Data.Str(wire.PeerField))
				}
				until.Reset(settle)
			}
		case <-until.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// take reads a return of saltutil.running: a list of jobs (salt/utils/minion.py running).
func (a *answer) take(data *value.Map, own string) {
	list, ok := data.Value("return").([]any)
	if !ok {
		const longest = 300
		a.text = printable.Clip(printable.Line(value.StrMax(data.Value("return"), longest)), longest)
		return
	}

	const most = 20
	for _, e := range list[:min(len(list), most)] {
		m, _ := e.(*value.Map)
		if m == nil || m.Str("jid") == own {
			continue
		}
		a.running = append(a.running, control.ExplainedJob{
			JID:      clip(m.Str("jid")),
			Function: clip(summary.FunctionOf(m)),
			User:     clip(m.Str("user")),
		})
	}
}

func clip(s string) string { return printable.Clip(printable.Line(s), 100) }

// inBlackout reports whether a return says that the minion does nothing now
// (salt/minion.py _thread_return).
func inBlackout(text string) bool { return strings.Contains(strings.ToLower(text), "blackout") }
