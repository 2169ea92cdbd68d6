//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// stepsOnMinion is an orchestration of which each step runs on a real minion. The first one lasts until
// a file is there.
const stepsOnMinion = `
one:
  salt.function:
    - name: cmd.run
    - tgt: web1
    - arg: ['touch DIR/begun; while [ ! -e DIR/go ]; do sleep 0.1; done']
two:
  salt.function:
    - name: file.touch
    - tgt: web1
    - arg: [DIR/two]
`

// TestOrchestrationsArePausedFromOtherMasters: whoever asks any master of a cluster to pause, resume
// or end an orchestration reaches the master that runs it, or reads that none does.
func TestOrchestrationsArePausedFromOtherMasters(t *testing.T) {
	t.Parallel()
	names := []string{"paused", "ended"}
	states, folders := map[string]string{}, map[string]string{}
	for _, name := range names {
		folders[name] = t.TempDir()
		states[name+".sls"] = strings.ReplaceAll(stepsOnMinion, "DIR", folders[name])
	}

	c := lab.StartCluster(t, lab.ClusterConfig{
		Network: lab.NewNetwork(t, "spo", "10.64"),
		NoLB:    true,
		Options: map[string]any{"auto_accept": true},
		States:  states,
	})
	runs, asked, third := c.Members[0], c.Members[1], c.Members[2]
	c.StartMinion(t, "web1", lab.Newest, runs.Addr, nil)
	lab.Eventually(t, time.Minute, "the minion", func() error {
		if r := runs.Salt(t, "web1", "test.ping"); !strings.Contains(r.Out, "True") {
			return errors.New(r.Out + r.Err)
		}
		return nil
	})

	there := func(name, file string) error {
		_, err := os.Stat(filepath.Join(folders[name], file))
		return err
	}
	begin := func(name string) (jid string) {
		t.Helper()
		r := runs.SaltRun(t, "--async", "state.orchestrate", name)
		if jid = regexp.MustCompile(`\d{20}`).FindString(r.Out + r.Err); jid == "" {
			t.Fatalf("%d %s%s", r.Code, r.Out, r.Err)
		}
		lab.Eventually(t, time.Minute, "the first step", func() error { return there(name, "begun") })
		return jid
	}
	order := func(m *lab.Member, args ...string) {
		t.Helper()
		if r := m.SaltRun(t, args...); r.Code != 0 {
			t.Errorf("%v: %s%s", args, r.Out, r.Err)
		}
	}
	release := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folders[name], "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hasEnded := func(jid string) {
		t.Helper()
		lab.Eventually(t, time.Minute, "the end of the orchestration", func() error {
			r := third.SaltRun(t, "jobs.lookup_jid", jid, "--out", "json")
			if !strings.Contains(r.Out, "salt_|-one_|-cmd.run_|-function") {
				return errors.New(r.Out + r.Err)
			}
			return nil
		})
	}

	jid := begin("paused")
	order(asked, "state.pause", jid, "two")
	release("paused")
	time.Sleep(3 * time.Second)
	if there("paused", "two") == nil {
		t.Error("a step runs that was paused at another master")
	}
	order(third, "state.resume", jid, "two")
	hasEnded(jid)
	if err := there("paused", "two"); err != nil {
		t.Error(err)
	}

	jid = begin("ended")
	order(asked, "state.soft_kill", jid, "two")
	release("ended")
	hasEnded(jid)
	if there("ended", "two") == nil {
		t.Error("a step runs although the orchestration was ended at another master")
	}

	r := asked.SaltRun(t, "state.soft_kill", jid)
	want := fmt.Sprintf("no orchestration with the job id %s is at work on this master, or on ", jid)
	if text := r.Out + r.Err; r.Code == 0 || !strings.Contains(text, want) || !strings.Contains(text, runs.Addr) {
		t.Errorf("of an orchestration that is over: %d %s, want %q", r.Code, text, want)
	}
}
