//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"saltern/master/crypt"
	"saltern/master/value"
	"saltern/test/lab"
	"saltern/test/minion"
)

// swarm is many scripted minions in this process that know the load balancers
// of a cluster, as a name with several addresses: when one does not answer
// they try the next.
type swarm struct {
	c       *lab.Cluster
	h       *history
	front   string // an address that all use; empty: those of the members
	minions []*swarmer
	wg      sync.WaitGroup
	stop    context.CancelFunc
	signIns atomic.Int64
	cuts    atomic.Int64 // connections for publishes that ended
}

type swarmer struct {
	*minion.Minion
	s    *swarm
	at   int // member
	seen map[string]bool
	*diary
}

// diary has what happened to a minion lately, for a test that fails.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.lines) == 30 {
		d.lines = d.lines[1:]
	}
	d.lines = append(d.lines, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
}

// confess prints the diaries of those that have not returned a job that others have.
func (s *swarm) confess(t *testing.T) {
	if !t.Failed() {
		return
	}

	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	for _, jid := range slices.Sorted(maps.Keys(s.h.sent)) {
		for _, m := range s.minions {
			if !s.h.acked[jid][m.ID] {
				m.mu.Lock()
				t.Logf("%s has not returned %s:\n\t%s", m.ID, jid, strings.Join(m.lines, "\n\t"))
				m.mu.Unlock()
			}
		}
	}
}

// enroll puts keys of so many minions into the accepted ones before any master
// runs; they share a few key pairs, which are slow to make.
func enroll(t *testing.T, c *lab.Cluster, count int) *swarm {
	t.Helper()
	pairs, err := filepath.Glob("../../master/testdata/wire/keys/min*_TESTONLY.pem")
	if err != nil || len(pairs) == 0 {
		t.Fatalf("no recorded keys: %v", err)
	}

	s := &swarm{c: c, h: &history{sent: map[string]map[string]string{}, acked: map[string]map[string]bool{}}}
	files := map[string]string{}
	for i := range count {
		key, err := crypt.LoadPrivate(pairs[i%len(pairs)], "")
		if err != nil {
			t.Fatal(err)
		}

		pem, err := crypt.PublicPEM(&key.PublicKey)
		if err != nil {
			t.Fatal(err)
		}

		m, err := minion.New(minion.Config{ID: fmt.Sprintf("s%03d", i), Key: key})
		if err != nil {
			t.Fatal(err)
		}

		files[m.ID] = pem
		s.minions = append(s.minions, &swarmer{Minion: m, s: s, at: i, seen: map[string]bool{}, diary: &diary{}})
	}

	lab.WriteTree(t, filepath.Join(c.Shared, "pki", "minions"), files)
	return s
}

// pinMaster gives the minions the key of the cluster.
func (s *swarm) pinMaster(t *testing.T) {
	t.Helper()
	key, err := crypt.LoadPrivate(filepath.Join(s.c.Shared, "pki", "cluster.pem"), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range s.minions {
		m.Master = &key.PublicKey
	}
}

// start lets the minions live until the test ends.
func (s *swarm) start(t *testing.T) {
	t.Helper()
	s.pinMaster(t)
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = sync.OnceFunc(func() { cancel(); s.wg.Wait() })
	t.Cleanup(func() { s.confess(t) })
	t.Cleanup(s.stop)
	gate := make(chan struct{}, 32) // a storm of sign-ins is not what is tested here
	for _, m := range s.minions {
		s.wg.Go(func() {
			gate <- struct{}{}
			m.turn(0)
			m.signIn(ctx)
			<-gate
			m.live(ctx)
		})
	}
}

// turn takes the load balancer that is so many places further.
func (m *swarmer) turn(by int) {
	members := m.s.c.Members[:m.s.c.Config.Nodes]
	m.at += by
	a := members[m.at%len(members)].Addr
	if m.s.front != "" {
		a = m.s.front
	}
	m.Request = fmt.Sprintf("%s:%d", a, lab.FrontRequest)
	m.Publish = fmt.Sprintf("%s:%d", a, lab.FrontPublish)
}

func (m *swarmer) signIn(ctx context.Context) {
	for ctx.Err() == nil {
		one, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := m.SignIn(one)
		cancel()
		m.note("sign-in at %s: %v", m.Request, err)
		if err == nil {
			m.s.signIns.Add(1)
			return
		}
		m.turn(1)
		pause(ctx, 300*time.Millisecond)
	}
}

// live is the life of a minion: it returns to every job once, and sends again
// what was not acknowledged.
func (m *swarmer) live(ctx context.Context) {
	defer m.Close()
	answers := make(chan answerTo, 256)
	m.s.wg.Go(func() { m.answer(ctx, answers) })
	for ctx.Err() == nil {
		job, err := m.Next(ctx)
		if errors.Is(err, minion.ErrPublish) {
			m.note("publish at %s: %v", m.Publish, err)
			m.signIn(ctx)
			job, err = m.Again()
		}

		if err != nil {
			m.note("no publish at %s: %v", m.Publish, err)
			if ctx.Err() == nil {
				m.s.cuts.Add(1)
			}
		}

		switch {
		case err == nil:
			jid, fun := job.Str("jid"), job.Str("fun")
			m.note("job %s at %s", jid, m.Publish)
			if m.seen[jid] || !m.meant(job) {
				continue // as minions do
			}

			m.seen[jid] = true
			a := answerTo{jid, fun}
			if seconds, ok := sleeps(job.List("arg")); fun == "test.sleep" && ok {
				m.s.wg.Go(func() { // beside other jobs
					pause(ctx, seconds)
					send(ctx, answers, a)
				})
				continue
			}

			send(ctx, answers, a)
		case errors.Is(err, minion.ErrPublish): // of another time
		case ctx.Err() == nil:
			m.turn(1)
			pause(ctx, 300*time.Millisecond)
		}
	}
}

// meant reports whether a job is for the minion.
func (m *swarmer) meant(job *value.Map) bool {
	words := job.Texts("tgt")
	if job.Str("tgt_type") == "compound" && len(words) > 0 { // one that is sent again, see package presence
		out, _ := strings.CutPrefix(words[len(words)-1], "L@")
		return !slices.Contains(strings.Split(out, ","), m.ID)
	}
	tgt := job.Str("tgt")
	return tgt == "s*" || tgt == "*" || tgt == "role:web" || slices.Contains(words, m.ID)
}

func sleeps(arg []any) (time.Duration, bool) {
	if len(arg) != 1 {
		return 0, false
	}
	s, ok := arg[0].(int64)
	return time.Duration(s) * time.Second, ok
}

type answerTo struct{ jid, fun string }

func send(ctx context.Context, to chan answerTo, a answerTo) {
	select {
	case to <- a:
	case <-ctx.Done():
	}
}

// answer sends returns on a connection of its own, as the processes of jobs
// do, one after another.
func (m *swarmer) answer(ctx context.Context, answers chan answerTo) {
	other, err := m.Child()
	if err != nil {
		return
	}

	o := &swarmer{Minion: other, s: m.s, at: m.at, diary: m.diary}
	defer o.Close()
	for {
		select {
		case a := <-answers:
			o.give(ctx, a.jid, a.fun)
		case <-ctx.Done():
			return
		}
	}
}

// give sends a return until it is acknowledged. It is the same each time.
func (m *swarmer) give(ctx context.Context, jid, fun string) {
	answer := m.ID + " " + jid + " " + minion.Nonce()
	m.s.h.begin(jid, m.ID, answer)
	if fun == "saltutil.refresh_pillar" {
		m.refreshed(ctx, jid)
	}

	for try := 1; ctx.Err() == nil; try++ {
		one, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := m.Return(one, jid, fun, answer)
		cancel()
		m.note("return of %s at %s: %v", jid, m.Request, err)

		switch {
		case err == nil:
			m.s.h.taken(jid, m.ID, try)
			return
		case errors.Is(err, minion.ErrRefused):
			m.signIn(ctx)
		default:
			m.turn(1)
			pause(ctx, 200*time.Millisecond)
		}
	}
}

// refreshed asks for the pillar, as after a refresh, with a grain and a mine that say by which
// job.
func (m *swarmer) refreshed(ctx context.Context, jid string) {
	m.Grains = value.NewMap("id", m.ID, "role", "web", "turn", jid)
	for ctx.Err() == nil {
		one, cancel := context.WithTimeout(ctx, 10*time.Second)
		_, err := m.Pillar(one)
		if err == nil {
			_, err = m.Ask(one, "_mine", "data", value.NewMap("turn", jid))
		}

		cancel()
		m.note("refresh of %s at %s: %v", jid, m.Request, err)
		switch {
		case err == nil:
			return
		case errors.Is(err, minion.ErrRefused):
			m.signIn(ctx)
		default:
			m.turn(1)
			pause(ctx, 200*time.Millisecond)
		}
	}
}

// refresh has all minions tell a new grain and a new mine, and returns the job. They return
// it when both have been taken.
func (s *swarm) refresh(t *testing.T, from *lab.Member) (jid string) {
	t.Helper()
	return start(t, from, "s*", "saltutil.refresh_pillar")
}

// alike waits until these nodes have the same grains and mines of all minions, of a job or
// of one of those before it. With whole they are of that job: what a master took in the moment
// in which it was lost is with the others when it is back.
func (s *swarm) alike(t *testing.T, jid string, nodes []*lab.Member, whole bool) {
	t.Helper()
	began, late := time.Now(), 0
	lab.Eventually(t, time.Minute, "minion data alike", func() error {
		first := map[string]string{}
		late = 0
		for _, m := range nodes {
			for _, fun := range []string{"cache.grains", "cache.mine"} {
				var all map[string]map[string]any
				r := m.SaltRun(t, fun, "s*", "--out", "json")
				if err := json.Unmarshal([]byte(r.Out), &all); err != nil {
					return fmt.Errorf("%s on %s: %w: %.200s", fun, m.Addr, err, r.Err)
				}

				for _, w := range s.minions {
					turn, key := fmt.Sprint(all[w.ID]["turn"]), fun+" of "+w.ID
					if m == nodes[0] {
						first[key] = turn
					}

					if turn != jid {
						late++
					}

					if turn != first[key] || whole && turn != jid {
						return fmt.Errorf("%s on %s is of %s, of %s on %s", key, m.Addr, turn, first[key],
							nodes[0].Addr)
					}
				}
			}
		}

		return nil
	})

	t.Logf("minion data of %d alike on %d nodes after %.1f s, asking included; %d of another job",
		len(s.minions), len(nodes), time.Since(began).Seconds(), late)
}

func (s *swarm) ids() []string {
	var out []string
	for _, m := range s.minions {
		out = append(out, m.ID)
	}
	return out
}

// listening waits until so many connections listen at the masters that run.
func listening(t *testing.T, c *lab.Cluster, want int) {
	t.Helper()
	lab.Eventually(t, 90*time.Second, fmt.Sprintf("%d minions listen", want), func() error {
		n := 0
		for _, m := range c.Alive() {
			if _, subscribers, err := m.View(); err == nil {
				n += subscribers
			}
		}
		if n < want {
			return fmt.Errorf("%d listen", n)
		}
		return nil
	})
}

// judgeCluster compares what each member says about each job with the history:
// nothing acknowledged is missing anywhere, nothing is there that was not sent.
func (h *history) judgeCluster(t *testing.T, c *lab.Cluster, members []*lab.Member, others []string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()

	real := map[string]bool{}
	for _, id := range others {
		real[id] = true
	}

	for _, m := range members {
		for _, jid := range slices.Sorted(maps.Keys(h.sent)) {
			// What was taken a moment ago is on its way still.
			lab.Eventually(t, 60*time.Second, fmt.Sprintf("job %s on %s", jid, m.Addr), func() error {
				kept, err := m.Lookup(t, jid)
				if err != nil {
					return err
				}

				for id := range h.acked[jid] {
					if _, ok := kept[id]; !ok {
						return fmt.Errorf("the return of %s was acknowledged and is not there", id)
					}
				}

				for id, v := range kept {
					if v != h.sent[jid][id] && !real[id] {
						t.Fatalf("job %s on %s: %s has %v, it sent %q", jid, m.Addr, id, v, h.sent[jid][id])
					}
				}

				return nil
			})
		}
	}
}
