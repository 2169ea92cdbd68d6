//go:build attack

package attack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/master/event"
	"saltern/master/keys"
	"saltern/test/lab"
)

// way is one way of attack.
type way struct {
	finding string
	what    string
	shapes  []string
	conns   int  // 0: those of the form
	open    int  // connections a second; 0: as many as he likes
	long    bool // for the long form only
	minion  bool // a real minion signs in for the first time meanwhile
	check   func(a *arena, e *effort, took time.Duration) []string
}

// ways in the order in which they run: what a master may not recover from
// soon comes last.
func ways() []way {
	return []way{
		{finding: "2", what: "decode bombs", shapes: []string{"lists", "maps", "small"}},
		{finding: "6", what: "large frames claimed, trickled", shapes: []string{"claims", "trickle"}, conns: 1000},
		{finding: "7", what: "ping, answers read slowly", shapes: []string{"ping30", "ping31"}},
		{finding: "8", what: "texts for the log", shapes: []string{"texts", "lines"}},
		{
			finding: "9",
			what:    "connections held",
			shapes:  []string{"half", "greeted", "ready30", "ready31", "subscriber"},
			minion:  true,
		},
		{
			finding: "9",
			what:    "more connections than one source may have",
			shapes:  []string{"half", "ready30"},
			conns:   25000,
			open:    6000,
			long:    true,
			check:   heldFew,
		},
		{
			finding: "15",
			what:    "keys that wait",
			shapes:  []string{"onekey", "manykeys"},
			minion:  true,
			check:   pendingFew,
		},
		{
			finding: "12",
			what:    "costly targets of an accepted minion",
			shapes:  []string{"minelist", "minefuns", "minepcre", "publist", "pubpcre"},
			conns:   50,
		},
	}
}

// TestAttack runs everything, one after the other: each part wants the machine
// for itself. SALTERN_ATTACK_ONLY chooses, with commas between: numbers of
// findings for their ways of attack, proofs, api, standalone, mixed, tests.
func TestAttack(t *testing.T) {
	only := strings.FieldsFunc(os.Getenv("SALTERN_ATTACK_ONLY"), func(r rune) bool { return r == ',' })
	wanted := func(name string, otherwise bool) bool {
		if len(only) > 0 {
			return slices.Contains(only, name)
		}
		return otherwise
	}

	f := chosen()
	var some []way
	for _, w := range ways() {
		if wanted(w.finding, true) && (f.long || !w.long) {
			some = append(some, w)
		}
	}

	if proofs, api := wanted("proofs", true), wanted("api", true); proofs || api || len(some) > 0 {
		t.Run("node", func(t *testing.T) { onNode(t, proofs, api, some) })
	}

	for _, part := range []struct {
		name  string
		short bool
		run   func(*testing.T)
	}{
		{"standalone", true, standalone},
		{"mixed", false, mixedCluster}, // takes minutes
		{"tests", false, findingTests}, // make test runs them anyway
	} {
		if wanted(part.name, part.short || f.long) {
			t.Run(part.name, part.run)
		}
	}
}

// onNode runs what needs a node.
func onNode(t *testing.T, proofs, api bool, some []way) {
	a := build(t)
	t.Run("quiet", a.baseline)
	if proofs {
		a.proofs(t)
	}

	if api {
		a.besideStrangers(t)
	}

	for _, w := range some {
		if !a.long {
			t.Run(w.finding, func(t *testing.T) { a.withstand(t, w, w.what, w.shapes, []string{a.far}) })
			continue
		}

		for _, s := range w.shapes {
			t.Run(w.finding+s, func(t *testing.T) { a.withstand(t, w, w.what+": "+s, []string{s}, []string{a.far}) })
		}

		t.Run(w.finding+"spread",
			func(t *testing.T) { a.withstand(t, w, w.what+", from 50 addresses", w.shapes, a.sources) })
	}

	t.Run("end", a.terminate)
}

// baseline shows what the machine does without an attack. That real minions are
// slow then is the machine's; what they take is allowed them later, too.
func (a *arena) baseline(t *testing.T) {
	a.busy = busiest
	p := a.attacked(t, a.time, nil)
	a.busy = p.slowness()
	p.busy = 0
	line(t, "-", "no attack", p.figures(), p.faults()...)
}

// attacked measures for d, and longer if until has not come true by then.
func (a *arena) attacked(t *testing.T, d time.Duration, during func(ctx context.Context, p *probes)) *probes {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()

	stay := a.minion(t, "steady")
	defer stay.Close()
	c, stop := context.WithTimeout(context.Background(), patience)
	defer stop()

	p := &probes{busy: a.busy}
	if err := stay.SignIn(c); err != nil {
		t.Errorf("sign-in before: %v", err)
		return p
	}

	// The first template after a start of the master waits for Python, with or
	// without an attack.
	if _, err := stay.Pillar(c); err != nil {
		t.Errorf("pillar before: %v", err)
		return p
	}

	if during != nil {
		during(ctx, p)
	}

	p.watch(ctx, t, a, stay)
	return p
}

// withstand runs one way of attack and judges how the node stood it.
func (a *arena) withstand(t *testing.T, w way, what string, shapes, sources []string) {
	a.mem.reset()
	before, err := a.service(t, "master")
	if err != nil {
		t.Fatal(err)
	}

	kills := a.mem.killed()
	a.waiting = a.pending()
	var logs journal
	logs.look(a.logs())

	// Measured are those who are there already, while he attacks.
	var r *run
	conns := cmpOr(w.conns, a.conns)
	began := time.Now()
	p := a.attacked(t, a.time, func(ctx context.Context, p *probes) {
		r = a.stranger(t,
			orders{Shapes: shapes, Sources: sources, Conns: conns, Open: w.open, Time: a.time + 2*time.Minute})
		began = time.Now()
		go func() {
			for ctx.Err() == nil {
				logs.look(a.logs())
				select {
				case <-ctx.Done():
				case <-time.After(200 * time.Millisecond):
				}
			}
		}()
	})

	if r == nil {
		line(t, w.finding, what, "the minions do not work before the attack", "not run")
		a.anew(t)
		return
	}

	faults := p.faults()
	var also string
	if w.minion {
		also, err = a.signUp(t, fmt.Sprintf("new-%s-%s-%d", w.finding, shapes[0], len(sources)))
		if err != nil {
			faults = append(faults, "a new minion: "+err.Error())
		}
	}

	health := a.health(t)
	took := time.Since(began)
	held := r.read().Held.Load()
	e := r.end(t)
	e.Held.Store(held)
	logs.look(a.logs())

	peak := a.mem.highest()
	if n := a.mem.killed() - kills; n > 0 {
		faults = append(faults, fmt.Sprintf("%d processes of the master killed for want of memory", n))
	}

	after, err := a.service(t, "master")
	if err != nil || after.PID != before.PID {
		faults = append(faults, fmt.Sprintf("the master was started again (%s)", after.LastExit))
	}

	if health != "" {
		faults = append(faults, health)
	}

	grown, name := logs.most()
	allowed := int64(float64(1<<20) * took.Seconds() / 60)
	if !a.long {
		allowed += 128 << 10 // what may come at once, before the limits of a rate hold
	}

	if grown > allowed {
		faults = append(faults, fmt.Sprintf("%s grew by %d KiB in %.0f s", name, grown>>10, took.Seconds()))
	}

	if w.check != nil && len(sources) == 1 { // they speak of one
		faults = append(faults, w.check(a, e, took)...)
	}

	line(t, w.finding, what, fmt.Sprintf("%.0f s, %d connections (%d made, %d cut, %d held), %d messages, %d MiB; master's peak %d MiB; log %d KiB; %s%s",
		took.Seconds(), conns, e.Dialled.Load(), e.Cut.Load(), held, e.Messages.Load(), e.Bytes.Load()>>20, peak>>20, grown>>10, p.figures(), also), faults...)
	if len(faults) > 0 {
		a.anew(t)
	}
}

// health tells what is wrong with the balancer and the node while the attack
// goes on; empty when nothing is.
func (a *arena) health(t *testing.T) string {
	t.Helper()
	d, err := a.node.Status(t)
	if err != nil {
		return err.Error()
	}

	for _, s := range d.Services {
		if s.State != "running" {
			return fmt.Sprintf("service %s is %s: %s", s.Name, s.State, s.Message)
		}
	}

	if d.ServingSince == nil {
		return "the node does not serve"
	}

	return ""
}

// signUp starts a real minion while the attack goes on, accepts its key and
// has it answer.
func (a *arena) signUp(t *testing.T, id string) (string, error) {
	t.Helper()
	began := time.Now()
	m := lab.StartMinionOn(t, a.net, a.near, a.node, id, lab.Newest, nil)
	defer m.Kill()

	end := time.Now().Add(lab.Limit(40 * time.Second))
	waits := filepath.Join(a.node.Settings.PKIDir(), "minions_pre", id)
	for {
		if _, err := os.Stat(waits); err == nil {
			break
		}
		if time.Now().After(end) {
			return "", fmt.Errorf("its key was not taken within %.0f s", time.Since(began).Seconds())
		}
		time.Sleep(50 * time.Millisecond)
	}

	known := time.Since(began)
	l, err := event.DialPub(within(t), a.node.Settings.MasterSockDir())
	if err != nil {
		return "", err
	}
	defer l.Close()

	if r := a.node.Key(t, "-y", "-a", id); r.Code != 0 {
		return "", fmt.Errorf("salt-key -a: %s%s", r.Out, r.Err)
	}

	ctx, cancel := context.WithDeadline(t.Context(), end)
	defer cancel()
	for {
		e, err := l.Next(ctx)
		if err != nil {
			return "", fmt.Errorf("it does not start: %w", err)
		}
		if e.Tag == "salt/minion/"+id+"/start" {
			break
		}
	}

	if v, err := a.node.JSON(t, "-L", id, "-t", "10", "test.ping"); err != nil || v[id] != true {
		return "", fmt.Errorf("it does not answer: %v, %w", v, err)
	}
	defer a.node.Key(t, "-y", "-d", id)

	return fmt.Sprintf("; new minion known after %.1f s, answers after %.1f s", known.Seconds(),
		time.Since(began).Seconds()), nil
}

// heldFew: one source has a fraction of the places of a node: the balancer
// lets in a burst and then so many a second (docs/configuration.md,
// max_per_source and rate).
func heldFew(a *arena, e *effort, took time.Duration) []string {
	const burst, rate, most = 10000, 500, 20000
	if held, may := e.Held.Load(), min(most, burst+rate*int64(took.Seconds()+3)); held > may {
		return []string{fmt.Sprintf("one source holds %d connections, %d would be right", held, may)}
	}
	return nil
}

// pendingFew: one stranger fills a small part of the store of waiting keys: what
// may come at once, and then so many in a second.
func pendingFew(a *arena, _ *effort, took time.Duration) []string {
	n := a.pending() - a.waiting
	if most := keys.DefaultPendingBurst + keys.DefaultPendingPerKey +
		int(took.Seconds()+5)*keys.DefaultPendingRate; n > most {
		return []string{fmt.Sprintf("%d more keys wait, at most %d may", n, most)}
	}
	return nil
}

// pending is how many keys wait for the administrator.
func (a *arena) pending() int {
	names, _ := os.ReadDir(filepath.Join(a.node.Settings.PKIDir(), "minions_pre"))
	return len(names)
}

// terminate: SIGTERM ends the master soon, also while it is attacked.
func (a *arena) terminate(t *testing.T) {
	r := a.stranger(t,
		orders{
			Shapes:  []string{"lists", "small", "ping31", "texts"},
			Sources: a.sources,
			Conns:   a.conns,
			Time:    time.Minute,
		})
	defer r.end(t)

	time.Sleep(2 * time.Second) // the attack is in full swing
	began := time.Now()
	err := a.node.Stop(60 * time.Second)
	took := time.Since(began)
	var faults []string
	if err != nil {
		faults = append(faults, err.Error())
	}

	if took > 10*time.Second {
		faults = append(faults, "too slow")
	}

	if left := a.node.Left(); len(left) > 0 {
		faults = append(faults, fmt.Sprintf("processes left: %v", left))
	}

	line(t, "2", "SIGTERM of the node under attack", fmt.Sprintf("%.1f s", took.Seconds()), faults...)
}
