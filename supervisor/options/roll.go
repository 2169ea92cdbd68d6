package options

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"saltern/internal/pause"
	"saltern/internal/printable"
	"saltern/supervisor/roll"
)

// Turn is the right to restart masters. A cluster has one turn, which only one node can hold at a
// time.
type Turn interface {
	// Take acquires the turn, or extends it, until end. If another node has the turn, the error is
	// [ErrHeld] and names that node.
	Take(ctx context.Context, end time.Time) error
	// Give releases the turn.
	Give(ctx context.Context) error
}

// Target is a node of a rolling change.
type Target struct {
	Name string
	Node Node
}

// Roll asks the nodes to load their options, one node after the other. It must be used for only one
// call of Run.
type Roll struct {
	// Targets are the nodes; the last is the node that drives the rolling change. All others must
	// see the same files as the last.
	Targets []Target
	Turn    Turn          // nil: the node has no cluster
	Limit   time.Duration // how long a master may take to serve
	Force   bool          // omit nodes that do not answer or serve
	Dry     bool          // only check the options, change nothing
	Now     func() time.Time
	// Tell is called with the text of each step when the step is made, always by the same
	// goroutine. It may be nil.
	Tell func(line string)
}

// Time limits of a rolling change.
const (
	settleTakes = 15 * time.Second // how long all nodes may take to see the same files
	askEvery    = 500 * time.Millisecond
	stateTakes  = 5 * time.Second
	freshTakes  = 20 * time.Second
	trialTakes  = 10 * time.Second // how long a start that is under way may take
	mendTakes   = time.Minute      // how long another node may take to serve again
	// backTakes is how much longer than Limit a node may take, because it must stop two masters.
	backTakes = 30 * time.Second
)

// Holds returns for how long the turn stays valid after the driving node has died: long enough for
// one node to try the options and to return to the earlier options.
func Holds(limit time.Duration) time.Duration { return 2*limit + 2*backTakes }

// node is a target and its state in the rolling change.
type node struct {
	Target
	state State
	mark  string // mark of the new options
	out   bool   // the node is left out of the rolling change
	tried bool   // the node got the options, in this rolling change or in an interrupted one that it continues
	line  NodeResult
}

// run is the state of a rolling change.
type run struct {
	*Roll
	nodes []*node
}

// Run carries out the rolling change and returns its outcome.
func (r *Roll) Run(ctx context.Context) Result {
	if r.Now == nil {
		r.Now = time.Now
	}

	if r.Tell == nil {
		r.Tell = func(string) {}
	}

	u := &run{Roll: r}
	for _, t := range r.Targets {
		u.nodes = append(u.nodes, &node{Target: t, line: NodeResult{Name: t.Name, State: Unknown}})
	}

	code, cause := u.applyToNodes(ctx)
	if ctx.Err() != nil && code != Applied {
		code, cause = Interrupted, "who drove it was stopped; run it again"
	}

	return u.result(code, cause)
}

func (u *run) applyToNodes(ctx context.Context) (Code, string) {
	if u.Turn != nil && !u.Dry {
		if err := u.Turn.Take(ctx, u.turnEnd()); err != nil {
			code := Away // the table of nodes could not be changed
			if errors.Is(err, ErrHeld) {
				code = Busy
			}
			return code, printable.Brief(err.Error(), maxText)
		}
		defer u.giveTurn(ctx)
	}

	if away := u.askStates(ctx); away != "" {
		return Away, away
	}

	if lag := u.settle(ctx); lag != "" {
		return Differs, lag
	}

	if bad := u.checkOptions(ctx); bad != "" {
		return Wrong, bad
	}

	var todo []*node
	for _, n := range u.taking() {
		n.mark = n.state.Wanted
		n.line.State = Same
		if !n.state.Current() {
			n.line.State = Before
			todo = append(todo, n)
		}
	}

	if u.Dry {
		return Checked, ""
	}

	for _, n := range todo {
		if code, cause := u.rollNode(ctx, n); code != "" {
			return code, cause
		}
	}

	for _, n := range u.taking() {
		if n.state.Held {
			// If this fails, the next roll drops the earlier options.
			_ = roll.Ask(ctx, stateTakes, func(ctx context.Context) error { return n.Node.Keep(ctx, n.mark) })
		}
	}

	if len(todo) == 0 {
		return Unchanged, ""
	}

	return Applied, ""
}

func (u *run) giveTurn(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := u.Turn.Give(ctx); err != nil {
		u.Tell("the turn is not given back, it ends by itself: " + printable.Brief(err.Error(), maxText))
	}
}

func (u *run) turnEnd() time.Time { return u.Now().Add(Holds(u.Limit)) }

// taking returns the nodes that are not left out.
func (u *run) taking() []*node {
	return slices.DeleteFunc(slices.Clone(u.nodes), func(n *node) bool { return n.out })
}

// askEach calls f concurrently for all nodes that are not left out, and returns their errors.
func (u *run) askEach(ctx context.Context, limit time.Duration, f func(context.Context, *node) error) map[*node]error {
	asked := u.taking()
	out := map[*node]error{}
	for i, err := range roll.Each(ctx, asked, limit, f) {
		out[asked[i]] = err
	}
	return out
}

// askStates asks all nodes for their state. It returns why the rolling change may not begin, or "".
func (u *run) askStates(ctx context.Context) string {
	errs := u.askEach(ctx, freshTakes+trialTakes, func(ctx context.Context, n *node) (err error) {
		// A master that has just started is on trial for a moment.
		for end := u.Now().Add(trialTakes); ; {
			n.state, err = n.Node.State(ctx, true)
			if err != nil || !n.state.Trying && n.state.Serving || u.Now().After(end) ||
				pause.For(ctx, askEvery) != nil {
				return err
			}
		}
	})

	var away []string
	for _, n := range u.nodes {
		why := ""
		switch err := errs[n]; {
		case err != nil:
			why = fmt.Sprintf("%s cannot be asked: %v", n.Name, err)
		case !n.state.Serving:
			why = n.Name + " does not serve: applianced status on " + n.Name
		case n.state.Trying:
			why = fmt.Sprintf("%s: %v", n.Name, ErrTrying)
		default:
			continue
		}

		why = printable.Brief(why, maxText)
		n.line.State, n.line.Cause = Left, why
		if len(u.nodes) == 1 || n == u.nodes[len(u.nodes)-1] && errs[n] != nil {
			return why // without the driving node's files there is nothing to compare with
		}

		n.out = true
		away = append(away, why)
	}

	if len(away) == 0 {
		return ""
	}
	if !u.Force || len(away) == len(u.nodes) {
		return strings.Join(away, "; ")
	}

	for _, why := range away {
		u.Tell("left out: " + why)
	}

	return ""
}

// settle waits until all nodes see the same files. If they still differ after the time limit, it
// returns a text that names the nodes that differ.
func (u *run) settle(ctx context.Context) string {
	first := u.nodes[len(u.nodes)-1]
	reported := ""
	for end := u.Now().Add(settleTakes); ; {
		var lag []string
		for _, n := range u.taking() {
			if d := differ(first.state.Files, n.state.Files); d != "" {
				lag = append(lag, fmt.Sprintf("%s does not see the same files as %s: %s", n.Name, first.Name, d))
			}
		}

		if len(lag) == 0 {
			return ""
		}

		text := strings.Join(lag, "; ")
		if u.Now().After(end) || ctx.Err() != nil {
			return text
		}

		if text != reported {
			reported = text
			u.Tell("waiting: " + text)
		}

		if pause.For(ctx, askEvery) != nil {
			return text
		}

		u.askEach(ctx, freshTakes, func(ctx context.Context, n *node) error {
			s, err := n.Node.State(ctx, true)
			if err == nil { // after an error keep the last state, which differs
				n.state = s
			}
			return err
		})
	}
}

// differ returns the names of the files in which two nodes differ, or "".
func differ(a, b []File) string {
	at := map[string]string{}
	for _, f := range a {
		at[f.Name] = f.Digest
	}

	var names []string
	for _, f := range b {
		if at[f.Name] != f.Digest {
			names = append(names, printable.Brief(f.Name, 100))
		}
		delete(at, f.Name)
	}

	for name := range at {
		names = append(names, printable.Brief(name, 100))
	}

	slices.Sort(names)
	return strings.Join(names[:min(len(names), 8)], ", ")
}

// checkOptions asks all nodes to check their options. It returns a text that names the nodes with
// faults, or "".
func (u *run) checkOptions(ctx context.Context) string {
	errs := u.askEach(ctx, 45*time.Second, func(ctx context.Context, n *node) error {
		f, err := n.Node.Check(ctx)
		n.line.Findings = f
		return err
	})

	var bad []string
	for _, n := range u.taking() {
		if err := errs[n]; err != nil {
			n.line.Faults = append(n.line.Faults,
				Fault{Text: printable.Brief(fmt.Sprintf("the options are not checked: %v", err), maxText)})
		}
		if len(n.line.Faults) > 0 {
			bad = append(bad, n.Name)
		}
	}

	if len(bad) == 0 {
		return ""
	}

	for _, n := range u.taking() {
		n.line.State = Before
	}

	return "the options are wrong on " + strings.Join(bad, ", ")
}

// rollNode carries out the rolling change at one node. A code other than "" ends the whole change.
func (u *run) rollNode(ctx context.Context, n *node) (Code, string) {
	if ctx.Err() != nil {
		return Interrupted, ""
	}

	if cause := u.allServe(ctx, n); cause != "" {
		return Lost, cause
	}

	n.tried = true
	u.Tell(n.Name + ": its master restarts with the new options")
	began := u.Now()
	if err := u.tryOptions(ctx, n); err != nil {
		why := printable.Brief(err.Error(), maxText)
		u.Tell(n.Name + ": does not serve with the new options: " + why)
		if ctx.Err() == nil {
			u.takeBack(ctx, n, why)
		}
		n.line.Cause = why
		return Stopped, fmt.Sprintf("%s does not serve with the new options: %s", n.Name, why)
	}

	n.line.State = New
	u.Tell(fmt.Sprintf("%s: serves with the new options, after %s", n.Name,
		u.Now().Sub(began).Round(100*time.Millisecond)))
	return "", ""
}

// allServe waits until all nodes serve, and extends the turn while it waits. It returns "" when all
// serve. If a node does not serve within mendTakes, it returns the reason why n must not be
// restarted.
func (u *run) allServe(ctx context.Context, n *node) string {
	end := u.Now().Add(mendTakes)
	reported := ""
	for {
		if u.Turn != nil {
			if err := u.Turn.Take(ctx, u.turnEnd()); err != nil {
				return "the turn was taken by another one: " + printable.Brief(err.Error(), maxText)
			}
		}

		bad := u.silent(ctx)
		if bad == "" {
			return ""
		}

		if u.Now().After(end) {
			return fmt.Sprintf("%s serves no more, for %s; no further master is restarted before it does",
				bad, mendTakes)
		}

		if bad != reported {
			reported = bad
			u.Tell(fmt.Sprintf("waiting up to %s, before the master of %s restarts: %s does not serve",
				mendTakes, n.Name, bad))
		}

		if pause.For(ctx, 2*time.Second) != nil {
			return bad + " serves no more; no further master is restarted before it does"
		}
	}
}

// silent returns the name of the first node that does not serve or answer, or "" if all do.
func (u *run) silent(ctx context.Context) string {
	errs := u.askEach(ctx, stateTakes, func(ctx context.Context, n *node) (err error) {
		n.state, err = n.Node.State(ctx, false)
		return err
	})
	for _, o := range u.taking() {
		if errs[o] != nil || !o.state.Serving {
			return o.Name
		}
	}
	return ""
}

// tryOptions starts the trial of the options on a node, and waits for the node's decision.
func (u *run) tryOptions(ctx context.Context, n *node) error {
	if err := roll.Ask(ctx, stateTakes,
		func(ctx context.Context) error { return n.Node.Try(ctx, n.mark, u.Limit) }); err != nil {
		return err
	}

	return u.decided(ctx, n, u.Limit+backTakes, func(s State) (bool, error) {
		switch {
		case s.Trying:
			return false, nil
		case s.LastGood != "":
			return true, errors.New(s.LastGood)
		case s.Running == n.mark && s.Serving:
			return true, nil
		case s.Wanted != n.mark:
			return true, ErrChanged
		}

		return false, nil
	})
}

// decided asks a node for its state until done returns true, or limit has passed.
func (u *run) decided(ctx context.Context, n *node, limit time.Duration, done func(State) (bool, error)) error {
	last := errors.New("it has not decided")
	for end := u.Now().Add(limit); ; {
		err := roll.Ask(ctx, stateTakes, func(ctx context.Context) error {
			s, err := n.Node.State(ctx, false)
			if err == nil {
				n.state = s
			}
			return err
		})
		if err == nil {
			if ok, err := done(n.state); ok {
				return err
			}
		} else {
			last = err
		}

		if pause.For(ctx, askEvery) != nil || u.Now().After(end) {
			return fmt.Errorf("no answer within %s: %w", limit, last)
		}
	}
}

// takeBack asks all nodes that have the new options to return to the earlier options, beginning
// with the node that failed.
func (u *run) takeBack(ctx context.Context, failed *node, why string) {
	reason := printable.Brief("taken back, since "+failed.Name+" did not serve with them: "+why, maxText)
	others := slices.DeleteFunc(u.taking(), func(n *node) bool {
		return n == failed || !n.tried && (!n.state.Held || !n.state.Current())
	})
	for _, n := range append([]*node{failed}, others...) {
		if u.Turn != nil { // ignore an error: the nodes must return to the earlier options even without the turn
			_ = u.Turn.Take(ctx, u.turnEnd())
		}

		err := roll.Ask(ctx, stateTakes, func(ctx context.Context) error { return n.Node.Back(ctx, n.mark, reason) })
		if err == nil {
			err = u.decided(ctx, n, u.Limit+backTakes, func(s State) (bool, error) {
				return !s.Trying && s.Serving && (s.Running != n.mark || s.LastGood != ""), nil
			})
		}

		if err != nil {
			n.line.State, n.line.Cause = Unknown, printable.Brief(fmt.Sprintf("did not go back: %v", err), maxText)
			u.Tell(n.Name + ": " + n.line.Cause)
			continue
		}

		n.line.State = LastGood
		u.Tell(n.Name + ": serves with its last good options")
	}
}
