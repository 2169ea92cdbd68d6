package peers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/master/cache"
	"saltern/master/cluster"
	clusterwire "saltern/master/cluster/wire"
	"saltern/master/conf"
	"saltern/master/event"
	"saltern/master/internal/auth"
	"saltern/master/internal/launch"
	"saltern/master/internal/presence"
	"saltern/master/internal/publish"
	"saltern/master/internal/request"
	"saltern/master/jobs"
	"saltern/master/keys"
	"saltern/master/runner"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
	"saltern/test/logged"
)

const jid = "20261123011500123456"

// reached is a master as its peers reach it. Its job cache, its launcher and its bus are real; it
// has no minions and no cluster around it.
type reached struct {
	*Handler
	t         *testing.T
	events    *event.Subscription
	published []*value.Map
	minions   []string // of the last publication
	problem   error
	fired     []string
}

// noPort is a publish port without publications.
type noPort struct{ presence.PublishPort }

func (noPort) Recent(time.Time) []publish.Recent { return nil }
func (noPort) Passed(time.Time) int              { return 0 }

// noPeers is a cluster without other masters.
type noPeers struct{}

func (noPeers) Keep(context.Context, jobs.Return) error    { return jobs.ErrOnlyMaster }
func (noPeers) Copy(jobs.Return)                           {}
func (noPeers) Subscribed(cluster.Subs)                    {}
func (noPeers) CutOff([]cluster.Cut)                       {}
func (noPeers) CutBefore(peer string, cuts []cluster.Cut)  {}
func (noPeers) Bring(peer string, published []cluster.Job) {}

func newReached(t *testing.T, change func(*Config)) *reached {
	t.Helper()
	r := &reached{t: t}
	log := slog.New(slog.DiscardHandler)
	bus := event.NewBus(time.Now, 1<<20)
	r.events = bus.Subscribe("test", 100, func(string) bool { return true })
	fire := func(tag string, _ *value.Map) { r.fired = append(r.fired, tag) }
	problem := func(_ control.Fault, err error) { r.problem = err }

	local, err := jobs.Open(jobs.Config{Dir: filepath.Join(t.TempDir(), "jobs"), Shared: true}, log)
	check.Must(t, err)
	shared, err := jobs.OpenCluster(jobs.ClusterConfig{
		ID:       "m1",
		Dir:      t.TempDir(),
		Local:    local,
		Peers:    noPeers{},
		Keep:     time.Hour,
		Degraded: func(error) {},
		Log:      log,
	})

	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, shared.Close(await.Context(t))) })
	minionData, err := cache.Open(t.TempDir(), 1<<20, keys.ValidID)
	check.Must(t, err)
	undelivered := &undelivered{fire: fire, failed: problem, log: log}

	cfg := Config{
		Bus:  bus,
		Fire: fire,
		Launch: launch.New(launch.Config{
			Targets: &launch.Targets{Accepted: func() []string { return []string{"web1", "web2"} }, Cache: minionData},
			Jobs:    shared,
			Now:     time.Now,
			Started: time.Now(),
			Log:     log,
			Quiet:   log,
		}),
		Publish: func(_ context.Context, load *value.Map, minions []string) error {
			r.published = append(r.published, load)
			r.minions = minions
			return nil
		},
		Jobs:        shared,
		KeepReturns: true,
		Missed: presence.NewResender(presence.ResenderConfig{
			Port:  noPort{},
			Peers: noPeers{},
			Now:   time.Now,
			Log:   log,
		}),
		Problem: problem,
		Log:     log,
	}

	if change != nil {
		change(&cfg)
	}

	r.Handler = newHandler(&Membership{Started: presence.NewStarted(), undelivered: undelivered, now: time.Now}, cfg)
	return r
}

// start brings the event of a job that a peer has started for web1 alone.
func (r *reached) start(jid string) {
	r.t.Helper()
	check.Must(r.t, r.Event(r.t.Context(), "m2", event.Event{
		Tag: event.Tag("job", jid, "new"),
		Data: value.NewMap("jid", jid, "fun", "test.ping", "arg", []any{}, "tgt", "web1", "user", "ann",
			"minions", []any{"web1"}, "missing", []any{}, "only_minions", true, "_stamp", "x"),
		Origin: event.Peer,
		Maker:  event.Internal,
	}))
}

// TestJobOfAPeer: the start of a job at a peer makes the job known here, as what it is, and is
// shown on the bus; a minion of the peer cannot make one.
func TestJobOfAPeer(t *testing.T) {
	t.Parallel()
	r := newReached(t, nil)
	r.start(jid)
	load, err := r.cfg.Jobs.Load(t.Context(), jid)
	check.Must(t, err)

	if load.Str("fun") != "test.ping" || load.Str("user") != "ann" ||
		!slices.Equal(load.Texts("Minions"), []string{"web1"}) {
		t.Errorf("load: %s", value.Repr(load))
	}

	for _, own := range []string{"_stamp", "missing", "minions"} {
		if _, ok := load.Get(own); ok {
			t.Errorf("%s is kept: %s", own, value.Repr(load))
		}
	}

	if e := <-r.events.C; e.Tag != event.Tag("job", jid, "new") || e.Origin != event.Peer {
		t.Errorf("event: %+v", e)
	}

	const forged = "20261123011500123457"
	for _, maker := range []event.Origin{event.Minion, event.Runner} {
		check.Must(t, r.Event(t.Context(), "m2", event.Event{
			Tag:    event.Tag("job", forged, "new"),
			Data:   value.NewMap("jid", forged, "fun", "cmd.run", "user", "root"),
			Origin: event.Peer,
			Maker:  maker,
			Minion: "web2",
		}))

		if load, err := r.cfg.Jobs.Load(t.Context(), forged); err != nil || load != nil {
			t.Errorf("made by %v: %s, %v", maker, value.Repr(load), err)
		}
	}

	r.start("no job id") // is shown, and no more
	if r.problem != nil {
		t.Errorf("problem: %v", r.problem)
	}
}

// TestReturnOfAPeer: a return that a peer has taken is kept if it belongs to the job; the peer
// learns of one that does not, and is not asked again for one that nobody can use.
func TestReturnOfAPeer(t *testing.T) {
	t.Parallel()
	r := newReached(t, nil)
	r.start(jid)
	load := func(jid, id string) *value.Map {
		return value.NewMap("jid", jid, "id", id, "return", true, "retcode", int64(0), "success", true,
			"fun", "test.ping", "_stamp", "x")
	}

	refused := load(jid, "web1") // the peer keeps another return
	refused.Set("return", false)
	refused.Set(event.RefusedField, true)
	check.Must(t, r.Return(t.Context(), "m2", event.Tag("job", jid, "ret", "web1"), refused))

	for _, tt := range []struct {
		name, jid, id, tag string
		want               error
	}{
		{"of its minion", jid, "web1", event.Tag("job", jid, "ret", "web1"), nil},
		{"of another minion", jid, "web2", event.Tag("job", jid, "ret", "web2"), cluster.ErrRefused},
		{"under another tag", jid, "web1", event.Tag("job", jid, "ret", "web2"), nil},
		{"of no job", "../x", "web1", event.Tag("job", "../x", "ret", "web1"), nil},
		{"of no minion", jid, "../x", event.Tag("job", jid, "ret", "../x"), nil},
	} {
		if err := r.Return(t.Context(), "m2", tt.tag, load(tt.jid, tt.id)); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}

	returns, err := r.cfg.Jobs.Returns(t.Context(), jid)
	check.Must(t, err)
	if returns.Len() != 1 || returns.Map("web1").Value("return") != true {
		t.Errorf("returns: %s", value.Repr(returns))
	}

	forgetful := newReached(t, func(c *Config) { c.KeepReturns = false })
	forgetful.start(jid)
	check.Must(t, forgetful.Return(t.Context(), "m2", event.Tag("job", jid, "ret", "web1"), load(jid, "web1")))
	if returns, err := forgetful.cfg.Jobs.Returns(t.Context(), jid); err != nil || returns.Len() != 0 {
		t.Errorf("without a job cache: %s, %v", value.Repr(returns), err)
	}
}

// TestRunOfAPeer: the result of a runner at a peer is stored as a job here, too, and is no event. A
// result that only a minion or a tool reports is not stored.
func TestRunOfAPeer(t *testing.T) {
	t.Parallel()
	r := newReached(t, nil)
	result := func(jid, id string) *value.Map {
		return value.NewMap("jid", jid, "id", id, "fun", "runner.test.arg", "return", value.NewMap("return", 77),
			clusterwire.PeerField, "m2", "_stamp", event.Stamp(time.Now()))
	}

	for _, tt := range []struct {
		name, jid, id string
		maker         event.Origin
		kept          bool
	}{
		{"by its master", "20260102030405678911", "m2", event.Internal, true},
		{"by a tool", "20260102030405678912", "m2", event.Socket, false},
		{"by a minion", "20260102030405678913", "m2", event.Minion, false},
		{"under no job id", "../x", "m2", event.Internal, false},
		{"under no id", "20260102030405678914", "../m2", event.Internal, false},
	} {
		e := event.Event{
			Tag:    event.TagRunKept,
			Data:   result(tt.jid, tt.id),
			Origin: event.Peer,
			Maker:  tt.maker,
		}
		check.Must(t, r.Event(t.Context(), "m2", e))
		if !jobs.Valid(tt.jid) {
			continue
		}

		load, err := r.cfg.Jobs.Load(t.Context(), tt.jid)
		check.Must(t, err)
		if (load.Str("fun") == "runner.test.arg") != tt.kept {
			t.Errorf("%s: the job is %s", tt.name, value.Repr(load))
		}
	}

	forgetful := newReached(t, func(c *Config) { c.KeepReturns = false })
	e := event.Event{
		Tag:    event.TagRunKept,
		Data:   result(jid, "m2"),
		Origin: event.Peer,
		Maker:  event.Internal,
	}
	check.Must(t, forgetful.Event(t.Context(), "m2", e))
	if load, err := forgetful.cfg.Jobs.Load(t.Context(), jid); err != nil || load != nil {
		t.Errorf("without a job cache: %s, %v", value.Repr(load), err)
	}
}

// TestPublicationOfAPeer: the job of a peer goes to our minions under its id; one whose target
// cannot be read goes out all the same, for minions decide by themselves.
func TestPublicationOfAPeer(t *testing.T) {
	t.Parallel()
	r := newReached(t, nil)
	for _, tt := range []struct {
		name, jid, tgt, typ string
		published           bool
		minions             []string
	}{
		{"all", jid, "*", "glob", true, []string{"web1", "web2"}},
		{"one", jid, "web2", "glob", true, []string{"web2"}},
		{"unreadable", jid, "(", "pcre", true, nil},
		{"no job", "x", "*", "glob", false, nil},
	} {
		before := len(r.published)
		load := value.NewMap("jid", tt.jid, "fun", "test.ping", "arg", []any{}, "tgt", tt.tgt, "tgt_type", tt.typ)
		check.Must(t, r.Publish(t.Context(), "m2", load, cluster.Late{}))
		if published := len(r.published) > before; published != tt.published ||
			published && !slices.Equal(r.minions, tt.minions) {
			t.Errorf("%s: published %v, to %v", tt.name, published, r.minions)
		}
	}
}

// TestUndelivered: whoever has started a job learns which minions may have missed it, and so does
// a reader of the log; the lists are bounded, and a job that never reached a peer is a problem that
// names it.
func TestUndelivered(t *testing.T) {
	t.Parallel()
	var events []*value.Map
	var problem error
	var lines logged.Buffer
	u := &undelivered{
		fire: func(tag string, data *value.Map) {
			if tag != event.Tag("job", jid, "undelivered") {
				t.Errorf("tag %s", tag)
			}
			events = append(events, data)
		},
		failed: func(what control.Fault, err error) {
			if what != control.DeliveryFault {
				t.Errorf("told as %s", what)
			}
			problem = err
		},
		log: slog.New(slog.NewTextHandler(&lines, nil)),
	}

	load := value.NewMap("jid", jid, "fun", "test.ping", "tgt", "*", "user", "ann", "arg", []any{"secret"})
	minions := make([]string, maxNamed+5)
	u.jobMissed(load, minions, "it is too old")
	e := events[0]
	if named, _ := e.Value("minions").([]string); len(named) != maxNamed || e.Value("count") != int64(maxNamed+5) ||
		e.Str("reason") != "it is too old" || e.Str("user") != "ann" {
		t.Errorf("%d named: %s, %s of %s", len(named), value.Repr(e.Value("count")), e.Str("reason"), e.Str("user"))
	}

	if _, ok := e.Get("arg"); ok {
		t.Error("the arguments of the job are in the event")
	}

	matched := []string{"web2", "web1"}
	u.jobMissed(load, matched, "it is too old")
	if !strings.Contains(lines.String(), "minions=2 first=web1,web2 reason=") || matched[0] != "web2" {
		t.Errorf("logged: %s; the list of the job is %v now", &lines, matched)
	}

	u.jobLost("m2", load)
	u.jobLost("m3", load)
	if problem == nil || !strings.HasPrefix(problem.Error(), "2 since the start") ||
		!strings.Contains(problem.Error(), jid+" (test.ping) to the minions of m3") {
		t.Errorf("problem: %v", problem)
	}
}

// TestReturnsAreToldOnce: the event of a return that peers got with Keep is not sent to them a
// second time, and what is noted for it is bounded.
func TestReturnsAreToldOnce(t *testing.T) {
	t.Parallel()
	l := &Link{}
	l.noteKept("a")
	if !l.takeKept("a") || l.takeKept("a") || l.takeKept("b") {
		t.Error("not once, or for another return")
	}

	for i := range 3*maxKept + 1 {
		l.noteKept(fmt.Sprint(i))
		if len(l.kept) > maxKept {
			t.Fatalf("%d tags are kept", len(l.kept))
		}
	}

	if !l.takeKept(fmt.Sprint(3 * maxKept)) {
		t.Error("the newest is forgotten")
	}
}

// TestStatesOfKeys: a peer's word for the state of a key is ours, and an unknown word is none.
func TestStatesOfKeys(t *testing.T) {
	t.Parallel()
	for st, want := range map[clusterwire.KeyState]keys.State{
		clusterwire.KeyAccepted:   keys.Accepted,
		clusterwire.KeyPending:    keys.Pending,
		clusterwire.KeyRejected:   keys.Rejected,
		clusterwire.KeyDenied:     keys.Denied,
		clusterwire.KeyState(200): keys.None,
	} {
		if got := keyState(st); got != want {
			t.Errorf("%v: %v, want %v", st, got, want)
		}
	}
}

// TestRemovedOnce: a master that the others have removed ends, however often they say it.
func TestRemovedOnce(t *testing.T) {
	t.Parallel()
	r := newReached(t, nil)
	select {
	case <-r.WhenRemoved():
		t.Fatal("removed before anybody says so")
	default:
	}
	r.Removed()
	r.Removed()
	<-r.WhenRemoved()
}

// TestStartsOfMinions: what peers tell of new processes of minions is passed on once, and is told
// to who asks.
func TestStartsOfMinions(t *testing.T) {
	t.Parallel()
	r := newReached(t, nil)
	starts := []cluster.Start{{ID: "web1", Process: 7}, {ID: "web2", Process: 8, Age: time.Second}}
	if fresh := r.LearnStarts("m2", starts); len(fresh) != 2 {
		t.Errorf("new: %+v", fresh)
	}
	if fresh := r.LearnStarts("m3", starts); len(fresh) != 0 {
		t.Errorf("new, though it was told before: %+v", fresh)
	}
	if known := r.KnownStarts(1); len(known) != 1 {
		t.Errorf("known, at most one: %+v", known)
	}
}

// TestMasterAlone: a master without a cluster answers every question as Salt does, and reaches
// nobody.
func TestMasterAlone(t *testing.T) {
	t.Parallel()
	c, err := conf.Load(writeOptions(t, ""))
	check.Must(t, err)
	m, err := Join(t.Context(), JoinConfig{Options: c, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	check.Must(t, err)

	if !m.Alone() || !m.Serving() || m.KeyDir() != c.PKIDir || m.Incoming() != "" ||
		m.ScheduleRecord() != "" || m.ProxyMember() != nil {
		t.Errorf("%+v", m)
	}

	if term, own := m.Own(); term != 1 || !own {
		t.Errorf("it owns what one of a cluster does: %v, %d", own, term)
	}

	if beat := m.Heartbeat(time.Minute); beat.Interval != 0 || beat.TTL != 0 {
		t.Errorf("minions are watched: %+v", beat)
	}

	check.Must(t, m.Admit(t.Context(), "web1", auth.Process(1)))
	check.Must(t, m.Serve(Config{}))
	m.ShareNonce(request.NonceKey{})
	m.Forget("web1")
	wait, done := m.Spread(jid)
	wait(t.Context())
	done()
	m.Close()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check.Must(t, m.Run(ctx, event.NewBus(time.Now, 1<<20)))
}

// TestIsolatedFileSystem: an option by which masters share nothing is refused, and the error says
// what to do.
func TestIsolatedFileSystem(t *testing.T) {
	t.Parallel()
	c, err := conf.Load(writeOptions(t,
		"cluster_id: test\ncluster_secret: a secret of the test\ncluster_isolated_filesystem: true\n"))
	check.Must(t, err)
	_, err = Join(t.Context(), JoinConfig{Options: c, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "remove the option") {
		t.Errorf("error: %v", err)
	}
}

// TestArgumentsOfRunners: who calls a runner of the cluster in a wrong way is told how it goes.
func TestArgumentsOfRunners(t *testing.T) {
	t.Parallel()
	table := runner.New()
	AddRunners(table, &Membership{}, time.Now)
	for name, missing := range map[string]string{"cluster.remove": "'id'", "cluster.secret_commit": "'finger'"} {
		for _, args := range [][]any{nil, {""}, {int64(1)}, {"a", "b"}} {
			_, err := table.Call(t.Context(), nil, name, args, value.NewMap())
			if wrong, ok := errors.AsType[*runner.ArgumentError](err); !ok || !strings.Contains(wrong.Reason, missing) {
				t.Errorf("%s%v: %v", name, args, err)
			}
		}
	}
}

// TestListOfMembers: cluster.members says of each peer whether it is heard, and what waits for it.
func TestListOfMembers(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 1, 15, 0, 0, time.UTC)
	var status cluster.Status
	status.ID = "192.0.2.1"
	status.Owner = "192.0.2.2"
	peer := cluster.PeerStatus{
		ID:        "192.0.2.2",
		Connected: true,
		Alive:     true,
		Own:       true,
		Heard:     now.Add(-3 * time.Second),
	}

	away := cluster.PeerStatus{ID: "192.0.2.3", Error: "connection refused"}
	status.Peers = []cluster.PeerStatus{peer, away}

	out := clusterMembers(status, now)
	peers := out.Map("peers")
	heard, _ := peers.Map("192.0.2.2").Get("heard_seconds")
	if out.Str("owner") != "192.0.2.2" || heard != 3.0 || peers.Map("192.0.2.2").Value("salt") != false {
		t.Errorf("members: %s", value.Repr(out))
	}

	if _, ever := peers.Map("192.0.2.3").Get("heard_seconds"); ever ||
		peers.Map("192.0.2.3").Str("error") != "connection refused" {
		t.Errorf("one that was never heard: %s", value.Repr(peers))
	}

	if _, ok := out.Get("salt_consensus"); ok {
		t.Error("there are no masters of Salt")
	}
}

// writeOptions writes a configuration file.
func writeOptions(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "master")
	text = fmt.Sprintf("id: 127.0.0.1\ninterface: 127.0.0.1\ncachedir: %s\npki_dir: %s\n", dir,
		filepath.Join(dir, "pki")) + text
	check.Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// The time at which a peer took a return counts, unless a clock is wrong.
func TestStampOfAReturn(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)
	for _, tt := range []struct {
		name  string
		stamp any
		want  time.Time
	}{
		{"of a moment ago", event.Stamp(now.Add(-time.Second)), now.Add(-time.Second)},
		{"whole second", event.Stamp(now.Truncate(time.Second)), now.Truncate(time.Second)},
		{"clock of the peer is behind by years", event.Stamp(now.AddDate(-9, 0, 0)), time.Time{}},
		{"clock of the peer is ahead", event.Stamp(now.Add(2 * time.Hour)), time.Time{}},
		{"stamp of an older Salt", "2026-03-01T12:00:00.123456", time.Time{}},
		{"no text", int64(7), time.Time{}},
		{"none", nil, time.Time{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := stampOf(value.NewMap("_stamp", tt.stamp), now); !got.Equal(tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}
