package setupview

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/supervisor/internal/member"
	"saltern/supervisor/internal/observe"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
	"saltern/supervisor/storage"
)

// TestServingWaits: a master that has just been started is no fault that an administrator
// should look at; one that stays silent is, and so is any other fault.
func TestServingWaits(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	silent := func(ago time.Duration) status.Problem {
		return status.Problem{Code: status.MasterSilent, Severity: status.Fatal, Title: "salt-master does not answer",
			Cause: "connection refused", Next: "applianced logs master", Since: now.Add(-ago)}
	}

	full := status.Problem{Code: status.DiskFull, Severity: status.Fatal, Title: "the disk is full", Since: now}
	for name, c := range map[string]struct {
		problems []status.Problem
		want     string
	}{
		"just started": {[]status.Problem{silent(5 * time.Second)}, "salt-master, which is starting, to answer (connection refused)"},
		"not begun": {[]status.Problem{{Code: status.MasterDown, Severity: status.Fatal, Since: now,
			Cause: "waiting for the cluster's key"}}, "salt-master to start (waiting for the cluster's key)"},
		"not found yet": {[]status.Problem{{Code: status.NoBackend, Severity: status.Fatal, Since: now,
			Cause: "0 of 1 up"}}, "the load balancer to find salt-master (0 of 1 up)"},
		"never found": {[]status.Problem{{Code: status.NoBackend, Severity: status.Fatal, Since: now.Add(-time.Hour),
			Cause: "0 of 1 up"}}, "SCA-302 to clear:"},
		"silent": {[]status.Problem{silent(2 * time.Minute)},
			"SCA-203 to clear: salt-master does not answer (connection refused); next: applianced logs master"},
		"disk first": {[]status.Problem{full, silent(5 * time.Second)}, string(status.DiskFull)},
		"nothing":    {nil, "an answer through the front"},
	} {
		t.Run(name, func(t *testing.T) {
			got := servingWaits(status.Document{Time: now, Problems: c.problems})
			if !strings.HasPrefix(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// cluster is a member of a cluster in that state.
type cluster member.State

func (c cluster) State() member.State { return member.State(c) }

// configured is the world of a set-up whose node runs.
type configured struct{ setup.World }

func (configured) Configured() bool { return true }

// TestLook: the set-up sees what the node itself still waits for, and on an arbiter that is the volume.
func TestLook(t *testing.T) {
	since := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	silent := status.Document{Services: []status.Service{{Name: "lb", State: "waiting", Message: "for its port"}}}
	filling := &storage.State{Waiting: "the volume to be made"}
	for name, c := range map[string]struct {
		arbiter  bool
		document status.Document
		volume   *storage.State
		want     string
	}{
		"serves":                   {document: status.Document{ServingSince: &since}, volume: filling},
		"waits for a service":      {document: silent, volume: filling, want: "lb: for its port"},
		"arbiter waits for volume": {arbiter: true, document: silent, volume: filling, want: filling.Waiting},
		"arbiter without a volume": {arbiter: true, document: silent, want: "lb: for its port"},
	} {
		t.Run(name, func(t *testing.T) {
			v := View{
				Settings: &settings.Settings{Arbiter: c.arbiter},
				Member:   cluster{Waits: "the key", Finger: "aa:bb"},
				Document: func() status.Document { return c.document },
				Volume:   func() *storage.State { return c.volume },
			}

			look := v.Look()
			if look.ServingWaiting != c.want || look.Serving != (c.document.ServingSince != nil) {
				t.Errorf("serving %t, waits for %q, want %q", look.Serving, look.ServingWaiting, c.want)
			}
			if !look.Running || look.Storage || look.StorageWaiting != "the key" || look.Finger != "aa:bb" {
				t.Errorf("%+v", look)
			}
		})
	}

	if look := (View{}).Look(); look.Running {
		t.Errorf("a node that is alone: %+v", look)
	}
}

// TestReport: what the cluster says of a node counts for more than what its set-up has reached.
func TestReport(t *testing.T) {
	for name, c := range map[string]struct {
		phase  status.Setup
		member Member
		want   status.Setup
		code   status.Code
	}{
		"alone":                     {phase: status.SetupReady, want: status.SetupReady},
		"belongs to its cluster":    {phase: status.SetupReady, member: cluster{}, want: status.SetupReady},
		"drained":                   {phase: status.SetupReady, member: cluster{Self: nodes.Node{State: nodes.Draining}}, want: status.SetupDraining},
		"leaves":                    {phase: status.SetupReady, member: cluster{Self: nodes.Node{State: nodes.Leaving}}, want: status.SetupDraining},
		"drained before it is done": {phase: status.SetupJoining, member: cluster{Self: nodes.Node{State: nodes.Draining}}, want: status.SetupJoining},
		"removed":                   {phase: status.SetupReady, member: cluster{Removed: "n2 says so"}, want: status.SetupRemoved, code: status.NodeRemoved},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			text := []byte(`{"schema": 1, "phase": "` + string(c.phase) + `"}`)
			if err := os.WriteFile(filepath.Join(dir, "state.json"), text, 0o600); err != nil {
				t.Fatal(err)
			}

			var k observe.Node
			View{
				Setup:  setup.NewMachine(setup.Config{Dir: dir, World: configured{}, Now: time.Now}),
				Member: c.member,
			}.Report(&k)
			if k.Setup != c.want {
				t.Errorf("%q, want %q", k.Setup, c.want)
			}
			if found := slices.ContainsFunc(k.Cluster, func(f status.Finding) bool { return f.Code == c.code }); found != (c.code != "") {
				t.Errorf("%+v, want %q", k.Cluster, c.code)
			}
		})
	}

	k := observe.Node{}
	if (View{}).Report(&k); k.Setup != "" || k.Cluster != nil {
		t.Errorf("without a set-up: %+v", k)
	}
}

func TestAddressLost(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1": false, "192.0.2.77": true, "no address": false} {
		s := &settings.Settings{}
		s.Peering.Address = address
		if own, lost := (View{Settings: s, Member: cluster{}}).AddressLost(); own != address || lost != want {
			t.Errorf("%s: %s %t", address, own, lost)
		}
		if _, lost := (View{Settings: s}).AddressLost(); lost {
			t.Errorf("%s: a node that is alone has lost it", address)
		}
	}
}
