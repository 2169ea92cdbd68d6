package setup

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
)

// TestNodeName: machines that all have the image's name get different ones.
func TestNodeName(t *testing.T) {
	cards := []Interface{
		{Name: "tun0"},
		{Name: "ens3", MAC: "52:54:00:a2:34:56"},
		{Name: "ens4", MAC: "52:54:00:a2:34:57"},
	}

	for _, tt := range []struct {
		facts Facts
		want  string
	}{
		{Facts{Hostname: "sca-1", Interfaces: cards}, "sca-1"},
		{Facts{Hostname: "saltern", Interfaces: cards}, "salt-a23456"},
		{Facts{Hostname: "saltern"}, "saltern"},
	} {
		if got := NodeName(tt.facts); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.facts.Hostname, got, tt.want)
		}
	}

	f := Facts{
		Hostname: "saltern",
		Interfaces: []Interface{{
			Name:      "ens3",
			MAC:       "52:54:00:a2:34:56",
			Default:   true,
			Addresses: []string{"192.0.2.10/24"},
		}},
	}

	if v := Validate(Answers{Mode: Form}, f, Base{}); len(v.Faults) > 0 || v.Answers.Node != "salt-a23456" {
		t.Errorf("answers without a name: %s, %v", v.Answers.Node, v.Faults)
	}
}

func TestFreeName(t *testing.T) {
	table := nodes.Table{
		Cluster: "prod",
		Nodes:   []nodes.Node{{Name: "prod-1"}, {Name: "prod-3"}, {Name: "prod-4", State: nodes.Removed}},
	}
	if got := freeName(table); got != "prod-5" {
		t.Errorf("got %s", got)
	}
	if got := freeName(nodes.Table{Cluster: "prod", Nodes: table.Nodes[:1]}); got != "prod-2" {
		t.Errorf("got %s", got)
	}
}

// TestImageHostname: the name taken for the image's is the one that it has.
func TestImageHostname(t *testing.T) {
	text, err := os.ReadFile("../../image/tree/tree.go")
	if err != nil || !strings.Contains(string(text), `"etc/hostname", "`+imageHostname+`\n"`) {
		t.Errorf("the image has another host name than %s (%v)", imageHostname, err)
	}
}

// TestMachineIsCalledAsItsNode: a machine of the appliance's takes the name of its node,
// and any machine the host name that the answers give it; a name that was given and
// cannot be set stops the set-up (M3).
func TestMachineIsCalledAsItsNode(t *testing.T) {
	refused := errors.New("no such service")
	for _, c := range []struct {
		name, given string
		ours        bool
		fails       error
		want        string
		stops       bool
	}{
		{name: "image", ours: true, want: "n1"},
		{name: "image, another name", ours: true, given: "salt.example.org", want: "salt.example.org"},
		{name: "host of one's own"},
		{name: "host of one's own, a name", given: "salt", want: "salt"},
		{name: "refused", ours: true, want: "n1", fails: refused},
		{name: "given and refused", ours: true, given: "salt", want: "salt", fails: refused, stops: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			host := &namedHost{fault: c.fails}
			m := &Machine{cfg: Config{
				Ours: c.ours,
				Log:  slog.New(slog.DiscardHandler),
				Host: host,
			}}

			err := m.nameMachine(t.Context(), Answers{Node: "n1", Network: Network{Hostname: c.given}})
			if host.name != c.want || (err != nil) != c.stops {
				t.Errorf("called %q, want %q; %v", host.name, c.want, err)
			}
		})
	}
}

// TestFoldersOfStates: the place of states is that of the storage that the machine has
// got, also where the cluster said which (M2).
func TestFoldersOfStates(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, joinedStorage), []byte("kind: volume\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	answers := func(mode Mode, s Storage) Answers {
		return Answers{
			Mode:    mode,
			Cluster: "c",
			Node:    "n1",
			Address: "10.0.0.1",
			Front:   []string{"0.0.0.0"},
			Storage: s,
		}
	}

	for _, c := range []struct {
		name    string
		ours    bool
		answers Answers
		want    string
	}{
		{name: "image", ours: true, answers: answers(Join, Storage{}), want: "/srv/salt"},
		{name: "joined a volume", answers: answers(Join, Storage{}), want: "/srv/cluster/srv/salt"},
		{name: "alone", answers: answers(Form, Storage{Kind: settings.LocalStorage}), want: dir + "/cluster/srv/salt"},
		{
			name:    "shared directory",
			answers: answers(Form, Storage{Kind: settings.DirectoryStorage, Path: "/mnt/nfs"}),
			want:    "/mnt/nfs/srv/salt",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &Machine{cfg: Config{Ours: c.ours, DataDir: dir, NodeDir: dir, Base: Base{DataDir: dir}}}
			states, pillars := m.folders(c.answers)
			if states != c.want || pillars != strings.TrimSuffix(c.want, "salt")+"pillar" {
				t.Errorf("%q %q, want %q", states, pillars, c.want)
			}
		})
	}
}

// namedHost is a machine of which only the name changes.
type namedHost struct {
	ThisHost
	name  string
	fault error
}

func (h *namedHost) SetHostname(_ context.Context, name string) error {
	h.name = name
	return h.fault
}
