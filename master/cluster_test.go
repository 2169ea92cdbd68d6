package master_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/internal/rpc"
	"saltern/master/event"
	"saltern/master/internal/mastertest"
	"saltern/master/keys"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	ms := mastertest.StartCluster(t, 3)
	mastertest.AwaitLinks(t, ms)
	a, b, c := ms[0], ms[1], ms[2]

	// A minion whose key was accepted on another master signs in at one master, and uses the same
	// session key with all masters.
	n := b.NewMinion("min1", "min6")
	if s := n.SignIn(); s.Str("enc") == "pub" {
		t.Fatal("an unknown minion was let in")
	}

	await.That(t, "the pending key on a", func() bool { e, _ := a.Parts.Keys.Lookup("min1"); return e.State == keys.Pending })
	began := time.Now()
	check.Must(t, a.Parts.Ring.Store.Move("min1", keys.Accepted))
	a.Parts.Fire("salt/key", value.NewMap("result", true, "act", "accepted", "id", "min1"))

	for _, r := range ms {
		await.That(t, "the accepted key", func() bool { e, _ := r.Parts.Keys.Lookup("min1"); return e.State == keys.Accepted })
	}

	if d := time.Since(began); d > 2*time.Second {
		t.Errorf("a key took %v", d)
	}

	// The minion's first sign-in contains no token. Whichever master gets the next request makes
	// the minion sign in again.
	load := n.SignInLoad()
	if s := n.ReadSignIn(load, b.AskValue(value.NewMap("enc", "clear", "load", load, "version", 3))); s.Str("enc") != "pub" {
		t.Fatal("the minion was not let in")
	}
	n.TalkTo(c).WantRefused("the first request", n.Payload(n.Load("_minion_event")))
	if s := n.TalkTo(b).SignIn(); s.Str("enc") != "pub" {
		t.Fatal("the minion was not let in with its token")
	}

	other := c.AcceptedMinion("min2", "min7")
	await.That(t, "min2 everywhere", func() bool {
		return len(a.Parts.Keys.Accepted()) == 2 && len(b.Parts.Keys.Accepted()) == 2 && len(c.Parts.Keys.Accepted()) == 2
	})
	subB, subC := b.Subscribe(), c.Subscribe()

	// A job published on a reaches the minions of b and c, with one id.
	cli := a.Parts.Bus.Subscribe("cli", 1000, event.Prefix("salt/job/"))
	defer cli.Close()
	job := a.Publish("*", "test.ping")
	jid := job.Str("jid")

	if len(job.List("minions")) != 2 {
		t.Fatalf("job for %v", job.List("minions"))
	}

	for _, x := range []struct {
		s *mastertest.Subscriber
		n *mastertest.Minion
	}{{subB, n}, {subC, other}} {
		var got *value.Map
		await.That(t, "the job", func() bool {
			for _, p := range x.s.Published() {
				got = x.n.OpenPublication(p)
			}
			return got != nil
		})

		if got.Str("jid") != jid || got.Str("fun") != "test.ping" {
			t.Errorf("job %v", got)
		}

		if _, has := got.Get("serial"); has {
			t.Error("a publish of a cluster has a serial")
		}
	}

	// The minion sends its returns to b and c; the CLI waits on a.
	n.Ask("_return", "jid", jid, "fun", "test.ping", "fun_args", []any{}, "return", true, "retcode", 0, "success", true)
	other.Ask("_return", "jid", jid, "fun", "test.ping", "fun_args", []any{}, "return", "from two",
		"retcode", 0, "success", true)
	want := map[string]bool{event.Tag("job", jid, "ret", "min1"): true, event.Tag("job", jid, "ret", "min2"): true}
	for len(want) > 0 {
		select {
		case e := <-cli.C:
			if strings.Contains(e.Tag, "/ret/") {
				if !want[e.Tag] {
					t.Errorf("%s came twice", e.Tag)
				}
				delete(want, e.Tag)
			}
		case <-await.Context(t).Done():
			t.Fatalf("without %v", want)
		}
	}

	// An acknowledged return is in the cache of its master and of another.
	for _, id := range []string{"min1", "min2"} {
		await.That(t, "returns everywhere", func() bool {
			for _, r := range ms {
				rets, err := r.Parts.Jobs.Returns(await.Context(t), jid)
				check.Must(t, err)
				if rets.Map(id) == nil {
					return false
				}
			}

			return true
		})
	}

	load, err := c.Parts.Jobs.Load(await.Context(t), jid)
	if err != nil || load.Str("fun") != "test.ping" || len(load.List("Minions"))+len(load.Texts("Minions")) == 0 {
		t.Errorf("the job on c: %v, %v", load, err)
	}

	// All masters have the same reactor rules, and a user may change them at any master.
	for _, x := range []struct {
		at   *mastertest.Master
		fun  string
		args []any
		left int
	}{
		{a, "reactor.add", []any{"one/*", "/nowhere/one.sls"}, 1},
		{b, "reactor.add", []any{"two/*", []any{"/nowhere/two.sls"}}, 2},
		{c, "reactor.delete", []any{"one/*"}, 1},
	} {
		if ret, err := x.at.Parts.Runs.Call(await.Context(t), x.fun, x.args, nil); err != nil || !ret.(*value.Map).Bool("status") {
			t.Errorf("%s: %v, %v", x.fun, ret, err)
		}
		for _, r := range ms {
			await.That(t, "a change of the reactor", func() bool { return len(r.Parts.Reactions.All()) == x.left })
		}
	}

	// Rotation, asked for by a tool beside one master.
	key := a.Parts.Secrets.PublishKey().String()
	check.Must(t, b.Parts.Ring.Rotate())
	for _, r := range ms {
		await.That(t, "rotation", func() bool {
			k := r.Parts.Secrets.PublishKey().String()
			return k != key && k == a.Parts.Secrets.PublishKey().String()
		})
	}

	n.Ask("_mine", "data", value.NewMap("f", "x")) // its session is good still
	await.That(t, "one owner", func() bool {
		owners := 0
		for _, r := range ms {
			if _, owns := r.Parts.Cluster.Own(); owns {
				owners++
			}
		}
		return owners == 1
	})

	v, err := a.Parts.Runs.Call(await.Context(t), "cluster.members", nil, nil)
	if m, ok := v.(*value.Map); err != nil || !ok || m.Map("peers").Len() != 2 || m.Str("state") != "active" {
		t.Errorf("cluster.members: %v, %v", v, err)
	}

	supervisor := control.NewClient(filepath.Join(a.Parts.Options.SockDir, control.Socket), os.Geteuid())
	if err := supervisor.RemoveMember(await.Context(t), control.Removal{ID: "127.255.255.254"}); !errors.Is(err,
		control.ErrNoSuchMember) {
		t.Errorf("remove a master that is not there: %v", err)
	}

	if err := errors.Join(supervisor.StageSecret(await.Context(t)), supervisor.StageSecret(await.Context(t))); err != nil {
		t.Errorf("the next secret: %v", err)
	}

	if err := supervisor.CommitSecret(await.Context(t), "k0"); !errors.Is(err, &rpc.Error{Code: rpc.CodeNotStaged}) {
		t.Errorf("another secret than the next: %v", err)
	}

	await.That(t, "the status file", func() bool {
		b, err := os.ReadFile(a.Path("cache", "status.json"))
		return err == nil && strings.Contains(string(b), `"cluster":{"ID":"`+a.Host)
	})

	// Without the others a return is kept by one.
	b.Stop()
	c.Stop()
	other.TalkTo(a)
	other.SignIn()
	other.Ask("_return", "jid", "req", "fun", "test.ping", "fun_args", []any{}, "return", "alone", "retcode",
		0, "success", true)
	found := false
	for v := range allReturns(t, a) {
		found = found || v == "alone"
	}

	if !found {
		t.Error("a return to the last master is missing")
	}
}
