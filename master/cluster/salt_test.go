package cluster

import (
	"bufio"
	"crypto/rsa"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/internal/durable"
	"saltern/master/cluster/wire"
	"saltern/master/crypt"
	"saltern/master/event"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// saltMaster is the network part of a Salt 3008.3 master: plain frames, one direction per
// connection.
type saltMaster struct {
	t       testing.TB
	id      string
	port    int
	key     *rsa.PrivateKey
	session crypt.Key
	ln      net.Listener
	got     chan wire.Frame
	out     net.Conn
}

func newSalt(t testing.TB, id string, port, key int) *saltMaster {
	t.Helper()
	s := &saltMaster{t: t, id: id, port: port, key: testKeys()[key], got: make(chan wire.Frame, 1000)}
	var err error
	s.session, err = crypt.NewKey(nil)
	check.Must(t, err)
	s.ln, err = net.Listen("tcp", net.JoinHostPort(id, fmt.Sprint(port)))
	check.Must(t, err)
	t.Cleanup(func() { _ = s.ln.Close() })
	go func() {
		for {
			c, err := s.ln.Accept()
			if err != nil {
				return
			}

			go func() {
				defer c.Close()
				r := wire.NewReader(bufio.NewReader(c), 512<<20) // Salt has no bound
				_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
				for {
					f, err := r.Next()
					if err != nil {
						return
					}
					f.Data = append([]byte(nil), f.Data...)
					s.got <- f
				}
			}()
		}
	}()

	return s
}

func (s *saltMaster) dial(to string) {
	s.t.Helper()
	a, err := net.ResolveTCPAddr("tcp", s.id+":0")
	check.Must(s.t, err)
	d := net.Dialer{LocalAddr: a}
	s.out, err = d.Dial("tcp", net.JoinHostPort(to, fmt.Sprint(s.port)))
	check.Must(s.t, err)
	s.t.Cleanup(func() { _ = s.out.Close() })
}

func (s *saltMaster) send(tag string, data any) {
	s.t.Helper()
	_, err := s.out.Write(frame(s.t, tag, data))
	check.Must(s.t, err)
}

// announce sends its session key, signed with key.
func (s *saltMaster) announce(to *Pool, key *rsa.PrivateKey) {
	s.t.Helper()
	sig, err := wire.AnnounceSig(key, s.session)
	check.Must(s.t, err)
	e, err := to.cfg.Suite.NewAnnounceEntry(wire.Peer{ID: to.cfg.ID, Pub: to.cfg.Pub}, s.session, sig)
	check.Must(s.t, err)
	s.send(wire.AnnounceTag(s.id), wire.Announce{PeerID: s.id, Entries: []wire.AnnounceEntry{e}}.Pack())
}

// next waits for a message of a kind.
func (s *saltMaster) next(want wire.Kind) wire.Frame {
	s.t.Helper()
	for end := time.After(20 * time.Second); ; {
		select {
		case f := <-s.got:
			if k, _, _ := wire.Classify(f.Tag); k == want {
				return f
			}
		case <-end:
			s.t.Fatalf("no message of kind %d", want)
		}
	}
}

// A Salt master joins through a Saltern master and gets the session key, and events go in both
// directions.
func TestSaltJoins(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ids, port := hosts(t, 3)
	permit := func(c *Config) { c.PlainPeers, c.StateDir = true, t.TempDir() }
	a, err := start(t, await.Context(t), ids[0], port, 0, dir, permit)
	check.Must(t, err)
	s := newSalt(t, ids[1], port, 1)
	s.dial(a.cfg.ID)
	suite := a.cfg.Suite

	// Salt's PEM ends with a newline, and Salt sends several requests at once.
	d := wire.Discover{
		PeerID: s.id,
		Pub:    pubOf(t, 1) + "\n",
		Token:  newToken(),
		Stamp:  "2026-11-21T07:35:37.731542+00:00",
	}

	sealed, err := d.Seal(suite, s.key)
	check.Must(t, err)
	for range 3 {
		s.send(wire.TagDiscover, sealed)
	}

	r, err := suite.OpenDiscoverReply(s.next(wire.KindDiscoverReply).Data)
	check.Must(t, err)
	if r.ReturnToken != d.Token || crypt.NormalizePEM(r.ClusterPub) != a.Identity().Public || r.PeerID != a.cfg.ID {
		t.Fatalf("%+v", r)
	}

	join := wire.Join{
		ReturnToken: r.Token,
		Token:       newToken(),
		PeerID:      s.id,
		Secret:      a.cfg.Secret,
		SessionKey:  s.session,
		Pub:         d.Pub,
	}

	for _, bad := range []func(*wire.Join){func(j *wire.Join) { j.Secret = "wrong" },
		func(j *wire.Join) { j.ReturnToken = newToken() }} {
		j := join
		bad(&j)
		m, err := j.Seal(suite, s.key, r.Pub)
		check.Must(t, err)
		s.send(wire.TagJoin, m)
	}

	m, err := join.Seal(suite, s.key, r.Pub)
	check.Must(t, err)
	s.send(wire.TagJoin, m)
	reply, err := suite.OpenJoinReply(s.next(wire.KindJoinReply).Data, s.key, r.Pub, join.Token)
	check.Must(t, err)
	pem, err := crypt.ParsePrivate(reply.ClusterPEM, "")
	if err != nil || !pem.Equal(a.Identity().Key) || reply.ClusterKey.String() != a.ClusterKey().String() {
		t.Error("it was not given the cluster's keys", err)
	}

	if _, err := os.Stat(filepath.Join(dir, "peers", s.id+".pub")); err != nil {
		t.Error(err)
	}

	// The Saltern master sends its session key once.
	f := s.next(wire.KindAnnounce)
	ann, err := wire.ParseAnnounce(a.cfg.ID, f.Data)
	check.Must(t, err)
	theirs, ok, err := suite.Open(ann, s.id, s.key, r.Pub)
	if err != nil || !ok {
		t.Fatal("our session key is not proven", err)
	}

	// Both masters send events.
	fire := func(tag string, data *value.Map) {
		sealed, err := wire.SealEvent(data, s.session)
		check.Must(t, err)
		s.send(wire.EventTag(s.id, tag), sealed)
	}

	fire("salt/job/20261121073619941881/publish",
		value.NewMap("jid", "20261121073619941881", "fun", "test.ping", "tgt", "*"))
	fire("salt/key", value.NewMap("act", "accept", "id", "m7", "result", true))
	fire("salt/job/20261121073619941881/ret/m7",
		value.NewMap("jid", "20261121073619941881", "id", "m7", "return", true))
	await.That(t, "events of the Salt master", func() bool {
		return a.has(&a.jobs, "20261121073619941881") && a.has(&a.changed, "m7") && a.count(&a.returns) == 1
	})
	bus := event.NewBus(time.Now, 0)
	sub := bus.Subscribe("t", 10, nil)
	check.Must(t, bus.Fire("my/tag", value.NewMap("x", 1)))
	a.Forward(<-sub.C)
	f = s.next(wire.KindEvent)
	got, err := wire.OpenEvent(f.Data, theirs)
	if n, _ := got.Int("x"); err != nil || n != 1 || f.Tag != "cluster/event/"+a.cfg.ID+"/my/tag" {
		t.Errorf("%s: %v, %v", f.Tag, got, err)
	}

	// Two forged events: one encrypted with another key, and one under another name.
	other, err := crypt.NewKey(nil)
	check.Must(t, err)
	for _, k := range []crypt.Key{other, a.ClusterKey()} {
		blob, err := wire.SealEvent(value.NewMap("jid", "forged"), k)
		check.Must(t, err)
		s.send(wire.EventTag(s.id, "salt/job/20261121073619941882/publish"), blob)
		s.send(wire.EventTag(a.cfg.ID, "salt/job/20261121073619941882/publish"), blob)
	}

	// A Salt master rotates the key by writing the file.
	fire("still/there", value.NewMap())
	await.That(t, "the last event", func() bool { return a.has(&a.events, s.id+" still/there") })
	if a.has(&a.jobs, "forged") {
		t.Error("a forged job was published")
	}

	k, err := crypt.NewKey(nil)
	check.Must(t, err)
	check.Must(t, durable.Replace(filepath.Join(dir, ".aes"), []byte(k.String()), 0o600))
	fire(wire.RotateTag, wire.RotateEvent())
	await.That(t, "the rotated key", func() bool { return a.ClusterKey().String() == k.String() })

	// When a Saltern master rotates the key, Salt's masters are told after the file was written.
	check.Must(t, a.Rotate(await.Context(t)))
	for told := false; !told; {
		f := s.next(wire.KindEvent)
		told = strings.HasSuffix(f.Tag, "/"+wire.RotateTag) && a.ClusterKey().String() != k.String()
	}

	aes, err := os.ReadFile(filepath.Join(dir, ".aes"))
	if err != nil || string(aes) != a.ClusterKey().String() {
		t.Error("the file is not the key that was told of", err)
	}

	// A second Saltern master joins through the first one and knows the Salt master.
	b, err := start(t, await.Context(t), ids[2], port, 2, dir,
		func(c *Config) { c.PlainPeers, c.Peers, c.StateDir = true, ids[:1], t.TempDir() })
	check.Must(t, err)
	await.That(t, "the Salt master at b", func() bool {
		for _, p := range b.Status().Peers {
			if p.ID == s.id && !p.Own && p.Connected {
				return true
			}
		}
		return false
	})

	n := s.next(wire.KindJoinNotify)
	notify, err := wire.OpenJoinNotify(n.Data, a.ClusterKey())
	if err != nil || notify.JoinPeerID != b.cfg.ID {
		t.Error("the Salt master was not told of b", err)
	}
}

// A Salt master with the lowest address never asks to join. If it is listed in cluster_peers and
// its key is on the folder, it belongs to the cluster once it has authenticated with that key;
// other Salt masters do not.
func TestSaltThatDoesNotAsk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ids, port := hosts(t, 3)
	a, err := start(t, await.Context(t), ids[0], port, 0, dir, func(c *Config) {
		c.PlainPeers, c.StateDir, c.Peers = true, t.TempDir(), ids[1:2]
	})
	check.Must(t, err)
	announce := func(s *saltMaster, key *rsa.PrivateKey) { s.announce(a.Pool, key) }
	known := func(id string) bool { _, ok := a.view.Load().rec.Member(id); return ok }
	stranger, s := newSalt(t, ids[2], port, 2), newSalt(t, ids[1], port, 1)
	for _, x := range []*saltMaster{stranger, s} {
		check.Must(t,
			os.WriteFile(filepath.Join(dir, "peers", x.id+".pub"),
				[]byte(pubOf(t, map[string]int{ids[1]: 1, ids[2]: 2}[x.id])), 0o400))
		x.dial(a.cfg.ID)
	}

	announce(stranger, stranger.key)
	announce(s, stranger.key) // forged
	await.That(t, "two refusals", func() bool { return a.Status().Bad >= 2 })
	if known(stranger.id) || known(s.id) {
		t.Fatal("a master was let in that is not listed or has not proven its key")
	}

	announce(s, s.key)
	await.That(t, "the listed master", func() bool { return known(s.id) })
	s.next(wire.KindAnnounce) // our session key

	// The Salt master is a follower: it gets the request for a vote and the first configuration.
	await.That(t, "the question for a vote", func() bool {
		f := s.next(wire.KindRaft)
		return strings.HasSuffix(f.Tag, "/pre-request-vote")
	})
}

// If a Salt master replaces a Saltern master and uses its key, the peers use Salt's protocol with
// it. While the Saltern master is connected, no peer uses Salt's protocol.
func TestSaltTakesOurPlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ids, port := hosts(t, 2)
	permit := func(c *Config) { c.PlainPeers, c.StateDir, c.Peers = true, t.TempDir(), ids }
	a, err := start(t, await.Context(t), ids[0], port, 0, dir, permit)
	check.Must(t, err)
	b, err := start(t, await.Context(t), ids[1], port, 1, dir, permit)
	check.Must(t, err)
	own := func() bool { m, ok := a.view.Load().rec.Member(ids[1]); return ok && m.Own }
	linked := func() bool { s := a.Status().Peers; return len(s) == 1 && s[0].Connected }
	await.That(t, "b", func() bool { return own() && linked() })
	s := &saltMaster{t: t, id: ids[1], port: port, key: testKeys()[1]}
	s.session, err = crypt.NewKey(nil)
	check.Must(t, err)
	s.dial(ids[0])
	bad := a.Status().Bad
	s.announce(a.Pool, s.key)         // while ours is there
	s.announce(a.Pool, testKeys()[0]) // forged; by then the first was dealt with
	await.That(t, "a refusal", func() bool { return a.Status().Bad > bad })
	b.Close()
	await.That(t, "the end of b", func() bool { return !linked() })

	if !own() {
		t.Fatal("a master of ours was taken for Salt's while it was there")
	}

	s = newSalt(t, ids[1], port, 1)
	s.dial(ids[0])
	s.announce(a.Pool, s.key)
	await.That(t, "the Salt master", func() bool { return !own() })
	s.next(wire.KindAnnounce)
}
