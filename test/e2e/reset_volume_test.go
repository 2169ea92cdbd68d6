//go:build e2e && appliance

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"saltern/supervisor/setup"
	"saltern/supervisor/status"
	"saltern/test/lab"
)

// TestApplianceVolumeReset: a node on a real shared volume becomes new, and
// forms another cluster. A glusterd that serves others keeps what is theirs. A
// set-up that would fail later is stopped before a key is made, and one that
// waits can be taken back.
func TestApplianceVolumeReset(t *testing.T) {
	h := newMachines(t, 1)
	sh := func(script string) string {
		t.Helper()
		r := h.run(t, 1, "", "sh", "-c", script)
		if r.Code != 0 {
			t.Fatalf("%s: %d %s%s", script, r.Code, r.Out, r.Err)
		}
		return strings.TrimSpace(r.Out)
	}

	sh("test -z \"$(ls /var/lib/glusterd/vols 2>/dev/null)\"")
	answers := map[string]any{"mode": "form"}
	h.launch(t, 1, answers)

	// it may have been read already; each later start is by hand
	if err := os.Remove(h.path(1, "answers")); err != nil {
		t.Fatal(err)
	}

	form := func(change func(map[string]any)) lab.Result {
		t.Helper()
		one := map[string]any{}
		for k, v := range h.answers[1] {
			one[k] = v
		}

		change(one)
		text, err := yaml.Marshal(one)
		if err == nil {
			err = os.WriteFile(h.path(1, "again"), text, 0o600)
		}

		if err != nil {
			t.Fatal(err)
		}

		return h.verb(t, 1, "", "setup", "start", h.path(1, "again"))
	}

	isNew := func() {
		t.Helper()
		lab.Eventually(t, 60*time.Second, "the machine is new", func() error {
			var d status.Document
			r := h.verb(t, 1, "", "status", "--json")
			if err := json.Unmarshal([]byte(r.Out), &d); err != nil {
				return fmt.Errorf("%w: %s%s", err, r.Out, r.Err)
			}
			if d.Setup != status.SetupNew {
				return fmt.Errorf("set-up %s: %+v", d.Setup, d.Problems)
			}

			return nil
		})

		if left := sh("ls /data/saltern /data/brick 2>/dev/null; findmnt -n /srv/cluster; pgrep -af '[b]rick-name /data/brick'; grep -c 'kept by applianced' /etc/hosts || true"); left != "/data/brick:\n0" && left != "0" {
			t.Errorf("left:\n%s", left)
		}
	}

	lab.Eventually(t, 30*time.Second, "the supervisor answers", func() error {
		if r := h.verb(t, 1, "", "setup", "progress"); r.Code == status.ExitUnknown {
			return errors.New(r.Err)
		}
		return nil
	})

	if r := h.verb(t, 1, "", "setup", "progress"); r.Code == status.ExitUnconfigured {
		form(func(map[string]any) {})
	}

	h.ready(t, 1, 1)

	t.Log("reset: nothing is left of the cluster in glusterd")
	if r := h.verb(t, 1, "", "reset", "--yes"); r.Code != 0 {
		t.Fatalf("%d %s%s", r.Code, r.Out, r.Err)
	}

	isNew()
	if left := sh("ls /var/lib/glusterd/vols /var/lib/glusterd/peers /var/lib/glusterd/glusterd.info 2>/dev/null || true; pgrep -a gluster || true"); left != "" {
		t.Errorf("left: %s", left)
	}

	t.Log("no room beside the system: nothing is made")
	r := form(func(a map[string]any) {
		s := a["settings"].(map[string]any)
		a["settings"] = map[string]any{
			"data_dir":    s["data_dir"],
			"runtime_dir": s["runtime_dir"],
			"limits":      s["limits"],
			"storage":     map[string]any{"bricks": "/none/bricks"},
		}
	})
	if r.Code == 0 || !strings.Contains(r.Out+r.Err, "on the root file system") ||
		sh("ls /data/saltern/node") == "" || strings.Contains(sh("ls /data/saltern/node"), "secret") {
		t.Errorf("%d %s%s", r.Code, r.Out, r.Err)
	}

	if r := h.verb(t, 1, "", "setup", "back"); r.Code != 0 {
		t.Errorf("back: %d %s%s", r.Code, r.Out, r.Err)
	}

	t.Log("back from a set-up that waits, again and again")
	for _, after := range []time.Duration{0, time.Second, 4 * time.Second} {
		done := make(chan lab.Result, 1)
		go func() { done <- form(func(map[string]any) {}) }()
		lab.Eventually(t, 60*time.Second, "the set-up has written its configuration", func() error {
			var p setup.Progress
			r := h.verb(t, 1, "", "setup", "progress", "--json")
			if err := json.Unmarshal([]byte(r.Out), &p); err != nil {
				return err
			}
			if len(p.Steps) < 4 || p.Steps[3].State != "done" {
				return fmt.Errorf("%+v", p.Steps)
			}

			return nil
		})

		time.Sleep(after)
		if r := h.verb(t, 1, "", "setup", "back"); r.Code != 0 {
			t.Fatalf("back: %d %s%s", r.Code, r.Out, r.Err)
		}

		isNew()
		if r := <-done; r.Code == 0 || !strings.Contains(r.Err, "taken the set-up back") {
			t.Errorf("who follows it: %d %s%s", r.Code, r.Out, r.Err)
		}
	}

	t.Log("with a volume of others on the same glusterd")
	sh("glusterd -p /run/glusterd.pid || { pgrep -a gluster; tail -15 /var/log/glusterfs/glusterd.log; exit 1; }; for i in $(seq 100); do gluster --mode=script volume list && break; sleep 0.2; done")
	sh("mkdir -p /data/other && gluster --mode=script volume create other node1:/data/other/b && gluster --mode=script volume start other")
	form(func(map[string]any) {})
	h.ready(t, 1, 1)

	if r := h.verb(t, 1, "", "reset", "--yes"); r.Code != 0 {
		t.Fatalf("%d %s%s", r.Code, r.Out, r.Err)
	}

	isNew()
	if list := sh("gluster --mode=script volume list"); list != "other" {
		t.Errorf("volumes: %s", list)
	}

	if s := sh("gluster --mode=script volume info other | grep Status"); !strings.Contains(s, "Started") {
		t.Errorf("the other volume: %s", s)
	}

	sh("test -d /data/other/b/.glusterfs")
	form(func(map[string]any) {})
	h.ready(t, 1, 1)
}
