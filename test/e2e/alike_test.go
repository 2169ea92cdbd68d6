//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

var jobID = regexp.MustCompile(`20\d{18}`)

// alike is what differed once from Salt's own master: progress of single states,
// returns above max_event_size, batches that are left to the master, wrong
// arguments.
func alike(t *testing.T, n *lab.Node, ids []string, events *heard) {
	if r := n.Salt(t, "*", "state.sls_id", "folder", "common"); r.Code != 0 {
		t.Errorf("state.sls_id: %+v", r)
	}

	for _, id := range ids {
		lab.Eventually(t, 10*time.Second, "the progress of a single state on "+id, func() error {
			events.mu.Lock()
			defer events.mu.Unlock()
			if !slices.ContainsFunc(events.tags,
				func(tag string) bool { return strings.HasSuffix(tag, "/prog/"+id+"/0") }) {
				return fmt.Errorf("no event")
			}
			return nil
		})
	}

	// A minion trims its own return to max_event_size; three together are more.
	const large = 700_000
	started := n.Salt(t, "--async", "*", "cmd.run", fmt.Sprintf(`head -c %d /dev/zero | tr '\0' x`, large))
	jid := jobID.FindString(started.Out)
	if started.Code != 0 || jid == "" {
		t.Fatalf("salt --async: %+v", started)
	}

	lab.Eventually(t, 60*time.Second, "large returns by salt-run", func() error {
		r := n.SaltRun(t, "jobs.lookup_jid", jid, "--out", "json")
		var got map[string]string
		if err := json.Unmarshal([]byte(r.Out), &got); err != nil {
			return fmt.Errorf("%.200s: %w", r.Out, err)
		}

		for _, id := range ids {
			if len(got[id]) != large {
				return fmt.Errorf("%s: %d bytes, %.40q", id, len(got[id]), got[id])
			}
		}

		return nil
	})

	if r := n.SaltRun(t, "jobs.lookup_jid"); r.Code != 0 ||
		!strings.Contains(r.Out,
			"Passed invalid arguments: lookup_jid() missing 1 required positional argument: 'jid'") || !strings.Contains(r.Out, "salt-run jobs.lookup_jid jid") {
		t.Errorf("salt-run jobs.lookup_jid: %+v", r)
	}

	bin := lab.Venv(t, lab.Newest)
	run := func(name string, args ...string) lab.Result {
		t.Helper()
		return lab.Run(t, 120*time.Second, filepath.Join(bin, name),
			append([]string{"-c", n.Settings.MasterConf()}, args...)...)
	}

	asked := []string{"-b", "1", "--async", "*", "test.arg", "in turn"}
	for name, r := range map[string]lab.Result{"Salt's": run("salt", asked...), "ours": n.Salt(t, asked...)} {
		jid := jobID.FindString(r.Out)
		if r.Code != 0 || jid == "" {
			t.Fatalf("%s salt -b 1 --async: %+v", name, r)
		}

		lab.Eventually(t, 60*time.Second, "the batch", func() error {
			var got struct {
				Completed, Pending, Active, Failed int
				Halted                             bool
			}

			r := run("salt-run", "batch.status", jid, "--out", "json")
			if err := json.Unmarshal([]byte(r.Out), &got); err != nil || got.Completed != len(ids) ||
				got.Pending+got.Active+got.Failed > 0 || got.Halted {
				return fmt.Errorf("%v: %+v", err, r)
			}

			return nil
		})

		r := n.SaltRun(t, "jobs.list_job", jid)
		if name == "ours" && !strings.Contains(r.Out, "Batch:") {
			t.Errorf("the job is not shown as a batch: %+v", r)
		}

		r = n.SaltRun(t, "jobs.lookup_jid", jid, "--out", "json")
		var got map[string]struct{ Args []string }
		if err := json.Unmarshal([]byte(r.Out), &got); err != nil {
			t.Fatalf("%v: %+v", err, r)
		}

		for _, id := range ids {
			if !slices.Equal(got[id].Args, []string{"in turn"}) {
				t.Errorf("%s: return of %s: %+v", name, id, r)
			}
		}
	}
}
