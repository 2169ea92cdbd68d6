//go:build e2e && appliance

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/supervisor/api"
	"saltern/supervisor/options"
	"saltern/test/lab"
)

// TestLossDuringApply: a node is lost in the moment in which it takes new options, while
// a job and a refresh run on 303 minions. What they return and tell is on the other nodes
// at once and on the lost one when it is back; the options are those of before on all
// nodes, and in force on all when they are applied again.
func TestLossDuringApply(t *testing.T) {
	net := lab.NewNetwork(t, "apl", "10.52")
	nodes := threeNodes(t, net)
	for _, n := range nodes {
		n.Launch(t)
	}

	for _, n := range nodes {
		n.WaitReady(t, 3)
	}

	n1, n2, n3 := nodes[0], nodes[1], nodes[2]
	c := lab.ClusterOf(net, nodes...)
	s := enroll(t, c, 300)
	s.start(t)
	var others []string
	for _, v := range lab.Versions() {
		others = append(others, "m"+strings.ReplaceAll(v, ".", "-"))
		n1.StartMinion(t, others[len(others)-1], v)
	}

	everybody := append(s.ids(), others...)
	for _, m := range c.Members {
		complete(t, m, everybody)
	}

	conf := filepath.Join(n1.Shared, "etc", "master.d", "mine.conf")
	if err := os.WriteFile(conf, []byte("file_roots: {v1: [/srv/none]}\n"), 0o644); err != nil {
		t.Fatal(err)
	}

	jid := start(t, c.Members[0], "*", "test.sleep", "25")
	turn := s.refresh(t, c.Members[0])
	drives := api.NewClient(n1.Dir + "/run/applianced.sock")
	if err := drives.Apply(t.Context(), api.ApplyRequest{Limit: 15 * time.Second}); err != nil {
		t.Fatal(err)
	}

	lab.Eventually(t, 60*time.Second, "the master of n3 restarts", func() error {
		p, err := drives.Applying(t.Context())
		if err == nil && !strings.Contains(strings.Join(p.Lines, "\n"), "n3: its master restarts") {
			err = errors.New("not yet: " + strings.Join(p.Lines, ", "))
		}
		return err
	})

	n3.Kill()
	began := time.Now()
	complete(t, c.Members[0], everybody)
	t.Logf("all of %d answer %.1f s after the loss", len(everybody), time.Since(began).Seconds())
	p := ends(t, drives)
	t.Logf("%s\n%+v", strings.Join(p.Lines, "\n"), p.Result)

	if p.Result.Code != options.Stopped || !strings.Contains(p.Result.Cause, "n3") {
		t.Errorf("the act ended with %+v", p.Result)
	}

	for _, m := range c.Members[:2] {
		allReturned(t, m, jid, everybody)
		allReturned(t, m, turn, s.ids())
	}

	s.alike(t, turn, c.Members[:2], false)
	inForce(t, []*lab.Appliance{n1, n2}, "base")

	n3.Launch(t)
	for _, n := range nodes {
		n.WaitReady(t, 3)
	}

	allReturned(t, c.Members[2], jid, everybody)
	s.alike(t, turn, c.Members, true)
	lab.Eventually(t, 60*time.Second, "applied again", func() error {
		if p, _ := applied(t, n2); !p.Result.Code.Good() {
			return fmt.Errorf("%+v", p.Result)
		}
		return nil
	})

	inForce(t, nodes, "v1")
	complete(t, c.Members[2], everybody)
	s.stop()
	jobs, acked, again := s.h.count()
	t.Logf("%d jobs, %d returns acknowledged to the swarm, %d after more than one try", jobs, acked, again)
	s.h.judgeCluster(t, c, c.Members, others)
}
