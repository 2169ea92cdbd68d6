package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"saltern/internal/control"
	"saltern/master/event"
	"saltern/master/internal/mastertest"
	"saltern/master/internal/postgres"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
	"saltern/test/minion"
)

// TestMasterProcess is a master of TestThreeMastersWithOneDatabase; alone it does nothing.
func TestMasterProcess(t *testing.T) { mastertest.RunProcess(t) }

// delivery is what became of a return, or of an event of a minion.
type delivery struct {
	tries  int
	master int // that acknowledged it
	life   int // of that master: how often it was killed before
	time   time.Time
}

// crew is a number of scripted minions, each with a master that it asks first.
type crew struct {
	t       *testing.T
	masters []*mastertest.Master
	members []*minion.Minion

	returned atomic.Int64 // returns that were acknowledged
	mu       sync.Mutex
	sent     map[string]delivery // by the tag of the event; the tries have ended
	kills    [][]time.Time       // of each master
}

func hireCrew(t *testing.T, masters []*mastertest.Master, size int) *crew {
	t.Helper()
	c := &crew{t: t, masters: masters, sent: map[string]delivery{}, kills: make([][]time.Time, len(masters))}
	key := mastertest.KeyPair(t, "min8")
	proof, err := minion.Prove(key)
	check.Must(t, err)
	for i := range size {
		m, err := minion.New(minion.Config{
			ID:      fmt.Sprintf("web%d", i),
			Key:     key,
			Proof:   proof,
			Master:  &mastertest.KeyPair(t, "masterA").PublicKey,
			Request: masters[i%len(masters)].RequestAddress,
		})
		check.Must(t, err)
		t.Cleanup(m.Close)
		check.Must(t, m.SignIn(await.Context(t)))
		c.members = append(c.members, m)
	}
	return c
}

// answer has all minions return a job, and then fire an event. While they do, it calls meanwhile, when a third of the
// returns is acknowledged. It returns when all are.
func (c *crew) answer(jid string, meanwhile func()) {
	c.t.Helper()
	third := c.returned.Load() + int64(len(c.members)/3)
	var running sync.WaitGroup
	for i, m := range c.members {
		running.Go(func() {
			c.deliver(i, m, event.Tag("job", jid, "ret", m.ID), func(ctx context.Context) error {
				return m.Return(ctx, jid, "test.ping", "of "+m.ID)
			})
			c.returned.Add(1)
			tag := "crew/" + jid + "/" + m.ID
			c.deliver(i, m, tag, func(ctx context.Context) error {
				_, err := m.Ask(ctx, "_minion_event", "tag", tag, "data", value.NewMap("jid", jid), "pretag", nil)
				return err
			})
		})
	}
	await.That(c.t, "returns of job "+jid, func() bool { return c.returned.Load() >= third })
	meanwhile()
	running.Wait()
}

// deliver tries one master after the other until one has acknowledged, as a load balancer has a minion do.
func (c *crew) deliver(home int, m *minion.Minion, tag string, try func(ctx context.Context) error) {
	var d delivery
	for at := home % len(c.masters); ; at = (at + 1) % len(c.masters) {
		if address := c.masters[at].RequestAddress; m.Request != address {
			m.Close()
			m.Request = address
		}
		d.master = at
		d.life = c.life(at)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := try(ctx)
		if errors.Is(err, minion.ErrRefused) { // it does not know the session
			if err = m.SignIn(ctx); err == nil {
				err = try(ctx)
			}
		}
		cancel()
		d.tries++
		if err == nil {
			break
		}
	}
	d.time = time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent[tag] = d
}

func (c *crew) life(master int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.kills[master])
}

func (c *crew) kill(master int) {
	began := time.Now()
	c.masters[master].Kill()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kills[master] = append(c.kills[master], began)
}

// whole reports whether one master alone got it, and lived on for long enough to have the event on its disk.
func (c *crew) whole(d delivery) bool {
	kills := c.kills[d.master]
	return d.tries == 1 && (d.life == len(kills) || kills[d.life].Sub(d.time) > time.Second)
}

// publishTwice starts jobs with one id at the same time on two masters: root's on the first, whose load has the higher
// rank, and that of a user of external_auth on the second.
func publishTwice(t *testing.T, jid string, masters ...*mastertest.Master) {
	t.Helper()
	var running sync.WaitGroup
	for i, r := range masters {
		load := value.NewMap("cmd", "publish", "tgt", "*", "fun", "test.ping", "arg", []any{}, "tgt_type", "glob", "ret", "",
			"jid", jid, "kwargs", value.NewMap())
		if i == 0 {
			load.Update(value.NewMap("user", "root", "key", r.Key))
		} else {
			load.Set("kwargs", value.NewMap("eauth", "sharedsecret", "username", "ann", "password", "right"))
		}
		payload := mastertest.Pack(t, value.NewMap("enc", "clear", "load", load, "version", 3))
		running.Go(func() {
			answer, err := r.AskRaw(payload)
			if err != nil || !strings.Contains(string(answer), jid) {
				t.Errorf("job %s at %s: %q, %v", jid, r.Host, answer, err)
			}
		})
	}
	running.Wait()
}

// listener counts the events of one master's bus by tag.
type listener struct {
	mu   sync.Mutex
	tags map[string]int
}

func listen(t *testing.T, r *mastertest.Master) *listener {
	t.Helper()
	in, err := event.DialPub(await.Context(t), r.Path("run"))
	check.Must(t, err)
	l := &listener{tags: map[string]int{}}
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			e, err := in.Next(context.Background())
			if err != nil {
				return
			}
			l.mu.Lock()
			l.tags[e.Tag]++
			l.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		in.Close()
		reading.Wait()
	})
	return l
}

func (l *listener) count(tag string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tags[tag]
}

// waiting returns how many returns and events wait in the spools of a master, as its status says.
func waiting(t *testing.T, r *mastertest.Master) (returns, events uint64) {
	t.Helper()
	text, err := os.ReadFile(r.Path("cache", control.StatusFile))
	check.Must(t, err)
	s, err := control.ParseStatus(text)
	check.Must(t, err)
	if lost := s.Postgres.Lost + s.Postgres.Refused + s.Postgres.Adapted + s.Postgres.Events.Lost; lost != 0 {
		t.Errorf("%s: %+v, %+v", r.Host, s.Postgres, s.Postgres.Events)
	}
	return s.Postgres.Waiting, s.Postgres.Events.Waiting
}

func collect[T any](t *testing.T, conn *pgx.Conn, sql string) map[string]T {
	t.Helper()
	rows, err := conn.Query(context.Background(), sql)
	check.Must(t, err)
	out := map[string]T{}
	var name string
	var v T
	_, err = pgx.ForEachRow(rows, []any{&name, &v}, func() error {
		out[name] = v
		return nil
	})
	check.Must(t, err)
	return out
}

// TestThreeMastersWithOneDatabase kills a master, the database, and the master while the database is away, while
// minions return jobs. Each return is in the tables once, and so is each event of a master that lived on.
func TestThreeMastersWithOneDatabase(t *testing.T) {
	text := os.Getenv("SALTERN_POSTGRES_MASTERS")
	if text == "" {
		t.Skip("kills of a master and of the database, by hand: make test-postgres")
	}
	size, err := strconv.Atoi(text)
	check.Must(t, err)
	server := postgres.NewRealServer(t)
	db := server.Database(t)
	masters := mastertest.StartProcesses(t, "TestMasterProcess", 3, fmt.Sprintf("auto_accept: true\n"+
		"external_auth: {sharedsecret: {ann: [.*]}}\nsharedsecret: right\n"+
		"saltern_postgres: {host: %s, port: %d, database: %s, user: admin, sslmode: disable, events: true}\n",
		db.Host, db.Port, db.Database))
	const victim = 1
	first := masters[0]
	third := masters[2]
	c := hireCrew(t, masters, size)
	buses := []*listener{listen(t, first), listen(t, third)}

	var jids []string
	chosen := []string{"20300101000000000001", "20300101000000000002"}
	publish := func(r *mastertest.Master) string {
		jid := r.Publish("*", "test.ping").Str("jid")
		jids = append(jids, jid)
		return jid
	}
	nothing := func() {}
	kill := func() { c.kill(victim) }
	again := masters[victim].StartAgain

	c.answer(publish(first), nothing)
	c.answer(publish(masters[victim]), kill)
	c.answer(publish(third), again)
	c.answer(publish(masters[victim]), server.Kill)
	c.answer(publish(masters[victim]), kill)
	publishTwice(t, chosen[0], first, third)
	publishTwice(t, chosen[1], third, first)
	c.answer(chosen[0], nothing)
	c.answer(publish(first), again)
	c.answer(chosen[1], server.Start)
	c.answer(publish(masters[victim]), nothing)

	conn := server.Query(t, db)
	jids = append(jids, chosen...)
	returns := len(jids) * size
	count := func(sql string) (n int) {
		check.Must(t, conn.QueryRow(context.Background(), sql).Scan(&n))
		return n
	}
	await.That(t, "all returns and events are written", func() bool {
		if count("SELECT count(*) FROM saltern_runs") < returns {
			return false
		}
		for _, r := range masters {
			if _, events := waiting(t, r); events > 0 {
				return false
			}
		}
		return true
	})
	if !await.Within(5*time.Minute, func() bool { // each master asks for the copies of the others' returns
		left := uint64(0)
		for _, r := range masters {
			n, _ := waiting(t, r)
			left += n
		}
		return left == 0
	}) {
		t.Error("copies wait for more than five minutes")
	}
	for _, r := range masters {
		r.Stop()
	}

	c.wantReturns(conn, len(jids))
	c.wantEvents(conn, buses)
	loads := collect[string](t, conn, "SELECT jid, coalesce(load->>'user', '') || ' ' || coalesce(load->>'tgt', '') FROM jids")
	for _, jid := range jids {
		if got := loads[jid]; got != "root *" {
			t.Errorf("load of job %s is by %q", jid, got)
		}
	}
}

// wantReturns fails unless all tables have each return once.
func (c *crew) wantReturns(conn *pgx.Conn, jobs int) {
	t := c.t
	t.Helper()
	if returned := int(c.returned.Load()); returned != jobs*len(c.members) {
		t.Errorf("%d returns were acknowledged", returned)
	}
	for _, sql := range []string{
		"SELECT jid || '/ret/' || id, count(*) FROM salt_returns GROUP BY jid, id",
		"SELECT jid || '/ret/' || minion, count(*) FROM saltern_runs GROUP BY jid, minion",
		"SELECT jid || '/ret/' || id, count(*) FROM salt_returns WHERE return = to_jsonb('of ' || id) GROUP BY jid, id",
	} {
		rows := collect[int](t, conn, sql)
		wrong := 0
		for tag := range c.sent {
			name, isReturn := strings.CutPrefix(tag, "salt/job/")
			if isReturn && rows[name] != 1 {
				wrong++
			}
		}
		if wrong > 0 || len(rows) != int(c.returned.Load()) {
			t.Errorf("%d returns are not there once, %d rows: %s", wrong, len(rows), sql)
		}
	}
}

// wantEvents fails unless salt_events has each event once, by the master that got it.
func (c *crew) wantEvents(conn *pgx.Conn, buses []*listener) {
	t := c.t
	t.Helper()
	rows := collect[int](t, conn, "SELECT tag, count(*) FROM salt_events GROUP BY tag")
	by := collect[string](t, conn, "SELECT tag, max(master_id) FROM salt_events GROUP BY tag")
	whole := 0
	lost := 0
	var longest time.Duration // from the acknowledgement of an event that was lost to the kill of its master
	for tag, d := range c.sent {
		if rows[tag] > d.tries {
			t.Errorf("%s is there %d times after %d tries", tag, rows[tag], d.tries)
		}
		if rows[tag] == 0 {
			lost++
			if kills := c.kills[d.master]; d.tries == 1 && d.life < len(kills) {
				longest = max(longest, kills[d.life].Sub(d.time))
			}
		}
		if !c.whole(d) {
			continue
		}
		whole++
		if host := c.masters[d.master].Host; rows[tag] != 1 || by[tag] != host {
			t.Errorf("%s of %s: %d rows by %s", tag, host, rows[tag], by[tag])
		}
		for _, bus := range buses {
			if n := bus.count(tag); n > 1 || n == 0 && len(c.kills[d.master]) == 0 {
				t.Errorf("%s is on a bus %d times", tag, n)
			}
		}
	}
	t.Logf("%d returns and events, %d of them at one master that lived on, %d whose event is lost, acknowledged up to %s before the kill",
		len(c.sent), whole, lost, longest)
	for tag, n := range collect[int](t, conn, "SELECT max(tag), count(*) FROM salt_events GROUP BY tag, data HAVING count(*) > 1") {
		t.Errorf("%d rows are the same: %s", n, tag)
	}
}
