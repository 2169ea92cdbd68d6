package presence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"saltern/master/cluster"
	"saltern/master/internal/publish"
	"saltern/master/value"
	"saltern/master/zmtp"
)

// nobody are peers that need not be told.
type nobody struct{}

func (nobody) Subscribed(cluster.Subs)                       {}
func (nobody) CutOff(cluster.Subs, time.Duration)            {}
func (nobody) CutBefore(string, cluster.Subs, time.Duration) {}
func (nobody) Back(cluster.Subs)                             {}

// cuts are peers that note what they are told of cuts.
type cuts struct {
	nobody
	subs cluster.Subs
	age  time.Duration
	met  string
}

func (c *cuts) CutBefore(peer string, s cluster.Subs, age time.Duration) {
	c.met, c.subs, c.age = peer, s, age
}

func (c *cuts) CutOff(s cluster.Subs, age time.Duration) { c.subs, c.age = s, age }

// TestWhoWasCut: what counts as cut is what a load balancer reset, or all
// connections of a load balancer that died; not what a minion ended.
func TestWhoWasCut(t *testing.T) {
	var told cuts
	k := NewResender(ResenderConfig{Peers: &told, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	lb, other := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	from := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}) }
	id := uint64(0)
	come := func(i int, via netip.Addr) zmtp.Peer {
		id++
		p := zmtp.Peer{ID: id, Remote: netip.AddrPortFrom(from(i), 1), Via: via}
		k.OnSubscribe(p, "")
		return p
	}
	due := func() int { return len(k.resent) }
	p := come(1, lb)
	k.OnDisconnect(p, nil)
	come(1, lb)
	if due() != 0 {
		t.Error("a minion that went by itself")
	}
	k.OnDisconnect(come(2, lb), syscall.ECONNRESET)
	come(2, other)
	if due() != 1 || k.cut[from(2)] != 1 {
		t.Errorf("cut by the load balancer: %d due, told %v", due(), k.cut)
	}
	k.OnDisconnect(come(3, netip.Addr{}), syscall.ECONNRESET) // its own kernel, without a load balancer
	come(3, lb)
	if due() != 1 {
		t.Error("a minion that was reset by its host")
	}
	// All connections by way of one load balancer end: it has died.
	p, q := come(4, other), come(5, other)
	for i := range uint64(5) { // the others that came by way of it
		k.OnDisconnect(zmtp.Peer{ID: i + 1}, nil)
	}
	k.OnDisconnect(p, nil)
	k.OnDisconnect(q, nil)
	k.balancers()
	come(4, lb)
	come(5, lb)
	if due() != 3 {
		t.Errorf("a load balancer that died: %d due", due())
	}
	// By way of a node that is lost.
	come(6, other)
	k.PeerHas("b", other, nil)
	k.PeerLost("b", time.Now().Add(-5*time.Second))
	come(6, lb)
	if due() != 4 {
		t.Errorf("a node that was lost: %d due", due())
	}
	if told.age < 5*time.Second+lossMargin || told.subs[from(6)] != 1 {
		t.Errorf("the peers were told %+v", told)
	}
	// The one minion that came by way of its load balancer ended with that, not by itself.
	third := netip.MustParseAddr("10.0.0.3")
	k.OnDisconnect(come(8, third), nil)
	k.PeerHas("c", third, nil)
	k.PeerLost("c", time.Now().Add(-time.Second))
	come(8, lb)
	if due() != 5 || told.subs[from(8)] != 1 {
		t.Errorf("the last one of a load balancer: %d due, told %+v", due(), told)
	}
	<-k.resent
	k.OnDisconnect(come(9, lb), fmt.Errorf("write: %w", syscall.EPIPE)) // in the middle of a publish
	come(9, lb)
	if due() != 5 || k.cut[from(9)] != 1 {
		t.Errorf("cut while it was written to: %d due, told %v", due(), k.cut)
	}
	<-k.resent
	// With zmq_filtering a connection has several topics, and counts once.
	k.PeerCut(cluster.Subs{from(7): 2}, time.Second)
	p = come(7, lb)
	k.OnSubscribe(p, "broadcast")
	k.OnSubscribe(p, "0123456789012345678901234567890123456789")
	if due() != 5 {
		t.Errorf("%d due", due())
	}
}

// TestMovedHere: a subscription that a load balancer has moved here is given what it missed
// once, whether it is counted or not and whichever is known first; only when it has been
// counted do the peers hear that it is back.
func TestMovedHere(t *testing.T) {
	from, peer := netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.0.0.2")
	now := time.Unix(1_700_000_000, 0)
	heard := now.Add(-4 * time.Second)
	for name, c := range map[string]struct {
		lost []bool // the peer is known to be lost, before and after
		back int
	}{"never counted": {[]bool{false, false}, 0}, "lost before": {[]bool{true, false}, 1}, "lost after": {[]bool{false, true}, 1}} {
		k := NewResender(ResenderConfig{Peers: &cuts{}, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)})
		k.PeerHas("b", peer, cluster.Subs{from: 1})
		for i, lost := range c.lost {
			if lost {
				k.PeerLost("b", now.Add(-time.Second))
			}
			if i == 0 {
				k.OnSubscribe(zmtp.Peer{ID: 1, Remote: netip.AddrPortFrom(from, 1), Via: netip.MustParseAddr("10.0.0.1"), Missing: heard}, "")
			}
		}
		if len(k.resent) != 1 || k.back[from] != c.back {
			t.Errorf("%s: %d due, %d are back", name, len(k.resent), k.back[from])
			continue
		}
		if a := <-k.resent; a.Since.After(heard.Add(-lossMargin)) {
			t.Errorf("%s: what was published %s after it was last heard", name, a.Since.Sub(heard))
		}
	}
}

// TestCutLate: a load balancer cuts the sessions to a virtual address a second after it has
// gone; what was published since is sent again, here and by the peers. When all minions of a
// load balancer end, it may be by a job that restarts them, and they must not get that again.
func TestCutLate(t *testing.T) {
	var told cuts
	now := time.Unix(1_700_000_000, 0)
	k := NewResender(ResenderConfig{Peers: &told, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)})
	lb, minion := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.1.0.1")
	id := uint64(0)
	come := func() zmtp.Peer {
		id++
		p := zmtp.Peer{ID: id, Remote: netip.AddrPortFrom(minion, 1), Via: lb}
		k.OnSubscribe(p, "")
		return p
	}
	back := func() Arrival {
		t.Helper()
		select {
		case a := <-k.resent:
			return a
		default:
			t.Fatal("nothing is sent again")
			return Arrival{}
		}
	}
	p := come()
	published := now
	now = now.Add(1700 * time.Millisecond)
	k.OnDisconnect(p, syscall.ECONNRESET)
	now = now.Add(7 * time.Second)
	come()
	if a := back(); a.Since.After(published) {
		t.Errorf("sent again is what was published %s after the address had gone", a.Since.Sub(published))
	}
	k.PeerCut(cluster.Subs{minion: 1}, toldWithin)
	if a, ok := k.match.Arrive(minion, 100, time.Time{}, now); !ok || a.Since.After(now.Add(-cutMargin)) {
		t.Errorf("by a peer: %+v %v", a, ok)
	}
	p, q := come(), come()
	published = now
	now = now.Add(time.Second)
	for i := range id {
		k.OnDisconnect(zmtp.Peer{ID: i}, nil)
	}
	k.OnDisconnect(p, nil)
	k.OnDisconnect(q, nil)
	k.balancers()
	come()
	if a := back(); !a.Since.After(published) {
		t.Error("what may have restarted the minions is sent to them again")
	}
}

// TestSentAgain: what is sent again is for those that have not returned, if ids say who
// that is.
func TestSentAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		typ      string
		returned []string
		err      error
		want     string
	}{
		"nobody has returned":       {"glob", nil, nil, "glob [a b c]"},
		"some have":                 {"glob", []string{"a", "c"}, nil, "list [b]"},
		"all have":                  {"list", []string{"a", "b", "c", "d"}, nil, ""},
		"the target is no list":     {"grain", []string{"a", "b", "c"}, nil, "grain [a b c]"},
		"the job cache is not read": {"pcre", []string{"a"}, errors.New("gone"), "pcre [a b c]"},
	} {
		t.Run(name, func(t *testing.T) {
			got, looks := "", 0
			r := publish.Recent{JID: "20261123212926088739", Load: value.NewMap("tgt_type", tt.typ), Matched: []string{"a", "b", "c"}}
			k := NewResender(ResenderConfig{
				Peers: nobody{}, Now: time.Now, Log: slog.New(slog.DiscardHandler),
				Recent: func(time.Time) []publish.Recent { return []publish.Recent{r} },
				Resend: func(_ context.Context, _ uint64, r publish.Recent) error {
					got = fmt.Sprint(r.Load.Str("tgt_type"), " ", r.Matched)
					return nil
				},
				Narrow: func(r publish.Recent, ids []string) (publish.Recent, error) {
					return publish.Recent{JID: r.JID, Load: value.NewMap("tgt_type", "list"), Matched: ids}, nil
				},
				Returned: func(context.Context, string) (map[string]bool, error) {
					looks++
					out := map[string]bool{}
					for _, id := range tt.returned {
						out[id] = true
					}
					return out, tt.err
				},
			})
			for range 3 {
				k.resend(t.Context(), Arrival{At: time.Now()})
			}
			if got != tt.want || looks > 1 {
				t.Errorf("sent %q, not %q; %d looks at the job cache", got, tt.want, looks)
			}
		})
	}
}

// many is a Resender of jobs for one minion, whose returns are looked for.
func many(jobs int, returned func() map[string]bool) (k *Resender, sent *int) {
	sent = new(int)
	return NewResender(ResenderConfig{
		Peers: nobody{}, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Recent: func(time.Time) (out []publish.Recent) {
			for i := range jobs {
				out = append(out, publish.Recent{JID: fmt.Sprintf("20261123212926%06d", i), Load: value.NewMap("tgt_type", "list"), Matched: []string{"a"}})
			}
			return out
		},
		Resend:   func(context.Context, uint64, publish.Recent) error { *sent++; return nil },
		Returned: func(context.Context, string) (map[string]bool, error) { return returned(), nil },
	}), sent
}

// TestManySentAgain: the returns of many jobs are looked for on the disk one right
// after the other, and none is sent to who has returned it.
func TestManySentAgain(t *testing.T) {
	dir := t.TempDir()
	k, sent := many(1000, func() map[string]bool {
		_, err := os.ReadDir(dir)
		return map[string]bool{"a": err == nil}
	})
	k.resend(t.Context(), Arrival{At: time.Now()})
	if *sent > 0 {
		t.Errorf("%d of 1000 jobs were sent again", *sent)
	}
	for range 10000 { // without a pause
		if _, err := k.returned(t.Context(), "20261123212926088739"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestJobCacheHangs: one that hangs is waited for once, not for each job.
func TestJobCacheHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan struct{})
		k, sent := many(200, func() map[string]bool { <-answers; return nil })
		began := time.Now()
		k.resend(t.Context(), Arrival{At: time.Now()})
		if took := time.Since(began); *sent != 200 || took != slowDisk {
			t.Errorf("%d of 200 sent after %v", *sent, took)
		}
		close(answers)
	})
}

// TestNewcomer: a master that comes while minions are on their way is told how many, and
// what they may lack.
func TestNewcomer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told cuts
		k := NewResender(ResenderConfig{Peers: &told, Now: time.Now, Log: slog.New(slog.DiscardHandler),
			Recent: func(time.Time) []publish.Recent { return nil }})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { k.Run(ctx) })
		a := netip.MustParseAddr("10.1.0.1")
		k.PeerHas("b", netip.Addr{}, cluster.Subs{a: 3})
		k.PeerLost("b", time.Now().Add(-4*time.Second))
		k.OnSubscribe(zmtp.Peer{ID: 1, Remote: netip.AddrPortFrom(a, 1)}, "") // one is back
		time.Sleep(time.Second)
		k.PeerConnected("c")
		synctest.Wait()
		time.Sleep(gatherCuts)
		synctest.Wait()
		cancel()
		wg.Wait()
		if told.met != "c" || told.subs[a] != 2 || told.age < 5*time.Second+lossMargin || told.age > 6*time.Second+lossMargin {
			t.Errorf("it was told %+v", told)
		}
	})
}
