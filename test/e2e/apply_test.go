//go:build e2e && appliance

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/supervisor/api"
	"saltern/supervisor/options"
	"saltern/supervisor/status"
	"saltern/test/lab"
)

// TestConfigApply has three nodes take the master's options as one act, while a
// minion works: what is wrong is refused on all of them and restarts nothing, what is
// right comes into force on all, and what a master starts with and does not serve is
// stopped at the first node and taken back.
func TestConfigApply(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t, lab.NewNetwork(t, "app", "10.73"))
	for _, n := range nodes {
		n.Change(t, "settings.limits.stop_timeout", "3s") // for a master that hangs
		n.Change(t, "settings.master.options.gather_job_timeout", 3)
		n.Launch(t)
	}

	for _, n := range nodes {
		n.WaitReady(t, 3)
	}

	n1, n2, n3 := nodes[0], nodes[1], nodes[2]
	n2.StartMinion(t, "m1", lab.Newest)
	n3.Ping(t, 90*time.Second, "m1")
	work := answering(t, n1, "m1")
	conf := filepath.Join(n1.Shared, "etc", "master.d", "mine.conf")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	began := pids(t, nodes)
	write("timeout: 5\nfileserver_backend: [nosuch]\ntimeout_of: x\ntransport: tcp\npublish_session: soon\n")
	p, r := applied(t, n2)
	if p.Result.Code != options.Wrong || r.Code != status.ExitUnknown {
		t.Errorf("wrong options: %+v", r)
	}

	for i, n := range p.Result.Nodes {
		var at []string
		for _, f := range n.Faults {
			if f.File != conf {
				t.Errorf("%+v", f)
			}
			at = append(at, fmt.Sprintf("%d %s", f.Line, f.Option))
		}

		if got := strings.Join(at, ", "); got != "4 transport, 2 fileserver_backend, 4 transport, 5 publish_session" {
			t.Errorf("node %d: %s", i, got)
		}
	}

	if out := n2.Applianced(t, "config", "apply", "--yes"); out.Code != status.ExitUnknown ||
		!strings.Contains(out.Err, "n1, n3, n2") || !strings.Contains(out.Out, "n3: "+conf+":2:") {
		t.Errorf("said %+v", out)
	}

	if now := pids(t, nodes); !maps.Equal(now, began) {
		t.Errorf("masters were restarted for wrong options: %v, %v", began, now)
	}

	write("file_roots: {v7: [/srv/none]}\n")
	if p, _ := applied(t, n2, "--dry-run"); p.Result.Code != options.Checked ||
		len(p.Result.Names(options.Before)) != 3 {
		t.Errorf("dry run: %+v", p.Result)
	}

	if r := n2.Applianced(t, "config", "apply"); r.Code != 64 || !strings.Contains(r.Err, "n1, n3, n2") {
		t.Errorf("nobody is there to be asked: %+v", r)
	}

	if now := pids(t, nodes); !maps.Equal(now, began) {
		t.Errorf("masters were restarted by a dry run: %v, %v", began, now)
	}

	if p, _ := applied(t, n2); p.Result.Code != options.Applied || len(p.Result.Names(options.New)) != 3 ||
		!inOrder(p.Lines, "n1", "n3", "n2") {
		t.Errorf("right options: %+v", p)
	}

	inForce(t, nodes, "v7")
	if p, _ := applied(t, n3); p.Result.Code != options.Unchanged {
		t.Errorf("again: %+v", p)
	}

	notServed(t, nodes, write)
	inForce(t, nodes, "v7")
	if b, err := os.ReadFile(conf); err != nil || !strings.Contains(string(b), "v8") {
		t.Errorf("the administrator's file: %q %v", b, err)
	}

	write("file_roots: {v9: [/srv/none]}\n")
	if p, _ := applied(t, n1); p.Result.Code != options.Applied {
		t.Errorf("fixed: %+v", p)
	}

	inForce(t, nodes, "v9")
	for _, n := range nodes {
		mendedAll(t, n, status.MasterLastGood)
	}

	work()
	write("file_roots: {v10: [/srv/none]}\n")
	driverDies(t, nodes)
}

// driverDies kills the node that drives, when the first of the others has the new
// options: what is there stays, nobody is at it twice, and the same command goes on.
func driverDies(t *testing.T, nodes []*lab.Appliance) {
	t.Helper()
	n1, n2 := nodes[0], nodes[1]
	began := pids(t, nodes)
	drives := api.NewClient(n2.Dir + "/run/applianced.sock")
	if err := drives.Apply(t.Context(), api.ApplyRequest{Limit: 30 * time.Second}); err != nil {
		t.Fatal(err)
	}

	lab.Eventually(t, 60*time.Second, "n1 has the new options", func() error {
		p, err := drives.Applying(t.Context())
		if err == nil && !strings.Contains(strings.Join(p.Lines, "\n"), "n1: serves") {
			err = fmt.Errorf("%+v", p)
		}
		return err
	})

	n2.Kill()
	inForce(t, []*lab.Appliance{n1}, "v10")
	if p, _ := applied(t, n1, "--force"); p.Result.Code != options.Busy ||
		!strings.Contains(p.Result.Cause, "n2 has the turn") {
		t.Errorf("while the turn is a dead one's: %+v", p.Result)
	}

	n2.Launch(t)
	for _, n := range nodes {
		n.WaitReady(t, 3)
	}

	lab.Eventually(t, 60*time.Second, "it goes on", func() error {
		if p, _ := applied(t, n1); !p.Result.Code.Good() {
			return fmt.Errorf("%+v", p.Result)
		}
		return nil
	})

	inForce(t, nodes, "v10")
	if now := pids(t, nodes); now["n3"] == began["n3"] {
		t.Errorf("n3 was not restarted: %v, %v", began, now)
	}
}

// notServed has options tried with which the master of n1 serves, and that of n3
// starts and says nothing: it waits for what a pipe does not give. Both go back.
func notServed(t *testing.T, nodes []*lab.Appliance, write func(string)) {
	t.Helper()
	n1, n2, n3 := nodes[0], nodes[1], nodes[2]
	sig := func(n *lab.Appliance) string { return filepath.Join(n.Dir, "data", "pki", "sig") }
	if err := errors.Join(os.WriteFile(sig(n1), []byte("c2lnbmF0dXJl\n"), 0o644),
		syscall.Mkfifo(sig(n3), 0o600)); err != nil {
		t.Fatal(err)
	}

	began := pids(t, nodes)
	write("file_roots: {v8: [/srv/none]}\nmaster_sign_pubkey: true\nmaster_use_pubkey_signature: true\nmaster_pubkey_signature: sig\n")
	first := api.NewClient(n2.Dir + "/run/applianced.sock")
	other := api.NewClient(n1.Dir + "/run/applianced.sock")

	if err := first.Apply(t.Context(), api.ApplyRequest{Limit: 8 * time.Second}); err != nil {
		t.Fatal(err)
	}

	lab.Eventually(t, 60*time.Second, "a master restarts", func() error {
		p, err := first.Applying(t.Context())
		if err == nil && !strings.Contains(strings.Join(p.Lines, "\n"), "n3: its master restarts") {
			err = fmt.Errorf("%+v", p)
		}
		return err
	})

	if p, r := applied(t, n1); p.Result.Code != options.Busy || r.Code == 0 ||
		!strings.Contains(p.Result.Cause, "n2 has the turn") {
		t.Errorf("a second administrator: %+v %+v", p, p.Result)
	}

	if err := other.TakeTurn(t.Context(), false); !errors.Is(err, api.ErrState) ||
		!strings.Contains(err.Error(), "n2 ") {
		t.Errorf("a restart meanwhile: %v", err)
	}

	if err := first.Apply(t.Context(), api.ApplyRequest{Limit: time.Minute}); !errors.Is(err, api.ErrState) {
		t.Errorf("twice from one node: %v", err)
	}

	p := ends(t, first)
	t.Logf("%s", strings.Join(p.Lines, "\n"))
	if p.Result.Code != options.Stopped || !slices.Equal(p.Result.Names(options.LastGood), []string{"n1", "n3"}) ||
		!strings.Contains(p.Result.Cause,
			"n3 does not serve with the new options: salt-master did not serve within 8s") {
		t.Errorf("what does not serve: %+v", p.Result)
	}

	inForce(t, nodes, "v7")
	now := pids(t, nodes)
	if now["n2"] != began["n2"] || now["n3"] == began["n3"] || now["n1"] == began["n1"] {
		t.Errorf("masters before and after: %v, %v", began, now)
	}

	tells(t, n1,
		clusterFault{"DEGRADED  cluster lab", status.ExitDegraded, status.MasterLastGood,
			"last good options", "taken back, since n3"})

	// Tried again, since it is asked for: this time n1 says what is wrong and ends.
	if err := os.Remove(sig(n1)); err != nil {
		t.Fatal(err)
	}

	p, r := applied(t, n2)
	if p.Result.Code != options.Stopped || r.Code != status.ExitUnknown ||
		!strings.Contains(p.Result.Cause, "read master_pubkey_signature: open ") {
		t.Errorf("what ends: %+v %+v", p, p.Result)
	}

	t.Logf("%s", strings.Join(p.Lines, "\n"))
}

// applied runs config apply on a node.
func applied(t *testing.T, n *lab.Appliance, args ...string) (p options.Progress, r lab.Result) {
	t.Helper()
	r = n.Applianced(t, append([]string{"config", "apply", "--yes", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(r.Out), &p); err != nil || p.Result == nil {
		t.Fatalf("config apply: %v: %+v", err, r)
	}
	return p, r
}

// ends waits for the end of a roll.
func ends(t *testing.T, c *api.Client) (p options.Progress) {
	t.Helper()
	lab.Eventually(t, 90*time.Second, "the roll ends", func() (err error) {
		if p, err = c.Applying(t.Context()); err == nil && p.Running {
			err = errors.New("not yet")
		}
		return err
	})
	return p
}

// pids are the processes of the masters.
func pids(t *testing.T, nodes []*lab.Appliance) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, n := range nodes {
		d, err := n.Status(t)
		if err != nil {
			t.Fatal(err)
		}

		for _, s := range d.Services {
			if s.Name == status.MasterService {
				out[n.Name] = s.PID
			}
		}
	}

	return out
}

// inForce asks the master of each node which environment of files it has. (config.get is answered by the
// tool, from the files.)
func inForce(t *testing.T, nodes []*lab.Appliance, want string) {
	t.Helper()
	for _, n := range nodes {
		r := n.Tool(t, "salt-run", "--out", "json", "fileserver.envs")
		var got []string
		if err := json.Unmarshal([]byte(r.Out), &got); err != nil || !slices.Equal(got, []string{want}) {
			t.Errorf("environments of %s are %q %s, not %s", n.Name, got, r.Err, want)
		}
	}
}

// inOrder reports whether the steps begin with these nodes, in order.
func inOrder(lines []string, names ...string) bool {
	for _, l := range lines {
		if len(names) > 0 && strings.HasPrefix(l, names[0]+": serves") {
			names = names[1:]
		}
	}
	return len(names) == 0
}

// answering has a minion answer jobs from a node all the time. What it returns ends
// that and fails when it was not answered for long.
func answering(t *testing.T, n *lab.Appliance, id string) (stop func()) {
	t.Helper()
	quit, done := make(chan struct{}), make(chan [3]int, 1)
	go func() {
		var answered, missed int
		var longest time.Duration
		for last := time.Now(); ; {
			select {
			case <-quit:
				done <- [3]int{answered, missed, int(max(longest, time.Since(last)).Seconds())}
				return
			default:
			}

			r := n.Tool(t, "salt", "--out", "json", "--static", "-t", "5", id, "test.ping")
			var m map[string]any
			if err := json.Unmarshal([]byte(r.Out), &m); err != nil || m[id] != true {
				missed++ // also when this node's own master restarts while it is asked
				continue
			}

			answered++
			longest = max(longest, time.Since(last))
			last = time.Now()
		}
	}()

	return func() {
		t.Helper()
		close(quit)
		got := <-done
		t.Logf("%d jobs answered, %d not at once; %d s without an answer at most", got[0], got[1], got[2])
		if got[0] < 20 || got[2] > 30 {
			t.Error("the minion did not work throughout")
		}
	}
}
