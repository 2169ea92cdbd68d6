//go:build e2e && appliance

package e2e

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"saltern/test/lab"
)

// soakNode is a node of the cluster that a soak breaks: see directoryNode and volumeNode.
type soakNode interface {
	statusTeller
	Launch(t testing.TB)
	Kill() // the node's programs, not its host
	Tool(t testing.TB, name string, args ...string) lab.Result

	name() string
	address() string
	log() string
	signal(pid int, s syscall.Signal) // a process as the node numbers it; it may have ended
	fill(t *testing.T)                // the disk that has the node's data
	empty(t *testing.T)               // ends fill
}

// soakAnswers are those of a node that joins the cluster of peers, or forms one when there are none.
func soakAnswers(virtual string, peers []string) map[string]any {
	answers := map[string]any{
		"mode":            "form",
		"secret":          lab.ApplianceSecret,
		"front":           []string{"0.0.0.0"},
		"virtual_address": virtual,
	}
	if len(peers) > 0 {
		answers["mode"] = "join"
		answers["peers"] = peers
	}
	return answers
}

// soakCluster is what a soak breaks.
type soakCluster struct {
	net     *lab.Network
	nodes   []soakNode
	cluster *lab.Cluster // the same, for Salt's tools
	virtual string       // the address that minions use
	faults  []soakFault  // of its storage, beside those of every cluster
	limits  soakLimits

	// mended returns what the storage lacks of all its copies. It may be nil: there is
	// nothing to be mended.
	mended func(t *testing.T) error
}

// soakLimits are those of the time that a cluster takes after a fault.
type soakLimits struct {
	ready      time.Duration // until all nodes are ready
	afterHosts time.Duration // the same, when a host had vanished for the others
	mended     time.Duration // from then on, until the storage has all its copies
}

// soak is a run of faults beside jobs.
type soak struct {
	soakCluster
	t     *testing.T
	r     *rand.Rand
	real  []*lab.Minion
	swarm *swarm
	marks string // a line for each run of a job by a real minion
	began time.Time

	mu       sync.Mutex
	timeline []string
	times    []time.Time
	jobs     []soakJob
	refused  int
	starting sync.Mutex // held while a real minion is started anew
	wedged   int        // times that a real minion's loop hung by Salt's own fault
	away     map[string][]*absence
	whole    []soakCycle
}

// soakCycle is how long the cluster took after the faults of a cycle: until all nodes were
// ready, and from then on until the storage had all its copies.
type soakCycle struct{ ready, mended time.Duration }

// soakJob is one whose caller was told that it has started.
type soakJob struct {
	jid, token, from string
	at               time.Time
}

// absence is a time in which a real minion did not listen: from the end of its process until
// the next one says that it does.
type absence struct{ from, to time.Time }

func (s *soak) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.times = append(s.times, now)
	s.timeline = append(s.timeline, fmt.Sprintf("%7.1f ", now.Sub(s.began).Seconds())+fmt.Sprintf(format, args...))
}

// around is what happened about a time.
func (s *soak) around(at time.Time) string {
	var out []string
	for i, when := range s.times {
		if d := when.Sub(at); d > -90*time.Second && d < 90*time.Second {
			out = append(out, s.timeline[i])
		}
	}
	return strings.Join(out, "\n\t")
}

// job starts one for all minions at a node: real ones leave a mark for each run.
func (s *soak) job(n soakNode, number int) {
	token := fmt.Sprintf("token-%d-", number)
	command := fmt.Sprintf("echo %s $(tr '\\0' ' ' < /proc/$PPID/cmdline) >> %s", token, s.marks)
	at := time.Now()
	r := n.Tool(s.t, "salt", "--async", "*", "cmd.run", command)
	_, jid, ok := strings.Cut(strings.TrimSpace(r.Out), "job ID: ")
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Code != 0 || !ok {
		s.refused++
		return
	}
	s.jobs = append(s.jobs, soakJob{jid: jid, token: token, from: n.name(), at: at})
}

// restart ends a real minion, as its host does when it is started anew.
func (s *soak) restart(m *lab.Minion) {
	s.starting.Lock()
	defer s.starting.Unlock()
	s.note("minion %s is started anew", m.ID)
	s.isAway(m.ID)
	m.Restart(s.t)
}

// hangsAfter is after how long a real minion that prints nothing counts as one whose loop
// hangs: it looks for its master every fifteen seconds, and says so.
const hangsAfter = time.Minute

// unhang starts a real minion anew whose loop hangs. One fault of Salt's is known that makes it
// hang; any other cause is a finding. starting is held.
func (s *soak) unhang(m *lab.Minion, since time.Time) {
	at := since.Sub(s.began).Seconds()
	s.note("minion %s hangs since %.1f and is started anew", m.ID, at)
	if bySalt, stacks := m.Wedged(s.t); bySalt {
		s.wedged++
	} else {
		s.t.Errorf("minion %s hangs since %.1f, and not by the fault of Salt's that is known:\n%s", m.ID, at, stacks)
	}

	s.away[m.ID] = append(s.away[m.ID], &absence{from: since})
	m.Restart(s.t)
}

// isAway notes that a minion's process ends; starting is held.
func (s *soak) isAway(id string) { s.away[id] = append(s.away[id], &absence{from: time.Now()}) }

// serve does for real minions what their service manager does: one that ends by itself is
// started again.
func (s *soak) serve(end <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-end:
			return
		case <-tick.C:
		}

		s.starting.Lock()
		for _, m := range s.real {
			if m.Untangle(s.t) {
				s.note("minion %s had ended, or was deaf, by a fault of Salt's", m.ID)
				s.isAway(m.ID)
			}

			if since := m.SilentSince(s.t); time.Since(since) > hangsAfter {
				s.unhang(m, since)
			}

			if away := s.away[m.ID]; m.SaidAgain(s.t, "Minion is ready to receive requests") &&
				len(away) > 0 && away[len(away)-1].to.IsZero() {
				away[len(away)-1].to = time.Now()
				s.note("minion %s listens again", m.ID)
			}
		}
		s.starting.Unlock()
	}
}

// cycle breaks one or two things for a while, and waits until the cluster is whole.
func (s *soak) cycle() {
	all := append(soakFaults(), s.faults...)
	var mends []func()
	var names []string
	hit := map[soakNode]bool{}
	limit := s.limits.ready
	for range 1 + s.r.IntN(2) {
		f, n := all[s.r.IntN(len(all))], s.nodes[s.r.IntN(len(s.nodes))]
		if hit[n] {
			continue
		}

		hit[n] = true
		if f.host {
			limit = s.limits.afterHosts
		}

		what := n.name() + ": " + f.name
		names = append(names, what)
		s.note("%s", what)
		mend := f.do(s, n)
		mends = append(mends, func() { mend(); s.note("%s is mended", what) })
		time.Sleep(time.Duration(s.r.IntN(5)) * time.Second)
	}

	if s.r.IntN(3) == 0 {
		s.restart(s.real[s.r.IntN(len(s.real))])
	}

	time.Sleep(time.Duration(5+s.r.IntN(25)) * time.Second)
	for _, mend := range mends {
		mend()
	}

	s.awaitWhole(strings.Join(names, ", "), limit)
	time.Sleep(10 * time.Second)
}

// awaitWhole waits until all nodes are ready, and then until the storage has all its copies.
func (s *soak) awaitWhole(faults string, limit time.Duration) {
	began := time.Now()
	for _, n := range s.nodes {
		s.awaitReady(n)
	}

	took := soakCycle{ready: time.Since(began)}
	s.note("all nodes are ready after %.1f s, at a load of %s", took.ready.Seconds(), loadAverage())
	if took.ready > limit {
		s.t.Errorf("all nodes were ready after %v, not within %v:\n\t%s",
			took.ready.Round(100*time.Millisecond), limit, s.around(began))
	}

	if s.mended != nil {
		lab.Eventually(s.t, 10*time.Minute, "the storage has all its copies", func() error { return s.mended(s.t) })
		took.mended = time.Since(began) - took.ready
		s.note("the storage has all its copies after another %.1f s", took.mended.Seconds())
		if took.mended > s.limits.mended {
			s.t.Errorf("the storage had all its copies after another %v, not within %v:\n\t%s",
				took.mended.Round(100*time.Millisecond), s.limits.mended, s.around(began))
		}
	}

	s.whole = append(s.whole, took)
	s.t.Logf("%7.1f %s: ready after %.1f s, all copies after another %.1f s; load %s",
		time.Since(s.began).Seconds(), faults, took.ready.Seconds(), took.mended.Seconds(), loadAverage())
}

// awaitReady waits until a node sees all nodes, and all of them ready.
func (s *soak) awaitReady(n soakNode) {
	lab.Eventually(s.t, 4*time.Minute, n.name()+" is ready", func() error { return s.ready(n) })
}

// ready says why the cluster is not whole in the eyes of a node, and notes it.
func (s *soak) ready(n soakNode) error {
	asked := time.Now()
	d, err := n.Status(s.t)
	if err == nil {
		err = lab.AllReady(d, len(s.nodes))
	}
	if err != nil {
		s.note("to %s the cluster is not whole: %v (asked for %.1f s)", n.name(), err, time.Since(asked).Seconds())
	}
	return err
}

// awaitVirtual waits until all nodes see that one of them has the virtual address.
func (s *soak) awaitVirtual() {
	lab.Eventually(s.t, time.Minute, "one node has the virtual address", func() error {
		for _, n := range s.nodes {
			d, err := n.Status(s.t)
			switch {
			case err != nil:
				return err
			case d.Virtual == nil || len(d.Virtual.Nodes) != 1:
				return fmt.Errorf("%s sees %+v; %s", n.name(), d.Virtual, problems(d))
			}
		}
		return nil
	})
}

// loadAverage is what the machine had to do on average in the last minute.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err.Error()
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// runs counts the marks of a job by minion.
func (s *soak) runs(token string, marks []string) map[string]int {
	out := map[string]int{}
	for _, line := range marks {
		if !strings.HasPrefix(line, token+" ") {
			continue
		}
		for _, m := range s.real {
			if strings.Contains(line, m.Dir) {
				out[m.ID]++
			}
		}
	}
	return out
}

// notGivenAgain is a master's word that minions may have missed a job, in the node's log: there
// the master's keys are part of the message. It names the first ones in the order of their names,
// so the real ones before the scripted ones.
var notGivenAgain = regexp.MustCompile(
	`job is not given again to minions that may have missed it"? .*?\bjid=(\d+) minions=\d+ first=(\S+)`)

// toldMissed are the minions, by job id, of which a master has said that they may have missed the
// job and are not given it again, as those that were started anew meanwhile: they may have run
// what they do not remember.
func (s *soak) toldMissed() map[string]map[string]bool {
	told := map[string]map[string]bool{}
	for _, n := range s.nodes {
		text, err := os.ReadFile(n.log())
		if err != nil {
			s.t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			m := notGivenAgain.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			if told[m[1]] == nil {
				told[m[1]] = map[string]bool{}
			}
			for id := range strings.SplitSeq(m[2], ",") {
				told[m[1]][id] = true
			}
		}
	}
	return told
}

// wasAway reports whether a minion did not listen when a job was published, or was ended just
// after: Salt promises nothing to one that is not there.
func (s *soak) wasAway(id string, at time.Time) bool {
	return slices.ContainsFunc(s.away[id], func(a *absence) bool {
		return at.After(a.from.Add(-2*time.Second)) && (a.to.IsZero() || at.Before(a.to))
	})
}

// wasStarted reports whether a minion was started anew within the time after a job in which a
// master may give it again. A master that says of such a one that it may have missed the job is
// right to keep it; of another one, which has only lost its connections, it is mistaken.
func (s *soak) wasStarted(id string, at time.Time) bool {
	return slices.ContainsFunc(s.away[id], func(a *absence) bool {
		return a.from.After(at.Add(-2*time.Second)) && a.from.Before(at.Add(90*time.Second))
	})
}

// judge looks what became of all jobs.
func (s *soak) judge() {
	text, err := os.ReadFile(s.marks)
	if err != nil {
		s.t.Fatal(err)
	}

	marks := strings.Split(string(text), "\n")
	told := s.toldMissed()
	twice, lost, missed, mistaken, absent := 0, 0, 0, 0, 0
	for _, j := range s.jobs {
		var wrong []string
		runs := s.runs(j.token, marks)
		for _, m := range s.real {
			switch n := runs[m.ID]; {
			case n > 1:
				twice++
				wrong = append(wrong, fmt.Sprintf("%s ran it %d times", m.ID, n))
			case n == 0 && s.wasAway(m.ID, j.at):
				absent++
			case n == 0 && told[j.jid][m.ID] && s.wasStarted(m.ID, j.at):
				missed++
			case n == 0 && told[j.jid][m.ID]:
				mistaken++
				s.t.Logf("job %s (%s) of %s at %.1f was kept from %s, which was not started anew:\n\t%s", j.jid, j.token,
					j.from, j.at.Sub(s.began).Seconds(), m.ID, s.around(j.at))
			case n == 0:
				lost++
				wrong = append(wrong, m.ID+" never ran it")
			}
		}

		s.swarm.h.mu.Lock()
		scripted := 0
		for _, m := range s.swarm.minions {
			if _, got := s.swarm.h.sent[j.jid][m.ID]; !got {
				scripted++
			}
		}
		s.swarm.h.mu.Unlock()

		if scripted > 0 {
			lost += scripted
			wrong = append(wrong, fmt.Sprintf("%d scripted minions never got it", scripted))
		}

		if len(wrong) > 0 {
			s.t.Errorf("job %s (%s) of %s at %.1f: %s\n\t%s", j.jid, j.token, j.from,
				j.at.Sub(s.began).Seconds(), strings.Join(wrong, ", "), s.around(j.at))
		}
	}

	s.t.Logf("%d jobs acknowledged, %d refused; %d run twice, %d lost, %d told as missed by a minion that was started anew, %d by one that was not, %d for one that did not listen, as %d times by a fault of Salt's own",
		len(s.jobs), s.refused, twice, lost, missed, mistaken, absent, s.wedged)
	s.judgeTimes()
	jobs, acked, again := s.swarm.h.count()
	s.t.Logf("returns: of %d jobs, %d acknowledged to scripted minions, %d after more than one try", jobs, acked, again)
}

// judgeTimes prints how long the cluster took to be whole.
func (s *soak) judgeTimes() {
	var ready, mended []time.Duration
	for _, c := range s.whole {
		ready = append(ready, c.ready)
		mended = append(mended, c.mended)
	}
	slices.Sort(ready)
	slices.Sort(mended)
	half, last := len(ready)/2, len(ready)-1
	s.t.Logf("%d cycles; ready after a median of %.1f s, %.1f s at most; all copies after another %.1f s, %.1f s at most",
		len(s.whole), ready[half].Seconds(), ready[last].Seconds(), mended[half].Seconds(), mended[last].Seconds())
}

// TestSoakCluster breaks everything of a cluster, one or two things at a time, while jobs run (S3,
// S5, S6, S7): make soak-cluster KIND=volume MINUTES=30 SEED=1.
func TestSoakCluster(t *testing.T) {
	minutes, _ := strconv.Atoi(os.Getenv("SALTERN_SOAK_MINUTES"))
	if minutes <= 0 {
		t.Skip("NOT TESTED: make soak-cluster")
	}

	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("SALTERN_SOAK_SEED"), "0"), 10, 64)
	if err != nil || seed == 0 {
		seed = uint64(time.Now().UnixNano()) % 100000
	}

	t.Logf("seed %d, %d minutes", seed, minutes)
	s := &soak{
		t:     t,
		away:  map[string][]*absence{},
		r:     rand.New(rand.NewPCG(seed, 1)),
		marks: filepath.Join(lab.Dir(t), "marks"),
		began: time.Now(),
	}

	switch kind := cmp.Or(os.Getenv("SALTERN_SOAK_KIND"), "directory"); kind {
	case "directory":
		s.soakCluster = directoryCluster(t)
	case "volume":
		s.soakCluster = volumeCluster(t)
	default:
		t.Fatalf("KIND=%s: it is directory or volume", kind)
	}

	for _, n := range s.nodes {
		s.awaitReady(n)
	}

	s.awaitVirtual()
	s.swarm = enroll(t, s.cluster, 200)
	s.swarm.front = s.virtual
	s.swarm.start(t)
	var ids []string
	for _, v := range lab.Versions() {
		id := "m" + strings.ReplaceAll(v, ".", "-")
		ids = append(ids, id)
		s.real = append(s.real,
			lab.StartMinionWith(t, id, v, map[string]any{"master": s.virtual, "master_alive_interval": 15}))
	}

	complete(t, s.cluster.Members[0], append(s.swarm.ids(), ids...))

	var served sync.WaitGroup
	over := make(chan struct{})
	served.Go(func() { s.serve(over) })
	s.began = time.Now()
	end := s.began.Add(time.Duration(minutes) * time.Minute)
	var wg sync.WaitGroup
	pick := rand.New(rand.NewPCG(seed, 2))
	wg.Go(func() {
		tick := time.NewTicker(2 * time.Second)
		defer tick.Stop()
		for number := 0; time.Now().Before(end); number++ {
			n := s.nodes[pick.IntN(len(s.nodes))]
			wg.Go(func() { s.job(n, number) })
			<-tick.C
		}
	})

	for time.Now().Before(end) {
		s.cycle()
	}

	wg.Wait()
	time.Sleep(time.Minute) // what is late
	close(over)
	served.Wait()
	s.judge()
	s.swarm.stop()
	s.swarm.h.judgeCluster(t, s.cluster, s.cluster.Members, ids)
}
