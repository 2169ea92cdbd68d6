package house

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"strings"
	"testing"
	"time"
)

// TestTimesFit states how times of different packages, or of Salt, GlusterFS and the kernel, depend
// on each other. Whoever changes one of them learns here which others must follow.
func TestTimesFit(t *testing.T) {
	all, _ := production(t)
	d := durations{all: all}
	for _, c := range []struct {
		less, more string // package.constant, sums of them, or a duration
		why        string
	}{
		{
			"lbproxy.settleFor + 1s", "master/internal/presence.cutMargin",
			"a master sends again what was lost before the load balancer cut",
		},
		{
			"master/internal/presence.givenWithin", "lbproxy.givenWithin + 1ns",
			"the load balancer gives a master the time that it needs to send again",
		},
		{
			"master/internal/presence.waitForStarts", "master/internal/presence.givenWithin",
			"the wait for starts is a part of the time to send again",
		},
		{
			"master/internal/peers.RequestTTL", "master/internal/peers.PublishTTL",
			"a minion that gets a job again can answer it",
		},
		{
			"master/internal/peers.silentFor", "master/internal/peers.PublishTTL",
			"the master counts a subscription as cut before its minion gives it up",
		},
		{
			"master/cluster/node.aliveFor", "master/cluster.lostFor",
			"a sign-in waits until a lost peer has given the virtual address up",
		},
		{
			"master/cluster/node.leaseRenew + master/cluster/node.leaseMargin + 8750ms", "master/cluster/node.leaseTTL",
			"a lease is renewed before it ends, even while writes stall for 1.75 of network.ping-timeout",
		},
		{
			"supervisor/storage.leaseFor", "supervisor/storage.leaseSilence",
			"a holder stops before another node takes its lease",
		},
		{
			"30s + 10s", "supervisor/storage.hangLimit",
			"GlusterFS ends an unanswered request by itself (network.frame-timeout, checked every 10 s)",
		},
		{
			"1s + 1s", "glusterctl.namesRest",
			"no cache of a mount keeps a name (entry-timeout, performance.md-cache-timeout)",
		},
		{
			"lbproxy.lingerFor", "10ms",
			"the Go runtime preempts a goroutine after 10 ms",
		},
		{
			"supervisor/keyuse.BeatEvery", "supervisor/keyuse.recent",
			"a running machine is heard again before what was heard counts no more",
		},
		{
			"internal/control.ConditionsEvery", "internal/control.ConditionsOld",
			"a file is written again before it counts no more",
		},
		{
			"1h", "master/internal/schedule/plan.maxClockBack",
			"a change of summer time does not repeat runs",
		},
		{
			"master/internal/schedule.endWithin + master/internal/schedule.giveBackWithin + " +
				"master/internal/notify.endWithin + master/internal/peers.leaveWithin + 5s",
			"supervisor/settings.defaultStopTimeout",
			"a master that stops ends its runs and gives its lease back before it is killed",
		},
	} {
		t.Run(c.less+" and "+c.more, func(t *testing.T) {
			less, more := d.sum(t, c.less), d.sum(t, c.more)
			if less >= more {
				t.Errorf("%s (%s) must be less than %s (%s): %s", c.less, less, c.more, more, c.why)
			}
		})
	}
}

// durations evaluates constants of production by their source.
type durations struct{ all []source }

// sum returns the sum of terms that are "folder/of/package.constant" or a duration.
func (d durations) sum(t *testing.T, terms string) time.Duration {
	t.Helper()
	var sum time.Duration
	for term := range strings.SplitSeq(terms, " + ") {
		if n, err := time.ParseDuration(term); err == nil {
			sum += n
			continue
		}

		dir, name, _ := strings.Cut(term, ".")
		sum += d.value(t, dir, name)
	}
	return sum
}

// value type-checks the constants of a folder alone, without what it imports except time.
func (d durations) value(t *testing.T, dir, name string) time.Duration {
	t.Helper()
	set := token.NewFileSet()
	files := []*ast.File{}
	for _, s := range d.all {
		if s.dir() != dir {
			continue
		}
		constants := &ast.File{Name: s.File.Name}
		for _, decl := range s.File.Decls {
			g, ok := decl.(*ast.GenDecl)
			if ok && (g.Tok == token.CONST || g.Tok == token.IMPORT) {
				constants.Decls = append(constants.Decls, g)
			}
		}
		files = append(files, constants)
	}

	config := types.Config{
		Importer: onlyTime{},
		Error:    func(error) {}, // what other constants need is not there
	}
	checked, _ := config.Check(dir, set, files, nil)
	found, ok := checked.Scope().Lookup(name).(*types.Const)
	if !ok {
		t.Fatalf("%s has no constant %s", dir, name)
	}

	n, exact := constant.Int64Val(constant.ToInt(found.Val()))
	if !exact {
		t.Fatalf("%s.%s has no value without other packages", dir, name)
	}
	return time.Duration(n)
}

// onlyTime imports a package time that has the units of durations, and no other package.
type onlyTime struct{}

func (onlyTime) Import(path string) (*types.Package, error) {
	p := types.NewPackage(path, path[strings.LastIndexByte(path, '/')+1:])
	if path == "time" {
		named := types.NewNamed(types.NewTypeName(token.NoPos, p, "Duration", nil), types.Typ[types.Int64], nil)
		p.Scope().Insert(named.Obj())
		for name, unit := range map[string]time.Duration{
			"Nanosecond":  time.Nanosecond,
			"Microsecond": time.Microsecond,
			"Millisecond": time.Millisecond,
			"Second":      time.Second,
			"Minute":      time.Minute,
			"Hour":        time.Hour,
		} {
			p.Scope().Insert(types.NewConst(token.NoPos, p, name, named, constant.MakeInt64(int64(unit))))
		}
	}
	p.MarkComplete()
	return p, nil
}
