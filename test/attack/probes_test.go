//go:build attack

package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/value"
	"saltern/test/lab"
	"saltern/test/minion"
)

// bound is how long the work of a minion, or of an administrator, may take
// while the node is attacked.
const bound = 2 * time.Second

// patience is after how long it counts as failed.
const patience = 15 * time.Second

// figures of one kind of work.
type figures struct {
	done   int
	worst  time.Duration
	late   int // of these, as measured once
	again  int // of the late ones: late each time they were repeated at once
	failed int
	reason string
}

// quiet is what a job for the real minions takes at most on a machine that does
// nothing else. Where it takes longer without an attack, the bound on what real
// minions and salt do grows in proportion, and the line says so; the bound on
// scripted minions, which take no time themselves, never does.
const quiet = 700 * time.Millisecond

// probes measure the work from outside.
type probes struct {
	busy float64  // how many times slower than a quiet machine this one is; 0: not measured
	list []string // the kinds, where they are other ones
	mu   sync.Mutex
	work map[string]*figures
}

// names of the kinds, in the order of the line.
var kinds = []string{"sign-in", "pillar", "return", "event", "test.ping", "pillar.items", "200 KiB", "event.send"}

func (p *probes) kinds() []string {
	if p.list != nil {
		return p.list
	}
	return kinds
}

// real is the first kind that real minions and salt do.
const real = 4

// bound of a kind of work.
func (p *probes) bound(kind string) time.Duration {
	if slices.Index(kinds, kind) < real || p.busy <= 1 {
		return bound
	}
	return time.Duration(float64(bound) * p.busy)
}

// busiest is the most that is made of slowness.
const busiest = 3

// slowness is how busy the machine is, by measurements without an attack.
func (p *probes) slowness() float64 {
	var worst time.Duration
	for _, k := range kinds[real:] {
		worst = max(worst, p.of(k).worst)
	}
	return min(busiest, worst.Seconds()/quiet.Seconds())
}

func (p *probes) of(kind string) *figures {
	if p.work == nil {
		p.work = map[string]*figures{}
	}
	if p.work[kind] == nil {
		p.work[kind] = &figures{}
	}
	return p.work[kind]
}

// tries is how often late work is done in a row before it is the node's doing.
// Real minions and salt start processes of their own on the machine that the
// stranger loads, so a late one of theirs says less.
func tries(kind string) int {
	if slices.Index(kinds, kind) < real {
		return 2
	}
	return 3
}

// measure does something and, when it was late, does it again: what is late
// each time is the node's doing. It reports whether the work was done at all.
func (p *probes) measure(ctx context.Context, kind string, do func(context.Context) error) (ok bool) {
	for try := range tries(kind) {
		began := time.Now()
		c, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		err := do(c)
		cancel()
		took := time.Since(began)
		p.mu.Lock()
		f := p.of(kind)
		f.done++
		f.worst = max(f.worst, took)

		switch {
		case err != nil:
			f.failed++
			f.reason = fmt.Sprintf("%.200s", strings.ReplaceAll(err.Error(), "\n", " "))
		case took > p.bound(kind) && try == 0:
			f.late++
		case took > p.bound(kind) && try == tries(kind)-1:
			f.again++
		}
		p.mu.Unlock()

		if err != nil {
			return false
		}
		if took <= p.bound(kind) {
			break
		}
	}

	return true
}

// figures gives all in one text.
func (p *probes) figures() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, k := range p.kinds() {
		if f := p.work[k]; f != nil {
			text := fmt.Sprintf("%s %.2fs×%d", k, f.worst.Seconds(), f.done)
			if f.late > 0 {
				text += fmt.Sprintf(" (%d late, %d again)", f.late, f.again)
			}
			out = append(out, text)
		}
	}

	if p.busy > 1 {
		out = append(out, fmt.Sprintf("BUSY MACHINE: real minions judged by %.1f s", p.bound(kinds[real]).Seconds()))
	}

	return strings.Join(out, ", ")
}

// faults tells what was not done in time. A single late one that was in time
// when it was repeated is the machine's.
func (p *probes) faults() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, k := range p.kinds() {
		f := p.work[k]
		switch {
		case f == nil:
			out = append(out, k+" was not measured")
		case f.failed > 0:
			out = append(out, fmt.Sprintf("%s failed %d of %d (%s)", k, f.failed, f.done, f.reason))
		case f.again > 0 || f.late > 1:
			out = append(out,
				fmt.Sprintf("%s took %.1f s, %d of %d late", k, f.worst.Seconds(), f.late+f.again, f.done))
		}
	}

	return out
}

// watch does the work of minions and of an administrator over and over until
// ctx ends, each at least once.
func (p *probes) watch(ctx context.Context, t *testing.T, a *arena, stay *minion.Minion) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { p.minionWork(ctx, a, stay, false) })
	wg.Go(func() {
		m := a.minion(t, "fresh")
		defer m.Close()
		p.minionWork(ctx, a, m, true)
	})
	wg.Go(func() { p.jobs(ctx, t, a) })
}

// large is a return of 200 KiB.
var large = strings.Repeat("0", 200<<10)

// minionWork is that of a scripted minion, which takes no time itself: what is
// measured is the node's. One that is fresh connects and signs in each time.
func (p *probes) minionWork(ctx context.Context, a *arena, m *minion.Minion, fresh bool) {
	for first := true; first || ctx.Err() == nil; first = false {
		ok := true
		if fresh {
			m.Close()
			ok = p.measure(ctx, "sign-in", m.SignIn)
		}

		ok = ok && p.measure(ctx, "pillar", func(ctx context.Context) error {
			v, err := m.Pillar(ctx)
			if err == nil && v.Str("rendered") != "for "+m.ID {
				err = fmt.Errorf("%w: pillar %.200v", errWrong, v)
			}
			return err
		}) && p.measure(ctx, "return", func(ctx context.Context) error {
			jid := strings.Replace(time.Now().UTC().Format("20060102150405.000000"), ".", "", 1)
			return m.Return(ctx, jid, "test.echo", large)
		}) && p.measure(ctx, "event", func(ctx context.Context) error {
			_, err := m.Ask(ctx, "_minion_event", "tag", "custom/attack", "data", value.NewMap("x", 1), "pretag", nil)
			return err
		})
		if !ok && !fresh && ctx.Err() == nil {
			// As real minions do: sign in once more. The failure is counted.
			p.measure(ctx, "sign-in", m.SignIn)
		}

		select {
		case <-ctx.Done():
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// jobs are those of an administrator, for the real minions.
func (p *probes) jobs(ctx context.Context, t *testing.T, a *arena) {
	for first := true; first || ctx.Err() == nil; first = false {
		for _, j := range []struct {
			kind string
			args []string
			good func(v any, id string) bool
		}{
			{"test.ping", []string{"test.ping"}, func(v any, _ string) bool { return v == true }},
			{"pillar.items", []string{"pillar.items"}, func(v any, _ string) bool {
				m, _ := v.(map[string]any) // the newest release shows no values here
				return m["rendered"] != nil && m["plain"] != nil
			}},
			{"200 KiB", []string{"cmd.run", "printf %0204800d 0"}, func(v any, _ string) bool {
				s, _ := v.(string)
				return len(s) == len(large)
			}},
			{"event.send", []string{"event.send", "custom/attack", "{a: 1}"},
				func(v any, _ string) bool { return v == true }},
		} {
			p.measure(ctx, j.kind, func(ctx context.Context) error {
				return a.job(ctx, t, j.good, j.args...)
			})
		}
	}
}

// job runs salt for all real minions and judges what each returned.
func (a *arena) job(ctx context.Context, t *testing.T, good func(v any, id string) bool, args ...string) error {
	cmd := exec.CommandContext(ctx, lab.Bin(t, "salt"),
		append([]string{"-c", a.node.Settings.MasterConf(), "--out", "json", "--static", "-t", "10", "-L",
			strings.Join(a.ids, ",")},
			args...)...)

	cmd.WaitDelay = time.Second
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()

	if ctx.Err() != nil {
		return fmt.Errorf("salt %s: not within %s", args[0], patience)
	}

	var m map[string]any
	if e := json.Unmarshal([]byte(out.String()), &m); e != nil {
		return fmt.Errorf("salt %s: %w, %.200s%.200s", args[0], errors.Join(err, e), out.String(), errOut.String())
	}

	var bad []string
	for _, id := range a.ids {
		if !good(m[id], id) {
			bad = append(bad, fmt.Sprintf("%s gave %.80v", id, m[id]))
		}
	}

	if len(bad) > 0 {
		slices.Sort(bad)
		return fmt.Errorf("%w: %s", errWrong, strings.Join(bad, ", "))
	}

	return nil
}
