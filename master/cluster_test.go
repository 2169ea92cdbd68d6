package master

import (
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/master/crypt"
	"saltern/master/event"
	"saltern/master/keys"
	"saltern/master/value"
	"saltern/test/address"
)

// masters starts masters that share a folder of keys; each of them but the
// first knows the one before it.
func masters(t *testing.T, n int, more ...string) []*running {
	t.Helper()
	shared := t.TempDir()
	// Minions of the tests know the key of the captures.
	must(t, crypt.SavePrivate(filepath.Join(shared, "cluster.pem"), pair(t, "masterA"), ""))
	must(t, crypt.SavePublic(filepath.Join(shared, "cluster.pub"), &pair(t, "masterA").PublicKey))
	must(t, os.Mkdir(filepath.Join(shared, "peers"), 0o700))
	net := fmt.Sprintf("127.%d.%d.", 1+mathrand.IntN(250), mathrand.IntN(250))
	port := int(address.Free(t, net+"1").Port())
	var out []*running
	for i := range n {
		out = append(out, startMember(t, shared, fmt.Sprint(net, i+1), net, port, i, more...))
	}
	return out
}

func startMember(t *testing.T, shared, host, net string, port, i int, more ...string) *running {
	t.Helper()
	dir, err := os.MkdirTemp("", "saltern")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &running{t: t, dir: dir, log: &logLines{}, host: host}
	must(t, os.MkdirAll(r.path("pki"), 0o700))

	// Keys of the captures, since making them is slow.
	own, err := crypt.LoadPrivate(filepath.Join("testdata/cluster/keys",
		[]string{"10.27.12.13", "10.27.7.126", "10.27.3.73"}[i]+".pem"),
		"")
	must(t, err)
	must(t, crypt.SavePrivate(r.path("pki", host+".pem"), own, ""))
	must(t, crypt.SavePublic(r.path("pki", host+".pub"), &own.PublicKey))
	options := fmt.Sprintf("id: %s\ncluster_id: test\ncluster_pki_dir: %s\ncluster_pool_port: %d\ncluster_secret: a secret of the test\n",
		host, shared, port)
	if i > 0 {
		options += fmt.Sprintf("cluster_peers: [%s%d]\n", net, i)
	}

	must(t, r.start(options+strings.Join(more, "")))
	t.Cleanup(r.stop)
	return r
}

// joined waits until all masters see all others.
func joined(t *testing.T, ms []*running) {
	t.Helper()
	until(t, "links between the masters", func() bool {
		for _, r := range ms {
			s := r.m.cluster.Pool.Status()
			if len(s.Peers) != len(ms)-1 {
				return false
			}

			for _, p := range s.Peers {
				if !p.Alive || !p.Connected {
					return false
				}
			}
		}

		return true
	})
}

func TestCluster(t *testing.T) {
	t.Parallel()
	ms := masters(t, 3)
	joined(t, ms)
	a, b, c := ms[0], ms[1], ms[2]

	// A minion signs in at one master, with the key that was accepted on
	// another, and talks to all of them with the same session key.
	n := b.newMinion("min1", "min6")
	if s := n.signIn(); s.Str("enc") == "pub" {
		t.Fatal("an unknown minion was let in")
	}

	until(t, "the pending key on a", func() bool { e, _ := a.m.keys.Lookup("min1"); return e.State == keys.Pending })
	began := time.Now()
	must(t, a.m.ring.Store.Move("min1", keys.Accepted))
	a.m.fire("salt/key", value.NewMap("result", true, "act", "accepted", "id", "min1"))

	for _, r := range ms {
		until(t, "the accepted key", func() bool { e, _ := r.m.keys.Lookup("min1"); return e.State == keys.Accepted })
	}

	if d := time.Since(began); d > 2*time.Second {
		t.Errorf("a key took %v", d)
	}

	if s := n.signIn(); s.Str("enc") != "pub" {
		t.Fatal("the minion was not let in")
	}

	other := c.accepted("min2", "min7")
	until(t, "min2 everywhere", func() bool {
		return len(a.m.keys.Accepted()) == 2 && len(b.m.keys.Accepted()) == 2 && len(c.m.keys.Accepted()) == 2
	})
	subB, subC := b.subscribe(), c.subscribe()

	// A job published on a reaches the minions of b and c, with one id.
	cli := a.m.bus.Subscribe("cli", 1000, event.Prefix("salt/job/"))
	defer cli.Close()
	job := a.job("*", "test.ping")
	jid := job.Str("jid")

	if len(job.List("minions")) != 2 {
		t.Fatalf("job for %v", job.List("minions"))
	}

	for _, x := range []struct {
		s *subscriber
		n *scriptedMinion
	}{{subB, n}, {subC, other}} {
		var got *value.Map
		until(t, "the job", func() bool {
			for _, p := range x.s.published() {
				got = x.n.openPublish(p)
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

	// The returns go to b and c; the CLI waits on a.
	n.ask("_return", "jid", jid, "fun", "test.ping", "fun_args", []any{}, "return", true, "retcode", 0, "success", true)
	other.ask("_return", "jid", jid, "fun", "test.ping", "fun_args", []any{}, "return", "from two",
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
		case <-within(t).Done():
			t.Fatalf("without %v", want)
		}
	}

	// An acknowledged return is in the cache of its master and of another.
	for _, id := range []string{"min1", "min2"} {
		until(t, "returns everywhere", func() bool {
			for _, r := range ms {
				rets, err := r.m.jobs.Returns(within(t), jid)
				must(t, err)
				if rets.Map(id) == nil {
					return false
				}
			}

			return true
		})
	}

	load, err := c.m.jobs.Load(within(t), jid)
	if err != nil || load.Str("fun") != "test.ping" || len(load.List("Minions"))+len(load.Texts("Minions")) == 0 {
		t.Errorf("the job on c: %v, %v", load, err)
	}

	// Rules of the reactor are those of all masters; who changes one may ask any of them.
	for _, x := range []struct {
		at   *running
		fun  string
		args []any
		left int
	}{
		{a, "reactor.add", []any{"one/*", "/nowhere/one.sls"}, 1},
		{b, "reactor.add", []any{"two/*", []any{"/nowhere/two.sls"}}, 2},
		{c, "reactor.delete", []any{"one/*"}, 1},
	} {
		if ret, err := x.at.m.runs.Call(within(t), x.fun, x.args, nil); err != nil || !ret.(*value.Map).Bool("status") {
			t.Errorf("%s: %v, %v", x.fun, ret, err)
		}
		for _, r := range ms {
			until(t, "a change of the reactor", func() bool { return len(r.m.reactions.All()) == x.left })
		}
	}

	// Rotation, asked for by a tool beside one master.
	key := a.m.secrets.PublishKey().String()
	must(t, b.m.ring.Rotate())
	for _, r := range ms {
		until(t, "rotation", func() bool {
			k := r.m.secrets.PublishKey().String()
			return k != key && k == a.m.secrets.PublishKey().String()
		})
	}

	n.ask("_mine", "data", value.NewMap("f", "x")) // its session is good still
	until(t, "one owner", func() bool {
		owners := 0
		for _, r := range ms {
			if _, owns := r.m.cluster.Own(); owns {
				owners++
			}
		}
		return owners == 1
	})

	v, err := a.m.runs.Call(within(t), "cluster.members", nil, nil)
	if m, ok := v.(*value.Map); err != nil || !ok || m.Map("peers").Len() != 2 || m.Str("state") != "active" {
		t.Errorf("cluster.members: %v, %v", v, err)
	}

	supervisor := control.NewClient(filepath.Join(a.m.cfg.SockDir, control.Socket), os.Geteuid())
	if err := supervisor.RemoveMember(within(t), control.Removal{ID: "127.255.255.254"}); !errors.Is(err,
		control.ErrNoSuchMember) {
		t.Errorf("remove a master that is not there: %v", err)
	}

	if err := errors.Join(supervisor.StageSecret(within(t)), supervisor.StageSecret(within(t))); err != nil {
		t.Errorf("the next secret: %v", err)
	}

	if err := supervisor.CommitSecret(within(t), "k0"); !errors.Is(err, &control.Error{Code: control.CodeNotStaged}) {
		t.Errorf("another secret than the next: %v", err)
	}

	until(t, "the status file", func() bool {
		b, err := os.ReadFile(a.path("cache", "status.json"))
		return err == nil && strings.Contains(string(b), `"cluster":{"ID":"`+a.host)
	})

	// Without the others a return is kept by one.
	b.stop()
	c.stop()
	other.at(a)
	other.signIn()
	other.ask("_return", "jid", "req", "fun", "test.ping", "fun_args", []any{}, "return", "alone", "retcode",
		0, "success", true)
	found := false
	for v := range allReturns(t, a) {
		found = found || v == "alone"
	}

	if !found {
		t.Error("a return to the last master is missing")
	}
}
