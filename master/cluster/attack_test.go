package cluster

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"saltern/master/cluster/node"
	"saltern/master/cluster/wire"
	"saltern/master/crypt"
	"saltern/master/event"
	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// stranger dials a master with a key of its own. If key < 0, it connects without TLS.
func stranger(t testing.TB, m *member, name string, key int) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", m.listener.Addr().String(), 5*time.Second)
	check.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	if key < 0 {
		return c
	}
	cert, err := certificate(name, testKeys()[key])
	check.Must(t, err)
	s := tls.Client(c, tlsConfig(cert))
	check.Must(t, s.HandshakeContext(await.Context(t)))
	return s
}

func frame(t testing.TB, tag string, data any) []byte {
	t.Helper()
	b, err := wire.AppendFrame(nil, tag, data)
	check.Must(t, err)
	return b
}

func own(t testing.TB, msg any) []byte {
	t.Helper()
	tag, data, err := packOwn(msg)
	check.Must(t, err)
	return frame(t, tag, data)
}

// closed waits until the other end closes the connection.
func closed(t testing.TB, what string, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.Copy(io.Discard, c); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Errorf("%s: the connection is still open", what)
	}
}

// TestAttack34Pool sends everything that a stranger can send to the pool port. The cluster
// continues to work meanwhile.
func TestAttack34Pool(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ids, port := hosts(t, 2)
	a, err := start(t, await.Context(t), ids[0], port, 0, dir, nil)
	check.Must(t, err)
	b, err := start(t, await.Context(t), ids[1], port, 1, dir, func(c *Config) { c.Peers = ids[:1] })
	check.Must(t, err)
	await.That(t, "link", func() bool { s := b.Status(); return len(s.Peers) == 1 && s.Peers[0].Alive })
	version := a.Status().Version

	// Without TLS the master reads nothing, whatever the bytes are.
	for name, raw := range map[string][]byte{
		"raft": frame(t, "cluster/raft/request-vote",
			value.NewMap("src", ids[1], "rpc_id", "x", "raft_group_id", "cluster", "payload", value.NewMap())),
		"event":    frame(t, wire.EventTag(ids[1], "salt/job/20261121073619941881/publish"), []byte("x")),
		"discover": frame(t, wire.TagDiscover, value.NewMap()),
		"huge":     {0x7f, 0xff, 0xff, 0xff, 1, 2, 3},
		"zeros":    make([]byte, 100),
		"http":     []byte("GET / HTTP/1.1\r\n\r\n"),
	} {
		c := stranger(t, a, "", -1)
		_, _ = c.Write(raw)
		closed(t, name, c)
	}

	// A stranger's key under a member's name: the master accepts only the messages of a stranger.
	item, err := packItem("inc", Jobs,
		&item{seq: 1, tag: "salt/job/20261121073619941881/publish", packed: []byte{0x80}})
	check.Must(t, err)
	numbered, err := wire.AppendPacked(nil, wire.OwnPrefix+ownItem, item)
	check.Must(t, err)
	rec := a.view.Load().rec
	rec.Version += 1000

	for name, raw := range map[string][]byte{
		"item":  numbered,
		"state": own(t, node.State{Record: rec}),
		"gone":  own(t, node.Gone{}),
		"want":  own(t, node.Want{}),
		"beat":  own(t, node.Beat{Version: 1 << 40}),
		"event": frame(t, wire.EventTag(ids[1], "salt/key"), []byte("x")),
		"big":   binary.BigEndian.AppendUint32(nil, wire.MaxStranger+1),
		"junk":  append([]byte{0, 0, 0, 4}, "abcd"...),
	} {
		c := stranger(t, a, ids[1], 2)
		_, _ = c.Write(raw)

		// The master must send no answer, and above all not the record.
		_ = c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		if n, _ := c.Read(make([]byte, 1)); n > 0 {
			t.Errorf("%s was answered", name)
		}

		_ = c.Close()
	}

	if s := a.Status(); s.Version >= version+1000 || !a.Serving() || a.count(&a.jobs)+a.count(&a.events) != 0 {
		t.Errorf("a stranger was believed: %+v", s)
	}

	// Many connections, silent or slow: their number is bounded, and the peer stays connected.
	open := func() int { a.inbox.mu.Lock(); defer a.inbox.mu.Unlock(); return len(a.inbox.conns) }
	var silent []net.Conn
	for range maxPerAddress + 20 {
		c := stranger(t, a, "", -1)
		_, _ = c.Write([]byte{0x16})
		silent = append(silent, c)
	}

	await.That(t, "refusals", func() bool { return a.Status().Refused >= 20 })
	if n := open(); n > maxPerAddress+2 {
		t.Errorf("%d connections", n)
	}

	for _, c := range silent {
		_ = c.Close()
	}

	await.That(t, "the end of the silent", func() bool { return open() <= 2 })

	// A flood of discovers causes a bounded number of RSA operations.
	c := stranger(t, a, "127.0.0.1", 2)
	d := wire.Discover{PeerID: "127.0.0.1", Pub: pubOf(t, 2), Token: newToken(), Own: true}
	sealed, err := d.Seal(a.cfg.Suite, testKeys()[2])
	check.Must(t, err)
	raw := frame(t, wire.TagDiscover, sealed)
	_ = c.SetWriteDeadline(time.Now().Add(5 * time.Second))
	_, _ = c.Write(bytes.Repeat(raw, 200))
	await.That(t, "the rate", func() bool { return a.Status().Strangers > 0 })
	check.Must(t, b.Keep(await.Context(t), "salt/job/20261121073619941881/ret/m", value.NewMap("return", true)))
}

func pubOf(t testing.TB, key int) string {
	t.Helper()
	s, err := crypt.PublicPEM(&testKeys()[key].PublicKey)
	check.Must(t, err)
	return s
}

// TestAttack11RogueReply tests the worst fault of Salt's protocol: a discover-reply from anybody
// makes a Salt master send that sender the secret. A Saltern master accepts only a reply to its own
// request that is signed by the cluster's key.
func TestAttack11RogueReply(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ids, port := hosts(t, 3)
	a, err := start(t, await.Context(t), ids[0], port, 0, dir, nil)
	check.Must(t, err)

	// The attacker listens at the address that the joining master dials.
	ln, err := net.Listen("tcp", net.JoinHostPort(ids[2], "0"))
	check.Must(t, err)
	defer ln.Close()

	rogue := testKeys()[3]
	asked := make(chan wire.Discover, 100)
	var joins atomic.Bool
	go func() {
		cert, _ := certificate(ids[2], rogue)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}

			s := tls.Server(c, tlsConfig(cert))
			r := wire.NewReader(bufio.NewReader(s), wire.MaxStranger)
			go func() {
				for {
					f, err := r.Next()
					if err != nil {
						return
					}

					switch kind, _, _ := wire.Classify(f.Tag); kind {
					case wire.KindDiscover:
						if d, err := a.cfg.Suite.OpenDiscover(f.Data); err == nil {
							asked <- d
						}
					case wire.KindJoin:
						joins.Store(true)
					}
				}
			}()
		}
	}()

	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	result := make(chan error, 1)
	go func() {
		_, err := start(t, ctx, ids[1], port, 1, dir, func(c *Config) {
			c.Peers = []string{ln.Addr().String()}
			c.Secret = "wrong, so that the true peer does not let it in"
		})
		result <- err
	}()

	d := <-asked
	for _, returned := range []string{d.Token, newToken()} {
		reply := wire.DiscoverReply{
			ReturnToken: returned,
			Token:       newToken(),
			PeerID:      ids[2],
			Pub:         pubOf(t, 3),
			ClusterPub:  pubOf(t, 3),
			Own:         true,
		}

		sealed, err := reply.Seal(a.cfg.Suite, rogue)
		check.Must(t, err)
		cert, err := certificate(ids[2], rogue)
		check.Must(t, err)
		s, err := tls.Dial("tcp", net.JoinHostPort(ids[1], portOf(a)), tlsConfig(cert))
		check.Must(t, err)
		_, err = s.Write(frame(t, wire.TagDiscoverReply, sealed))
		check.Must(t, err)
		await.Holds(t, 200*time.Millisecond, "the secret is kept", func() bool { return !joins.Load() })
		_ = s.Close()
	}

	<-result
	if joins.Load() {
		t.Error("the secret was sent to the attacker")
	}
}

func portOf(m *member) string { _, p, _ := net.SplitHostPort(m.listener.Addr().String()); return p }

// TestAttack06PeerTags: no event on the bus reaches the cluster's logic, and no event of a peer has
// a tag of the cluster.
func TestAttack06PeerTags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ids, port := hosts(t, 2)
	a, err := start(t, await.Context(t), ids[0], port, 0, dir, nil)
	check.Must(t, err)
	b, err := start(t, await.Context(t), ids[1], port, 1, dir, func(c *Config) { c.Peers = ids[:1] })
	check.Must(t, err)
	await.That(t, "link", func() bool { s := b.Status(); return len(s.Peers) == 1 && s.Peers[0].Connected })
	bus := event.NewBus(time.Now, 0)
	sub := bus.Subscribe("t", 100, nil)
	tags := []string{"cluster/peer/" + ids[0], "cluster/peer/discover", "cluster/event/" + ids[0] + "/x",
		"cluster/raft/request-vote", "cluster/saltern/state", "cluster/runner/x", "last"}
	for _, tag := range tags {
		check.Must(t, bus.Relay(event.Event{Tag: tag, Data: value.NewMap(wire.PeerField, "forged"), Origin: event.Socket}))
	}

	for range tags {
		b.Forward(<-sub.C)
	}

	// Send the event without the filter, as a hostile member would do.
	b.spread(outgoing{
		event:  event.Event{Tag: "cluster/peer/join", Data: value.NewMap(), Origin: event.Peer},
		packed: []byte{0x80},
	})

	b.spread(outgoing{event: event.Event{Tag: "after", Data: value.NewMap(), Origin: event.Peer}, packed: []byte{0x80}})
	await.That(t, "events", func() bool { return a.has(&a.events, ids[1]+" after") })
	a.mu.Lock()
	defer a.mu.Unlock()

	if len(a.events) != 2 || a.data["last"].Str(wire.PeerField) != ids[1] {
		t.Errorf("%v, %v", a.events, a.data["last"])
	}
}

// TestAttack08Replay: a numbered message is handled once per incarnation of its sender, over
// whatever connection it comes.
func TestAttack08Replay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ids, port := hosts(t, 2)
	a, err := start(t, await.Context(t), ids[0], port, 0, dir, nil)
	check.Must(t, err)

	for i := range 5 {
		if a.inbox.handleBatch(await.Context(t), ids[1], Jobs,
			[]arrived{{inc: "1", duty: Jobs, seq: 1, tag: "my/tag", packed: []byte{0x80}}}) != 1 {
			t.Fatal("not acknowledged")
		}
		if n := a.count(&a.events); n != 1 {
			t.Fatalf("handled %d times after %d", n, i+1)
		}
	}

	if a.inbox.handleBatch(await.Context(t), ids[1], Jobs,
		[]arrived{{
			inc:    "2",
			duty:   Jobs,
			seq:    1,
			tag:    "my/tag",
			packed: []byte{0x80},
		}}) != 1 || a.count(&a.events) != 2 {
		t.Error("the next life of the peer was not heard")
	}
}

// FuzzOwn reads Saltern's own messages.
func FuzzOwn(f *testing.F) {
	for _, m := range []any{node.Beat{Inc: "x", Version: 3}, node.Want{},
		node.Refused{ReturnToken: "t", Reason: "r"}, node.Gone{}, node.State{}, takenMsg{{1}, {2}},
		startedMsg{starts: []Start{{ID: "m1", Process: 3}}, number: 2},
		subsMsg{Subs{netip.IPv6Loopback(): 2}}} {
		tag, data, err := packOwn(m)
		check.Must(f, err)
		b, err := msgpack.Marshal(data, msgpack.Modern)
		check.Must(f, err)
		f.Add(strings.TrimPrefix(tag, wire.OwnPrefix), b)
	}

	for kind, m := range map[string]*value.Map{
		ownCut: cutMsg{[]Cut{{
			From:  netip.IPv6Loopback(),
			Since: time.Now(),
			Until: time.Now().Add(time.Minute),
			Crowd: 3,
		}}}.packCuts(time.Now()),
		ownLate: value.NewMap("seq", 3, "age", 70000, "passed", 5),
	} {
		b, err := msgpack.Marshal(m, msgpack.Modern)
		check.Must(f, err)
		f.Add(kind, b)
	}

	b, err := packItem("inc", Returns, &item{seq: 7, tag: "a/b", packed: []byte{0x80}})
	check.Must(f, err)
	f.Add(ownItem, b)
	b, err = packAck(Events, 9)
	check.Must(f, err)
	f.Add(ownAck, b)
	f.Fuzz(func(t *testing.T, kind string, data []byte) {
		switch kind {
		case ownItem:
			if a, err := parseItem(data); err == nil && (a.duty >= duties || a.seq == 0) {
				t.Fatalf("%+v", a)
			}
		case ownAck:
			if d, _, err := parseAck(data); err == nil && d >= duties {
				t.Fatal(d)
			}
		case ownCut:
			now := time.Now()
			if cuts, err := parseCuts(data, now); err == nil && slices.ContainsFunc(cuts, func(c Cut) bool {
				return c.Since.Before(now.Add(-maxAge)) || c.Until.After(now.Add(maxAge)) || c.Crowd < 0 ||
					c.Crowd > maxSubs
			}) {
				t.Fatal(cuts)
			}
		case ownStarted:
			if l, _, err := parseStarts(data); err == nil && len(l) > startMessage {
				t.Fatal(len(l))
			}
		case ownLate:
			if _, late, err := parseLate(data); err == nil &&
				(late.Age < 0 || late.Age > 2*jobFor || late.Passed < 0 || late.Passed > maxJobsPassed) {
				t.Fatalf("%+v", late)
			}
		case ownTaken:
			if l, err := parseTaken(data); err == nil && len(l) > maxTaken {
				t.Fatal(len(l))
			}
		default:
			if m, err := parseOwn(kind, data); err == nil {
				if s, ok := m.(node.State); ok && s.Record.Check() != nil {
					t.Fatal("a bad record")
				}
			}
		}
	})
}
