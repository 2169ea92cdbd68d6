//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/lbproxy"
	"saltern/test/lab"
)

// prints waits until what a program printed has a text.
func prints(t *testing.T, p *lab.Proc, text string) {
	t.Helper()
	lab.Eventually(t, 60*time.Second, p.Name+" says: "+text, func() error {
		b, err := os.ReadFile(p.Log)
		if err == nil && !strings.Contains(string(b), text) {
			err = fmt.Errorf("it does not")
		}
		return err
	})
}

func ended(t *testing.T, p *lab.Proc, within time.Duration) {
	t.Helper()
	lab.Eventually(t, within, p.Name+" ends", func() error {
		if p.Running() {
			return fmt.Errorf("it runs")
		}
		return nil
	})
}

// strictly holds the times of a quiet machine: SALTERN_STRICT=1.
func strictly(t *testing.T, what string, took, limit time.Duration) {
	t.Helper()
	if took > limit && os.Getenv("SALTERN_STRICT") == "1" {
		t.Errorf("%s: %s, more than %s", what, took, limit)
	}
}

// TestClusterJoinAndRemoval: a fourth node that knows one peer serves soon and
// gets its share of the minions; one with a wrong secret is told so on both
// sides and can be stopped at once; a removed node stops, and cannot come back
// with what it knows.
func TestClusterJoinAndRemoval(t *testing.T) {
	t.Parallel()
	c := lab.StartCluster(t, lab.ClusterConfig{Network: lab.NewNetwork(t, "scj", "10.50")})
	s := enroll(t, c, 100)
	s.start(t)
	listening(t, c, len(s.minions))
	first := c.Members[0]

	// The fourth.
	d := c.Prepare(t)
	d.Configure(t, map[string]any{"cluster_peers": []string{first.Addr}})
	began := time.Now()
	d.StartMaster(t)
	d.WaitReady(t)
	serving := time.Since(began)
	strictly(t, "the fourth node serves", serving, 10*time.Second)
	d.StartLB(t)

	for _, m := range c.Members[:3] {
		if err := lbproxy.NewClient(m.LBSocket()).Add(context.Background(),
			lbproxy.Backend{
				Name:        d.Addr,
				Address:     d.Addr,
				PublishPort: 14505,
				RequestPort: 14506,
				ProxyV2:     true,
			}); err != nil {
			t.Fatal(err)
		}
	}

	c.WaitWhole(t) // the others know it, without a restart
	lab.Eventually(t, 90*time.Second, "minions move to the fourth node", func() error {
		_, n, err := d.View()
		if err == nil && n < 10 {
			err = fmt.Errorf("%d of %d are there", n, len(s.minions))
		}
		return err
	})

	t.Logf("the fourth node serves %.1f s after its start, and has 10 of 100 minions after %.1f s",
		serving.Seconds(), time.Since(began).Seconds())
	for _, m := range c.Members {
		allReturned(t, m, start(t, d, "s*", "test.ping"), s.ids())
	}

	// A wrong secret.
	e := c.Prepare(t)
	e.Configure(t, map[string]any{"cluster_peers": []string{first.Addr}, "cluster_secret": "a guess"})
	began = time.Now()
	e.StartMaster(t)
	prints(t, e.Master, "wrong cluster_secret")
	lab.Eventually(t, 60*time.Second, "a peer says so", func() error {
		for _, m := range c.Members[:4] {
			if b, err := os.ReadFile(m.Master.Log); err == nil && strings.Contains(string(b), "wrong cluster_secret") {
				return nil
			}
		}
		return fmt.Errorf("none does")
	})

	both := time.Since(began)
	strictly(t, "both sides say that the secret is wrong", both, 5*time.Second)
	t.Logf("both sides say that the secret is wrong after %.1f s", both.Seconds())
	began = time.Now()

	if err := syscall.Kill(e.Master.PID(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	ended(t, e.Master, 20*time.Second)
	t.Logf("a master that is joining ends %.1f s after SIGTERM", time.Since(began).Seconds())

	// Removal, on another node than the one it came by.
	r := c.Members[1].SaltRun(t, "cluster.remove", d.Addr, "--out", "json")
	var answer map[string]string
	if err := json.Unmarshal([]byte(r.Out), &answer); err != nil || answer["removed"] != d.Addr ||
		answer["cluster_secret"] == "" || answer["cluster_secret"] == lab.ClusterSecret {
		t.Fatalf("cluster.remove: %v: %+v", err, r)
	}

	prints(t, d.Master, "removed from the cluster")
	ended(t, d.Master, 30*time.Second)
	if _, err := os.Stat(filepath.Join(c.Shared, "pki/peers", d.Addr+".pub")); !os.IsNotExist(err) {
		t.Errorf("the key of the removed master: %v", err)
	}

	d.StartMaster(t) // with its old key and secret
	ended(t, d.Master, 90*time.Second)
	if d.Ready() {
		t.Error("a removed master serves")
	}

	prints(t, d.Master, "was removed from the cluster")

	// With a new key and the old secret it is not let in, with the new one it is.
	for _, f := range []string{"pki", "cache"} {
		if err := os.RemoveAll(filepath.Join(d.Dir, f)); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(d.Dir, f), 0o700); err != nil {
			t.Fatal(err)
		}
	}

	d.StartMaster(t)
	prints(t, d.Master, "wrong cluster_secret")
	if err := d.Master.Stop(20 * time.Second); err != nil {
		t.Logf("stopping: %v", err)
	}

	d.Configure(t, map[string]any{"cluster_peers": []string{first.Addr}, "cluster_secret": answer["cluster_secret"]})
	d.StartMaster(t)
	d.WaitReady(t)
	c.WaitWhole(t)
	allReturned(t, d, start(t, d, "s*", "test.ping"), s.ids())

	// The secret is nowhere but in the folder of keys.
	for _, dir := range []string{first.Dir, c.Members[1].Dir, c.Members[2].Dir, c.Shared + "/pki/jobs"} {
		if found := lab.Grep(t, dir, answer["cluster_secret"]); len(found) > 0 {
			t.Errorf("the new secret is in %v", found)
		}
	}

	s.stop()
	s.h.judgeCluster(t, c, c.Alive(), nil)
}

// TestClusterOwner: what only one may do is owned by one, also after it is
// lost, under a higher token.
func TestClusterOwner(t *testing.T) {
	t.Parallel()
	c := lab.StartCluster(t, lab.ClusterConfig{NoLB: true})
	owner := func() (m *lab.Member, fence uint64) {
		lab.Eventually(t, 90*time.Second, "one owner", func() error {
			m = nil
			var names []string
			for _, o := range c.Alive() {
				if v, _, err := o.View(); err == nil && v.Owns {
					m, fence = o, v.Fence
					names = append(names, o.Addr)
				}
			}

			if len(names) != 1 {
				return fmt.Errorf("owners: %v", names)
			}

			return nil
		})

		return m, fence
	}

	m, fence := owner()
	began := time.Now()
	if err := syscall.Kill(m.Master.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	ended(t, m.Master, 20*time.Second)
	if err := os.Remove(filepath.Join(m.Dir, "cache/status.json")); err != nil {
		t.Error(err)
	}

	next, higher := owner()
	if next == m || higher <= fence {
		t.Errorf("%s owns with %d after %s with %d", next.Addr, higher, m.Addr, fence)
	}

	t.Logf("another owner after %.1f s", time.Since(began).Seconds())
}
