package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"saltern/master/event"
	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// severed is a cluster of three masters of which the first can be cut off from the others.
func severed(t *testing.T) (ms [3]*member, cut func(bool)) {
	t.Helper()
	var severed atomic.Bool
	first := ""
	ms, _, _ = three(t, func(c *Config) {
		id := c.ID
		if first == "" {
			first = id
		}

		c.control = func(network, address string, s syscall.RawConn) error {
			if host, _, _ := net.SplitHostPort(address); severed.Load() && (id == first || host == first) &&
				id != host {
				return errors.New("the way is cut")
			}
			return hangUp(network, address, s)
		}
	})

	return ms, func(on bool) {
		severed.Store(on)
		for i, m := range ms {
			m.inbox.mu.Lock()
			for k := range m.inbox.conns {
				if on && (i == 0 || k.id == first) {
					_ = k.Close()
				}
			}
			m.inbox.mu.Unlock()
		}

		if on {
			await.That(t, "the cut",
				func() bool { s := ms[0].Status(); return !s.Peers[0].Connected && !s.Peers[1].Connected })
		}
	}
}

func job(from *member, jid string) {
	from.Forward(event.Event{Tag: "salt/job/" + jid + "/publish", Data: value.NewMap("jid", jid, "fun", "test.ping")})
}

// TestStartsComeBeforeLateJobs: when a master has received a job late, the sender also gives the
// job to minions that have come from that master. Only that master knows which of these minions
// were restarted meanwhile. Its own connections are made later than those to it.
func TestStartsComeBeforeLateJobs(t *testing.T) {
	t.Parallel()
	var severed, slow atomic.Bool
	first := ""
	ms, _, _ := three(t, func(c *Config) {
		id := c.ID
		first = cmp.Or(first, id)
		c.control = func(network, address string, s syscall.RawConn) error {
			host, _, _ := net.SplitHostPort(address)
			if severed.Load() && id != host && (id == first || host == first) ||
				slow.Load() && id == first && host != first {
				return errors.New("the way is cut")
			}
			return hangUp(network, address, s)
		}
	})

	a, b, c := ms[0], ms[1], ms[2]
	severed.Store(true)
	for i, m := range ms {
		m.inbox.mu.Lock()
		for k := range m.inbox.conns {
			if i == 0 || k.id == first {
				_ = k.Close()
			}
		}
		m.inbox.mu.Unlock()
	}

	await.That(t, "the cut", func() bool { s := a.Status(); return !s.Peers[0].Connected && !s.Peers[1].Connected })

	await.That(t, "minions may start there unheard", b.Unheard)
	job(b, "20260101000000000001")
	a.mu.Lock()
	a.starts = []Start{{ID: "m1", Process: 7}}
	a.mu.Unlock()

	b.Pool.mu.Lock()
	for _, i := range b.links[a.cfg.ID].queues[Jobs].items {
		i.queuedAt = i.queuedAt.Add(-time.Minute)
	}
	b.Pool.mu.Unlock()

	slow.Store(true)
	severed.Store(false)
	time.AfterFunc(500*time.Millisecond, func() { slow.Store(false) })
	await.That(t, "the job is given again", func() bool { return b.has(&b.late, "sent 20260101000000000001") })
	await.That(t, "it is told", func() bool { return a.count(&a.jobs) == 1 && c.count(&c.jobs) == 1 })
	await.That(t, "all is heard", func() bool { return !a.Unheard() && !b.Unheard() && !c.Unheard() })
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.knowing[0] != 1 {
		t.Error("minions were given a job before it was known which of them had been started anew")
	}
}

// TestLateJob: a job that a master publishes while it is cut off reaches the others when the
// network works again: once, in order, marked as late, and after the returns that the others'
// minions sent to that master (S7).
func TestLateJob(t *testing.T) {
	t.Parallel()
	ms, cut := severed(t)
	a, b, c := ms[0], ms[1], ms[2]
	job(a, "20260101000000000000")

	for _, m := range []*member{b, c} {
		await.That(t, "a job in time", func() bool { return m.count(&m.jobs) == 1 })
	}

	cut(true)
	jids := []string{"20260101000000000001", "20260101000000000002", "20260101000000000003"}
	for _, jid := range jids {
		job(a, jid)
	}

	ret := "salt/job/" + jids[0] + "/ret/m1"
	if err := a.Keep(await.Context(t), ret, value.NewMap("jid", jids[0], "id", "m1", "return", true)); !errors.Is(err, ErrNoPeer) {
		t.Errorf("a return: %v", err)
	}

	a.Pool.mu.Lock()
	for _, l := range a.links { // they wait for longer than a moment
		for _, i := range l.queues[Jobs].items {
			i.queuedAt = i.queuedAt.Add(-time.Minute)
		}
	}
	a.Pool.mu.Unlock()

	cut(false)
	for _, m := range []*member{b, c} {
		await.That(t, "the jobs", func() bool { return m.count(&m.jobs) == 4 })
		m.mu.Lock()
		if !slices.Equal(m.jobs[1:], jids) {
			t.Errorf("jobs %v", m.jobs)
		}

		for i, jid := range jids {
			if len(m.late) != 3 || m.late[i] != jid+" 1m0s 7" {
				t.Errorf("late: %q", m.late)
				break
			}
		}

		if done, given := slices.Index(m.events, a.cfg.ID+" "+
			ret), slices.Index(m.events, a.cfg.ID+" salt/job/"+jids[0]+"/publish"); done < 0 || done > given {
			t.Errorf("the return is number %d, the job number %d", done, given)
		}
		m.mu.Unlock()
	}

	// Minions may have moved between the masters meanwhile: when the last master has received a
	// job, the job is published again.
	for _, jid := range jids {
		await.That(t, "a job given again", func() bool {
			return a.has(&a.late, "sent "+jid) && (b.has(&b.retold, jid+" false") || c.has(&c.retold, jid+" false"))
		})
	}

	a.Bring(b.cfg.ID, []Job{{Load: value.NewMap("jid", "20260101000000000008"), Age: time.Minute}})
	await.That(t, "a job that is brought", func() bool { return b.has(&b.retold, "20260101000000000008 true") })
	job(a, "20260101000000000009")
	await.That(t, "a job in time", func() bool { return b.count(&b.jobs) == 5 && c.count(&c.jobs) == 5 })

	if b.count(&b.late) != 3 || c.count(&c.late) != 3 {
		t.Error("a job in time is late")
	}

	// A job that has waited for too long is never sent. The handler gets LostJob, if the peer has
	// not restarted since.
	a.Pool.mu.Lock()
	l := a.links[b.cfg.ID]
	a.Pool.mu.Unlock()

	packed := value.NewMap("jid", "20260101000000000010")
	body, err := msgpack.Marshal(packed, msgpack.Modern)
	check.Must(t, err)
	l.queues[Jobs].put(&item{
		queuedAt: time.Now().Add(-jobFor - time.Second),
		tag:      "salt/job/20260101000000000010/publish",
		packed:   body,
		isJob:    true,
	})

	await.That(t, "a lost job", func() bool { return a.has(&a.late, "lost 20260101000000000010 "+b.cfg.ID) })
}

// TestSpread: a caller waits until the connected masters have received its job, in order, however
// many callers wait at once, and at most for a second.
func TestSpread(t *testing.T) {
	t.Parallel()
	ms, cut := severed(t)
	a, b, c := ms[0], ms[1], ms[2]
	const callers = maxSpreading - 100
	var wg sync.WaitGroup
	var early atomic.Int64
	for i := range callers {
		wg.Go(func() {
			jid := fmt.Sprintf("20260101000000%06d", i)
			wait, done := a.Spread(jid)
			defer done()

			job(a, jid)
			wait(t.Context())
			if i%20 == 0 && !(b.has(&b.jobs, jid) && c.has(&c.jobs, jid)) {
				early.Add(1)
			}
		})
	}

	wg.Wait()
	a.Pool.mu.Lock()
	left := len(a.spreadings)
	a.Pool.mu.Unlock()

	late := a.Status().Unspread
	if left > 0 || early.Load() > 0 && late == 0 {
		t.Errorf("%d are waited for, %d callers were told early, %d late", left, early.Load(), late)
	}

	one := "20260101000001000000"
	wait, done := a.Spread(one)
	job(a, one)
	wait(t.Context())
	done()

	if !b.has(&b.jobs, one) || !c.has(&c.jobs, one) {
		t.Error("a caller is told of a job that the others do not have")
	}

	cut(true)
	began := time.Now()
	wait, done = a.Spread("20260101000001000001")
	job(a, "20260101000001000001")
	wait(t.Context())
	done()

	if took := time.Since(began); took > 2*spreadFor {
		t.Errorf("cut off, a caller waits for %s", took)
	}
}

// TestQuestionsDoNotWait: what a master asks others, such as to stop a batch, does not reach a peer after
// the asker has been told that nobody answered.
func TestQuestionsDoNotWait(t *testing.T) {
	t.Parallel()
	ms, cut := severed(t)
	cut(true)
	a, b := ms[0], ms[1]
	a.Forward(event.Event{Tag: event.TagBatchAsk, Data: value.NewMap("do", "stop"), Origin: event.Internal})
	a.Forward(event.Event{Tag: "own/event", Data: value.NewMap(), Origin: event.Internal})

	a.Pool.mu.Lock()
	q := &a.links[b.cfg.ID].queues[Events]
	a.Pool.mu.Unlock()
	if !q.holdsTag(event.TagBatchAsk) || !q.holdsTag("own/event") {
		t.Fatal("the events do not wait")
	}
	if q.takeLost(time.Now().Add(QuestionFor + time.Second)); q.holdsTag(event.TagBatchAsk) || !q.holdsTag("own/event") {
		t.Error("the question waits, or another event does not")
	}
}

// TestJobsThatWait: a job waits for a peer for ten minutes; when the queue is full, a change of a
// key is dropped before a job.
func TestJobsThatWait(t *testing.T) {
	now := time.Now()
	q := queue{bounds: dutyBounds[Jobs]}
	put := func(at time.Time, tag string, job bool, keep time.Duration) {
		q.put(&item{queuedAt: at, tag: tag, packed: make([]byte, 10), isJob: job, keepFor: keep})
	}
	put(now, "old", true, 0)
	put(now, "key", false, keyFor)

	if i := q.nextToSend(now, true); i == nil || i.tag != "old" || i.sentLate {
		t.Errorf("in time: %+v", i)
	}

	q.markUnsent()
	if i := q.nextToSend(now, true); i == nil || !i.sentLate {
		t.Errorf("a second time: %+v", i)
	}

	q.markUnsent()
	if i := q.nextToSend(now.Add(jobFor-time.Second), true); i == nil || !i.sentLate {
		t.Errorf("within ten minutes: %+v", i)
	}

	if i := q.nextToSend(now.Add(time.Minute), true); i != nil || q.lost != 1 {
		t.Errorf("a key after a minute: %+v, %d lost", i, q.lost)
	}

	q.markUnsent()
	if i := q.nextToSend(now.Add(jobFor+time.Second), true); i != nil {
		t.Errorf("after ten minutes: %+v", i)
	}

	if lost := q.takeLost(now); len(lost) != 1 || lost[0].tag != "old" {
		t.Errorf("lost: %v", lost)
	}

	for range q.bounds.count - 10 {
		put(now, "key", false, keyFor)
	}

	for i := range 100 {
		put(now, fmt.Sprint(i), true, 0)
	}

	if jobs := q.takeLost(now); len(jobs) != 0 || len(q.items) != q.bounds.count {
		t.Errorf("%d jobs were lost for keys, %d wait", len(jobs), len(q.items))
	}

	for i := range q.bounds.count {
		put(now, fmt.Sprint(i), true, 0)
	}

	if jobs := q.takeLost(now); len(jobs) != maxLostJobs || len(q.items) != q.bounds.count {
		t.Errorf("%d jobs are known to be lost, %d wait", len(jobs), len(q.items))
	}
}

// TestAnnounce: all masters know a minion's new process before the process may sign in (S6), also
// by way of a third master, and so does a master that connects later. A master that cannot be told
// delays the sign-in until it is known to be lost.
func TestAnnounce(t *testing.T) {
	t.Parallel()
	ms, cut := severed(t)
	a, b, c := ms[0], ms[1], ms[2]
	known := func(m *member, id string) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return slices.ContainsFunc(m.starts, func(s Start) bool { return s.ID == id && s.Age < time.Minute })
	}

	check.Must(t, a.Announce(await.Context(t), Start{ID: "m1", Process: 1}))
	if !known(b, "m1") || !known(c, "m1") {
		t.Error("not known when it is admitted")
	}

	cut(true)
	soon, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()

	if err := a.Announce(soon, Start{ID: "m2", Process: 2}); !errors.Is(err, ErrUntold) {
		t.Errorf("cut off a moment ago: %v", err)
	}

	a.mu.Lock()
	a.starts = append(a.starts, Start{ID: "m2", Process: 2})
	a.mu.Unlock()

	cut(false)
	await.That(t, "what a has seen alone", func() bool { return known(b, "m2") && known(c, "m2") })

	c.Close()
	await.That(t, "c to be gone", func() bool {
		a.Pool.mu.Lock()
		defer a.Pool.mu.Unlock()
		return a.links[c.cfg.ID].refused.Load()
	})

	began := time.Now()
	check.Must(t, a.Announce(await.Context(t), Start{ID: "m3"}))
	if took := time.Since(began); took > 3*time.Second || !known(b, "m3") {
		t.Errorf("a peer whose host says that it is gone was waited for, %s", took)
	}
}

// TestStartsAreRead: bytes of a peer are parsed as starts or give an error.
func TestStartsAreRead(t *testing.T) {
	long := strings.Repeat("x", 300)
	sent := []Start{
		{ID: "m1", Process: 7, Age: 3 * time.Second},
		{ID: long, Age: 48 * time.Hour},
		{ID: "m3", Age: -time.Second},
	}

	b, err := msgpack.Marshal(packStarts(startedMsg{starts: sent, number: 9}), msgpack.Modern)
	check.Must(t, err)
	got, number, err := parseStarts(b)
	want := []Start{sent[0], {ID: long[:maxMinion], Age: maxStartAge}, {ID: "m3"}}
	if err != nil || number != 9 || !slices.Equal(got, want) {
		t.Errorf("%v %d %v", got, number, err)
	}

	for _, bad := range []any{nil, value.NewMap(), value.NewMap("minions", []byte{1}),
		value.NewMap("minions", make([]byte, 13)),
		value.NewMap("minions", append(make([]byte, 12), 5, 'x'))} {
		b, err := msgpack.Marshal(bad, msgpack.Modern)
		check.Must(t, err)
		if got, _, err := parseStarts(b); err == nil {
			t.Errorf("%v gave %v", bad, got)
		}
	}
}
