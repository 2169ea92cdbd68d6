//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/test/lab"
)

// TestRunnerResultsOnAllMasters: the result of a runner is at all masters soon after its end, and
// stays there when the master that ran it is killed.
func TestRunnerResultsOnAllMasters(t *testing.T) {
	t.Parallel()
	c := lab.StartCluster(t, lab.ClusterConfig{Network: lab.NewNetwork(t, "srr", "10.62"), NoLB: true})
	ran := c.Members[1]
	if r := ran.SaltRun(t, "test.arg", "4711"); r.Code != 0 {
		t.Fatal(r.Err)
	}

	others := []*lab.Member{c.Members[0], c.Members[2]}
	jid := ""
	for _, m := range others {
		// Well below the interval of 30 s in which masters look into the shared folder.
		lab.Eventually(t, 10*time.Second, "the result at "+m.Addr, func() error {
			r := m.SaltRun(t, "jobs.list_jobs", "search_function=runner.test.arg", "--out", "json")
			var listed map[string]any
			if err := json.Unmarshal([]byte(r.Out), &listed); err != nil || len(listed) != 1 {
				return fmt.Errorf("listed: %s%s", r.Out, r.Err)
			}
			for jid = range listed {
			}
			return hasResult(t, m, jid)
		})
	}

	ran.Signal(syscall.SIGKILL)
	for _, m := range others {
		if err := hasResult(t, m, jid); err != nil {
			t.Errorf("%s, after the master that ran it was killed: %v", m.Addr, err)
		}
	}
}

func hasResult(t *testing.T, m *lab.Member, jid string) error {
	t.Helper()
	found, err := m.Lookup(t, jid)
	if err != nil {
		return err
	}
	if text := fmt.Sprint(found); !strings.Contains(text, "4711") {
		return errors.New("looked up: " + text)
	}
	return nil
}
