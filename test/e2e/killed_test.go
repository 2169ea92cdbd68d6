//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"saltern/master/client"
	"saltern/master/crypt"
	"saltern/test/lab"
	"saltern/test/minion"
)

// history is what the minions know: which returns the master has taken.
type history struct {
	mu    sync.Mutex
	sent  map[string]map[string]string // job → minion → value
	acked map[string]map[string]bool
	again int // returns that were sent more than once
}

func (h *history) begin(jid, id, value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sent[jid] == nil {
		h.sent[jid], h.acked[jid] = map[string]string{}, map[string]bool{}
	}
	h.sent[jid][id] = value
}

func (h *history) taken(jid, id string, tries int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.acked[jid][id] = true
	if tries > 1 {
		h.again++
	}
}

func (h *history) count() (jobs, acked, again int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ids := range h.acked {
		acked += len(ids)
	}
	return len(h.sent), acked, h.again
}

// scripted minions with accepted keys; they share a few key pairs, which are
// slow to make.
func scripted(t *testing.T, n *lab.Node, count int) []*minion.Minion {
	t.Helper()
	pairs, err := filepath.Glob("../../master/testdata/wire/keys/min*_TESTONLY.pem")
	if err != nil || len(pairs) == 0 {
		t.Fatalf("no recorded keys: %v", err)
	}

	files := map[string]string{}
	var out []*minion.Minion
	for i := range count {
		key, err := crypt.LoadPrivate(pairs[i%len(pairs)], "")
		if err != nil {
			t.Fatal(err)
		}

		pem, err := crypt.PublicPEM(&key.PublicKey)
		if err != nil {
			t.Fatal(err)
		}

		m, err := minion.New(minion.Config{ID: fmt.Sprintf("s%02d", i), Key: key, Master: nil,
			Request: fmt.Sprintf("%s:%d", n.Addr, n.Settings.Front.RequestPort), Publish: fmt.Sprintf("%s:%d", n.Addr, n.Settings.Front.PublishPort)})
		if err != nil {
			t.Fatal(err)
		}

		files[m.ID] = pem
		out = append(out, m)
	}

	lab.WriteTree(t, filepath.Join(n.Settings.PKIDir(), "minions"), files)
	return out
}

// pin gives scripted minions the key of a node that has been started.
func pin(t *testing.T, n *lab.Node, minions ...*minion.Minion) {
	t.Helper()
	key, err := crypt.LoadPrivate(filepath.Join(n.Settings.PKIDir(), "master.pem"), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range minions {
		m.Master = &key.PublicKey
	}
}

// TestReturnsSurviveKills: the master is killed three times while fifty
// minions return to job after job through the load balancer. Every return
// that was acknowledged is in the job cache afterwards, as it was sent, and
// no other.
func TestReturnsSurviveKills(t *testing.T) {
	if lab.Peer() {
		t.Skip("a Python master acknowledges before it keeps")
	}

	t.Parallel()
	n := lab.PrepareNode(t, lab.NodeConfig{})
	minions := scripted(t, n, 50)
	n.Launch(t)
	pin(t, n, minions...)
	accepted(t, n, "web1", lab.Newest)

	h := &history{sent: map[string]map[string]string{}, acked: map[string]map[string]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	stop := sync.OnceFunc(func() { cancel(); wg.Wait() })
	defer stop()

	for _, m := range minions {
		wg.Go(func() { answer(ctx, m, h) })
	}

	connected(t, n, len(minions)+1)

	var published []string
	wg.Go(func() {
		for ctx.Err() == nil {
			jid, err := publish(ctx, n, "s*", "test.ping")
			if err == nil {
				published = append(published, jid)
			}
			pause(ctx, 150*time.Millisecond)
		}
	})

	for range 3 {
		time.Sleep(4 * time.Second) // load, not a condition
		before, _ := pid(t, n, "master")
		if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}

		lab.Eventually(t, 60*time.Second, "master is back", func() error {
			if after, s := pid(t, n, "master"); after == 0 || after == before || s.State != "running" {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
	}

	_, before, _ := h.count()
	lab.Eventually(t, 60*time.Second, "returns after the last kill", func() error {
		if _, acked, _ := h.count(); acked < before+200 {
			return fmt.Errorf("%d, then %d", before, acked)
		}
		return nil
	})

	n.Ping(t, 60*time.Second, "web1") // the real one, without help
	stop()
	jobs, acked, again := h.count()
	t.Logf("%d jobs seen of %d published, %d returns acknowledged, %d of them after more than one try", jobs,
		len(published), acked, again)

	if acked < 500 {
		t.Errorf("only %d returns in all", acked)
	}

	h.judge(t, n)
}

// judge compares the job cache with the history.
func (h *history) judge(t *testing.T, n *lab.Node) {
	t.Helper()
	faults := 0
	for jid, sent := range h.sent {
		r := n.SaltRun(t, "jobs.lookup_jid", jid, "--out", "json")
		var kept map[string]any
		if err := json.Unmarshal([]byte(r.Out), &kept); err != nil {
			t.Errorf("job %s: %v\n%s%s", jid, err, r.Out, r.Err)
			continue
		}

		for id := range h.acked[jid] {
			if _, ok := kept[id]; !ok {
				t.Errorf("job %s: the return of %s was acknowledged and is lost", jid, id)
				faults++
			}
		}

		for id, v := range kept {
			if v != sent[id] {
				t.Errorf("job %s: %s has %v, it sent %q", jid, id, v, sent[id])
				faults++
			}
		}

		if strings.Count(r.Out, `"s07"`) > 1 || faults > 20 {
			t.Fatalf("job %s:\n%s", jid, r.Out)
		}
	}
}

// answer is the life of a minion: it returns to every job, and sends again
// what was not acknowledged.
func answer(ctx context.Context, m *minion.Minion, h *history) {
	defer m.Close()
	for ctx.Err() == nil {
		job, err := m.Next(ctx)
		switch {
		case err == nil:
			if job.Str("tgt") == "s*" {
				give(ctx, m, h, job.Str("jid"), job.Str("fun"))
			}
		case errors.Is(err, minion.ErrPublish):
			_ = m.SignIn(ctx)
		default:
			pause(ctx, 100*time.Millisecond)
		}
	}
}

func give(ctx context.Context, m *minion.Minion, h *history, jid, fun string) {
	value := m.ID + " " + jid + " " + minion.Nonce()
	h.begin(jid, m.ID, value)
	for try := 1; ctx.Err() == nil; try++ {
		one, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := m.Return(one, jid, fun, value)
		if errors.Is(err, minion.ErrRefused) {
			err = errors.Join(err, m.SignIn(one))
		}

		cancel()
		if err == nil {
			h.taken(jid, m.ID, try)
			return
		}

		pause(ctx, 100*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// publish starts a job as a local client does.
func publish(ctx context.Context, n *lab.Node, tgt, fun string, arg ...any) (string, error) {
	s := n.Settings
	c := client.New(client.Config{
		Interface:  s.Master.Address,
		RetPort:    s.Master.RequestPort,
		SockDir:    s.MasterSockDir(),
		CacheDir:   s.CacheDir(),
		User:       "root",
		MasterUser: "root",
		Timeout:    2 * time.Second,
		Gather:     time.Second,
		Publish:    lab.Limit(15 * time.Second),
	})
	defer c.Close()

	ctx, cancel := context.WithTimeout(ctx, lab.Limit(20*time.Second))
	defer cancel()
	j, err := c.Publish(ctx, client.Request{Target: tgt, TargetType: "glob", Fun: fun, Arg: arg})
	return j.JID, err
}

// connected waits until so many minions listen.
func connected(t *testing.T, n *lab.Node, want int) {
	t.Helper()
	lab.Eventually(t, 60*time.Second, fmt.Sprintf("%d minions listen", want), func() error {
		d, err := n.Status(t)
		if err == nil && (d.Minions.Connected == nil || *d.Minions.Connected < want) {
			err = fmt.Errorf("minions: %+v", d.Minions)
		}
		return err
	})
}
