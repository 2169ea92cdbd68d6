package setup

import (
	"os"
	"strings"
	"testing"

	"saltern/supervisor/nodes"
)

// TestNodeName: machines that all have the image's name get different ones.
func TestNodeName(t *testing.T) {
	cards := []Interface{{Name: "tun0"}, {Name: "ens3", MAC: "52:54:00:a2:34:56"}, {Name: "ens4", MAC: "52:54:00:a2:34:57"}}
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
	f := Facts{Hostname: "saltern", Interfaces: []Interface{{Name: "ens3", MAC: "52:54:00:a2:34:56", Default: true, Addresses: []string{"192.0.2.10/24"}}}}
	if v := Validate(Answers{Mode: Form}, f, Base{}); len(v.Faults) > 0 || v.Answers.Node != "salt-a23456" {
		t.Errorf("answers without a name: %s, %v", v.Answers.Node, v.Faults)
	}
}

func TestFreeName(t *testing.T) {
	table := nodes.Table{Cluster: "prod", Nodes: []nodes.Node{{Name: "prod-1"}, {Name: "prod-3"}, {Name: "prod-4", State: nodes.Removed}}}
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
