package glusterctl_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"saltern/glusterctl"
	"saltern/test/fakegluster"
)

var update = flag.Bool("update", false, "write testdata anew")

// Plans as people read them.
func TestPlanText(t *testing.T) {
	for name, f := range map[string]func(t *testing.T) (*rig, glusterctl.Desired){
		"form": func(t *testing.T) (*rig, glusterctl.Desired) {
			d := want("node1", "1", "2", "3")
			d.Form = true
			return newRig(fakegluster.New(3), "node1"), d
		},
		"grow": func(t *testing.T) (*rig, glusterctl.Desired) { return form(t, 1), want("node1", "1", "2", "3") },
		"replace": func(t *testing.T) (*rig, glusterctl.Desired) {
			r := form(t, 3)
			r.pool.Kill("node3", false)
			d := want("node1", "1", "2", "4")
			d.Leaving = []string{"node3"}
			return r, d
		},
		"refused": func(t *testing.T) (*rig, glusterctl.Desired) {
			r := form(t, 1)
			d := want("node1", "1", "2")
			d.TwoCopies = true
			r.reach(t, d)
			r.pool.Kill("node1", false)
			d = want("node2", "2", "3")
			d.Leaving = []string{"node1"}

			return newRig(r.pool, "node2"), d
		},
		"done": func(t *testing.T) (*rig, glusterctl.Desired) { return form(t, 3), want("node1", "1", "2", "3") },
	} {
		t.Run(name, func(t *testing.T) {
			r, d := f(t)
			p := r.plan(t, d)
			var b strings.Builder
			if err := p.Text(&b); err != nil {
				t.Fatal(err)
			}

			file := filepath.Join("testdata", "plan-"+name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}

			golden, err := os.ReadFile(file)
			if err != nil || b.String() != string(golden) {
				t.Errorf("%v; got\n%s", err, b.String())
			}

			// As JSON it can be kept and carried out later.
			j, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}

			var back glusterctl.Plan
			if err := json.Unmarshal(j, &back); err != nil || len(back.Steps) != len(p.Steps) ||
				back.Desired.Self != d.Self {
				t.Errorf("%v %+v", err, back)
			}
		})
	}
}

func TestPlanIsPure(t *testing.T) {
	r := form(t, 3)
	d := want("node1", "1", "2")
	d.Leaving = []string{"node3"}
	o, err := r.Observe(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}

	before, _ := json.Marshal(o)
	first, _ := json.Marshal(glusterctl.NewPlan(o, d))
	second, _ := json.Marshal(glusterctl.NewPlan(o, d))
	after, _ := json.Marshal(o)
	if string(first) != string(second) || string(before) != string(after) {
		t.Error("planning twice gives two plans, or changes what was observed")
	}
}

func TestValidate(t *testing.T) {
	good := want("node1", "1", "2", "3a")
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}

	for name, edit := range map[string]func(d *glusterctl.Desired){
		"volume":           func(d *glusterctl.Desired) { d.Volume = "-x" },
		"no members":       func(d *glusterctl.Desired) { d.Members = nil },
		"self":             func(d *glusterctl.Desired) { d.Self = "other" },
		"name":             func(d *glusterctl.Desired) { d.Members[1].Name = "a b" },
		"option as a name": func(d *glusterctl.Desired) { d.Members[1].Name = "--mode=x" },
		"localhost":        func(d *glusterctl.Desired) { d.Members[1].Name = "localhost" },
		"same name":        func(d *glusterctl.Desired) { d.Members[1].Name = "node1" },
		"address":          func(d *glusterctl.Desired) { d.Members[1].Address = "node2" },
		"loopback":         func(d *glusterctl.Desired) { d.Members[1].Address = "127.0.1.1" },
		"same address":     func(d *glusterctl.Desired) { d.Members[1].Address = "10.0.0.1" },
		"role":             func(d *glusterctl.Desired) { d.Members[1].Role = "" },
		"brick":            func(d *glusterctl.Desired) { d.Members[1].Brick = "relative" },
		"brick upwards":    func(d *glusterctl.Desired) { d.Members[1].Brick = "/data/../etc" },
		"brick with comma": func(d *glusterctl.Desired) { d.Members[1].Brick = "/data/a,b" },
		"two arbiters":     func(d *glusterctl.Desired) { d.Members[1].Role = glusterctl.Arbiter },
		"leaving":          func(d *glusterctl.Desired) { d.Leaving = []string{"-f"} },
		"member leaving":   func(d *glusterctl.Desired) { d.Leaving = []string{"node2"} },
		"option":           func(d *glusterctl.Desired) { d.Options = map[string]string{"--x": "1"} },
		"option value":     func(d *glusterctl.Desired) { d.Options = map[string]string{"a.b": "x\ny"} },
		"mount":            func(d *glusterctl.Desired) { d.Mount = "srv" },
		"timers":           func(d *glusterctl.Desired) { d.Timers = glusterctl.Timers{} },
	} {
		d := good
		d.Members = slices.Clone(good.Members)
		edit(&d)
		if err := d.Validate(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestDaemonFiles(t *testing.T) {
	for _, part := range []string{"option ping-timeout 10", "option transport.tcp-user-timeout 10",
		"option max-port 49251", "end-volume"} {
		if !strings.Contains(string(glusterctl.DaemonConfig(49251)), part) {
			t.Errorf("no %q", part)
		}
	}

	for _, part := range []string{"KillMode=process", "RequiresMountsFor=/data/brick", "ExecStopPost=-/bin/sh -c '"} {
		if !strings.Contains(glusterctl.UnitDropIn("/data/brick", "/run/allowed"), part) {
			t.Errorf("no %q", part)
		}
	}

	if got := glusterctl.HostsBlock(want("node1", "1", "2").Members); got != "10.0.0.1\tnode1\n10.0.0.2\tnode2\n" {
		t.Errorf("hosts %q", got)
	}

	dir := t.TempDir()
	for _, f := range []string{"glusterd.info", "peers/x", "vols/cluster/info", "hooks/1/start/x", "groups/virt"} {
		p := filepath.Join(dir, f)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	if has, err := glusterctl.HasIdentity(dir); err != nil || !has {
		t.Errorf("%v %v", has, err)
	}

	if err := glusterctl.EncryptManagement(dir); err != nil {
		t.Fatal(err)
	}

	if err := glusterctl.ResetDaemon(dir); err != nil {
		t.Fatal(err)
	}

	left, _ := os.ReadDir(dir)
	var names []string
	for _, e := range left {
		names = append(names, e.Name())
	}

	if got := strings.Join(names, " "); got != "groups hooks secure-access" {
		t.Errorf("left: %s", got)
	}

	if has, err := glusterctl.HasIdentity(dir); err != nil || has {
		t.Errorf("%v %v", has, err)
	}
}

// A copy that was added is complete only when that was recorded, and that needs to
// know which bricks run: until then nothing is done.
func TestPlanWithoutStatus(t *testing.T) {
	r, d := form(t, 3), want("node1", "1", "2", "3")
	obs, err := r.Observe(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}

	obs.Processes, obs.StatusError = nil, "another transaction is in progress"
	if p := r.Plan(obs, d); !p.Done() {
		t.Errorf("recorded, and not done: %+v", p)
	}

	const complete = "user.glusterctl-complete"
	names := strings.Split(obs.Volume.Options[complete], ",")
	if len(names) != 3 {
		t.Fatalf("recorded is %v", names)
	}

	obs.Volume.Options[complete] = strings.Join(names[:2], ",")
	p := r.Plan(obs, d)
	if p.Done() || len(p.Steps) != 0 || len(p.Refused) != 0 {
		t.Errorf("the third is not recorded: %+v", p)
	}

	var b strings.Builder
	if err := p.Text(&b); err != nil || !strings.Contains(b.String(), "not known yet which bricks run") ||
		strings.Contains(b.String(), "nothing to do") {
		t.Errorf("%v, %s", err, b.String())
	}
}
