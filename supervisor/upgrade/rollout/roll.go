package rollout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"saltern/image/bundle"
	"saltern/internal/pause"
	"saltern/internal/printable"
	"saltern/supervisor/roll"
)

// Time limits of a rollout.
const (
	stateTakes = 10 * time.Second
	lookEvery  = 2 * time.Second
	// momentTakes is how long all nodes may take to answer and to serve before the rollout begins.
	// It is short, because nothing was changed yet and a person waits for the answer.
	momentTakes = 20 * time.Second
	// mendTakes is how long the other nodes may take to serve again before a node restarts: a
	// master may just be starting again, or a volume may hang for its ping-timeout.
	mendTakes = 2 * time.Minute
	// RestartTakes is how long a node may take to acquire the turn, to restart, and to become well.
	// It includes boots that fail, and the trial of ten minutes.
	RestartTakes = 90 * time.Minute
	maxText      = 500
)

// Target is a node of a rollout.
type Target struct {
	Name string
	Node Node
}

// Roll upgrades nodes one after the other. Call Run only once.
type Roll struct {
	// Targets are the nodes; the last is the driving node.
	Targets  []Target
	Manifest bundle.Manifest // manifest of the new version; the caller has verified its signature
	// Open returns the bundle, from its beginning.
	Open func() (io.ReadCloser, error)
	Dry  bool // only report the steps, change nothing
	// Window is the upgrade window in which the node has started the rollout by itself. Every node
	// must have the same window. Empty: a person has started the rollout.
	Window string
	// May reports whether the rollout may begin with a further node. It may be nil: it always may.
	// The rollout always completes the node with which it has begun.
	May func() bool
	// Tell is called with the text of each step when the step is made, always by the same
	// goroutine. It may be nil.
	Tell func(line string)
}

// node is a target and its state in the rollout.
type node struct {
	Target
	state State
	line  NodeResult
	last  bool
}

func (n *node) askState(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stateTakes)
	defer cancel()
	st, err := n.Node.State(ctx)
	if err == nil {
		n.state, n.line.Version = st, st.Version
	}
	return err
}

type run struct {
	*Roll
	nodes []*node
}

// Run makes the rollout and returns its outcome.
func (r *Roll) Run(ctx context.Context) Result {
	if r.Tell == nil {
		r.Tell = func(string) {}
	}

	if r.May == nil {
		r.May = func() bool { return true }
	}

	u := &run{Roll: r}
	for i, t := range r.Targets {
		u.nodes = append(u.nodes,
			&node{Target: t, line: NodeResult{Name: t.Name, Where: Unknown}, last: i == len(r.Targets)-1})
	}

	code, cause := u.upgradeNodes(ctx)
	if ctx.Err() != nil && !code.Good() {
		code = Interrupted
		cause = "who drove it was stopped; run it again, it goes on with the nodes that are left"
	}

	out := Result{Code: code, Cause: printable.Brief(cause, 4*maxText)}
	for _, n := range u.nodes {
		n.line.Cause = printable.Brief(n.line.Cause, maxText)
		out.Nodes = append(out.Nodes, n.line)
	}

	return out
}

func (u *run) upgradeNodes(ctx context.Context) (Code, string) {
	if code, cause := u.awaitNodes(ctx); code != "" {
		return code, cause
	}

	var todo []*node
	for _, n := range u.nodes {
		switch {
		case n.line.Where == Host:
		case n.state.runsVersion(u.Manifest) && !n.state.Trying && !n.state.Turn:
			n.line.Where = Same
		default:
			n.line.Where = Before
			if n.state.bootsVersion(u.Manifest) {
				n.line.Where = Written
			}
			todo = append(todo, n)
		}
	}

	switch {
	case u.Dry:
		return Checked, ""
	case len(todo) == 0:
		return Unchanged, ""
	}

	for _, step := range []func(context.Context, *node) (Code, string){u.writeVersion, u.restart} {
		for _, n := range todo {
			if !u.May() {
				return u.closed(n)
			}
			if code, cause := step(ctx, n); code != "" {
				return code, cause
			}
		}
	}

	return Upgraded, ""
}

// awaitNodes asks all nodes, and waits up to momentTakes for nodes that do not answer or serve. A
// code other than "" ends the rollout before anything was changed.
func (u *run) awaitNodes(ctx context.Context) (Code, string) {
	end := time.Now().Add(momentTakes)
	reported := ""
	for {
		code, cause, passes := u.judgeNodes(ctx)
		if !passes || time.Now().After(end) {
			return code, cause
		}

		if cause != reported {
			reported = cause
			u.Tell("waiting: " + printable.Brief(cause, maxText))
		}

		if pause.For(ctx, lookEvery) != nil {
			return code, cause
		}
	}
}

// judgeNodes asks all nodes once. A code other than "" says why the rollout cannot begin. passes
// reports whether that reason may pass by itself.
func (u *run) judgeNodes(ctx context.Context) (code Code, cause string, passes bool) {
	errs := roll.Each(ctx, u.nodes, stateTakes, func(ctx context.Context, n *node) error { return n.askState(ctx) })
	why := map[Code][]string{}
	add := func(n *node, code Code, text string) {
		n.line.Cause = text
		why[code] = append(why[code], n.Name+" "+text)
	}

	images := 0
	old := false
	for i, n := range u.nodes {
		s := n.state
		n.line.Cause = ""
		if errs[i] == nil {
			n.line.Where = Before
		}

		switch {
		case errs[i] != nil:
			old = old || errors.Is(errs[i], ErrOld)
			add(n, Away, "cannot be asked: "+errs[i].Error())
		case !s.Image:
			n.line.Where, n.line.Cause = Host, Hosts
			continue
		case s.Drives != "" && !n.last:
			add(n, Busy, s.Drives)
		case s.Busy != "":
			add(n, Busy, s.Busy)
		case s.runsVersion(u.Manifest):
		case u.Window != "" && s.leftVersion(u.Manifest):
			n.line.Where = Back
			add(n, Stopped,
				fmt.Sprintf("went back from version %s to %s, and does not try it again by itself", s.Left, s.Version))
		case u.Window != "" && s.Window != u.Window:
			add(n, Refused, otherWindow(s.Window, u.Window))
		case refuses(s, u.Manifest) != "":
			add(n, Refused, refuses(s, u.Manifest))
		case s.Trying:
			add(n, Busy, "has version "+s.Version+" on trial; applianced upgrade status there")
		case !s.Serving:
			add(n, Away, s.trouble()+": applianced status there")
		}

		images++
	}

	for _, code := range []Code{Busy, Stopped, Refused, Away} {
		if len(why[code]) > 0 {
			return code, strings.Join(why[code], "; "), code == Away && !old
		}
	}

	if images == 0 {
		return Refused, "no node of this cluster runs from the appliance's image: packages are upgraded by the package manager (apt or dnf), node by node", false
	}

	return "", "", false
}

func otherWindow(has, want string) string {
	if has == "" {
		has = "none"
	}
	return fmt.Sprintf("has another upgrade.window (%s) than the node that drives (%s): write the same one into appliance.yaml of each node",
		printable.Brief(has, 64), want)
}

// writeVersion asks a node to write the version to its free slot, unless the node already has the
// version.
func (u *run) writeVersion(ctx context.Context, n *node) (Code, string) {
	if n.state.bootsVersion(u.Manifest) || n.state.runsVersion(u.Manifest) {
		return "", ""
	}

	u.Tell(fmt.Sprintf("%s: writes version %s beside %s", n.Name, u.Manifest.Version, n.state.Version))
	err := u.handVersion(ctx, n)
	if err == nil {
		err = n.askState(ctx)
	}

	if err == nil && !n.state.bootsVersion(u.Manifest) {
		err = errors.New("it does not say that it has it")
	}

	if err != nil {
		n.line.Cause = err.Error()
		return Unwritten, fmt.Sprintf("%s did not take the version, and no node was restarted: %v", n.Name, err)
	}

	n.line.Where = Written
	return "", ""
}

func (u *run) handVersion(ctx context.Context, n *node) error {
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	in, err := u.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	return n.Node.Install(ctx, in)
}

// restart asks a node to restart, and waits until it serves with the version, so that the next node
// may restart.
func (u *run) restart(ctx context.Context, n *node) (Code, string) {
	if why := u.othersServe(ctx, n); why != "" {
		return Stopped, why + "; no further node is restarted before it does"
	}
	if !u.May() { // the window may have closed meanwhile
		return u.closed(n)
	}

	before := n.state.Boot
	if !n.state.runsVersion(u.Manifest) { // otherwise the version runs already, on trial
		ask, cancel := context.WithTimeout(ctx, stateTakes)
		err := n.Node.Restart(ask, u.Manifest.Version)
		cancel()
		if err != nil {
			n.line.Cause = err.Error()
			return Stopped, fmt.Sprintf("%s does not restart: %v", n.Name, err)
		}

		u.Tell(n.Name + ": restarts when its minions have moved")
	}

	n.line.Where = Restart
	err := u.serves(ctx, n, before)
	switch {
	case n.last && ctx.Err() != nil:
		return Last, ""
	case err != nil:
		n.line.Cause = err.Error()
		return Stopped, fmt.Sprintf("%s %v; no further node is restarted", n.Name, err)
	}

	n.line.Where = New
	u.Tell(fmt.Sprintf("%s: serves with version %s, %d minions are connected to it", n.Name,
		u.Manifest.Version, n.state.Minions))
	return "", ""
}

func (u *run) closed(n *node) (Code, string) {
	return Closed, "the window closed before " + n.Name + " had version " + u.Manifest.Version
}

// othersServe waits until all nodes but n serve, and n answers. It returns "", or after mendTakes
// the reason why n must not be restarted.
func (u *run) othersServe(ctx context.Context, n *node) string {
	end := time.Now().Add(mendTakes)
	reported := ""
	for {
		bad := u.unwell(ctx, n)
		if bad == nil {
			return ""
		}

		if time.Now().After(end) {
			return fmt.Sprintf("%s serves no more, for %s (%s)", bad.Name, mendTakes, bad.line.Cause)
		}

		if text := bad.Name + ": " + printable.Brief(bad.line.Cause, maxText); text != reported {
			reported = text
			u.Tell(fmt.Sprintf("waiting up to %s, before %s restarts, for %s", mendTakes, n.Name, text))
		}

		if pause.For(ctx, lookEvery) != nil {
			return fmt.Sprintf("%s serves no more (%s)", bad.Name, bad.line.Cause)
		}
	}
}

// unwell returns the first node that does not answer, or that does not serve and is not n. The line
// of that node contains the cause. If there is no such node, unwell returns nil.
func (u *run) unwell(ctx context.Context, n *node) *node {
	for _, o := range u.nodes {
		err := o.askState(ctx)
		idle := o != n && o.line.Where != Host && !o.state.Serving

		switch {
		case err != nil:
			o.line.Cause = "cannot be asked: " + err.Error()
			return o
		case idle:
			o.line.Cause = o.state.trouble()
			return o
		case o.line.Where != Host:
			o.line.Cause = ""
		}
	}

	return nil
}

// serves waits until a node serves with the version. bootBefore identifies the boot before the
// restart.
func (u *run) serves(ctx context.Context, n *node, bootBefore string) error {
	ctx, cancel := context.WithTimeout(ctx, RestartTakes)
	defer cancel()
	var last error
	reported := ""
	for {
		err := n.askState(ctx)
		s := n.state
		says := ""
		switch {
		case err != nil:
			last, says = err, "is away"
		case s.Boot == bootBefore && !s.runsVersion(u.Manifest):
			if s.Fault != "" {
				return fmt.Errorf("did not restart: %s", s.Fault)
			}
			if s.Busy == "" {
				return errors.New("did not restart: its supervisor was restarted meanwhile")
			}
			last, says = errors.New("it has not restarted: "+s.Busy), s.Busy
		case !s.runsVersion(u.Manifest):
			n.line.Where = Back
			return fmt.Errorf("went back to version %s: with version %s it did not start, or was not well within ten minutes",
				s.Version, u.Manifest.Version)
		case s.Trying:
			last = errors.New("it is on trial")
			says = "runs version " + s.Version + ", on trial until it has been well for two minutes"
		case !s.Serving || s.Turn:
			last = errors.New("it does not do all its work")
			says = "runs version " + s.Version + ", and its copy of the data becomes whole"
		default:
			return nil
		}

		if says != "" && says != reported {
			reported = says
			u.Tell(n.Name + ": " + printable.Brief(says, maxText))
		}

		if pause.For(ctx, lookEvery) != nil {
			return fmt.Errorf("does not serve with version %s after %s: %w", u.Manifest.Version, RestartTakes, last)
		}
	}
}
