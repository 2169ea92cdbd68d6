package observe

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/supervisor/internal/probe"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
	"saltern/supervisor/storage"
)

var update = flag.Bool("update", false, "write the recorded files anew")

// TestScenarios records what `applianced status` prints for faults of a node of
// a cluster of three: the first line is the answer, the cause is named, and
// what follows from it is not listed.
func TestScenarios(t *testing.T) {
	minions := 1198
	two := func() []status.Node {
		return []status.Node{
			{
				Name:    "sca-2",
				Address: "10.0.0.2",
				Version: "1.0.0",
				Role:    "voter",
				State:   "ready",
				Master:  "ok",
				Proxy:   "ok",
				Storage: "ok",
				Minions: &minions,
				Clock:   "synced",
			},
			{
				Name:    "sca-3",
				Address: "10.0.0.3",
				Version: "1.0.0",
				Role:    "voter",
				State:   "ready",
				Master:  "ok",
				Proxy:   "ok",
				Storage: "ok",
				Minions: &minions,
				Clock:   "synced",
			},
		}
	}

	down := func(f *facts, i int, s service.Info) { s.Name = f.services[i].Name; s.Since = now; f.services[i] = s }
	for name, change := range map[string]func(*facts){
		"healthy": func(*facts) {},
		"node-unreachable": func(f *facts) {
			seen := now.Add(-4 * time.Minute)
			f.Others[1] = status.Node{
				Name:     "sca-3",
				Address:  "10.0.0.3",
				Version:  "1.0.0",
				Role:     "voter",
				State:    "unreachable",
				Master:   "?",
				Proxy:    "?",
				Storage:  "?",
				Clock:    "?",
				LastSeen: &seen,
			}

			f.Cluster = []status.Finding{{
				Code:    status.NodeUnreachable,
				Subject: "sca-3",
				Cause:   "10.0.0.3:4521: connect: no route to host",
			}}
		},
		"node-not-serving": func(f *facts) {
			f.Others[0].State, f.Others[0].Master = "not serving", "down"
			f.Cluster = []status.Finding{{
				Code:    status.NodeNotServing,
				Subject: "sca-2",
				Cause:   "SCA-201 salt-master is not running: exit code 1",
			}}
		},
		"removed": func(f *facts) {
			f.Setup = status.SetupRemoved
			f.Others = nil
			f.front = errors.New("connection refused")
			f.Cluster = []status.Finding{{Code: status.NodeRemoved, Cause: "sca-2 says so"}}
			down(f, 0, service.Info{State: service.Waiting, Message: "waiting for this node to belong to the cluster"})
			down(f, 1, service.Info{State: service.Waiting, Message: "waiting for this node to belong to the cluster"})
			f.balancer, f.balErr = nil, errors.New("connection refused")
		},
		"setup-stopped": func(f *facts) {
			f.Setup, f.front = status.SetupFailed, errors.New("connection refused")
			f.Cluster = []status.Finding{{
				Code:  status.SetupStopped,
				Cause: "tried to be admitted by the cluster: name sca-1 is taken by the node at 10.0.0.9\ncheck: choose another name",
			}}
			down(f, 0, service.Info{State: service.Waiting, Message: "waiting for the shared storage"})
		},
		"master-crashes": func(f *facts) {
			f.front = errors.New("connection refused")
			down(f, 0,
				service.Info{
					State:    service.Pausing,
					Failures: 3,
					Restarts: 3,
					LastExit: "exit code 1",
					LastLine: "panic: no",
				})

			f.balancer.up, f.balancer.why = 0, "sca-1 publish is down: connection refused"
		},
		"master-crashes-others-serve": func(f *facts) {
			down(f, 0,
				service.Info{
					State:    service.Pausing,
					Failures: 3,
					Restarts: 3,
					LastExit: "exit code 1",
					LastLine: "panic: no",
				})

			f.balancer.backends, f.balancer.up = 3, 2
		},
		"master-hangs": func(f *facts) { // the load balancer knows first
			f.balancer.backends = 3
			f.balancer.up = 2
			f.balancer.down = map[string]string{"sca-1": "sca-1 publish is down: no answer in time"}
		},
		"master-of-another-node-is-unwell": func(f *facts) {
			f.balancer.backends = 3
			f.balancer.up = 2
			f.balancer.unwell = map[string]string{"sca-2": "sca-2 request is unwell: this master cannot keep jobs: input/output error"}
		},
		"master-unwell": func(f *facts) { // it serves files and pillars, as far as it can
			f.Others = nil
			f.Trouble, f.balancer.up = "this master cannot keep jobs: no space left on device", 0
			f.balancer.unwell = map[string]string{"sca-1": "sca-1 request is unwell"}
		},
		"master-unwell-others-serve": func(f *facts) {
			f.Trouble = "this master cannot keep jobs: no space left on device"
			f.balancer.backends = 3
			f.balancer.up = 2
		},
		"master-of-another-node-hangs": func(f *facts) {
			f.balancer.backends = 3
			f.balancer.up = 2
			f.balancer.down = map[string]string{"sca-2": "sca-2 publish is down: no answer in time"}
		},
		"master-of-another-node": func(f *facts) {
			f.Others[0].Master = "down"
			f.Cluster = []status.Finding{{
				Code:    status.NodeMasterDown,
				Subject: "sca-2",
				Cause:   "other masters serve its minions; SCA-201 salt-master is not running: exit code 1",
			}}
		},
		"master-config": func(f *facts) {
			f.front = errors.New("connection refused")
			down(f, 0, service.Info{State: service.Waiting, Message: "waiting"})
			f.Blocked = map[string][]status.Finding{status.MasterService: {{
				Code:    status.MasterConfig,
				Subject: "x.conf",
				Cause:   "x.conf:3: interface: is set by the appliance and must not be given here",
			}}}

			f.balancer.up = 0
		},
		"key-unreadable": func(f *facts) {
			f.front = errors.New("connection refused")
			down(f, 0, service.Info{State: service.Waiting, Message: "waiting"})
			f.Blocked = map[string][]status.Finding{status.MasterService: {{
				Code:    status.KeyUnreadable,
				Subject: "/data/pki/master.pem",
				Cause:   "does not hold a PEM key (empty or cut short)",
			}}}

			f.balancer.up = 0
		},
		"port-in-use": func(f *facts) {
			f.front = errors.New("connection refused")
			down(f, 1, service.Info{State: service.Waiting, Message: "waiting"})
			f.Blocked = map[string][]status.Finding{status.BalancerService: {{
				Code:    status.PortInUse,
				Subject: "10.0.0.1:4506",
				Cause:   "address in use: 10.0.0.1:4506 is held by salt-master (pid 7)",
			}}}

			f.balancer, f.balErr = nil, errors.New("connection refused")
		},
		"address-lost": func(f *facts) { // finding F7: it was a port in use, four times
			f.network = []status.Finding{{
				Code:    status.AddressMissing,
				Subject: "10.0.0.1",
				Cause:   "this machine has 10.0.0.63 on eth0",
			}}

			f.front = errors.New("connection refused")
			for i := range f.Others {
				f.Others[i].State = "unreachable"
				f.Cluster = append(f.Cluster,
					status.Finding{Code: status.NodeUnreachable, Subject: f.Others[i].Name, Cause: "no route to host"})
			}

			down(f, 0, service.Info{State: service.Waiting, Message: "waiting"})
			f.Blocked = map[string][]status.Finding{status.MasterService: {{
				Code:    status.AddressMissing,
				Subject: "10.0.0.1",
				Cause:   "this machine has 10.0.0.63 on eth0",
			}}}

			f.balancer.up, f.balErr = 0, errors.New("connection refused")
		},
		// another machine answers in its place: to give it that address would disturb both
		"copy-elsewhere": func(f *facts) {
			f.network = []status.Finding{{
				Code:    status.AddressMissing,
				Subject: "10.0.0.1",
				Cause:   "this machine has 10.0.0.63 on eth0",
			}}

			f.Cluster = []status.Finding{{
				Code:    status.NotTheNode,
				Subject: "sca-1",
				Cause:   "the table of nodes has sca-1 at 10.0.0.1, and this machine does not have that address, at which another machine answers with the same key",
			}}

			f.front = errors.New("connection refused")
			down(f, 0, service.Info{State: service.Waiting, Message: "waiting"})
			f.Blocked = map[string][]status.Finding{status.MasterService: {{
				Code:    status.AddressMissing,
				Subject: "10.0.0.1",
				Cause:   "this machine has 10.0.0.63 on eth0",
			}}}

			f.balancer.up, f.balErr = 0, errors.New("connection refused")
		},
		"disk-died": func(f *facts) { // finding F4
			f.Trouble = "this master cannot keep jobs: input/output error"
			f.balancer.backends = 3
			f.balancer.up = 2
			f.unwritable = map[string]error{"/data": &fs.PathError{Op: "open", Path: "/data/.try", Err: syscall.EIO}}
			f.Audit = "write /data/log/audit: input/output error"
		},
		"balancer-down": func(f *facts) {
			f.front = errors.New("connection refused")
			down(f, 1, service.Info{State: service.Pausing, Failures: 1, LastExit: "signal: killed"})
			f.balancer, f.balErr = nil, errors.New("connection refused")
		},
		"disk-full": func(f *facts) {
			f.disks = map[string]diskFact{"/data": {Disk: probe.Disk{
				Total:         100 << 30,
				Free:          1 << 30,
				FreePercent:   1,
				InodesPercent: 90,
			}}}

			f.front = errors.New("connection refused")
			down(f, 0,
				service.Info{
					State:    service.Pausing,
					Failures: 2,
					LastExit: "exit code 1",
					LastLine: "write: no space left on device",
				})

			f.balancer.up = 0
		},
		"volume-without-quorum": func(f *facts) {
			f.Others = two()
			f.Volume = &storage.State{
				Waiting: "a second copy of the shared volume",
				Spare:   -1,
				Problems: []status.Finding{
					{
						Code:  status.VolumeNoQuorum,
						Cause: "1 of 3 copies is up",
					}, {Code: status.VolumeAbsent, Cause: "not mounted"}},
			}

			f.front = errors.New("connection refused")
			down(f, 0,
				service.Info{
					State:   service.Waiting,
					Message: "waiting for a second copy of the shared volume",
				})

			f.balancer.up = 0
		},
		"clock-and-option": func(f *facts) {
			no := false
			f.clock, f.Insecure = &no, []string{"auto_accept"}
		},
		"virtual-address": func(f *facts) {
			f.Virtual, f.Others[1].Virtual = &Virtual{Address: "10.0.0.20"}, true
			f.services = append(f.services,
				service.Info{Name: status.VirtualService, State: service.Running, Since: now, Message: "running"})
		},
		"virtual-address-nobody": func(f *facts) {
			f.Virtual = &Virtual{Address: "10.0.0.20"}
			f.Others[1].State = "unreachable"
			f.Cluster = []status.Finding{{
				Code:    status.NodeUnreachable,
				Subject: "sca-3",
				Cause:   "10.0.0.3:4521: connect: no route to host",
			}}
		},
		"virtual-address-twice": func(f *facts) {
			f.Virtual, f.Others[1].Virtual = &Virtual{Address: "10.0.0.20", Here: true}, true
		},
		"arbiter": func(f *facts) { f.asArbiter(&storage.State{Ready: true}) },
		"arbiter-waits": func(f *facts) {
			f.asArbiter(&storage.State{Waiting: "the shared volume to be mounted at /srv/cluster"})
		},
		"arbiter-of-others": func(f *facts) {
			f.Others[1] = status.Node{
				Name:    "sca-3",
				Address: "10.0.0.3",
				Version: "1.0.0",
				Role:    "arbiter",
				State:   "not serving",
				Master:  "-",
				Proxy:   "-",
				Storage: "waiting",
				Clock:   "synced",
			}

			f.Cluster = []status.Finding{{
				Code:    status.ArbiterUnwell,
				Subject: "sca-3",
				Cause:   "SCA-402 the file system of /data is full: 0 B free",
			}}
		},
		"virtual-address-unable": func(f *facts) {
			f.Virtual = &Virtual{Address: "10.0.0.20"}
			f.services = append(f.services,
				service.Info{
					Name:    status.VirtualService,
					State:   service.Waiting,
					Since:   now,
					Message: "not started: keepalived is not installed (apt-get install keepalived)",
				})

			f.Blocked = map[string][]status.Finding{status.VirtualService: {{
				Code:    status.VirtualUnable,
				Subject: "10.0.0.20",
				Cause:   "keepalived is not installed (apt-get install keepalived)",
			}}}

			f.Others[0].Virtual = true
		},
		// The power came back in the middle of the set-up.
		"setting-up": func(f *facts) {
			f.front = errors.New("connection refused")
			f.Others = nil
			f.Setup = status.SetupForming
			f.Step = SetupStep(setup.Progress{
				State: status.SetupForming,
				Steps: []setup.Step{{Name: "check this machine", State: "done"},
					{
						Name:    "prepare the shared storage",
						State:   "doing",
						Message: "waits for the shared volume",
					}, {Name: "start salt-master", State: "todo"}},
			})
		},
		// Attack row 26: what other nodes say cannot move the cursor.
		"hostile-words": func(f *facts) {
			f.Others[1].State = nodeapi.Word("\x1b[2J\x1b[Hfine\r\nHEALTHY")
			f.Cluster = []status.Finding{{
				Code:    status.NodeNotServing,
				Subject: "sca-3",
				Cause: nodeapi.Summary{Problems: []status.Problem{
					{Code: "\x1b]0;title\x07", Title: "\x9b31m\nHEALTHY", Cause: "\u009b2J"}}}.Cause(),
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := settings.Default("sca-1")
			cfg.Cluster, cfg.DataDir, cfg.RuntimeDir, cfg.Storage.Path = "prod-eu", "/data", t.TempDir(), "/data/cluster"
			cfg.Front.Addresses = []string{"10.0.0.1"}
			cfg.Arbiter = name == "arbiter" || name == "arbiter-waits"
			cfg.LB.Enabled = !cfg.Arbiter
			clock := now
			o := New(Config{
				Settings: &cfg,
				Version:  "1.0.0",
				Started:  now,
				Board:    status.NewBoard(),
				Now:      func() time.Time { return clock },
			})

			f := healthyFacts(&cfg)
			f.Others, f.Setup = two(), status.SetupReady
			f.name = cfg.Node
			f.Role = status.RoleVoter
			f.Address = "10.0.0.1"
			f.keys = &probe.Keys{Accepted: 3600, Pending: 2}
			f.balancer.sessions = 1204
			change(&f)

			if cfg.Arbiter {
				f.front = arbiterFault(f.Volume)
			}

			o.compose(f)
			clock = now.Add(time.Minute) // long enough to be shown
			f.now = clock
			d := o.compose(f)

			// What is called ready in the table of nodes, by metrics and by others is what health says.
			if ready := d.Nodes[0].State == "ready"; ready != d.Serves() {
				t.Errorf("health is %s, and the node %s", d.Health, d.Nodes[0].State)
			}

			var b bytes.Buffer
			if err := status.WriteText(&b, d); err != nil {
				t.Fatal(err)
			}

			if i := strings.IndexFunc(b.String(),
				func(r rune) bool { return r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 }); i >= 0 {
				t.Errorf("a control character at %d", i)
			}

			path := filepath.Join("testdata", "scenarios", name+".txt")
			if *update {
				if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}

			want, err := os.ReadFile(path)
			if err != nil || b.String() != string(want) {
				t.Errorf("%v; got\n%s\nwant\n%s", err, &b, want)
			}
		})
	}
}

// asArbiter makes a node of two the third, which runs nothing for minions.
func (f *facts) asArbiter(v *storage.State) {
	f.Role = status.RoleArbiter
	f.services = nil
	f.balancer = nil
	f.keys = nil
	f.Volume = v
	f.Virtual = &Virtual{Address: "10.0.0.20"}
	f.Others[0].Virtual = true
}

func TestConsoleAddress(t *testing.T) {
	for _, c := range [][3]string{
		{"https://0.0.0.0:8000/console/", "10.0.0.1", "https://10.0.0.1:8000/console/"}, {"https://[::]:8000/api/console/", "2001:db8::1", "https://[2001:db8::1]:8000/api/console/"},
		{"http://192.0.2.1:8000/console/", "10.0.0.1", "http://192.0.2.1:8000/console/"}, {"https://salt.example:8000/console/", "10.0.0.1", "https://salt.example:8000/console/"},
		{"https://0.0.0.0:8000/console/", "this node", "https://0.0.0.0:8000/console/"}, {"", "10.0.0.1", ""}, {"javascript:alert(1)", "10.0.0.1", ""}, {"%", "10.0.0.1", ""},
	} {
		if got := reached(c[0], c[1]); got != c[2] {
			t.Errorf("%s at %s: %s", c[0], c[1], got)
		}
	}
}
